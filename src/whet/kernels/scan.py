"""A cascade over all windows of a picture: rows of windows at once, then what is left of them one by one.

For a given feature, neighbouring windows read neighbouring integrals, so a weak learner is evaluated on a whole row
of windows by vector instructions. Once few windows of the row are left, each goes on alone.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet.kernels.block_patterns import CLOCKWISE
from whet.kernels.jit import kernel
from whet.kernels.normalisation import window_factor
from whet.kernels.rectangles import add_three

Int32s = NDArray[np.int32]
UInt32s = NDArray[np.uint32]
Float32s = NDArray[np.float32]
Floats = NDArray[np.float64]
Flags = NDArray[np.uint8]

# A learner takes this many times longer on a single window than on one of a row.
ROW_ADVANTAGE = 6


class FlatLearners(NamedTuple):
    """The weak learners of all stages, one after the other (n,), for integral images of one layout.

    A window goes on while its partial sum is above the learner's exit; at the end of a stage the exit is at least
    the stage's threshold. Stumps have 9 corners with weights, patterns 16 corners and no weights.
    """

    corners: Int32s  # (n, 16): from the window's own place in the integral image
    weights: Int32s  # (n, 9)
    threshold: Float32s
    above: Floats  # what a value above the threshold, or a code of the subset, adds to the partial sum
    below: Floats  # what any other adds
    exit: Floats
    opens: Flags  # 1 for the first learner of a stage, where a new sum begins
    categorical: Flags  # 1 for patterns
    subset: NDArray[np.uint64]  # (n, 4): 256 bits
    last_threshold: Floats  # (1,): of the last stage


class Windows(NamedTuple):
    """Where the windows of a picture lie in its integral images."""

    rows: int
    columns: int
    row_step: int  # integrals between a row of windows and the next; windows of a row are neighbours
    inner: Int32s  # (4,): corners of the inner rectangle, top left, top right, bottom left, bottom right
    area: int  # of the inner rectangle
    min_sigma: float


@kernel
def scan_windows(
    sums: UInt32s, squares: UInt32s, windows: Windows, learners: FlatLearners, places: Int32s, scores: Floats
) -> tuple[int, int, int]:
    """Write row and column of accepted windows to `places` (windows, 2), row by row, and their margins to `scores`.

    `sums` and `squares` are flat. Returns how many windows were accepted and looked at, and how many weak
    learners they needed in all.
    """
    found = looked_at = needed = 0
    n = windows.columns
    factors, partial = np.empty(n, dtype=np.float32), np.empty(n, dtype=np.float64)
    alive, totals = np.empty(n, dtype=np.uint8), np.empty((2, n), dtype=np.int32)
    codes = np.empty(n, dtype=np.uint8)
    for row in range(windows.rows):
        start = row * windows.row_step
        left = _normalise_row(sums, squares, start, windows, factors, alive)
        looked_at += left
        t, left, more = _scan_row(sums, start, left, learners, factors, partial, alive, totals, codes)
        needed += more
        if left == 0:
            continue
        for k in range(n):
            if alive[k]:
                total, used, passed = _scan_window(sums, start + k, t, partial[k], factors[k], learners)
                needed += used
                if passed:
                    places[found, 0], places[found, 1] = row, k
                    scores[found] = total - learners.last_threshold[0]
                    found += 1
    return found, looked_at, needed


@kernel
def _normalise_row(
    sums: UInt32s, squares: UInt32s, start: int, windows: Windows, factors: Float32s, alive: Flags
) -> int:
    """Factors and verdicts of a row of windows; returns how many of them are looked at."""
    n, inner = factors.size, windows.inner
    a, b, c, d = start + inner[0], start + inner[1], start + inner[2], start + inner[3]
    sum_a, sum_b, sum_c, sum_d = sums[a : a + n], sums[b : b + n], sums[c : c + n], sums[d : d + n]
    square_a, square_b = squares[a : a + n], squares[b : b + n]
    square_c, square_d = squares[c : c + n], squares[d : d + n]
    for k in range(n):
        total = np.uint32(sum_a[k] + sum_d[k] - sum_b[k] - sum_c[k])
        square = np.uint32(square_a[k] + square_d[k] - square_b[k] - square_c[k])
        factors[k], verdict = window_factor(np.int64(total), np.int64(square), windows.area, windows.min_sigma)
        alive[k] = np.uint8(verdict)
    return count_flags(alive)


@kernel
def _scan_row(
    sums: UInt32s,
    start: int,
    left: int,
    learners: FlatLearners,
    factors: Float32s,
    partial: Floats,
    alive: Flags,
    totals: Int32s,
    codes: Flags,
) -> tuple[int, int, int]:
    """Evaluate learners on a row of windows while enough are left: the next learner, windows left, learners needed."""
    n_learners, needed, t = learners.exit.size, 0, 0
    while t < n_learners and left * ROW_ADVANTAGE >= factors.size and left > 0:
        if learners.opens[t]:
            partial[:] = 0.0
        above, below = learners.above[t], learners.below[t]
        if learners.categorical[t]:
            _codes_of_row(sums, start, learners.corners[t], totals, codes)
            _add_by_code(codes, learners.subset[t], above, below, partial)
        else:
            _sums_of_row(sums, start, learners.corners[t], learners.weights[t], totals[0])
            _add_by_value(totals[0], factors, learners.threshold[t], above, below, partial)
        needed += left
        if learners.exit[t] > -np.inf:
            left = _leave(partial, learners.exit[t], alive)
        t += 1
    return t, left, needed


@kernel
def _sums_of_row(sums: UInt32s, start: int, corners: Int32s, weights: Int32s, total: Int32s) -> None:
    n = total.size
    for k in range(0, weights.size, 3):
        u, v, w = weights[k], weights[k + 1], weights[k + 2]
        if k == 0 or u != 0 or v != 0 or w != 0:
            a, b, c = start + corners[k], start + corners[k + 1], start + corners[k + 2]
            add_three(sums[a : a + n], sums[b : b + n], sums[c : c + n], u, v, w, k == 0, total)


@kernel
def _add_by_value(
    total: Int32s, factors: Float32s, threshold: np.float32, above: float, below: float, partial: Floats
) -> None:
    for k in range(total.size):
        partial[k] += above if np.float32(total[k]) * factors[k] > threshold else below


@kernel
def _codes_of_row(sums: UInt32s, start: int, corners: Int32s, totals: Int32s, codes: Flags) -> None:
    centre, outer = totals[0], totals[1]
    _block_of_row(sums, start, corners, 1, 1, centre)
    codes[:] = np.uint8(0)
    for y, x in CLOCKWISE:
        _block_of_row(sums, start, corners, y, x, outer)
        for k in range(codes.size):
            codes[k] = np.uint8((codes[k] << np.uint8(1)) | np.uint8(outer[k] >= centre[k]))


@kernel
def _block_of_row(sums: UInt32s, start: int, corners: Int32s, y: int, x: int, total: Int32s) -> None:
    n, first = total.size, 4 * y + x
    a, b = start + corners[first], start + corners[first + 1]
    c, d = start + corners[first + 4], start + corners[first + 5]
    top_left, top_right = sums[a : a + n], sums[b : b + n]
    bottom_left, bottom_right = sums[c : c + n], sums[d : d + n]
    for k in range(n):
        total[k] = np.int32(top_left[k] - top_right[k] - bottom_left[k] + bottom_right[k])


@kernel
def _add_by_code(codes: Flags, subset: NDArray[np.uint64], above: float, below: float, partial: Floats) -> None:
    for k in range(codes.size):
        partial[k] += above if _holds(subset, codes[k]) else below


@kernel
def _holds(subset: NDArray[np.uint64], code: np.uint8) -> bool:
    return (subset[code >> np.uint8(6)] >> np.uint64(code & np.uint8(63))) & np.uint64(1) != np.uint64(0)


@kernel
def _leave(partial: Floats, threshold: float, alive: Flags) -> int:
    for k in range(alive.size):
        alive[k] &= np.uint8(partial[k] > threshold)
    return count_flags(alive)


@kernel
def count_flags(flags: Flags) -> int:
    """The number of ones."""
    total = np.int32(0)
    for k in range(flags.size):
        total += np.int32(flags[k])
    return int(total)


@kernel
def _scan_window(
    sums: UInt32s, place: int, t: int, partial: float, factor: np.float32, learners: FlatLearners
) -> tuple[float, int, bool]:
    """Take one window on from learner t: its last sum, the learners it needed, and whether it passed them all."""
    first = t
    while t < learners.exit.size:
        if learners.opens[t]:
            partial = 0.0
        if learners.categorical[t]:
            is_above = _holds(learners.subset[t], _code(sums, place, learners.corners[t]))
        else:
            is_above = _value(sums, place, learners.corners[t], learners.weights[t], factor) > learners.threshold[t]
        partial += learners.above[t] if is_above else learners.below[t]
        t += 1
        if not partial > learners.exit[t - 1]:
            return partial, t - first, False
    return partial, t - first, True


@kernel
def _value(sums: UInt32s, place: int, corners: Int32s, weights: Int32s, factor: np.float32) -> np.float32:
    total = np.uint32(0)
    for k in range(6):
        total += np.uint32(weights[k]) * sums[place + corners[k]]
    if weights[7] != 0:  # two-rectangle features have 6 corners, others 8 or 9
        for k in range(6, 9):
            total += np.uint32(weights[k]) * sums[place + corners[k]]
    return np.float32(np.int32(total)) * factor


@kernel
def _code(sums: UInt32s, place: int, corners: Int32s) -> np.uint8:
    centre = _block(sums, place, corners, 1, 1)
    code = np.uint8(0)
    for y, x in CLOCKWISE:
        code = np.uint8((code << np.uint8(1)) | np.uint8(_block(sums, place, corners, y, x) >= centre))
    return code


@kernel
def _block(sums: UInt32s, place: int, corners: Int32s, y: int, x: int) -> np.int32:
    a = 4 * y + x
    gained = sums[place + corners[a]] + sums[place + corners[a + 5]]
    return np.int32(np.uint32(gained - sums[place + corners[a + 1]] - sums[place + corners[a + 4]]))
