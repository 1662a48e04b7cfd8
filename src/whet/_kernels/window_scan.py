"""The windows of an image: contrast, normalisation, and a cascade over all of them, eight neighbours at a time.

Neighbours read neighbouring integrals, so that a weak learner on eight windows takes no more loads than on one: it
pays to go on with all eight as long as one of them is left.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whet._kernels.jit import (
    HAS_SIMD,
    SIMD_WIDTH,
    Address,
    Vector,
    address_of,
    as_floats,
    broadcast,
    has_code,
    inlined,
    kernel,
    load,
    load_scalar,
    mask_bits,
    popcount,
    rounded,
    select,
    square_root,
    store,
    to_doubles,
    to_floats,
    weighted_corners,
    widened,
)
from whet.arrays import Bytes, Float32s, Floats, Int32s, UInt32s

# OpenCV skips windows unless area * factor < 0.1, which means sigma > 10.
OPENCV_MIN_SIGMA = 10.0


@kernel
def window_factor(
    total: np.int64, squares: np.int64, area: int, min_sigma: float = OPENCV_MIN_SIGMA
) -> tuple[np.float32, np.bool_]:
    """The factor 1 / (area sigma) of a window, and whether the window has enough contrast.

    `total` and `squares` are the sums of the `area` pixels of the inner rectangle (x = 1, y = 1, width - 2,
    height - 2) and of their squares. A feature's value is its weighted sum of pixels times the factor. Flat
    windows have the factor 1 and no contrast.

    >>> window_factor(20, 400, 4)  # pixels 0, 0, 0 and 20: area * sigma = sqrt(4 * 400 - 20 * 20)
    (0.0288..., False)
    >>> window_factor(40, 400, 4)  # four pixels of 10
    (1.0, False)
    """
    # In float64: area * squares reaches 2e10 in a window of 24 x 24, too much for 32 bits.
    wide = np.float64(total)
    dispersion = np.float64(area) * np.float64(squares) - wide * wide
    # Without a branch, so that the compiler normalises four windows at once.
    is_varied = dispersion > 0.0
    factor = np.float32(1.0 / np.sqrt(dispersion if is_varied else 1.0))
    has_contrast = np.float64(area) * np.float64(factor) < 1.0 / np.float64(min_sigma)
    return factor, is_varied & has_contrast


# Windows of less contrast than this times the least are left out before the square root: its rounding is far finer.
NEARLY_ONE = 0.999


class Windows(NamedTuple):
    """Where the windows of an image lie in its integral images."""

    rows: int
    columns: int
    row_step: int  # integrals between a row of windows and the next; windows of a row are neighbours
    inner: Int32s  # (4,): corners of the inner rectangle, top left, top right, bottom left, bottom right
    area: int  # of the inner rectangle
    min_sigma: float


@inlined
def normalise_simd(
    sums: Address, squares: Address, place: int, inner: Address, pixels: float, min_sigma: float, factors: Address
) -> int:
    """Factors of eight windows, by the arithmetic of `window_factor`; one bit for each that has contrast."""
    total, square = to_doubles(_inner(sums, place, inner)), to_doubles(_inner(squares, place, inner))
    area = broadcast(pixels)
    dispersion = area * square - total * total
    least = pixels * min_sigma
    if mask_bits(dispersion >= broadcast(NEARLY_ONE * least * least)) == 0:
        return 0
    one = broadcast(1.0)
    is_varied = broadcast(0.0) < dispersion
    factor = rounded(one / square_root(select(is_varied, dispersion, one)))
    store(factors, 0, factor)
    has_contrast = area * widened(factor) < broadcast(1.0 / min_sigma)
    return mask_bits(is_varied & has_contrast)


@inlined
def _inner(integral: Address, place: int, corners: Address) -> Vector:
    gained = load(integral, place + load_scalar(corners, 0)) + load(integral, place + load_scalar(corners, 3))
    return gained - load(integral, place + load_scalar(corners, 1)) - load(integral, place + load_scalar(corners, 2))


# A weak learner of a cascade, or a node of an OpenCV tree, is a row of 32 whole numbers, two lines of the cache.
NODE = 32
CORNERS = 0  # places of up to 16 corners, seen from the window's own
SUBSET = 16  # 8 words of 32 bits


@inlined
def real(nodes: Address, node: int, k: int) -> Vector:
    """Number k of a node, which is a float32."""
    return as_floats(broadcast(load_scalar(nodes, node + k)))


@inlined
def corner(sums: Address, place: int, nodes: Address, node: int, k: int) -> Vector:
    """Corner k of a node."""
    return load(sums, place + load_scalar(nodes, node + CORNERS + k))


@kernel
def rectangle_sum(integral: UInt32s, place: int, corners: Int32s) -> np.uint32:
    """The sum over a rectangle of the window at `place`, modulo 2^32; `corners` (4,) as in `Windows.inner`."""
    gained = integral[place + corners[0]] + integral[place + corners[3]]
    lost = integral[place + corners[1]] + integral[place + corners[2]]
    return np.uint32(gained - lost)


# Places of the eight outer blocks in the 3 x 3 grid, clockwise from the top left: highest bit first, as in
# OpenCV's `LBPEvaluator::OptFeature::calc` (modules/objdetect/src/cascadedetect.hpp).
CLOCKWISE = ((0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0))


@kernel
def pattern_code(sums: UInt32s, place: int, corners: Int32s) -> np.uint8:
    """The code of 3 x 3 blocks for the window at `place`; `corners` (16,) row by row."""
    code, centre = 0, _block(sums, place, corners, 5)
    for y, x in CLOCKWISE:
        code = code << 1 | int(_block(sums, place, corners, 4 * y + x) >= centre)
    return np.uint8(code)


@kernel
def _block(sums: UInt32s, place: int, corners: Int32s, k: int) -> np.int32:
    """The sum of the block whose top left corner is number k."""
    above = sums[place + corners[k]] - sums[place + corners[k + 1]]
    return np.int32(above - sums[place + corners[k + 4]] + sums[place + corners[k + 5]])


# A weak learner, or a condition of one, is a row of `NODE` whole numbers, with corners and subset where a node of
# an OpenCV tree has them.
WEIGHTS = 12  # 12 of them, of a stump
THRESHOLD = 24
N_CORNERS = 25  # 6, 9 or 12; 0 for a pattern
FLAGS = 26  # a sum of what follows, mostly 0. Columns 27 to 31 are free
OPENS = 1  # the first learner of a stage, where a new sum begins
SCORES = 2  # added to OPENS where scores begin
JOINS = 4  # the learner is a leaf, and its next condition is in the next row
ENDS = 8  # the last condition of such a leaf
# And a row of real numbers.
REALS = 4
ABOVE, BELOW = 0, 1  # what a value above the threshold, or a code of the subset, adds to the partial sum, or any other
REJECTION_THRESHOLD = 2  # windows whose partial sum is not above it are rejected; -inf rejects none
BEFORE = 3  # at the first learner of a stage, the threshold of the stage before

LOWEST = np.array([SIMD_WIDTH, *((number & -number).bit_length() - 1 for number in range(1, 1 << SIMD_WIDTH))])
# Eighths of a row of candidates beyond the last window.
SPARE = 2


class FlatLearners(NamedTuple):
    """The weak learners of all stages, one after the other, for integral images of one layout.

    A window goes on while its partial sum is above the learner's rejection threshold, which at the end of a stage is
    at least the stage's threshold. Stumps have up to 12 corners with weights, patterns 16 corners and no weights. A
    leaf has a row for each of its conditions; all but the last add 1 where they are met, though not to the sum.
    """

    rows: Int32s  # (n, NODE)
    reals: Floats  # (n, REALS)
    last_threshold: float


@kernel
def _scan_simd(
    sums: UInt32s,
    squares: UInt32s,
    windows: Windows,
    candidates: Bytes,
    learners: FlatLearners,
    factors: Float32s,
    eight: Floats,
    places: UInt32s,
    scores: Floats,
) -> tuple[int, int, int]:
    """Write the places of accepted windows in the integral image to `places`, in their order, and `scores`.

    `sums` and `squares` are flat, with eight entries to spare after each row. `candidates` (rows, eighths of the
    columns and `SPARE` more) has a bit for each window that is looked at at all, the first in the lowest bit. `factors`
    and `eight` have room for eight numbers, `places` and `scores` for all windows. Returns how many windows were
    accepted, how many had enough contrast to be tested, and how many weak learners, or conditions of leaves, they
    needed in all.
    """
    at, squares_at, inner = address_of(sums), address_of(squares), address_of(windows.inner)
    rows, reals = address_of(learners.rows), address_of(learners.reals)
    factors_at, eight_at, marked = address_of(factors), address_of(eight), address_of(candidates)
    eighths = candidates.shape[1]
    area, min_sigma, n = np.float64(windows.area), np.float64(windows.min_sigma), len(learners.rows)
    n_accepted = tested = needed = 0
    for y in range(windows.rows):
        k = 0
        while k < windows.columns:
            left = _marks(marked, y * eighths, k)
            k += LOWEST[left]
            if not left:
                continue
            # Eight windows from the first that is marked on: three neighbours are then always among the same eight.
            left = _marks(marked, y * eighths, k) & ((1 << min(windows.columns - k, SIMD_WIDTH)) - 1)
            place = y * windows.row_step + k
            k += SIMD_WIDTH
            left &= normalise_simd(at, squares_at, place, inner, area, min_sigma, factors_at)
            if left:
                tested += _ones(left)
                factor = load(factors_at, 0)
                partial, margins, t = broadcast(0.0), broadcast(0.0), 0
                met = broadcast(np.int32(-1))
                while left and t < n:
                    needed += _ones(left)
                    response, flags = _response(at, place, factor, rows, reals, t), load_scalar(rows, NODE * t + FLAGS)
                    if flags:
                        if flags & OPENS:
                            margins = margins + (partial - broadcast(load_scalar(reals, REALS * t + BEFORE)))
                            partial = broadcast(0.0)
                        if flags & SCORES:
                            margins = broadcast(0.0)
                        if flags & JOINS:
                            met, response = met & (broadcast(0.0) < response), broadcast(0.0)
                        elif flags & ENDS:
                            met, response = broadcast(np.int32(-1)), select(met, response, broadcast(0.0))
                    partial = partial + response
                    left &= mask_bits(broadcast(load_scalar(reals, REALS * t + REJECTION_THRESHOLD)) < partial)
                    t += 1
                if left:
                    store(eight_at, 0, margins + (partial - broadcast(learners.last_threshold)))
                    for i in range(SIMD_WIDTH):
                        if left >> i & 1:
                            places[n_accepted], scores[n_accepted] = place + i, eight[i]
                            n_accepted += 1
    return n_accepted, tested, needed


@inlined
def _ones(bits: int) -> int:
    """How many bits are set."""
    return int(np.int64(popcount(np.uint64(bits))))


@inlined
def _marks(candidates: Address, row: int, k: int) -> int:
    """The bits of eight windows from number k of a row on."""
    at = row + k // SIMD_WIDTH
    both = np.int64(load_scalar(candidates, at)) | np.int64(load_scalar(candidates, at + 1)) << SIMD_WIDTH
    return int((both >> (k % SIMD_WIDTH)) & ((1 << SIMD_WIDTH) - 1))


@inlined
def _response(sums: Address, place: int, factors: Vector, rows: Address, reals: Address, t: int) -> Vector:
    """What a weak learner adds to the partial sums of eight windows."""
    row = NODE * t
    above, below = broadcast(load_scalar(reals, REALS * t + ABOVE)), broadcast(load_scalar(reals, REALS * t + BELOW))
    if load_scalar(rows, row + N_CORNERS) == 0:
        return select(has_code(sums, place, rows, row + CORNERS, row + SUBSET), above, below)
    total = _three(sums, place, rows, row, 0)
    total = total + _three(sums, place, rows, row, 3)
    if load_scalar(rows, row + N_CORNERS) > 6:
        total = total + _three(sums, place, rows, row, 6)
    if load_scalar(rows, row + N_CORNERS) > 9:
        total = total + _three(sums, place, rows, row, 9)
    return select(real(rows, row, THRESHOLD) < to_floats(total) * factors, above, below)


@inlined
def _three(sums: Address, place: int, rows: Address, row: int, k: int) -> Vector:
    """Three weighted corners of a row, modulo 2^32."""
    return weighted_corners(sums, place, rows, row + CORNERS + k, row + WEIGHTS + k)


@kernel
def _scan_scalar(
    sums: UInt32s,
    squares: UInt32s,
    windows: Windows,
    candidates: Bytes,
    learners: FlatLearners,
    factors: Float32s,  # noqa: ARG001
    eight: Floats,  # noqa: ARG001
    places: UInt32s,
    scores: Floats,
) -> tuple[int, int, int]:
    """As `_scan_simd`, one window after the other."""
    rows, reals, n = learners.rows, learners.reals, len(learners.rows)
    thresholds = rows.view(np.float32)
    n_accepted = tested = needed = 0
    for y in range(windows.rows):
        for k in range(windows.columns):
            if not candidates[y, k // SIMD_WIDTH] >> (k % SIMD_WIDTH) & 1:
                continue
            place = y * windows.row_step + k
            total, square = rectangle_sum(sums, place, windows.inner), rectangle_sum(squares, place, windows.inner)
            factor, left = window_factor(np.int64(total), np.int64(square), windows.area, windows.min_sigma)
            tested += int(left)
            partial, margin, t, met = 0.0, 0.0, 0, True
            while left and t < n:
                needed += 1
                is_above = _is_above(sums, place, factor, rows[t], thresholds[t, THRESHOLD])
                response, flags = reals[t, ABOVE if is_above else BELOW], rows[t, FLAGS]
                if flags & OPENS:
                    margin, partial = margin + (partial - reals[t, BEFORE]), 0.0
                if flags & SCORES:
                    margin = 0.0
                if flags & JOINS:
                    met, response = met and response > 0.0, 0.0
                elif flags & ENDS:
                    met, response = True, response if met else 0.0
                partial += response
                left = reals[t, REJECTION_THRESHOLD] < partial
                t += 1
            if left:
                places[n_accepted], scores[n_accepted] = place, margin + (partial - learners.last_threshold)
                n_accepted += 1
    return n_accepted, tested, needed


@kernel
def _is_above(sums: UInt32s, place: int, factor: np.float32, row: Int32s, threshold: np.float32) -> bool:
    """Whether the value of a feature is above the threshold, or its code in the subset."""
    if row[N_CORNERS] == 0:
        code = np.int64(pattern_code(sums, place, row[CORNERS : CORNERS + 16]))
        return bool(row[SUBSET + (code >> 5)] >> (code & 31) & 1)
    total = np.int64(0)
    for k in range(row[N_CORNERS]):
        total += np.int64(sums[place + row[CORNERS + k]]) * np.int64(row[WEIGHTS + k])
    return bool(threshold < np.float32(np.float32(np.int32(total)) * factor))


scan_windows = _scan_simd if HAS_SIMD else _scan_scalar


@kernel
def mark_around(places: UInt32s, n_accepted: int, row_step: int, columns: int, candidates: Bytes) -> None:
    """Set the bits of windows on every second row and column, and of the eight next to each.

    `places` are those of the first `n_accepted` windows in integral images of step 2, `row_step` integrals between rows
    of windows. `candidates` (rows, eighths of the `columns`) are of windows at every row and column.
    """
    for i in range(n_accepted):
        y, x = places[i] // row_step * 2, places[i] % row_step * 2
        for row in range(max(y - 1, 0), min(y + 2, candidates.shape[0])):
            for column in range(max(x - 1, 0), min(x + 2, columns)):
                candidates[row, column // SIMD_WIDTH] |= np.uint8(1 << (column % SIMD_WIDTH))
