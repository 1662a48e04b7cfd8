"""A cascade over all windows of an image, eight neighbours at a time.

Neighbours read neighbouring integrals, so that a weak learner on eight windows takes no more loads than on one: it
pays to go on with all eight as long as one of them is left.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet._kernels.jit import inlined, kernel
from whet._kernels.simd import LANES, Address, Lanes, address_of, bits_of, item, load, select, spread, store, to_floats
from whet._kernels.windows import NODE, Windows, corner, has_code, normalise_lanes, real

Int32s = NDArray[np.int32]
UInt32s = NDArray[np.uint32]
Float32s = NDArray[np.float32]
Floats = NDArray[np.float64]

# A weak learner, or a condition of one, is a row of `NODE` whole numbers, with corners and subset where a node of
# `lane_trees` has them.
WEIGHTS = 12  # 12 of them, of a stump
THRESHOLD = 24
N_CORNERS = 25  # a multiple of 3; 0 for a pattern
OPENS = 26  # 1 for the first learner of a stage, where a new sum begins; 2 where scores begin, too
FLAGS = 27  # a sum of what follows
EXITS = 1  # windows leave here
JOINS = 2  # the learner is a leaf, and its next condition is in the next row
ENDS = 4  # the last condition of such a leaf
# And a row of real numbers.
REALS = 4
ABOVE, BELOW = 0, 1  # what a value above the threshold, or a code of the subset, adds to the partial sum, or any other
EXIT = 2
BEFORE = 3  # at the first learner of a stage, the threshold of the stage before

ONES = np.array([number.bit_count() for number in range(1 << LANES)])


class FlatLearners(NamedTuple):
    """The weak learners of all stages, one after the other, for integral images of one layout.

    A window goes on while its partial sum is above the learner's exit; at the end of a stage the exit is at least
    the stage's threshold. Stumps have up to 12 corners with weights, patterns 16 corners and no weights. A leaf has
    a row for each of its conditions; all but the last add 1 where they are met, though not to the sum.
    """

    rows: Int32s  # (n, NODE)
    reals: Floats  # (n, REALS)
    last_threshold: float


@kernel
def scan_windows(
    sums: UInt32s,
    squares: UInt32s,
    windows: Windows,
    learners: FlatLearners,
    factors: Float32s,
    eight: Floats,
    places: UInt32s,
    scores: Floats,
) -> tuple[int, int, int]:
    """Write the places of accepted windows in the integral image to `places`, in their order, and `scores`.

    `sums` and `squares` are flat, with eight entries to spare after each row; `factors` and `eight` have room for
    eight numbers, `places` and `scores` for all windows. Returns how many windows were accepted and looked at, and how
    many weak learners they needed in all, or conditions of such.
    """
    at, squares_at, inner = address_of(sums), address_of(squares), address_of(windows.inner)
    rows, reals = address_of(learners.rows), address_of(learners.reals)
    factors_at, eight_at = address_of(factors), address_of(eight)
    area, min_sigma, n = np.float64(windows.area), np.float64(windows.min_sigma), len(learners.rows)
    found = looked_at = needed = 0
    for y in range(windows.rows):
        for k in range(0, windows.columns, LANES):
            place = y * windows.row_step + k
            left = normalise_lanes(at, squares_at, place, inner, area, min_sigma, factors_at)
            left &= (1 << min(windows.columns - k, LANES)) - 1
            if left:
                looked_at += ONES[left]
                factor = load(factors_at, 0)
                partial, margins, t = spread(0.0), spread(0.0), 0
                met = spread(np.int32(-1))
                while left and t < n:
                    needed += ONES[left]
                    if item(rows, NODE * t + OPENS):
                        margins = margins + (partial - spread(item(reals, REALS * t + BEFORE)))
                        if item(rows, NODE * t + OPENS) == 2:
                            margins = spread(0.0)
                        partial = spread(0.0)
                    response, flags = _response(at, place, factor, rows, reals, t), item(rows, NODE * t + FLAGS)
                    if flags > EXITS:
                        if flags & JOINS:
                            met, response = met & (spread(0.0) < response), spread(0.0)
                        else:
                            met, response = spread(np.int32(-1)), select(met, response, spread(0.0))
                    partial = partial + response
                    if flags & EXITS:
                        left &= bits_of(spread(item(reals, REALS * t + EXIT)) < partial)
                    t += 1
                if left:
                    store(eight_at, 0, margins + (partial - spread(learners.last_threshold)))
                    for lane in range(LANES):
                        if left >> lane & 1:
                            places[found], scores[found] = place + lane, eight[lane]
                            found += 1
    return found, looked_at, needed


@inlined
def _response(sums: Address, place: int, factors: Lanes, rows: Address, reals: Address, t: int) -> Lanes:
    """What a weak learner adds to the partial sums of eight windows."""
    row = NODE * t
    above, below = spread(item(reals, REALS * t + ABOVE)), spread(item(reals, REALS * t + BELOW))
    if item(rows, row + N_CORNERS) == 0:
        return select(has_code(sums, place, rows, row), above, below)
    total = _three(sums, place, rows, row, 0)
    for k in range(3, item(rows, row + N_CORNERS), 3):
        total = total + _three(sums, place, rows, row, k)
    return select(real(rows, row, THRESHOLD) < to_floats(total) * factors, above, below)


@inlined
def _three(sums: Address, place: int, rows: Address, row: int, k: int) -> Lanes:
    """Three weighted corners, modulo 2^32."""
    first = corner(sums, place, rows, row, k) * spread(item(rows, row + WEIGHTS + k))
    second = corner(sums, place, rows, row, k + 1) * spread(item(rows, row + WEIGHTS + k + 1))
    return first + second + corner(sums, place, rows, row, k + 2) * spread(item(rows, row + WEIGHTS + k + 2))
