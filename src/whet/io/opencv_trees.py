"""Weak learners as the trees of an OpenCV file.

A stump is a tree of one node. A leaf is a tree of as many nodes as it has conditions, whose other leaves add nothing;
and leaves that come one after the other and whose ways begin alike share a tree, so that the leaves of a tree that
OpenCV trained are that tree again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet.features.family import FeatureFamily
from whet.features.lbp import BlockPatternPool
from whet.features.leaves import Conditions, TrainedLeaves, conditions_of
from whet.features.rectangle_pool import RectanglePool
from whet.features.subset_training import TrainedSubsets
from whet.model.stage import Stage

LEFT, RIGHT = 0, 1


@dataclass(frozen=True)
class Tree:
    """Nodes, parents first: the condition that each of them asks, and its children, left and right.

    A child is the number of a node, or the value of a leaf, None as long as there is none. A window goes left where its
    code is in the subset, or its value is not above the threshold.
    """

    conditions: list[int]
    children: list[list[int | float | None]]

    @property
    def leaves(self) -> list[float]:
        """The values of the leaves, in the order of their nodes."""
        return [child or 0.0 for pair in self.children for child in pair if not isinstance(child, int)]

    @property
    def links(self) -> list[list[int]]:
        """Children as a file has them: a node's number, above 0, or a leaf's, which is made negative."""
        leaves = iter(range(len(self.children) + 1))
        return [[child if isinstance(child, int) else -next(leaves) for child in pair] for pair in self.children]

    @property
    def depth(self) -> int:
        """The most nodes that a window meets."""
        depth = [1] * len(self.children)
        for node, pair in enumerate(self.children):
            for child in pair:
                if isinstance(child, int):
                    depth[child] = depth[node] + 1
        return max(depth)


@dataclass(frozen=True, eq=False)
class Questions:
    """What conditions ask, for telling which of them a tree can ask once."""

    names: list[bytes]
    conditions: Conditions

    @classmethod
    def of(cls, features: FeatureFamily, conditions: Conditions) -> Questions:
        """Name conditions by feature and threshold, or by feature and a subset or all but that subset."""
        columns: list[NDArray[np.generic]]
        match features:
            case RectanglePool() as pool:
                columns = [pool.boxes, pool.weights, pool.tilted]
            case BlockPatternPool() as pool:
                columns = [pool.x, pool.y, pool.block_width, pool.block_height]
            case _:  # never in leaves, which alone share a tree
                columns = [np.arange(len(conditions))]
        if isinstance(conditions, TrainedSubsets):
            columns.append(np.where(conditions.subset[:, :1] >> np.uint64(63), ~conditions.subset, conditions.subset))
        else:
            columns.append(conditions.threshold)
        names = [b"".join(column[t].tobytes() for column in columns) for t in range(len(conditions))]
        return cls(names, conditions)

    def side(self, condition: int, node: int) -> int:
        """Where a window goes that meets a condition, at a node that asks another one of the same name."""
        if isinstance(self.conditions, TrainedSubsets):
            same = np.array_equal(self.conditions.subset[condition], self.conditions.subset[node])
            return LEFT if same else RIGHT
        return LEFT if self.conditions.polarity[condition] < 0 else RIGHT


def trees_of(stage: Stage, n: int) -> list[Tree]:
    """Trees that together add what the first `n` weak learners of a stage add; those of fewer learners begin them.

    >>> from whet.features.haar import HaarPool
    >>> from whet.features.stump_training import TrainedStumps
    >>> above = TrainedStumps(np.arange(2), np.zeros(2, np.float32), np.int8([1, -1]), np.zeros(2))
    >>> stage = Stage(HaarPool.of_window((3, 3)).take(np.arange(2)), above, np.array([2.0, 3.0]), 1.0)
    >>> [(tree.links, tree.leaves) for tree in trees_of(stage, 2)]
    [([[0, -1]], [0.0, 2.0]), ([[0, -1]], [3.0, 0.0])]
    """
    features, conditions, first = conditions_of(stage.features, stage.weak)
    questions, trees = Questions.of(features, conditions), list[Tree]()
    for t, value in enumerate(stage.coef[:n].tolist()):
        way = range(first[t], first[t + 1])
        may_share = bool(trees) and isinstance(stage.weak, TrainedLeaves)
        if not (may_share and _hang(trees[-1], way, float(value), questions)):
            trees.append(Tree([way[0]], [[None, None]]))
            _hang(trees[-1], way, float(value), questions)
    return trees


def _hang(tree: Tree, way: Sequence[int], value: float, questions: Questions) -> bool:
    """Give a tree one more leaf, unless the way there leaves the tree at a node, or ends at a leaf that it has."""
    node = done = side = 0
    for done, condition in enumerate(way, start=1):
        asked = tree.conditions[node]
        if questions.names[condition] != questions.names[asked]:
            return False
        side = questions.side(condition, asked)
        child = tree.children[node][side]
        if child is None:
            break
        if isinstance(child, float) or done == len(way):
            return False
        node = child
    for condition in way[done:]:
        tree.children[node][side] = len(tree.conditions)
        node, side = len(tree.conditions), questions.side(condition, condition)
        tree.conditions.append(condition)
        tree.children.append([None, None])
    tree.children[node][side] = value
    return True
