"""Stages of OpenCV trees: one window at a time as OpenCV does, and eight neighbouring windows at once."""

from typing import NamedTuple

import numpy as np

from whet._kernels.jit import (
    HAS_SIMD,
    SIMD_WIDTH,
    Address,
    Vector,
    address_of,
    broadcast,
    has_code,
    inlined,
    kernel,
    load,
    load_scalar,
    mask_bits,
    store,
    to_floats,
)
from whet._kernels.window_scan import (
    CORNERS,
    NODE,
    SUBSET,
    Windows,
    corner,
    normalise_simd,
    pattern_code,
    real,
    rectangle_sum,
    window_factor,
)
from whet.arrays import Float32s, Floats, Int32s, UInt32s, Words


class WalkedTrees(NamedTuple):
    """Nodes as `Trees` has them, and their features for integral images of one layout."""

    corners: Int32s  # (nodes, 16): three rectangles of four corners, or the corners of 3 x 3 blocks
    weights: Float32s  # (nodes, 3)
    threshold: Float32s
    subset: Words
    left: Int32s
    right: Int32s
    leaves: Float32s
    first_node: Int32s
    first_tree: Int32s
    stage_threshold: Floats
    categorical: bool


@kernel
def _run(sums: UInt32s, squares: UInt32s, place: int, windows: Windows, trees: WalkedTrees) -> tuple[int, float]:
    """The stage that rejects a window, or -1 if it has no contrast, or the number of stages; and the last sum."""
    factor = np.float32(1.0)
    if not trees.categorical:
        total = rectangle_sum(sums, place, windows.inner)
        square = rectangle_sum(squares, place, windows.inner)
        factor, has_contrast = window_factor(np.int64(total), np.int64(square), windows.area, windows.min_sigma)
        if not has_contrast:
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
        code = pattern_code(sums, place, corners)
        word, bit = trees.subset[node][code >> np.uint8(6)], np.uint64(code & np.uint8(63))
        return bool((word >> bit) & np.uint64(1) != np.uint64(0))
    weights = trees.weights[node]
    value = np.float32(0.0)
    for r in range(3):
        if r < 2 or weights[r] != np.float32(0.0):
            pixels = np.int32(rectangle_sum(sums, place, corners[4 * r : 4 * r + 4]))
            part = np.float32(weights[r] * np.float32(pixels))
            value = part if r == 0 else np.float32(value + part)
    return bool(np.float32(value * factor) < trees.threshold[node])


# Places in the row of a node, besides `CORNERS` and `SUBSET`. Numbers of float32 are there by their bits.
WEIGHTS = 12  # 3
THRESHOLD = 15
LEFT, RIGHT = 24, 25  # leaves; 0 where the child is a node. Of a stump, LEFT is what going left adds
SHARES_TREE = 26  # 0 for a stump
SLOT, LEFT_SLOT, RIGHT_SLOT = 27, 28, 29  # numbers of the node and its children in their tree; 0 for root and leaves


@inlined
def sum_haar(
    sums: Address, place: int, factors: Vector, nodes: Address, first: int, last: int, total: Vector, reached: Address
) -> Vector:
    """Add nodes `first` to `last` to the sums of the eight windows from `place` on.

    `reached` has room for eight numbers for every node of the largest tree.
    """
    for node in range(NODE * first, NODE * last, NODE):
        value = to_floats(_simd_difference(sums, place, nodes, node, 0)) * real(nodes, node, WEIGHTS)
        value = value + to_floats(_simd_difference(sums, place, nodes, node, 4)) * real(nodes, node, WEIGHTS + 1)
        if load_scalar(nodes, node + WEIGHTS + 2) != 0:
            value = value + to_floats(_simd_difference(sums, place, nodes, node, 8)) * real(nodes, node, WEIGHTS + 2)
        goes_left = value * factors < real(nodes, node, THRESHOLD)
        total = total + _added(nodes, node, goes_left, reached)
    return total


@inlined
def sum_patterns(
    sums: Address, place: int, nodes: Address, first: int, last: int, total: Vector, reached: Address
) -> Vector:
    """As `sum_haar`, for nodes with patterns."""
    for node in range(NODE * first, NODE * last, NODE):
        total = total + _added(nodes, node, has_code(sums, place, nodes, node + CORNERS, node + SUBSET), reached)
    return total


@inlined
def _added(nodes: Address, node: int, goes_left: Vector, reached: Address) -> Vector:
    """What a node adds to the sums."""
    if load_scalar(nodes, node + SHARES_TREE) == 0:
        return goes_left & broadcast(load_scalar(nodes, node + LEFT))
    return _simd_leaf(nodes, node, goes_left, reached)


@inlined
def _simd_leaf(nodes: Address, node: int, answers: Vector, reached: Address) -> Vector:
    """What a node of a larger tree adds: a leaf, where it is reached and the child is one. Masks are -1 and 0."""
    here = answers >= answers
    if load_scalar(nodes, node + SLOT) > 0:
        here = load(reached, SIMD_WIDTH * load_scalar(nodes, node + SLOT))
    goes_left = answers & here
    goes_right = here - goes_left
    if load_scalar(nodes, node + LEFT_SLOT) > 0:
        store(reached, SIMD_WIDTH * load_scalar(nodes, node + LEFT_SLOT), goes_left)
    if load_scalar(nodes, node + RIGHT_SLOT) > 0:
        store(reached, SIMD_WIDTH * load_scalar(nodes, node + RIGHT_SLOT), goes_right)
    left, right = broadcast(load_scalar(nodes, node + LEFT)), broadcast(load_scalar(nodes, node + RIGHT))
    return (goes_left & left) + (goes_right & right)


@inlined
def _simd_difference(sums: Address, place: int, nodes: Address, node: int, k: int) -> Vector:
    """The pixels of a rectangle, modulo 2^32."""
    upper = corner(sums, place, nodes, node, k) - corner(sums, place, nodes, node, k + 1)
    return upper - corner(sums, place, nodes, node, k + 2) + corner(sums, place, nodes, node, k + 3)


def _visits() -> Int32s:
    """By which of eight windows fail the first stage, plus 256 if the first of them is stepped over: those visited.

    One bit a window, plus 256 if the window after them is stepped over.
    """
    table = np.empty(512, dtype=np.int32)
    for entry in range(512):
        step_over, visited = entry >> SIMD_WIDTH, 0
        for i in range(SIMD_WIDTH):
            visited |= (1 - step_over) << i
            step_over = (1 - step_over) & (entry >> i)
        table[entry] = visited | step_over << SIMD_WIDTH
    return table


VISITS = _visits()
STEP_OVER = 256


class SimdTrees(NamedTuple):
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


class Accepted(NamedTuple):
    """Room for accepted windows: where they lie in the integral image, and their sums in the last stage."""

    places: UInt32s
    scores: Floats


@kernel
def _scan_row_simd(
    sums: UInt32s,
    squares: UInt32s,
    start: int,
    windows: Windows,
    trees: SimdTrees,
    reached: Int32s,
    factors: Float32s,
    accepted: Accepted,
) -> int:
    """Accepted windows of the row that begins at `start`, from left to right; returns how many there are.

    `sums` and `squares` are flat, and `accepted` has room for the whole row. `reached` has room for eight numbers
    for every node of the largest tree, `factors` for eight.
    """
    categorical, walked, last = trees.walked.categorical, trees.walked, trees.base.size
    at, squares_at, inner = address_of(sums), address_of(squares), address_of(windows.inner)
    nodes, room, factors_at = address_of(trees.nodes), address_of(reached), address_of(factors)
    first_node, base = address_of(trees.first_node), address_of(trees.base)
    surely_out, surely_in = address_of(trees.surely_out), address_of(trees.surely_in)
    area, min_sigma = np.float64(windows.area), np.float64(windows.min_sigma)
    n = step_over = 0
    for k in range(0, windows.columns, SIMD_WIDTH):
        place, s = start + k, 0
        left = (1 << min(windows.columns - k, SIMD_WIDTH)) - 1
        if not categorical:
            left &= normalise_simd(at, squares_at, place, inner, area, min_sigma, factors_at)
        if left == 0:
            step_over = 0
        while left and s < last:
            begin, end = load_scalar(first_node, s), load_scalar(first_node, s + 1)
            total = broadcast(load_scalar(base, s))
            if categorical:
                total = sum_patterns(at, place, nodes, begin, end, total, room)
            else:
                total = sum_haar(at, place, load(factors_at, 0), nodes, begin, end, total, room)
            passed = mask_bits(total >= broadcast(load_scalar(surely_out, s))) & left
            unsure = mask_bits(total < broadcast(load_scalar(surely_in, s))) & passed
            if unsure:
                passed = _settle(sums, place, factors, walked, s, passed, unsure)
            if s == 0:
                visits = VISITS[step_over | (left & ~passed)]
                step_over = visits & STEP_OVER
                passed &= visits
            left = passed
            s += 1
        if left:
            n = _keep(sums, place, factors, walked, left, accepted, n)
    return n


@kernel
def _settle(sums: UInt32s, place: int, factors: Float32s, trees: WalkedTrees, s: int, passed: int, unsure: int) -> int:
    """Sum up as OpenCV does what whole numbers leave open."""
    for i in range(SIMD_WIDTH):
        if unsure >> i & 1 and stage_sum(sums, place + i, factors[i], trees, s) < trees.stage_threshold[s]:
            passed &= ~(1 << i)
    return passed


@kernel
def _keep(
    sums: UInt32s, place: int, factors: Float32s, trees: WalkedTrees, left: int, accepted: Accepted, n: int
) -> int:
    """Write windows that passed all stages after the first n; returns how many there are then."""
    last = trees.stage_threshold.size - 1
    for i in range(SIMD_WIDTH):
        if left >> i & 1:
            accepted.places[n] = place + i
            accepted.scores[n] = stage_sum(sums, place + i, factors[i], trees, last)
            n += 1
    return n


@kernel
def scan_row_scalar(
    sums: UInt32s,
    squares: UInt32s,
    start: int,
    windows: Windows,
    trees: SimdTrees,
    reached: Int32s,  # noqa: ARG001
    factors: Float32s,  # noqa: ARG001
    accepted: Accepted,
) -> int:
    """As `_scan_row_simd`, from window to window as OpenCV does."""
    n = k = 0
    while k < windows.columns:
        stage, score = _run(sums, squares, start + k, windows, trees.walked)
        if stage == trees.walked.stage_threshold.size:
            accepted.places[n], accepted.scores[n] = start + k, score
            n += 1
        k += 2 if stage == 0 else 1
    return n


scan_row = _scan_row_simd if HAS_SIMD else scan_row_scalar
