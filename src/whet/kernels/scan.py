"""A cascade over all windows of a picture, a row of windows at a time.

The first weak learners are evaluated on all windows of a row, the later ones on those that are left.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet.kernels.jit import kernel
from whet.kernels.window_rows import corner_sums, corner_sums_at, pattern_codes, pattern_codes_at
from whet.kernels.windows import Windows, count, normalise_row

Int32s = NDArray[np.int32]
UInt32s = NDArray[np.uint32]
UInt64s = NDArray[np.uint64]
Float32s = NDArray[np.float32]
Floats = NDArray[np.float64]
Flags = NDArray[np.uint8]

# A window takes this many times longer by itself than in a row.
ROW_ADVANTAGE = 5


class FlatLearners(NamedTuple):
    """The weak learners of all stages, one after the other (n,), for integral images of one layout.

    A window goes on while its partial sum is above the learner's exit; at the end of a stage the exit is at least
    the stage's threshold. Stumps have up to 12 corners with weights, patterns 16 corners and no weights.
    """

    corners: Int32s  # (n, 16): from the window's own place in the integral image
    weights: Int32s  # (n, 12)
    threshold: Float32s
    above: Floats  # what a value above the threshold, or a code of the subset, adds to the partial sum
    below: Floats  # what any other adds
    exit: Floats
    opens: Flags  # 1 for the first learner of a stage, where a new sum begins; 2 where scores begin, too
    before: Floats  # at the first learner of a stage, the threshold of the stage before
    categorical: Flags  # 1 for patterns
    subset: UInt64s  # (n, 4): 256 bits
    last_threshold: Floats  # (1,): of the last stage


class Some(NamedTuple):
    """Windows that are left, in any order: place in the integral image, factor, sums and next learner."""

    places: UInt32s
    factors: Float32s
    partial: Floats  # sum in the stage that the window is in
    margins: Floats  # in the stages before that count for the score, added up
    learner: UInt32s


@kernel
def scan_windows(
    sums: UInt32s, squares: UInt32s, windows: Windows, learners: FlatLearners, places: UInt32s, scores: Floats
) -> tuple[int, int, int]:
    """Write the places of accepted windows in the integral image to `places`, in any order, and `scores`.

    `sums` and `squares` are flat; `places` and `scores` have room for all windows. Returns how many windows were
    accepted and looked at, and how many weak learners they needed in all.
    """
    n = windows.columns
    room = windows.rows * n
    whole, floats = np.empty((2, room), np.uint32), np.empty((2, room))
    some = Some(whole[0], np.empty(room, np.float32), floats[0], floats[1], whole[1])
    factors, partial, margins, alive = np.empty(n, np.float32), np.empty(n), np.empty(n), np.empty(n, np.uint8)
    total, codes = np.empty(n, np.int32), np.empty(n, np.uint8)
    kept = looked_at = needed = 0
    for y in range(windows.rows):
        start = y * windows.row_step
        left = normalise_row(sums, squares, start, windows, factors, alive)
        looked_at += left
        t, more = _scan_row(sums, start, left, learners, factors, partial, margins, alive, total, codes)
        needed += more
        kept = _keep_row(start, t, factors, partial, margins, alive, kept, some)
    found, more = _scan_some(sums, learners, kept, some, places, scores)
    return found, looked_at, needed + more


@kernel
def _scan_row(
    sums: UInt32s,
    start: int,
    left: int,
    learners: FlatLearners,
    factors: Float32s,
    partial: Floats,
    margins: Floats,
    alive: Flags,
    total: Int32s,
    codes: Flags,
) -> tuple[int, int]:
    """Evaluate learners on all windows of a row while enough are left: the next learner, and how many were needed."""
    needed, t = 0, 0
    partial[:], margins[:] = 0.0, 0.0
    while t < learners.exit.size and left * ROW_ADVANTAGE > alive.size:
        if learners.opens[t]:
            _next_stage(partial, margins, learners.before[t], learners.opens[t] == 2)
        if learners.categorical[t]:
            pattern_codes(sums, start, learners.corners[t], codes)
            _add_by_code(codes, learners, t, partial)
        else:
            corner_sums(sums, start, learners.corners[t], learners.weights[t], total)
            _add_by_value(total, factors, learners, t, partial)
        needed += left
        if learners.exit[t] > -np.inf:
            left = _leave(partial, learners.exit[t], alive)
        t += 1
    return t, needed


@kernel
def _scan_some(
    sums: UInt32s, learners: FlatLearners, n: int, some: Some, places: UInt32s, scores: Floats
) -> tuple[int, int]:
    """Take the first n of some windows on to the end, each from its own next learner.

    Returns how many pass all, which then come first in `places` and `scores`, and how many learners were needed.
    """
    order = np.argsort(some.learner[:n], kind="mergesort")
    factors, total, codes = np.empty(n, np.float32), np.empty(n, np.int32), np.empty(n, np.uint8)
    partial, margins = np.empty(n), np.empty(n)
    needed = left = entered = 0
    for t in range(learners.exit.size):
        while entered < n and some.learner[order[entered]] == t:
            i = order[entered]
            places[left], factors[left] = some.places[i], some.factors[i]
            partial[left], margins[left] = some.partial[i], some.margins[i]
            left, entered = left + 1, entered + 1
        if left == 0:
            continue
        here, sums_here = places[:left], partial[:left]
        if learners.opens[t]:
            _next_stage(sums_here, margins[:left], learners.before[t], learners.opens[t] == 2)
        if learners.categorical[t]:
            pattern_codes_at(sums, learners.corners[t], here, codes[:left])
            _add_by_code(codes[:left], learners, t, sums_here)
        else:
            corner_sums_at(sums, learners.corners[t], learners.weights[t], here, total[:left])
            _add_by_value(total[:left], factors, learners, t, sums_here)
        needed += left
        if learners.exit[t] > -np.inf:
            left = _keep(places, factors, partial, margins, left, learners.exit[t])
    for i in order[entered:]:  # windows that passed all learners with their row
        places[left], partial[left], margins[left] = some.places[i], some.partial[i], some.margins[i]
        left += 1
    for i in range(left):
        scores[i] = margins[i] + (partial[i] - learners.last_threshold[0])
    return left, needed


@kernel
def _next_stage(partial: Floats, margins: Floats, threshold: float, scores_begin: bool) -> None:
    """Add the margins of the stage that ends, and begin a new sum."""
    for k in range(partial.size):
        margins[k] = 0.0 if scores_begin else margins[k] + (partial[k] - threshold)
        partial[k] = 0.0


@kernel
def _add_by_value(total: Int32s, factors: Float32s, learners: FlatLearners, t: int, partial: Floats) -> None:
    threshold, above, below = learners.threshold[t], learners.above[t], learners.below[t]
    for k in range(total.size):
        partial[k] += above if np.float32(total[k]) * factors[k] > threshold else below


@kernel
def _add_by_code(codes: Flags, learners: FlatLearners, t: int, partial: Floats) -> None:
    subset, above, below = learners.subset[t], learners.above[t], learners.below[t]
    for k in range(codes.size):
        word, bit = subset[codes[k] >> np.uint8(6)], np.uint64(codes[k] & np.uint8(63))
        partial[k] += above if (word >> bit) & np.uint64(1) != np.uint64(0) else below


@kernel
def _leave(partial: Floats, threshold: float, alive: Flags) -> int:
    """Mark windows that do not go on; returns how many do."""
    for k in range(alive.size):
        alive[k] &= np.uint8(partial[k] > threshold)
    return count(alive)


@kernel
def _keep_row(
    start: int, t: int, factors: Float32s, partial: Floats, margins: Floats, alive: Flags, kept: int, some: Some
) -> int:
    """Add the windows of a row that are left to those kept already; returns how many there are now."""
    for k in range(alive.size):
        if alive[k]:
            some.places[kept], some.learner[kept] = start + k, t
            some.factors[kept], some.partial[kept], some.margins[kept] = factors[k], partial[k], margins[k]
            kept += 1
    return kept


@kernel
def _keep(places: UInt32s, factors: Float32s, partial: Floats, margins: Floats, left: int, threshold: float) -> int:
    """Move those of the first `left` windows that go on to the front; returns how many do."""
    kept = 0
    for i in range(left):
        goes_on = partial[i] > threshold
        places[kept], factors[kept], partial[kept], margins[kept] = places[i], factors[i], partial[i], margins[i]
        kept += 1 if goes_on else 0
    return kept
