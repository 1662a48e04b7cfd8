"""Weak learners as they are run: stumps, subsets of codes, and leaves of trees.

`whet.models.gslda.weak_training` trains stumps and subsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from whet._kernels.pixel_sums import respond_one
from whet.arrays import Floats
from whet.models.gslda.integral import Columns, ColumnTypes, FeatureFamily, Indices, IntegralStack, ScannedFamily

Ints = NDArray[np.intp]

# Codes are bytes, and a subset has a bit for each: families with fewer codes leave some of them unused.
MOST_CODES = 256


@dataclass(frozen=True, eq=False)
class Stumps:
    """Decision stumps as arrays (stumps,): feature, threshold, polarity, and weighted error in training.

    A stump responds 1 if the value of its feature is above the threshold; with polarity -1, if it is not. The
    threshold has the type of the values: float32 for features of images, float64 for the columns of a matrix. A
    constant feature has its value as the threshold and polarity 1.

    >>> stumps = Stumps(np.array([0, 1]), np.float32([2, 5]), np.int8([-1, 1]), np.array([0.1, 0.2]))
    >>> stumps.respond(np.float32([[1, 2, 3], [4, 5, 6]]))
    array([[ True,  True, False],
           [False, False,  True]])
    """

    feature: Ints
    threshold: NDArray[np.floating[Any]]
    polarity: NDArray[np.int8]
    error: Floats

    column_types: ClassVar[ColumnTypes] = {
        "threshold": (np.dtype(np.float32), ()),
        "polarity": (np.dtype(np.int8), ()),
    }

    @classmethod
    def from_columns(cls, columns: Columns) -> Stumps:
        """Stumps, number t on feature t, from the columns of a file; raises ValueError for impossible ones."""
        threshold, polarity = columns["threshold"], columns["polarity"]
        if not np.isfinite(threshold).all():
            raise ValueError(f"threshold of stump {int(np.argmin(np.isfinite(threshold)))} is not a finite number")
        if not (abs(polarity.astype(np.int64)) == 1).all():
            raise ValueError("the polarity of a stump is 1 or -1")
        return cls(np.arange(len(threshold)), threshold, polarity, np.full(len(threshold), np.nan))

    def __len__(self) -> int:
        return len(self.feature)

    def take(self, indices: Indices) -> Stumps:
        """The stumps at these indices, in this order."""
        sides = self.threshold[indices], self.polarity[indices]
        return Stumps(self.feature[indices], *sides, self.error[indices])

    def respond(self, values: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
        """Responses (stumps, samples) to the values of each stump's own feature (stumps, samples)."""
        return np.asarray((values > self.threshold[:, None]) ^ (self.polarity < 0)[:, None])

    def transform(self, X: Floats) -> NDArray[np.uint8]:
        """Responses (samples, stumps) to all features of samples (samples, features); (stumps,) to one (features,).

        >>> stumps = Stumps(np.array([1]), np.array([2.0]), np.int8([-1]), np.zeros(1))
        >>> stumps.transform(np.array([[9.0, 2.0], [9.0, 3.0]])), stumps.transform(np.array([9.0, 2.0]))
        (array([[1],
               [0]], dtype=uint8), array([1], dtype=uint8))
        """
        if X.ndim == 1:  # a compiled loop takes 2 microseconds for 200 stumps, NumPy's indexing 8
            return respond_one(X, self.feature, self.threshold, self.polarity)
        above = X[:, self.feature] > self.threshold
        return (above ^ (self.polarity < 0)).view(np.uint8)

    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """All arrays that decide the responses, for hashing."""
        return self.feature, self.threshold, self.polarity


@dataclass(frozen=True, eq=False)
class Subsets:
    """Sets of codes as arrays: which feature (n,), a bit for each of 256 codes (n, 4), the error (n,).

    A learner responds 1 when the bit of the feature's code is set: code c is bit c % 64 of word c // 64.

    >>> learners = Subsets(np.array([0]), np.array([[5, 0, 0, 0]], dtype=np.uint64), np.array([0.1]))
    >>> learners.respond(np.array([[0, 1, 2]], dtype=np.uint8))
    array([[ True, False,  True]])
    """

    feature: NDArray[np.intp]
    subset: NDArray[np.uint64]
    error: NDArray[np.float64]

    column_types: ClassVar[ColumnTypes] = {"subset": (np.dtype(np.uint64), (MOST_CODES // 64,))}

    @classmethod
    def from_columns(cls, columns: Columns) -> Subsets:
        """Subsets, number t on feature t, from the columns of a file."""
        subset = columns["subset"]
        return cls(np.arange(len(subset)), subset, np.full(len(subset), np.nan))

    def __len__(self) -> int:
        return len(self.feature)

    def take(self, indices: Indices) -> Subsets:
        """The learners at these indices, in this order."""
        return Subsets(self.feature[indices], self.subset[indices], self.error[indices])

    def respond(self, codes: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Responses (learners, samples) to the codes of each learner's own feature (learners, samples)."""
        words = np.take_along_axis(self.subset, (codes // 64).astype(np.intp), axis=1)
        return np.asarray(words >> (codes % 64).astype(np.uint64) & np.uint64(1), dtype=np.bool_)


@dataclass(frozen=True, eq=False)
class LeafPool:
    """Features of the conditions of leaves: leaf t has `conditions` from `first[t]` to `first[t + 1]` (leaves + 1,).

    >>> from whet.models.gslda.pools import BlockPatternPool
    >>> pool = LeafPool(BlockPatternPool.from_window((3, 5)), np.array([0, 2, 3]))  # an AND of two, and one
    >>> len(pool), pool.joins, pool.take(np.array([1])).conditions.describe(0)
    (2, array([1, 0, 0], dtype=uint8), BlockPattern(x=2, y=0, block_width=1, block_height=1))
    """

    conditions: ScannedFamily
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
        """Values (conditions, samples) of the features of all conditions."""
        return self.conditions.evaluate(stack)


@dataclass(frozen=True, eq=False)
class Leaves:
    """Conjunctions of `conditions`, from `first[t]` to `first[t + 1]` for leaf t: 1 where all of them respond 1.

    >>> above = Stumps(np.arange(2), np.float32([1, 5]), np.int8([1, -1]), np.zeros(2))
    >>> Leaves(above, np.array([0, 2])).respond(np.float32([[0, 2, 2], [4, 4, 6]]))
    array([[False,  True, False]])
    """

    conditions: Stumps | Subsets
    first: Ints

    def __post_init__(self) -> None:
        check_first(self.first, len(self.conditions))

    def __len__(self) -> int:
        return len(self.first) - 1

    def take(self, indices: Indices) -> Leaves:
        """The leaves at these indices, in this order."""
        rows, first = rows_of(self.first, indices)
        return Leaves(self.conditions.take(rows), first)

    def respond(self, values: NDArray[np.float32] | NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Responses (leaves, samples) to the values of each condition's own feature (conditions, samples)."""
        answers: NDArray[np.bool_] = self.conditions.respond(values)  # type: ignore[arg-type]  # made for each other
        return np.logical_and.reduceat(answers, self.first[:-1], axis=0)


WeakLearners = Stumps | Subsets | Leaves


def conditions_of(features: FeatureFamily, weak: WeakLearners) -> tuple[ScannedFamily, Stumps | Subsets, Ints]:
    """Features and tests of all conditions of weak learners, and where those of each begin (learners + 1,).

    A learner that is no leaf is a condition by itself.
    """
    if isinstance(weak, Leaves):
        if not isinstance(features, LeafPool) or not np.array_equal(features.first, weak.first):
            raise TypeError(f"got leaves on {type(features).__name__}; expected the LeafPool that was made with them")
        return features.conditions, weak.conditions, weak.first
    return cast(ScannedFamily, features), weak, np.arange(len(weak) + 1)


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
