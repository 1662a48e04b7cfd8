"""An OpenCV cascade over the windows of a picture, one window after the other, as OpenCV itself goes.

What `lane_scan` must find, and how it sums up what whole numbers leave open. Each value is rounded to float32 where
OpenCV rounds it (`OptFeature::calc` and `predictOrdered` in
modules/objdetect/src/cascadedetect.hpp, branch 4.x); the leaves of a stage are summed in float64.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet.kernels.jit import kernel
from whet.kernels.normalisation import window_factor
from whet.kernels.window_rows import pattern_codes
from whet.kernels.windows import Windows

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
