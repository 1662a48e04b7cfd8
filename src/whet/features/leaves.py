"""The leaves of decision trees as weak learners: a window is in a leaf where it meets all conditions on the way there.

The way to a leaf is a conjunction, and a stump's leaf is one of a single condition. What a tree adds to a sum is its
leaves' values, each times the indicator of its leaf; indicators are responses in {0, 1} as those of any weak learner.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet.features.family import FeatureFamily, Indices
from whet.features.integral import IntegralStack
from whet.features.lbp import BlockPatternPool
from whet.features.rectangle_pool import RectanglePool
from whet.features.stump_training import TrainedStumps
from whet.features.subset_training import TrainedSubsets

Ints = NDArray[np.intp]
ConditionPool = RectanglePool | BlockPatternPool
Conditions = TrainedStumps | TrainedSubsets


@dataclass(frozen=True, eq=False)
class LeafPool:
    """Features that leaves ask for: leaf t those from `first[t]` to `first[t + 1]` (leaves + 1,) of `conditions`.

    >>> pool = LeafPool(BlockPatternPool.of_window((3, 5)), np.array([0, 2, 3]))  # an AND of two, and one
    >>> len(pool), pool.joins, pool.take(np.array([1])).conditions.describe(0)
    (2, array([1, 0, 0], dtype=uint8), BlockPattern(x=2, y=0, block_width=1, block_height=1))
    """

    conditions: ConditionPool
    first: Ints

    def __post_init__(self) -> None:
        check_first(self.first, len(self.conditions))

    @property
    def window(self) -> tuple[int, int]:
        """Height and width of the windows."""
        return self.conditions.window

    @property
    def categories(self) -> int | None:
        """As of the conditions."""
        return self.conditions.categories

    @property
    def joins(self) -> NDArray[np.uint8]:
        """1 for every condition (conditions,) that another one of its leaf follows."""
        joins = np.ones(len(self.conditions), dtype=np.uint8)
        joins[self.first[1:] - 1] = 0
        return joins

    def __len__(self) -> int:
        return len(self.first) - 1

    def take(self, indices: Indices) -> LeafPool:
        """The leaves at these indices, in this order."""
        rows, first = rows_of(self.first, indices)
        return LeafPool(self.conditions.take(rows), first)

    def evaluate(self, stack: IntegralStack) -> NDArray[np.float32] | NDArray[np.uint8]:
        """Values (conditions, samples) of the features that the conditions are about."""
        return self.conditions.evaluate(stack)


@dataclass(frozen=True, eq=False)
class TrainedLeaves:
    """Conjunctions of `conditions`, from `first[t]` to `first[t + 1]` for leaf t: 1 where all of them respond 1.

    >>> above = TrainedStumps(np.arange(2), np.float32([1, 5]), np.int8([1, -1]), np.zeros(2))
    >>> TrainedLeaves(above, np.array([0, 2])).respond(np.float32([[0, 2, 2], [4, 4, 6]]))
    array([[False,  True, False]])
    """

    conditions: Conditions
    first: Ints

    def __post_init__(self) -> None:
        check_first(self.first, len(self.conditions))

    def __len__(self) -> int:
        return len(self.first) - 1

    def take(self, indices: Indices) -> TrainedLeaves:
        """The leaves at these indices, in this order."""
        rows, first = rows_of(self.first, indices)
        return TrainedLeaves(self.conditions.take(rows), first)

    def respond(self, values: NDArray[np.float32] | NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Responses (leaves, samples) to the values of each condition's own feature (conditions, samples)."""
        answers: NDArray[np.bool_] = self.conditions.respond(values)  # type: ignore[arg-type]  # made for each other
        return np.logical_and.reduceat(answers, self.first[:-1], axis=0)


Weak = Conditions | TrainedLeaves


def conditions_of(features: FeatureFamily, weak: Weak) -> tuple[FeatureFamily, Conditions, Ints]:
    """Features and tests of all conditions of weak learners, and where those of each begin (learners + 1,).

    A learner that is no leaf is a condition by itself.
    """
    if isinstance(weak, TrainedLeaves):
        if not isinstance(features, LeafPool) or not np.array_equal(features.first, weak.first):
            raise TypeError(f"got leaves on {type(features).__name__}; expected the LeafPool that was made with them")
        return features.conditions, weak.conditions, weak.first
    return features, weak, np.arange(len(weak) + 1)


def check_first(first: Ints, conditions: int) -> None:
    """Raise ValueError unless every leaf has conditions of its own, and every condition a leaf."""
    if len(first) < 2 or first[0] != 0 or first[-1] != conditions or (np.diff(first) < 1).any():
        raise ValueError(f"every leaf has at least one of the {conditions} conditions, and every condition a leaf")


def rows_of(first: Ints, indices: Indices) -> tuple[Ints, Ints]:
    """The conditions of some leaves, and where those of each begin among them (leaves + 1,).

    >>> rows_of(np.array([0, 2, 3]), np.array([1, 0]))
    (array([2, 0, 1]), array([0, 1, 3]))
    """
    starts, sizes = first[:-1][indices], np.diff(first)[indices]
    begin = np.concatenate([[0], np.cumsum(sizes)])
    rows = np.repeat(starts - begin[:-1], sizes) + np.arange(begin[-1])
    return rows, begin
