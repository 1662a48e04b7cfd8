"""An OpenCV cascade as flat arrays, for integral images of one layout."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from whet.detect.compiled_cascade import CORNERS as MOST_CORNERS
from whet.detect.compiled_cascade import Layout
from whet.features.lbp import BlockPatternPool
from whet.features.rectangle_pool import RectanglePool
from whet.kernels.lane_scan import LaneTrees
from whet.kernels.lane_trees import (
    CORNERS,
    LEFT,
    LEFT_SLOT,
    NODE,
    RIGHT,
    RIGHT_SLOT,
    SHARES_TREE,
    SLOT,
    SUBSET,
    THRESHOLD,
    WEIGHTS,
)
from whet.kernels.tree_walk import WalkedTrees
from whet.model.opencv_cascade import OpenCVCascade, Trees

Int32s = NDArray[np.int32]

# Sums of whole leaves stay below this.
WHOLE = 2.0**30
# The third channel of the integral images.
TILTED = 2


def channels_of(cascade: OpenCVCascade) -> int:
    """How many integral images the cascade looks at: sums, squares for Haar features, tilted sums for tilted ones."""
    if cascade.family == "LBP":
        return 1
    return 3 if cascade.has_tilted else 2


@lru_cache(maxsize=8)  # a picture has two layouts, and frames of a video have one size
def lane_trees(cascade: OpenCVCascade, layout: Layout) -> LaneTrees:
    """Flatten a cascade, with leaves in whole numbers."""
    walked, trees, sizes = walked_trees(cascade, layout), cascade.trees, cascade.trees.sizes
    n_trees = np.diff(cascade.first_tree)
    scale = _scales(trees, cascade.first_tree)
    whole = np.rint(trees.leaves.astype(np.float64) * np.repeat(np.repeat(scale, n_trees), sizes + 1))
    stump = sizes == 1
    rows = _rows(walked, whole.astype(np.int32), np.repeat(stump, sizes))
    going_right = np.where(stump, rows[trees.first[:-1], RIGHT], 0)
    order, first_node = _parents_first(trees)
    threshold, doubt = cascade.threshold.astype(np.float64) * scale, n_trees / 2 + 1
    return LaneTrees(
        rows[order],
        first_node[cascade.first_tree],
        np.add.reduceat(going_right, cascade.first_tree[:-1], dtype=np.int32),
        np.floor(threshold - doubt).clip(-WHOLE, WHOLE).astype(np.int32),
        np.ceil(threshold + doubt).clip(-WHOLE, WHOLE).astype(np.int32),
        int(sizes.max()),
        walked,
    )


def _scales(trees: Trees, first_tree: Int32s) -> NDArray[np.float64]:
    """Powers of two (stages,) by which leaves are multiplied: no sum of a stage then reaches half of `WHOLE`."""
    leaves = abs(trees.leaves.astype(np.float64))
    largest = np.maximum.reduceat(leaves, trees.first[:-1] + np.arange(len(trees)))
    most = np.add.reduceat(largest, first_tree[:-1])
    return np.asarray(np.exp2(np.floor(np.log2(WHOLE / 2 / np.maximum(most, np.finfo(np.float32).tiny)))))


def _parents_first(trees: Trees) -> tuple[NDArray[np.intp], Int32s]:
    """Nodes that their root leads to, parents before their children; where each tree then begins (trees + 1,)."""
    first = np.repeat(trees.first[:-1], trees.sizes)
    depth = np.where(np.arange(len(first)) == first, 0, -1)
    for d in range(int(trees.sizes.max())):
        for child in (trees.left, trees.right):
            parents = (depth == d) & (child > 0)
            depth[(first + child)[parents]] = d + 1
    order = np.lexsort((depth, first))
    order = order[depth[order] >= 0]
    return order, np.searchsorted(first[order], trees.first).astype(np.int32)


def _rows(trees: WalkedTrees, leaves: Int32s, is_stump: NDArray[np.bool_]) -> Int32s:
    """Nodes as the kernel reads them."""
    rows = np.zeros((len(trees.left), NODE), dtype=np.int32)
    sizes = np.diff(trees.first_node)
    first = np.repeat(trees.first_node[:-1], sizes)
    first_leaf = first + np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    rows[:, CORNERS : CORNERS + trees.corners.shape[1]] = trees.corners
    if not trees.categorical:
        rows[:, WEIGHTS : WEIGHTS + 3] = trees.weights.view(np.int32)
        rows[:, THRESHOLD] = trees.threshold.view(np.int32)
    rows[:, SUBSET : SUBSET + 8] = trees.subset.view(np.int32)
    left, right = (
        np.where(child > 0, 0, leaves[first_leaf - np.minimum(child, 0)]) for child in (trees.left, trees.right)
    )
    rows[:, LEFT], rows[:, RIGHT], rows[:, SHARES_TREE] = np.where(is_stump, left - right, left), right, ~is_stump
    rows[:, SLOT] = np.arange(len(rows)) - first
    rows[:, LEFT_SLOT], rows[:, RIGHT_SLOT] = np.maximum(trees.left, 0), np.maximum(trees.right, 0)
    return rows


@lru_cache(maxsize=8)
def walked_trees(cascade: OpenCVCascade, layout: Layout) -> WalkedTrees:
    """Flatten any cascade."""
    trees, weights = cascade.trees, np.zeros((len(cascade.trees.left), 3), dtype=np.float32)
    match cascade.features:
        case RectanglePool() as pool:
            y, x = (places[trees.feature].reshape(-1, 12) for places in pool.corner_places)
            weights = pool.weights[trees.feature]
            corners = _offsets(cascade, layout, y, x, pool.tilted[trees.feature])
        case BlockPatternPool() as pool:
            corners = _block_offsets(cascade, layout, pool)
    return WalkedTrees(
        corners,
        weights,
        trees.threshold,
        trees.subset,
        trees.left,
        trees.right,
        trees.leaves,
        trees.first,
        cascade.first_tree,
        cascade.threshold.astype(np.float64),
        cascade.family == "LBP",
    )


def _offsets(cascade: OpenCVCascade, layout: Layout, y: Int32s, x: Int32s, tilted: NDArray[np.bool_]) -> Int32s:
    """Corners (nodes, 16), unused ones zero, from the window's own place in the channels."""
    corners = np.zeros((len(y), MOST_CORNERS), dtype=np.int32)
    channel = np.where(tilted, TILTED, 0)[:, None]
    places = (y * channels_of(cascade) + channel) * layout.line + layout.offset(np.zeros_like(x), x)
    corners[:, : y.shape[1]] = places
    return corners


def _block_offsets(cascade: OpenCVCascade, layout: Layout, pool: BlockPatternPool) -> Int32s:
    pixels = pool.corners().reshape(len(pool), MOST_CORNERS)[cascade.trees.feature]
    y, x = np.divmod(pixels, pool.window[1] + 1)
    return _offsets(cascade, layout, y, x, np.zeros(len(pixels), dtype=np.bool_))
