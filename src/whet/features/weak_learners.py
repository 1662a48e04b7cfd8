"""Weak learners: stumps, subsets of codes and leaves of trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet._kernels.threads import for_each_block
from whet._kernels.weak_learners import best_splits, respond_one, train_by_histogram, train_by_sorting, train_subsets
from whet.features.integral import FeatureFamily, Indices, IntegralStack
from whet.features.lbp import BlockPatternPool
from whet.features.rectangles import RectanglePool
from whet.features.responses import SampleLayout

Floats = NDArray[np.float64]


class ClassWeights(NamedTuple):
    """Weights as kernels take them, and their sum.

    Two numbers, what a positive and what a negative weighs, or one for every sample, positives first. An
    error that a kernel counts, over `total`, is a share of 1.
    """

    weights: Floats
    total: float


def class_weights(layout: SampleLayout, weights: Floats | None, balanced: bool) -> ClassWeights:
    """Weights of samples (samples,), or equal ones; if balanced, each class weighs one half in all.

    A plain count of errors gives useless stumps, the same answer for nearly all, when negatives outnumber
    positives by ten to one. Equal weights are whole numbers, so that errors are exact and ties are seen.

    >>> class_weights(SampleLayout.from_labels(np.array([True, False, False])), None, balanced=True)
    ClassWeights(weights=array([2., 1.]), total=4.0)
    """
    if weights is None:
        ones, zeros = layout.n_positive, layout.n_negative
        of_classes = np.array([zeros, ones] if balanced else [1, 1], dtype=np.float64)
        return ClassWeights(of_classes, float(of_classes @ [ones, zeros]))
    ordered = _checked(weights, len(layout))[layout.order]
    if balanced:
        ordered[: layout.n_positive] /= 2 * ordered[: layout.n_positive].sum()
        ordered[layout.n_positive :] /= 2 * ordered[layout.n_positive :].sum()
    return ClassWeights(ordered, float(ordered.sum()))


def _checked(weights: Floats, n: int) -> Floats:
    weights = np.asarray(weights, dtype=np.float64)
    if weights.shape != (n,) or not np.all(np.isfinite(weights) & (weights >= 0)):
        raise ValueError(f"got weights of shape {weights.shape}; expected {n} finite numbers, none below zero")
    return weights


# Values a task of stump training: two milliseconds of work, far more than to hand it to a thread.
SAMPLES_AT_ONCE = 1_000_000


@dataclass(frozen=True, eq=False)
class Stumps:
    """A row of decision stumps as three arrays of one length.

    A stump responds 1 when its feature's value lies above its threshold; with polarity -1, when it does not.

    >>> stumps = Stumps(np.array([0, 1]), np.array([0.5, 2.0]), np.array([1, -1], dtype=np.int8))
    >>> stumps.respond(np.array([[1.0, 2.0], [0.0, 3.0]]))
    array([[1, 1],
           [0, 0]], dtype=uint8)
    """

    feature: NDArray[np.intp]
    threshold: NDArray[np.float64]
    polarity: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.feature)

    def respond(self, X: NDArray[np.float64]) -> NDArray[np.uint8]:
        """Responses (samples, stumps) to samples (samples, features), or (stumps,) to one sample (features,)."""
        if X.ndim == 1:  # a compiled loop takes 2 microseconds for 200 stumps, NumPy's indexing 8
            return respond_one(X, self.feature, self.threshold, self.polarity)
        above = X[:, self.feature] > self.threshold
        return (above ^ (self.polarity < 0)).view(np.uint8)

    def take(self, indices: NDArray[np.intp]) -> Stumps:
        """The stumps at these indices, in this order."""
        return Stumps(self.feature[indices], self.threshold[indices], self.polarity[indices])

    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """All that defines the stumps, for hashing."""
        return self.feature, self.threshold, self.polarity


@dataclass(frozen=True, eq=False)
class Identity:
    """Weak learners that pass a feature's value on as it is.

    >>> Identity(np.array([1])).respond(np.array([[5.0, 7.0]]))
    array([[7.]])
    """

    feature: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.feature)

    def respond(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values (samples, selected features)."""
        return np.ascontiguousarray(X[..., self.feature], dtype=np.float64)

    def take(self, indices: NDArray[np.intp]) -> Identity:
        """The learners at these indices, in this order."""
        return Identity(self.feature[indices])

    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """All that defines the learners, for hashing."""
        return (self.feature,)


WeakLearners = Stumps | Identity


@dataclass(frozen=True, eq=False)
class SortedFeatures:
    """Feature values in order (features, samples): sort once, train stumps under many weightings."""

    values: NDArray[np.float64]
    order: NDArray[np.int32]

    @classmethod
    def from_values(cls, X: NDArray[np.float64]) -> SortedFeatures:
        """Sort the columns of X (samples, features)."""
        values = np.ascontiguousarray(X.T)
        order = np.argsort(values, axis=1, kind="stable")
        return cls(np.take_along_axis(values, order, axis=1), order.astype(np.int32))

    def best_stumps(
        self, is_positive: NDArray[np.bool_], weights: NDArray[np.float64]
    ) -> tuple[Stumps, NDArray[np.float64]]:
        """The stump of least weighted error on every feature, and those errors."""
        n_features = len(self.values)
        totals = float(weights[is_positive].sum()), float(weights[~is_positive].sum())
        signed = np.where(is_positive, weights, -weights)
        threshold, error = np.empty(n_features), np.empty(n_features)
        polarity = np.empty(n_features, dtype=np.int8)

        def train(rows: slice) -> None:
            values, order = self.values[rows], self.order[rows]
            best_splits(values, order, signed, *totals, threshold[rows], polarity[rows], error[rows])

        at_once = max(1, SAMPLES_AT_ONCE // self.values.shape[1])
        for_each_block(train, n_features, at_once)
        return Stumps(np.arange(n_features), threshold, polarity), error


def train_stumps(
    X: NDArray[np.float64], is_positive: NDArray[np.bool_], weights: NDArray[np.int64] | None = None
) -> Stumps:
    """Train one stump a feature to the least class-balanced error (line 1 of [ALG:GSLDA]).

    Each class weighs one half in all: a plain error count gives useless constant stumps when negatives
    outnumber positives by ten to one.

    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> train_stumps(X, np.array([False, False, True, True])).threshold
    array([1.5])
    """
    counts = np.ones(len(X), dtype=np.int64) if weights is None else weights
    n_pos, n_neg = int(counts[is_positive].sum()), int(counts[~is_positive].sum())
    # n_pos * n_neg times the balanced error: whole numbers, so a weight of 3 is three copies to the last bit.
    scaled = np.where(is_positive, float(n_neg), float(n_pos)) * counts.astype(np.float64)
    return SortedFeatures.from_values(X).best_stumps(is_positive, scaled)[0]


Method = Literal["histogram", "sorting"]


@dataclass(frozen=True, eq=False)
class TrainedStumps:
    """Stumps as arrays (stumps,): which feature, threshold, polarity, and the error in training.

    A stump responds 1 when the value is above the threshold; with polarity -1, when it is not. A constant
    feature has its value as the threshold, polarity 1 and, with balanced classes, an error of one half.

    >>> stumps = TrainedStumps(*(np.array([v]) for v in (0, np.float32(2.0), np.int8(-1), 0.1)))
    >>> stumps.respond(np.array([[1.0, 2.0, 3.0]], dtype=np.float32))
    array([[ True,  True, False]])
    """

    feature: NDArray[np.intp]
    threshold: NDArray[np.float32]
    polarity: NDArray[np.int8]
    error: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.feature)

    def take(self, indices: Indices) -> TrainedStumps:
        """The stumps at these indices, in this order."""
        sides = self.threshold[indices], self.polarity[indices]
        return TrainedStumps(self.feature[indices], *sides, self.error[indices])

    def respond(self, values: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Responses (stumps, samples) to the values of each stump's own feature (stumps, samples)."""
        return np.asarray((values > self.threshold[:, None]) ^ (self.polarity < 0)[:, None])


class StumpTrainer:
    """Trains a stump on each of `n` features, block by block."""

    def __init__(self, n: int, layout: SampleLayout, weights: ClassWeights, method: Method) -> None:
        self.layout, self.weights = layout, weights
        self.train = {"histogram": train_by_histogram, "sorting": train_by_sorting}[method]
        self.threshold = np.empty(n, dtype=np.float32)
        self.polarity = np.empty(n, dtype=np.int8)
        self.error = np.empty(n)

    def train_block(self, values: NDArray[np.float32], rows: slice, bits: NDArray[np.uint64]) -> None:
        """Train on values (features, samples), positives first; write stumps and `bits` of these rows."""
        columns = (self.threshold[rows], self.polarity[rows], self.error[rows])
        self.train(values, self.layout.n_positive, self.weights.weights, *columns, bits[rows])
        self.error[rows] /= self.weights.total

    def learners(self, feature: NDArray[np.intp]) -> TrainedStumps:
        """What was trained, on these features of a pool."""
        return TrainedStumps(feature, self.threshold, self.polarity, self.error)


CODES = 256


@dataclass(frozen=True, eq=False)
class TrainedSubsets:
    """Sets of codes as arrays: which feature (n,), a bit for each of 256 codes (n, 4), the error (n,).

    A learner responds 1 when the bit of the feature's code is set: code c is bit c % 64 of word c // 64.

    >>> learners = TrainedSubsets(np.array([0]), np.array([[5, 0, 0, 0]], dtype=np.uint64), np.array([0.1]))
    >>> learners.respond(np.array([[0, 1, 2]], dtype=np.uint8))
    array([[ True, False,  True]])
    """

    feature: NDArray[np.intp]
    subset: NDArray[np.uint64]
    error: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.feature)

    def take(self, indices: Indices) -> TrainedSubsets:
        """The learners at these indices, in this order."""
        return TrainedSubsets(self.feature[indices], self.subset[indices], self.error[indices])

    def respond(self, codes: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Responses (learners, samples) to the codes of each learner's own feature (learners, samples)."""
        words = np.take_along_axis(self.subset, (codes // 64).astype(np.intp), axis=1)
        return np.asarray(words >> (codes % 64).astype(np.uint64) & np.uint64(1), dtype=np.bool_)


class SubsetTrainer:
    """Trains a set of codes on each of `n` features, block by block."""

    def __init__(self, n: int, layout: SampleLayout, weights: ClassWeights) -> None:
        self.layout, self.weights = layout, weights
        self.subset = np.empty((n, CODES // 64), dtype=np.uint64)
        self.error = np.empty(n)

    def train_block(self, codes: NDArray[np.uint8], rows: slice, bits: NDArray[np.uint64]) -> None:
        """Train on codes (features, samples), positives first; write sets and `bits` of these rows."""
        columns = (self.subset[rows], self.error[rows], bits[rows])
        train_subsets(codes, self.layout.n_positive, self.weights.weights, *columns)
        self.error[rows] /= self.weights.total

    def learners(self, feature: NDArray[np.intp]) -> TrainedSubsets:
        """What was trained, on these features of a pool."""
        return TrainedSubsets(feature, self.subset, self.error)


Ints = NDArray[np.intp]
ConditionPool = RectanglePool | BlockPatternPool
Conditions = TrainedStumps | TrainedSubsets


@dataclass(frozen=True, eq=False)
class LeafPool:
    """Features that leaves ask for: leaf t those from `first[t]` to `first[t + 1]` (leaves + 1,) of `conditions`.

    >>> pool = LeafPool(BlockPatternPool.from_window((3, 5)), np.array([0, 2, 3]))  # an AND of two, and one
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
