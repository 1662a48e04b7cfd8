"""An OpenCV cascade as flat arrays, for integral images of one layout."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from whet.detect.compiled_cascade import CORNERS, Layout
from whet.features.lbp import BlockPatternPool
from whet.features.rectangle_pool import RectanglePool
from whet.kernels.tree_scan import FlatTrees
from whet.kernels.tree_walk import WalkedTrees
from whet.model.opencv_cascade import OpenCVCascade, Trees

Int32s = NDArray[np.int32]

# Answers of a tree's nodes are the bits of a byte; a table of all their leaves has 64 entries.
MOST_NODES = 6
# The third channel of the integral images.
TILTED = 2


def channels_of(cascade: OpenCVCascade) -> int:
    """How many integral images the cascade looks at: sums, squares for Haar features, tilted sums for tilted ones."""
    if cascade.family == "LBP":
        return 1
    return 3 if cascade.has_tilted else 2


def is_simple(cascade: OpenCVCascade) -> bool:
    """Whether the fast scan holds the cascade: small trees, and values that are exact in any order."""
    exact = not isinstance(cascade.features, RectanglePool) or cascade.features.is_exact
    return exact and int(cascade.trees.sizes.max()) <= MOST_NODES


@lru_cache(maxsize=8)  # a picture has two layouts, and frames of a video have one size
def flat_trees(cascade: OpenCVCascade, layout: Layout) -> FlatTrees:
    """Flatten a simple cascade."""
    trees, weights = cascade.trees, np.zeros((len(cascade.trees.left), 12), dtype=np.int32)
    match cascade.features:
        case RectanglePool() as pool:
            y, x, merged = (column[trees.feature] for column in pool.merged_corners)
            weights = merged
            corners = _offsets(cascade, layout, y, x, pool.tilted[trees.feature])
        case BlockPatternPool() as pool:
            corners = _block_offsets(cascade, layout, pool)
    return FlatTrees(
        corners,
        weights,
        trees.threshold,
        trees.subset,
        trees.first,
        leaf_table(trees),
        cascade.first_tree,
        cascade.threshold.astype(np.float64),
        cascade.family == "LBP",
    )


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


def leaf_table(trees: Trees) -> NDArray[np.float64]:
    """The leaf (trees, 2^nodes) that each combination of answers leads to, the root's answer in the lowest bit.

    >>> column = lambda *v: np.array(v, dtype=np.int32)
    >>> tree = Trees(column(0, 2), column(1, 0), column(-2, -1), column(0, 0), np.zeros(2, np.float32),
    ...              np.zeros((2, 4), np.uint64), np.array([5, 6, 7], dtype=np.float32))
    >>> leaf_table(tree)  # right; left and right; right; left twice
    array([[7., 6., 7., 5.]])
    """
    most = int(trees.sizes.max())
    answers = np.arange(2**most)
    table = np.empty((len(trees), len(answers)))
    child = np.zeros(table.shape, dtype=np.int64)
    walking = np.ones(table.shape, dtype=np.bool_)
    first = trees.first[:-1, None].astype(np.int64)
    for _ in range(most):
        node = first + np.where(walking, child, 0)
        goes_left = answers >> np.where(walking, child, 0) & 1
        child = np.where(walking, np.where(goes_left, trees.left[node], trees.right[node]), child)
        walking &= child > 0
    table[:] = trees.leaves[first + np.arange(len(trees))[:, None] - child]
    return table


def _offsets(cascade: OpenCVCascade, layout: Layout, y: Int32s, x: Int32s, tilted: NDArray[np.bool_]) -> Int32s:
    """Corners (nodes, 16), unused ones zero, from the window's own place in the channels."""
    corners = np.zeros((len(y), CORNERS), dtype=np.int32)
    channel = np.where(tilted, TILTED, 0)[:, None]
    places = (y * channels_of(cascade) + channel) * layout.line + layout.offset(np.zeros_like(x), x)
    corners[:, : y.shape[1]] = places
    return corners


def _block_offsets(cascade: OpenCVCascade, layout: Layout, pool: BlockPatternPool) -> Int32s:
    pixels = pool.corners().reshape(len(pool), CORNERS)[cascade.trees.feature]
    y, x = np.divmod(pixels, pool.window[1] + 1)
    return _offsets(cascade, layout, y, x, np.zeros(len(pixels), dtype=np.bool_))
