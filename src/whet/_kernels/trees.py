"""Stages of OpenCV trees: one window at a time as OpenCV does, and eight neighbouring windows at once."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet._kernels.jit import inlined, kernel
from whet._kernels.simd import (
    LANES,
    Address,
    Lanes,
    address_of,
    bits_of,
    item,
    load,
    spread,
    store,
    to_floats,
)
from whet._kernels.windows import NODE, Windows, corner, has_code, normalise_lanes, pattern_codes, real, window_factor

Int32s = NDArray[np.int32]
UInt32s = NDArray[np.uint32]
Float32s = NDArray[np.float32]
Floats = NDArray[np.float64]


class WalkedTrees(NamedTuple):
    """Nodes as `Trees` has them, and their features for integral images of one layout."""

    corners: Int32s  # (nodes, 16): three rectangles of four corners, or the corners of 3 x 3 blocks
    weights: Float32s  # (nodes, 3)
    threshold: Float32s
    subset: NDArray[np.uint64]
    left: Int32s
    right: Int32s
    leaves: Float32s
    first_node: Int32s
    first_tree: Int32s
    stage_threshold: Floats
    categorical: bool


@kernel
def walk_trees(
    sums: UInt32s, squares: UInt32s, windows: Windows, trees: WalkedTrees, places: UInt32s, scores: Floats
) -> int:
    """Write places of accepted windows to `places` and their sums in the last stage to `scores`; returns how many.

    `sums` and `squares` are flat; `places` and `scores` have room for all windows.
    """
    found = 0
    for y in range(windows.rows):
        k = 0
        while k < windows.columns:
            place = y * windows.row_step + k
            stage, score = _run(sums, squares, place, windows, trees)
            if stage == trees.stage_threshold.size:
                places[found], scores[found] = place, score
                found += 1
            k += 2 if stage == 0 else 1
    return found


@kernel
def _run(sums: UInt32s, squares: UInt32s, place: int, windows: Windows, trees: WalkedTrees) -> tuple[int, float]:
    """The stage that rejects a window, or -1 if it is not looked at, or the number of stages; and the last sum."""
    factor = np.float32(1.0)
    if not trees.categorical:
        total = _difference(sums, place, windows.inner)
        square = _difference(squares, place, windows.inner)
        factor, looked_at = window_factor(np.int64(total), np.int64(square), windows.area, windows.min_sigma)
        if not looked_at:
            return -1, 0.0
    partial = 0.0
    for s in range(trees.stage_threshold.size):
        partial = stage_sum(sums, place, factor, trees, s)
        if partial < trees.stage_threshold[s]:
            return s, partial
    return trees.stage_threshold.size, partial


@kernel
def stage_sum(sums: UInt32s, place: int, factor: np.float32, trees: WalkedTrees, s: int) -> float:
    """The sum of a window's leaves in stage s."""
    total = 0.0
    for t in range(trees.first_tree[s], trees.first_tree[s + 1]):
        total += np.float64(_leaf(sums, place, factor, trees, t))
    return total


@kernel
def _leaf(sums: UInt32s, place: int, factor: np.float32, trees: WalkedTrees, t: int) -> np.float32:
    child = 0
    while True:
        node = trees.first_node[t] + child
        child = trees.left[node] if _goes_left(sums, place, factor, trees, node) else trees.right[node]
        if child <= 0:
            return np.float32(trees.leaves[trees.first_node[t] + t - child])


@kernel
def _goes_left(sums: UInt32s, place: int, factor: np.float32, trees: WalkedTrees, node: int) -> bool:
    corners = trees.corners[node]
    if trees.categorical:
        code = np.empty(1, np.uint8)
        pattern_codes(sums, place, corners, code)
        word, bit = trees.subset[node][code[0] >> np.uint8(6)], np.uint64(code[0] & np.uint8(63))
        return bool((word >> bit) & np.uint64(1) != np.uint64(0))
    weights = trees.weights[node]
    value = np.float32(0.0)
    for r in range(3):
        if r < 2 or weights[r] != np.float32(0.0):
            pixels = np.int32(_difference(sums, place, corners[4 * r : 4 * r + 4]))
            part = np.float32(weights[r] * np.float32(pixels))
            value = part if r == 0 else np.float32(value + part)
    return bool(np.float32(value * factor) < trees.threshold[node])


@kernel
def _difference(integral: UInt32s, place: int, corners: Int32s) -> np.uint32:
    gained = integral[place + corners[0]] + integral[place + corners[3]]
    lost = integral[place + corners[1]] + integral[place + corners[2]]
    return np.uint32(gained - lost)


# Places in the row of a node, besides `CORNERS` and `SUBSET`. Numbers of float32 are there by their bits.
WEIGHTS = 12  # 3
THRESHOLD = 15
LEFT, RIGHT = 24, 25  # leaves; 0 where the child is a node. Of a stump, LEFT is what going left adds
SHARES_TREE = 26  # 0 for a stump
SLOT, LEFT_SLOT, RIGHT_SLOT = 27, 28, 29  # numbers of the node and its children in their tree; 0 for root and leaves


@inlined
def sum_haar(
    sums: Address, place: int, factors: Lanes, nodes: Address, first: int, last: int, total: Lanes, asked: Address
) -> Lanes:
    """Add nodes `first` to `last` to the sums of the eight windows from `place` on.

    `asked` has room for eight numbers for every node of the largest tree.
    """
    for node in range(NODE * first, NODE * last, NODE):
        value = to_floats(_simd_difference(sums, place, nodes, node, 0)) * real(nodes, node, WEIGHTS)
        value = value + to_floats(_simd_difference(sums, place, nodes, node, 4)) * real(nodes, node, WEIGHTS + 1)
        if item(nodes, node + WEIGHTS + 2) != 0:
            value = value + to_floats(_simd_difference(sums, place, nodes, node, 8)) * real(nodes, node, WEIGHTS + 2)
        goes_left = value * factors < real(nodes, node, THRESHOLD)
        total = total + _added(nodes, node, goes_left, asked)
    return total


@inlined
def sum_patterns(
    sums: Address, place: int, nodes: Address, first: int, last: int, total: Lanes, asked: Address
) -> Lanes:
    """As `sum_haar`, for nodes with patterns."""
    for node in range(NODE * first, NODE * last, NODE):
        total = total + _added(nodes, node, has_code(sums, place, nodes, node), asked)
    return total


@inlined
def _added(nodes: Address, node: int, goes_left: Lanes, asked: Address) -> Lanes:
    """What a node adds to the sums."""
    if item(nodes, node + SHARES_TREE) == 0:
        return goes_left & spread(item(nodes, node + LEFT))
    return _simd_leaf(nodes, node, goes_left, asked)


@inlined
def _simd_leaf(nodes: Address, node: int, answers: Lanes, asked: Address) -> Lanes:
    """What a node of a larger tree adds: a leaf, where it is asked and the child is one. Masks are -1 and 0."""
    here = answers >= answers
    if item(nodes, node + SLOT) > 0:
        here = load(asked, LANES * item(nodes, node + SLOT))
    goes_left = answers & here
    goes_right = here - goes_left
    if item(nodes, node + LEFT_SLOT) > 0:
        store(asked, LANES * item(nodes, node + LEFT_SLOT), goes_left)
    if item(nodes, node + RIGHT_SLOT) > 0:
        store(asked, LANES * item(nodes, node + RIGHT_SLOT), goes_right)
    return (goes_left & spread(item(nodes, node + LEFT))) + (goes_right & spread(item(nodes, node + RIGHT)))


@inlined
def _simd_difference(sums: Address, place: int, nodes: Address, node: int, k: int) -> Lanes:
    """The pixels of a rectangle, modulo 2^32."""
    upper = corner(sums, place, nodes, node, k) - corner(sums, place, nodes, node, k + 1)
    return upper - corner(sums, place, nodes, node, k + 2) + corner(sums, place, nodes, node, k + 3)


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
