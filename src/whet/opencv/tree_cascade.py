"""An OpenCV cascade as arrays, flattened for the kernels, and converted to stages of whet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from whet._kernels.opencv_trees import (
    LEFT,
    LEFT_SLOT,
    RIGHT,
    RIGHT_SLOT,
    SHARES_TREE,
    SLOT,
    THRESHOLD,
    WEIGHTS,
    SimdTrees,
    WalkedTrees,
)
from whet._kernels.window_scan import CORNERS, NODE, SUBSET
from whet.arrays import Bools, Float32s, Floats, Indices, Int32s, Words
from whet.errors import CannotConvertError
from whet.models.gslda.cascade import MOST_PIXELS, Stage
from whet.models.gslda.cascade_scan import CORNERS as MOST_CORNERS
from whet.models.gslda.cascade_scan import Layout
from whet.models.gslda.pools import MOST_CONDITIONS, TILTED, BlockPatternPool, RectanglePool
from whet.models.gslda.weak_learners import LeafPool, Leaves, Stumps, Subsets


@dataclass(frozen=True, eq=False)
class Trees:
    """Decision trees one after the other, as arrays of all their nodes (nodes,) and leaves.

    A value below the threshold, or a code in the subset, goes left. A child above 0 is a node of the same tree, counted
    from its root; a child of 0 or less is leaf number -child of the tree. A tree of n nodes has n + 1 leaves, so that
    tree t begins at node `first[t]` and at leaf `first[t] + t`.
    """

    first: Int32s  # (trees + 1,)
    left: Int32s
    right: Int32s
    feature: Int32s
    threshold: Float32s
    subset: Words  # (nodes, 4): 256 bits; all zero for numbers
    leaves: Float32s  # (nodes + trees,)

    def __post_init__(self) -> None:
        nodes = len(self.left)
        if not len(self) or self.first[0] != 0 or self.first[-1] != nodes or (np.diff(self.first) < 1).any():
            raise ValueError("every tree has at least one node, and there is at least one tree")
        if not all(len(column) == nodes for column in (self.right, self.feature, self.threshold, self.subset)):
            raise ValueError("every node has two children, a feature and a test")
        if len(self.leaves) != nodes + len(self):
            raise ValueError(
                f"got {len(self.leaves)} leaves of {len(self)} trees with {nodes} nodes: one more than nodes"
            )
        if not (np.isfinite(self.leaves).all() and np.isfinite(self.threshold).all()):
            raise ValueError("thresholds and leaf values must be finite numbers")
        self._check_children()

    def _check_children(self) -> None:
        """Check that every node has at most one parent and the root none, so that no path has a cycle."""
        children = np.stack([self.left, self.right]).astype(np.int64)
        size = np.repeat(self.sizes, self.sizes)
        if (children >= size).any() or (-children > size).any():
            raise ValueError("a child is neither a node nor a leaf of its tree")
        inner = children > 0
        places = (children + np.repeat(self.first[:-1], self.sizes))[inner]
        if len(np.unique(places)) != len(places):
            raise ValueError("two nodes of a tree share a child: not a tree")

    def __len__(self) -> int:
        return len(self.first) - 1

    @property
    def sizes(self) -> Int32s:
        """Nodes of each tree (trees,)."""
        return np.diff(self.first)

    @property
    def are_stumps(self) -> bool:
        """Whether all trees have one node."""
        return len(self.left) == len(self)


@dataclass(frozen=True, eq=False)
class OpenCVCascade:
    """Stages of trees on windows (height, width): stage s has the trees `first_tree[s]` to `first_tree[s + 1]`.

    A window passes a stage if the sum of its leaves, in double precision, is not below the stage's threshold.
    """

    features: RectanglePool | BlockPatternPool
    trees: Trees
    first_tree: Int32s  # (stages + 1,)
    threshold: Float32s  # (stages,): threshold of the file minus OpenCV's margin of 1e-5, in float32

    def __post_init__(self) -> None:
        height, width = self.window
        if min(height, width) < 3 or height * width > MOST_PIXELS:
            raise ValueError(f"got a window of {width} x {height}; expected at least 3 x 3, and {MOST_PIXELS:,} pixels")
        stages = len(self.threshold)
        if not stages or len(self.first_tree) != stages + 1 or (np.diff(self.first_tree) < 1).any():
            raise ValueError("a cascade has at least one stage, and every stage at least one tree")
        if self.first_tree[0] != 0 or self.first_tree[-1] != len(self.trees):
            raise ValueError("the stages do not hold all the trees")
        if not np.isfinite(self.threshold).all():
            raise ValueError("the threshold of a stage must be a finite number")
        feature = self.trees.feature
        if (feature < 0).any() or (feature >= len(self.features)).any():
            worst = int(feature[np.argmax((feature < 0) | (feature >= len(self.features)))])
            raise ValueError(f"a node uses feature {worst}; expected 0 to {len(self.features) - 1}")

    @property
    def window(self) -> tuple[int, int]:
        """Height and width of the windows."""
        return self.features.window

    @property
    def family(self) -> str:
        """HAAR or LBP, as OpenCV names them."""
        return "HAAR" if isinstance(self.features, RectanglePool) else "LBP"

    @property
    def has_tilted(self) -> bool:
        """Whether some features need the tilted integral image."""
        return isinstance(self.features, RectanglePool) and bool(self.features.tilted.any())

    @cached_property
    def stages(self) -> list[slice]:
        """The trees of each stage."""
        return [slice(int(a), int(b)) for a, b in pairwise(self.first_tree)]

    def __len__(self) -> int:
        return len(self.threshold)


INSTEAD = "use whet.opencv.CascadeClassifier for this file"


class Leaf(NamedTuple):
    """A leaf: the nodes on its path, whether the path goes left at each node, and its value."""

    nodes: tuple[int, ...]
    goes_left: tuple[bool, ...]
    value: float


def stages_of(cascade: OpenCVCascade) -> tuple[Stage, ...]:
    """Convert a cascade to fixed stages that accept the same windows.

    The sums add the same numbers in another order, so a window whose sum is within 1e-14 of a threshold may differ.
    Raises `CannotConvertError` for weights of rectangles that are not whole, and for far too large trees.

    >>> boxes = np.array([[[0, 0, 4, 4], [2, 0, 2, 4], [0, 0, 0, 0]]], dtype=np.int32)
    >>> pool = RectanglePool((4, 4), boxes, np.array([[-1, 2, 0]], dtype=np.float32), np.array([False]))
    >>> ints, floats = (lambda *v: np.array(v, dtype=np.int32)), (lambda *v: np.array(v, dtype=np.float32))
    >>> stump = Trees(ints(0, 1), ints(0), ints(-1), ints(0), floats(0.5), np.zeros((1, 4), np.uint64), floats(-1, 2))
    >>> stage, = stages_of(OpenCVCascade(pool, stump, ints(0, 1), floats(1)))
    >>> stage.coef, round(stage.threshold, 6)
    (array([3.]), 2.0)
    """
    if isinstance(cascade.features, RectanglePool) and not cascade.features.is_exact:
        raise CannotConvertError(f"the cascade has rectangles with fractional weights; {INSTEAD}")
    left_out, leaves = _leaves_of(cascade)
    is_plain = cascade.trees.are_stumps and not cascade.has_tilted
    stages = []
    for threshold, trees in zip(cascade.threshold.astype(np.float64), cascade.stages, strict=True):
        # OpenCV accepts a sum that equals the threshold, ours has to exceed it; with room for another order of adding.
        above = float(threshold - np.array(left_out[trees]).sum())
        above -= 1e-14 * max(abs(above), 1.0)
        stages.append(_stage(cascade, [leaf for tree in leaves[trees] for leaf in tree], above, is_plain))
    return tuple(stages)


def _stage(cascade: OpenCVCascade, leaves: list[Leaf], threshold: float, is_plain: bool) -> Stage:
    nodes = np.array([node for leaf in leaves for node in leaf.nodes])
    goes_left = np.array([side for leaf in leaves for side in leaf.goes_left])
    features = cascade.features.take(cascade.trees.feature[nodes].astype(np.intp))
    weak = _conditions(cascade, nodes, goes_left)
    coef = np.array([leaf.value for leaf in leaves])
    if is_plain:  # one condition each: stumps, as other stages have them
        return Stage(features, weak, coef, threshold)
    first = np.cumsum([0, *(len(leaf.nodes) for leaf in leaves)])
    return Stage(LeafPool(features, first), Leaves(weak, first), coef, threshold)


def _conditions(cascade: OpenCVCascade, nodes: Indices, goes_left: Bools) -> Stumps | Subsets:
    """What responds 1 where a window goes this way at a node: left for a code of the subset or a value below."""
    learner, unknown = np.arange(len(nodes)), np.full(len(nodes), np.nan)
    if isinstance(cascade.features, BlockPatternPool):
        subset = cascade.trees.subset[nodes]
        return Subsets(learner, np.where(goes_left[:, None], subset, ~subset), unknown)
    # Ours is above the threshold where OpenCV's is not below it.
    threshold: Float32s = np.nextafter(cascade.trees.threshold[nodes], np.float32(-np.inf))
    return Stumps(learner, threshold, np.where(goes_left, -1, 1).astype(np.int8), unknown)


def _leaves_of(cascade: OpenCVCascade) -> tuple[list[float], list[list[Leaf]]]:
    """For every tree the value of a leaf that is left out, and the other leaves less that value.

    It is one of the deepest, which has the most conditions. Of a stump it is the leaf of what is below a threshold, or
    not in a subset.
    """
    left_out, leaves, n_conditions = [], [], 0
    for tree in range(len(cascade.trees)):
        own = []
        for leaf in _walk(cascade.trees, tree):
            n_conditions += len(leaf.nodes)
            _check_number(n_conditions)
            own.append(leaf)
        deepest = max(own if cascade.family == "HAAR" else reversed(own), key=lambda leaf: len(leaf.nodes))
        left_out.append(deepest.value)
        leaves.append([leaf._replace(value=leaf.value - deepest.value) for leaf in own if leaf is not deepest])
    return left_out, leaves


def _walk(trees: Trees, tree: int) -> Iterator[Leaf]:
    """The leaves of a tree, from left to right; one after the other, since a hostile tree has too many conditions."""
    root, first_leaf = int(trees.first[tree]), int(trees.first[tree]) + tree
    ways: list[tuple[tuple[int, ...], tuple[bool, ...], int]] = [((), (), 0)]
    while ways:
        nodes, sides, child = ways.pop()
        if nodes and child <= 0:
            yield Leaf(nodes, sides, float(trees.leaves[first_leaf - child]))
        else:
            node = root + child
            _check_number(len(nodes) ** 2 // 2)  # that many, at least, has a tree which is so deep
            ways.append(((*nodes, node), (*sides, False), int(trees.right[node])))
            ways.append(((*nodes, node), (*sides, True), int(trees.left[node])))


def _check_number(n_conditions: int) -> None:
    if n_conditions > MOST_CONDITIONS:
        raise CannotConvertError(f"the leaves of the cascade have more than {MOST_CONDITIONS:,} conditions; {INSTEAD}")


# --- Trees as the kernels read them ---

# Sums of whole leaves stay below this.
WHOLE = 2.0**30


def channels_of(cascade: OpenCVCascade) -> int:
    """Return the number of integral images: sums, squares for Haar features, tilted sums for tilted features."""
    if cascade.family == "LBP":
        return 1
    return 3 if cascade.has_tilted else 2


@lru_cache(maxsize=8)  # an image has two layouts, and frames of a video have one size
def simd_trees(cascade: OpenCVCascade, layout: Layout) -> SimdTrees:
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
    return SimdTrees(
        rows[order],
        first_node[cascade.first_tree],
        np.add.reduceat(going_right, cascade.first_tree[:-1], dtype=np.int32),
        np.floor(threshold - doubt).clip(-WHOLE, WHOLE).astype(np.int32),
        np.ceil(threshold + doubt).clip(-WHOLE, WHOLE).astype(np.int32),
        int(sizes.max()),
        walked,
    )


def _scales(trees: Trees, first_tree: Int32s) -> Floats:
    """Powers of two (stages,) by which leaves are multiplied: no sum of a stage then reaches half of `WHOLE`."""
    leaves = abs(trees.leaves.astype(np.float64))
    largest = np.maximum.reduceat(leaves, trees.first[:-1] + np.arange(len(trees)))
    most = np.add.reduceat(largest, first_tree[:-1])
    return np.asarray(np.exp2(np.floor(np.log2(WHOLE / 2 / np.maximum(most, np.finfo(np.float32).tiny)))))


def _parents_first(trees: Trees) -> tuple[Indices, Int32s]:
    """Nodes that their root leads to, parents before their children; where each tree then begins (trees + 1,)."""
    first = np.repeat(trees.first[:-1], trees.sizes)
    depth, here, d = np.full(len(first), -1), trees.first[:-1], 0
    while len(here):
        depth[here] = d
        children = np.concatenate(
            [first[here] + child[here] * (child[here] > 0) for child in (trees.left, trees.right)]
        )
        here, d = children[depth[children] < 0], d + 1
    order = np.lexsort((depth, first))
    order = order[depth[order] >= 0]
    return order, np.searchsorted(first[order], trees.first).astype(np.int32)


def _rows(trees: WalkedTrees, leaves: Int32s, is_stump: Bools) -> Int32s:
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


def walked_trees(cascade: OpenCVCascade, layout: Layout) -> WalkedTrees:
    """Flatten any cascade."""
    trees, weights = cascade.trees, np.zeros((len(cascade.trees.left), 3), dtype=np.float32)
    match cascade.features:
        case RectanglePool() as pool:
            y, x = (places[trees.feature].reshape(-1, 12) for places in pool.corner_places)
            weights = pool.weights[trees.feature]
            corners = _offsets(cascade, layout, y, x, pool.tilted[trees.feature])
        case BlockPatternPool() as pool:
            pixels = pool.corners().reshape(len(pool), MOST_CORNERS)[trees.feature]
            y, x = np.divmod(pixels, pool.window[1] + 1)
            corners = _offsets(cascade, layout, y, x, np.zeros(len(pixels), dtype=np.bool_))
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


def _offsets(cascade: OpenCVCascade, layout: Layout, y: Int32s, x: Int32s, tilted: Bools) -> Int32s:
    """Corners (nodes, 16), unused ones zero, from the window's own place in the channels."""
    corners = np.zeros((len(y), MOST_CORNERS), dtype=np.int32)
    channel = np.where(tilted, TILTED, 0)[:, None]
    places = (y * channels_of(cascade) + channel) * layout.line + layout.offset(np.zeros_like(x), x)
    corners[:, : y.shape[1]] = places
    return corners
