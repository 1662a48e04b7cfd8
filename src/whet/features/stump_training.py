"""Stumps: a feature, a threshold and the side of it that speaks for the positive class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from whet.features.class_weights import ClassWeights
from whet.features.family import Indices
from whet.features.sample_layout import SampleLayout
from whet.kernels.stumps import train_by_histogram, train_by_sorting

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
