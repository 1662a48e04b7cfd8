"""Constraints on single samples: the weights nearest to given ones that put each sample on its side.

A constraint says of one sample on which side of the threshold it has to be. Of all weights that satisfy the
constraints, those are taken that change the scores of the training samples least. With x~ = (x, 1) and
w~ = (w, -threshold), the margin of a sample is w~ . x~. For a change v of w~, v^T H v is the mean squared change of the
margins of the training samples, where H = 2 C~_1 / n_1 + C~_2 / n_2 + lambda I is made of the second moments C~_c of x~
over each class. They are integers that every stage keeps. This goes beyond the paper.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet._kernels.cholesky import factorise, invert
from whet._kernels.constraints import leverages, satisfy
from whet.lda.statistics import BinaryStatistics

Floats = NDArray[np.float64]
Bits = NDArray[np.uint8]

# A change of a positive's margin costs twice that of a negative's: an object that is lost is worse.
WEIGHT_OF_POSITIVES = 2.0
SMOOTHING = 1e-4
# In units of |w|: no margin moves by more in the last sweep. The margins of constraints are 2,000 times as wide.
TOLERANCE = 1e-4
# In units of |w|: how far one constraint may move its own margin. Contradictory constraints end here, and a guard gives
# way to what it guards against where both cannot hold.
FARTHEST = 10.0
FARTHEST_GUARD = 1.0
MAX_SWEEPS = 2000


@dataclass(frozen=True, eq=False)
class ChangeMetric:
    """The inverse (T + 1, T + 1) of H: what it costs to move the margin of a sample.

    >>> seen = [BinaryStatistics.from_samples(np.uint8(x)) for x in ([[1, 1], [1, 0]], [[0, 0], [0, 1]])]
    >>> metric = ChangeMetric.from_statistics(*seen)
    >>> metric.leverage(np.uint8([[1, 0]])) > 0
    array([ True])
    """

    inverse: Floats

    @classmethod
    def from_statistics(cls, positive: BinaryStatistics, negative: BinaryStatistics) -> ChangeMetric:
        """The metric of a stage's training samples; the order of operations is fixed."""
        H = WEIGHT_OF_POSITIVES * _second_moments(positive) + _second_moments(negative)
        H[np.diag_indices_from(H)] += SMOOTHING
        factor, failed = factorise(H)
        if failed >= 0:
            raise ValueError("the second moments are not those of any samples: the matrix has no Cholesky factor")
        return cls(invert(factor))

    def leverage(self, responses: Bits) -> Floats:
        """x~ . H^-1 x~ (n,) of responses (n, T): moving the margin of x by m costs m^2 / leverage."""
        result = np.empty(len(responses))
        leverages(self.inverse, np.ascontiguousarray(responses), result)
        return result


def _second_moments(statistics: BinaryStatistics) -> Floats:
    """Mean (T + 1, T + 1) of x~ x~^T."""
    T = len(statistics.s)
    moments = np.empty((T + 1, T + 1))
    moments[:T, :T] = statistics.C
    moments[:T, T] = moments[T, :T] = statistics.s
    moments[T, T] = statistics.n
    return moments / statistics.n


@dataclass(frozen=True, eq=False)
class Constraints:
    """Responses (n, T), the side (n,) of each, 1 for positive and -1 for negative, and the least margin (n,) there.

    The last `n_guards` of them give way where the others cannot hold.
    """

    responses: Bits
    side: Floats
    margin: Floats
    n_guards: int = 0

    def __len__(self) -> int:
        return len(self.side)


def nearest_weights(coef: Floats, threshold: float, metric: ChangeMetric, wanted: Constraints) -> tuple[Floats, float]:
    """Weights (T,) and threshold that satisfy the constraints and change scores least; the same bits for the same rows.

    Where all constraints are satisfied already, nothing changes. Where they contradict one another, some stay
    unsatisfied.

    >>> seen = [BinaryStatistics.from_samples(np.uint8(x)) for x in ([[1, 1], [1, 0]], [[0, 0], [0, 1]])]
    >>> reject = Constraints(np.uint8([[1, 0]]), np.array([-1.0]), np.array([0.1]))
    >>> coef, threshold = nearest_weights(np.array([1.0, 0.2]), 0.5, ChangeMetric.from_statistics(*seen), reject)
    >>> round(float(coef[0] - threshold), 6)
    -0.1
    """
    w = np.append(coef, -threshold)
    length = float(np.sqrt(np.cumsum(coef * coef)[-1]))
    farthest = np.full(len(wanted), FARTHEST * length)
    farthest[len(wanted) - wanted.n_guards :] = FARTHEST_GUARD * length
    satisfy(
        w,
        np.ascontiguousarray(wanted.responses),
        metric.inverse,
        wanted.side,
        wanted.margin,
        farthest,
        TOLERANCE * length,
        MAX_SWEEPS,
    )
    return w[:-1].copy(), -float(w[-1])
