"""An OpenCV cascade over rows of windows, eight neighbours at a time.

OpenCV walks along a row window by window (`CascadeClassifierInvoker` in modules/objdetect/src/cascadedetect.cpp, branch
4.x): where the first stage rejects a window, the next one is not visited. Here eight windows go through the first
stage, and a table says which of them OpenCV would have visited.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet.kernels.jit import kernel
from whet.kernels.lane_trees import sum_haar, sum_patterns
from whet.kernels.lanes import (
    LANES,
    address_of,
    bits_of,
    item,
    load,
    spread,
)
from whet.kernels.tree_walk import WalkedTrees, stage_sum
from whet.kernels.windows import Windows, normalise_lanes

Int32s = NDArray[np.int32]
UInt32s = NDArray[np.uint32]
Float32s = NDArray[np.float32]
Floats = NDArray[np.float64]


def _visits() -> NDArray[np.int32]:
    """By which of eight windows fail the first stage, plus 256 if the first of them is stepped over: those visited.

    One bit a window, plus 256 if the window after them is stepped over.
    """
    table = np.empty(512, dtype=np.int32)
    for entry in range(512):
        step_over, visited = entry >> LANES, 0
        for lane in range(LANES):
            visited |= (1 - step_over) << lane
            step_over = (1 - step_over) & (entry >> lane)
        table[entry] = visited | step_over << LANES
    return table


VISITS = _visits()
STEP_OVER = 256


class LaneTrees(NamedTuple):
    """The nodes of all stages (nodes, 32), those of a tree together and parents before their children.

    A stage's sum begins with `base`. Below `surely_out` it is below the stage's threshold, and from `surely_in` on it
    is not. `walked` says what OpenCV's own sum is.
    """

    nodes: Int32s
    first_node: Int32s  # (stages + 1,)
    base: Int32s  # (stages,)
    surely_out: Int32s
    surely_in: Int32s
    largest: int  # nodes of a tree
    walked: WalkedTrees


class Found(NamedTuple):
    """Room for accepted windows: where they lie in the integral image, and their sums in the last stage."""

    places: UInt32s
    scores: Floats


@kernel
def scan_row(
    sums: UInt32s,
    squares: UInt32s,
    start: int,
    windows: Windows,
    trees: LaneTrees,
    asked: Int32s,
    factors: Float32s,
    found: Found,
) -> int:
    """Accepted windows of the row that begins at `start`, from left to right; returns how many there are.

    `asked` has room for eight numbers for every node of the largest tree, `factors` for eight.
    """
    categorical, walked, last = trees.walked.categorical, trees.walked, trees.base.size
    at, squares_at, inner = address_of(sums), address_of(squares), address_of(windows.inner)
    nodes, room, factors_at = address_of(trees.nodes), address_of(asked), address_of(factors)
    first_node, base = address_of(trees.first_node), address_of(trees.base)
    surely_out, surely_in = address_of(trees.surely_out), address_of(trees.surely_in)
    area, min_sigma = np.float64(windows.area), np.float64(windows.min_sigma)
    n = step_over = 0
    for k in range(0, windows.columns, LANES):
        place, s = start + k, 0
        left = (1 << min(windows.columns - k, LANES)) - 1
        if not categorical:
            left &= normalise_lanes(at, squares_at, place, inner, area, min_sigma, factors_at)
        if left == 0:
            step_over = 0
        while left and s < last:
            begin, end, total = item(first_node, s), item(first_node, s + 1), spread(item(base, s))
            if categorical:
                total = sum_patterns(at, place, nodes, begin, end, total, room)
            else:
                total = sum_haar(at, place, load(factors_at, 0), nodes, begin, end, total, room)
            passed = bits_of(total >= spread(item(surely_out, s))) & left
            unsure = bits_of(total < spread(item(surely_in, s))) & passed
            if unsure:
                passed = _settle(sums, place, factors, walked, s, passed, unsure)
            if s == 0:
                visits = VISITS[step_over | (left & ~passed)]
                step_over = visits & STEP_OVER
                passed &= visits
            left = passed
            s += 1
        if left:
            n = _keep(sums, place, factors, walked, left, found, n)
    return n


@kernel
def _settle(sums: UInt32s, place: int, factors: Float32s, trees: WalkedTrees, s: int, passed: int, unsure: int) -> int:
    """Sum up as OpenCV does what whole numbers leave open."""
    for lane in range(LANES):
        if unsure >> lane & 1 and stage_sum(sums, place + lane, factors[lane], trees, s) < trees.stage_threshold[s]:
            passed &= ~(1 << lane)
    return passed


@kernel
def _keep(
    sums: UInt32s,
    place: int,
    factors: Float32s,
    trees: WalkedTrees,
    left: int,
    found: Found,
    n: int,
) -> int:
    """Write windows that passed all stages after the first n; returns how many there are then."""
    last = trees.stage_threshold.size - 1
    for lane in range(LANES):
        if left >> lane & 1:
            found.places[n] = place + lane
            found.scores[n] = stage_sum(sums, place + lane, factors[lane], trees, last)
            n += 1
    return n
