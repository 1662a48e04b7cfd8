"""An OpenCV cascade as stages of ours: the same windows pass, and what they answer can be counted.

A tree of OpenCV's adds the value of one of its leaves. Each leaf is a weak learner that responds 1 where a window ends
up in it. One of them says nothing that the others do not say, and is left out: its value, which all windows get, is
taken off the threshold, and the weights of the others are the differences to it. So a stump is one weak learner.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet.errors import CannotConvertError
from whet.features.lbp import BlockPatternPool
from whet.features.leaves import LeafPool, TrainedLeaves
from whet.features.rectangle_pool import RectanglePool
from whet.features.stump_training import TrainedStumps
from whet.features.subset_training import TrainedSubsets
from whet.model.columns import MOST_CONDITIONS
from whet.model.opencv_cascade import OpenCVCascade, Trees
from whet.model.stage import Stage

INSTEAD = "run it as OpenCV does, with whet.opencv.CascadeClassifier"


class Leaf(NamedTuple):
    """A leaf: the nodes on the way to it, whether the way goes left at each of them, and its value."""

    nodes: tuple[int, ...]
    goes_left: tuple[bool, ...]
    value: float


def stages_of(cascade: OpenCVCascade) -> tuple[Stage, ...]:
    """Fixed stages that accept the windows that OpenCV's stages accept.

    Sums are the same numbers, added in another order: a window whose sum is within 1e-14 of a threshold may be judged
    otherwise. Raises `CannotConvertError` for weights of rectangles that are not whole, and for far too large trees.

    >>> boxes = np.array([[[0, 0, 4, 4], [2, 0, 2, 4], [0, 0, 0, 0]]], dtype=np.int32)
    >>> pool = RectanglePool((4, 4), boxes, np.array([[-1, 2, 0]], dtype=np.float32), np.array([False]))
    >>> ints, floats = (lambda *v: np.array(v, dtype=np.int32)), (lambda *v: np.array(v, dtype=np.float32))
    >>> stump = Trees(ints(0, 1), ints(0), ints(-1), ints(0), floats(0.5), np.zeros((1, 4), np.uint64), floats(-1, 2))
    >>> stage, = stages_of(OpenCVCascade(pool, stump, ints(0, 1), floats(1)))
    >>> stage.coef, round(stage.threshold, 6)
    (array([3.]), 2.0)
    """
    if isinstance(cascade.features, RectanglePool) and not cascade.features.is_exact:
        raise CannotConvertError(f"the cascade has rectangles whose weights are not whole numbers: {INSTEAD}")
    left_out, leaves = _leaves_of(cascade)
    is_plain = cascade.trees.are_stumps and not cascade.has_tilted
    stages = []
    for threshold, trees in zip(cascade.threshold.astype(np.float64), cascade.stages, strict=True):
        above = _just_below(float(threshold - np.array(left_out[trees]).sum()))
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
    return Stage(LeafPool(features, first), TrainedLeaves(weak, first), coef, threshold)


def _conditions(
    cascade: OpenCVCascade, nodes: NDArray[np.intp], goes_left: NDArray[np.bool_]
) -> TrainedStumps | TrainedSubsets:
    """What responds 1 where a window goes this way at a node: left for a code of the subset or a value below."""
    learner, unknown = np.arange(len(nodes)), np.full(len(nodes), np.nan)
    if isinstance(cascade.features, BlockPatternPool):
        subset = cascade.trees.subset[nodes]
        return TrainedSubsets(learner, np.where(goes_left[:, None], subset, ~subset), unknown)
    # Ours is above the threshold where OpenCV's is not below it.
    threshold: NDArray[np.float32] = np.nextafter(cascade.trees.threshold[nodes], np.float32(-np.inf))
    return TrainedStumps(learner, threshold, np.where(goes_left, -1, 1).astype(np.int8), unknown)


def _leaves_of(cascade: OpenCVCascade) -> tuple[list[float], list[list[Leaf]]]:
    """For every tree the value of a leaf that is left out, and the other leaves less that value.

    It is one of the deepest, which has the most conditions. Of a stump it is the leaf of what is below a threshold, or
    not in a subset.
    """
    left_out, leaves, n_conditions = [], [], 0
    for tree in range(len(cascade.trees)):
        found = []
        for leaf in _walk(cascade.trees, tree):
            n_conditions += len(leaf.nodes)
            _check_number(n_conditions)
            found.append(leaf)
        deepest = max(found if cascade.family == "HAAR" else reversed(found), key=lambda leaf: len(leaf.nodes))
        left_out.append(deepest.value)
        leaves.append([leaf._replace(value=leaf.value - deepest.value) for leaf in found if leaf is not deepest])
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
        raise CannotConvertError(f"its leaves have more than {MOST_CONDITIONS:,} conditions in all: {INSTEAD}")


def _just_below(threshold: float) -> float:
    """OpenCV accepts a sum that equals the threshold, ours has to exceed it; with room for another order of adding."""
    return threshold - 1e-14 * max(abs(threshold), 1.0)
