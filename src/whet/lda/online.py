"""The discriminant that follows a stream: two classes' statistics and what is derived from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet._kernels import cholesky
from whet._kernels.statistics import binary_step, centred_step, direction_and_moments
from whet.errors import ForgettingError
from whet.lda.discriminant import Criterion, check_factor, degrees_of_freedom, regularised
from whet.lda.statistics import BinaryStatistics, ClassStatistics, DecayingStatistics
from whet.lda.thresholds import Projection, Rule, fisher

# The inverse is recomputed from the statistics after so many rank-one steps. After 100,000 steps on correlated
# features float64 drifts by 2e-8; refreshed every 1,000, by less than 1e-10.
REFRESH_EVERY = 1000
# A denominator of Sherman-Morrison below this means that the step all but annihilates a direction.
SMALLEST_DENOMINATOR = 1e-6
# The residual of A v = m_1 - m_2 (relative) that a rank-one step may leave before a refresh.
LARGEST_RESIDUAL = 1e-11


class OnlineDiscriminant:
    """Linear discriminant of two classes that follows every sample, in O(T^2) each.

    The statistics are the truth; inverse, direction and moments are caches. `insert` and `remove` carry the
    caches along (Algorithm OGSLDA); any other change drops them, and they are derived anew when next asked for.
    With statistics of P > T responses, the discriminant is over the first T: the rest is a reserve.

    >>> from whet.lda.thresholds import bayes_crossing
    >>> ones = BinaryStatistics.from_samples(np.array([[1, 0], [1, 1], [1, 1]], dtype=np.uint8))
    >>> zeros = BinaryStatistics.from_samples(np.array([[0, 0], [0, 1], [1, 0]], dtype=np.uint8))
    >>> online = OnlineDiscriminant(ones, zeros, 2, rule=bayes_crossing, ridge=1.0)
    >>> online.insert(np.array([1, 0], dtype=np.uint8), is_positive=True)
    >>> online.coef.round(3), round(online.threshold, 3)
    (array([2.115, 0.577]), 1.869)
    """

    def __init__(
        self,
        positive: ClassStatistics,
        negative: ClassStatistics,
        size: int,
        *,
        rule: Rule,
        criterion: Criterion = "fda",
        ridge: float = 0.0,
    ) -> None:
        self.positive = positive
        self.negative = negative
        self.size = size
        self.rule = rule
        self.criterion = criterion
        self.ridge = ridge
        self.n_refreshes = 0
        self._is_stale = True
        self._v = np.empty(0)  # A^-1 (m_1 - m_2): the direction without its factor
        self._factor = np.empty((0, 0))  # Cholesky factor of A at the last refresh
        self._inverse: NDArray[np.float64] | None = None
        self._moments: Sequence[float] = ()  # of v^T x: mean and variance, positives, then negatives
        self._n_steps = 0

    def forget_caches(self) -> None:
        """Say that the statistics were changed from outside."""
        self._is_stale = True

    def refresh(self) -> None:
        """Derive inverse, direction and moments from the statistics alone: equal statistics, equal bits."""
        self._is_stale = True  # until the end: a scatter that cannot be factorised leaves nothing to read
        positive, negative = self._voting(self.positive), self._voting(self.negative)
        S_1, S_2 = positive.scatter, negative.scatter
        A = regularised(S_1, S_2, self.criterion, self.ridge)
        classes = positive.n, positive.mean, S_1, negative.n, negative.mean, S_2
        U, failed, v, moments = direction_and_moments(A, *classes)
        check_factor(U, failed)
        self._factor, self._inverse, self._v, self._moments = U, None, v, moments
        self._n_steps = 0
        self._is_stale = False
        self.n_refreshes += 1

    def insert(self, x: NDArray[Any], is_positive: bool, k: int = 1) -> None:
        """Learn one response x (P,), counted k times; a negative k takes it out."""
        if isinstance(self.positive, DecayingStatistics):
            self._insert_decaying(x, is_positive, k)
            return
        if k == 0:
            return
        if self._is_stale:
            self.refresh()
        if self._inverse is None:
            self._inverse = cholesky.invert(self._factor)
        self._step(x, is_positive, k)

    def remove(self, x: NDArray[Any], is_positive: bool, k: int = 1) -> None:
        """Take one response x (P,) out again, k times."""
        self.insert(x, is_positive, -k)

    def _step(self, x: NDArray[Any], is_positive: bool, k: int) -> None:
        a: Any = self.positive
        b: Any = self.negative
        common: Any = (self.ridge, self.criterion == "lac", self._inverse, self._v, SMALLEST_DENOMINATOR)
        if isinstance(a, BinaryStatistics):
            step = binary_step(x, k, is_positive, a.n, a.s, a.C, b.n, b.s, b.C, *common)
        else:
            step = centred_step(x, k, is_positive, a.n, a.m, a.S, b.n, b.m, b.S, *common)
        (a if is_positive else b).n += k
        denominator, residual, *self._moments = step
        self._n_steps += 1
        if denominator < SMALLEST_DENOMINATOR or not residual <= LARGEST_RESIDUAL or self._n_steps >= REFRESH_EVERY:
            self.refresh()

    def _insert_decaying(self, x: NDArray[Any], is_positive: bool, k: int) -> None:
        if k < 0:
            raise ForgettingError("statistics that decay cannot unlearn; restore a copy made before")
        if k == 0:
            return
        # Fading one class changes the scatter by a matrix of full rank, which no rank-one step can follow.
        (self.positive if is_positive else self.negative).insert(x, k)
        self.forget_caches()

    @property
    def coef(self) -> NDArray[np.float64]:
        """Direction w (T,)."""
        if self._is_stale:
            self.refresh()
        return self._factor_of_w * self._v

    @property
    def projection(self) -> Projection:
        """The two classes as the direction projects them."""
        if self._is_stale:
            self.refresh()
        f = self._factor_of_w
        mean_1, variance_1, mean_2, variance_2 = self._moments
        return Projection(
            f * mean_1,
            f * math.sqrt(variance_1),
            f * mean_2,
            f * math.sqrt(variance_2),
            self.positive.n,
            self.negative.n,
        )

    @property
    def threshold(self) -> float:
        """The score above which a sample is taken for positive, by the rule.

        Classes with one mean have no direction, every score is 0, and the larger class wins.
        """
        p = self.projection
        return self.rule(p) if p.mu_1 > p.mu_2 else fisher(p)

    def _voting(self, statistics: ClassStatistics) -> ClassStatistics:
        """Without the reserve."""
        return statistics if len(statistics.mean) == self.size else statistics.take(np.arange(self.size))

    @property
    def _factor_of_w(self) -> float:
        return degrees_of_freedom(self.positive.n, self.negative.n, self.criterion)
