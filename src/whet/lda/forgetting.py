"""Statistics that forget, for streams that drift.

Decay makes the sums fractional and dependent on the order of the samples, so nothing can be taken out again
and nothing merged: rolling back means restoring a snapshot (`copy`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Never, Self

import numpy as np
from numpy.typing import NDArray

from whet.errors import ForgettingError
from whet.lda.class_statistics import CentredStatistics, ClassStatistics


@dataclass(eq=False)
class DecayingStatistics(CentredStatistics):
    """Centred float64 statistics in which every new sample first fades the old ones by `decay`.

    A class fades only when one of its own samples comes: a stream of positives alone does not wear the
    negatives away. The memory is about the last 1 / (1 - decay) samples of each class.

    >>> a = DecayingStatistics.starting_from(CentredStatistics.of(np.array([[0.0], [2.0]])), decay=0.5)
    >>> a.insert(np.array([4.0]))
    >>> a.n, a.m
    (2.0, array([2.5]))
    """

    decay: float = 1.0

    @classmethod
    def starting_from(cls, statistics: ClassStatistics, decay: float) -> Self:
        """Go on from exact statistics, forgetting from now on."""
        return cls(float(statistics.n), statistics.mean.copy(), statistics.scatter.copy(), decay)

    def insert(self, x: NDArray[Any], k: int = 1) -> None:
        """Fade what is there once, then count the sample x (P,) k times."""
        self._fade(self.decay)
        super().insert(x, k)

    def insert_many(self, X: NDArray[Any], weights: NDArray[Any] | None = None) -> None:
        """Insert the rows of X (N, P) in their order, each `weights` times."""
        k = np.ones(len(X)) if weights is None else weights
        age = np.arange(len(X) - 1, -1, -1)
        block = CentredStatistics.of(X, k * self.decay**age)
        self._fade(self.decay ** len(X))
        vars(self).update(vars(CentredStatistics(self.n, self.m, self.S) + block))

    def remove_many(self, X: NDArray[Any], weights: NDArray[Any] | None = None) -> Never:  # noqa: ARG002
        """Refuse: no single sample can be told apart any more."""
        raise self._cannot_unlearn()

    def _fade(self, factor: float) -> None:
        self.n *= factor
        self.S *= factor

    def take(self, indices: NDArray[np.intp]) -> Self:
        """Statistics of the responses at these indices, in this order."""
        return type(self)(self.n, self.m[indices], self.S[np.ix_(indices, indices)], self.decay)

    def __add__(self, other: object) -> Never:
        raise ForgettingError("statistics that decay cannot be merged; train with decay=1 to merge exactly")

    def __sub__(self, other: object) -> Never:
        raise self._cannot_unlearn()

    @staticmethod
    def _cannot_unlearn() -> ForgettingError:
        return ForgettingError("statistics that decay cannot unlearn; restore a copy, or train with decay=1")
