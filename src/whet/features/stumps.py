"""Decision stumps: one threshold on one feature, a response of 0 or 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet.features.parallel import for_each_block
from whet.kernels.splits import best_splits, respond_one

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
    def of(cls, X: NDArray[np.float64]) -> SortedFeatures:
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
    return SortedFeatures.of(X).best_stumps(is_positive, scaled)[0]
