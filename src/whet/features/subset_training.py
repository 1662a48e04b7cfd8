"""Weak learners on categorical features: the set of codes that speaks for the positive class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet.features.class_weights import ClassWeights
from whet.features.family import Indices
from whet.features.sample_layout import SampleLayout
from whet.kernels.subsets import train_subsets

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
