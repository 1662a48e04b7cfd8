"""The linear discriminant of two classes, Fisher's [FDA] or Wu's asymmetric one [LAC], and its online update."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from whet._kernels import lda_algebra as cholesky
from whet._kernels.lda_algebra import binary_step, centred_step, direction_and_moments
from whet.arrays import Floats
from whet.errors import CannotUnlearnError, ForgettingError, SingularScatterError
from whet.lda.statistics import BinaryStatistics, ClassStatistics, DecayingStatistics
from whet.lda.thresholds import Projection, Rule, deviations, fisher

Criterion = Literal["fda", "lac"]

# In units of scatter, so a prior worth 80 samples of independent fair coins (each scatters 1/4): it steadies few
# samples and fades with more of them. docs/decisions.md has the measurements.
DEFAULT_RIDGE = 20.0


def regularised_scatter(
    positive: ClassStatistics, negative: ClassStatistics, criterion: Criterion, ridge: float
) -> Floats:
    """A = S_1 + S_2 + ridge I for FDA, S_1 + ridge I for LAC; (P, P), in units of scatter (not covariance)."""
    return regularised(positive.scatter, negative.scatter, criterion, ridge)


def regularised(positive: Floats, negative: Floats, criterion: Criterion, ridge: float) -> Floats:
    """The same, of scatters (P, P) that are known already."""
    A = positive + negative if criterion == "fda" else positive.copy()
    np.einsum("ii->i", A)[:] += ridge  # its diagonal, in whatever order it lies in memory
    return A


def degrees_of_freedom(n_positive: float, n_negative: float, criterion: Criterion) -> float:
    """What scatter has to be divided by to be a covariance, at least 1.

    As a factor of w it keeps scores from shrinking with more samples, and makes Fisher's prior term right.
    """
    return max(n_positive + n_negative - 2 if criterion == "fda" else n_positive - 1, 1)


def check_combination(criterion: Criterion, rule: Rule) -> None:
    """Raise ValueError for Fisher's threshold on scores of LAC.

    The rule adds a log ratio of priors to scores that are log odds up to a constant. Those of FDA are, for classes of
    one covariance; those of LAC leave out the scatter of the negatives, and are not.
    """
    if criterion == "lac" and rule is fisher:
        raise ValueError(
            "got criterion='lac' with threshold='fisher'; it adds log priors to scores, and scores of LAC are not log "
            "odds: use threshold='bayes' or another rule, or criterion='fda'"
        )


def factorise(A: Floats) -> Floats:
    """Upper Cholesky factor of the regularised scatter."""
    U, failed = cholesky.factorise(A)
    check_factor(U, failed)
    return U


def check_factor(U: Floats, failed: int) -> None:
    """Raise SingularScatterError if the pivot of a row was zero; -1 stands for none."""
    if failed >= 0:
        raise SingularScatterError(
            f"the scatter matrix ({len(U)} x {len(U)}) is singular at row {failed}: two weak learners respond "
            "alike, or one never changes; use a larger ridge"
        )


# The inverse is recomputed from the statistics after this many rank-one steps. After 100,000 steps on correlated
# features float64 drifts by 2e-8; refreshed every 1,000, by less than 1e-10.
REFRESH_EVERY = 1000
# A denominator of Sherman-Morrison below this means that the step all but annihilates a direction.
SMALLEST_DENOMINATOR = 1e-6
# The residual of A v = m_1 - m_2 (relative) that a rank-one step may leave before a refresh.
LARGEST_RESIDUAL = 1e-11


class OnlineDiscriminant:
    """Linear discriminant of two classes that follows every sample, in O(T^2) each.

    The statistics are the truth; inverse, direction and moments are caches. `insert` carries the
    caches along (Algorithm OGSLDA); any other change drops them, and they are derived anew when next needed.
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
        check_combination(criterion, rule)
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
        self._inverse: Floats | None = None
        self._moments: Sequence[float] = ()  # of v^T x: mean and variance, positives, then negatives
        self._n_steps = 0

    def forget_caches(self) -> None:
        """Drop all derived values after the statistics were changed from outside."""
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
        self._factor, self._inverse, self._v, self._moments = U, None, v, moments.tolist()
        self._n_steps = 0
        self._is_stale = False
        self.n_refreshes += 1

    def insert(self, x: NDArray[Any], is_positive: bool, k: int = 1) -> None:
        """Learn one response x (P,), counted k times; a negative k takes it out."""
        if k == 0:
            return
        if isinstance(self.positive, DecayingStatistics):
            if k < 0:
                raise ForgettingError("statistics that decay cannot unlearn; restore a copy made before")
            # Fading one class changes the scatter by a matrix of full rank, which no rank-one step can follow.
            (self.positive if is_positive else self.negative).insert(x, k)
            self.forget_caches()
            return
        n = (self.positive if is_positive else self.negative).n
        if -k >= n:
            kind = "positives" if is_positive else "negatives"
            raise CannotUnlearnError(
                f"cannot remove {-k} of {n} {kind}: a discriminant needs samples of both classes; nothing was changed"
            )
        if self._is_stale:
            self.refresh()
        if self._inverse is None:
            self._inverse = cholesky.invert(self._factor)
        self._step(x, is_positive, k)

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

    @property
    def coef(self) -> Floats:
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
        sigma_1, sigma_2 = f * math.sqrt(variance_1), f * math.sqrt(variance_2)
        return Projection(f * mean_1, sigma_1, f * mean_2, sigma_2, self.positive.n, self.negative.n)

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


def log_odds(scores: Floats, p: Projection, threshold: float) -> Floats:
    """Log odds of the two projected Gaussians, shifted to 0 at the threshold, monotone in the score.

    With unequal variances the log ratio is a parabola: beyond its extreme it would fall again, so there it is
    held constant. A class without variance counts as one of `LEAST_DEVIATION`: all but a step. Where the threshold
    itself lies beyond the extreme, the variances are pooled: a line through the threshold.
    """
    sigma_1, sigma_2 = deviations(p)
    v1, v2 = sigma_1**2, sigma_2**2
    low, high = _monotone_range(p.mu_1 - p.mu_2, v1, v2)
    if not low < threshold - p.mu_2 < high:
        return _pooled(scores, p, threshold)
    low, high = min(p.mu_2 + low, threshold), max(p.mu_2 + high, threshold)
    narrow = p.mu_1 if v1 < v2 else p.mu_2

    def rise(to: Floats) -> Floats:
        # The difference of the parabola at two places, in a form that does not cancel: (x - t) times the slope midway.
        # Between the means the slope is least at the narrower class; it is taken from there.
        slope = (p.mu_1 - p.mu_2) / max(v1, v2) + ((to + threshold) / 2 - narrow) * (1 / v2 - 1 / v1)
        return np.asarray((to - threshold) * np.maximum(slope, 0.0))

    odds = rise(np.clip(scores, low, high))
    if v1 == v2:
        return odds
    # At the extreme the parabola is flat: there rounding could put a lower score above a higher one.
    return np.minimum(odds, rise(np.array(high))) if v1 < v2 else np.maximum(odds, rise(np.array(low)))


def _monotone_range(gap: float, v1: float, v2: float) -> tuple[float, float]:
    """Where the log ratio of the two densities rises: it does between the means, up to its extreme.

    As distances from mu_2: with a variance near 0 the extreme is all but one of the means, and added to a large mean
    it would be that mean.
    """
    if not gap > 0:
        return 0.0, 0.0
    if v1 == v2:
        return -math.inf, math.inf
    extreme = -gap * v2 / (v1 - v2)  # below mu_2 if v1 > v2, else above mu_1
    return (extreme, math.inf) if v1 > v2 else (-math.inf, extreme)


def _pooled(scores: Floats, p: Projection, threshold: float) -> Floats:
    gap = p.mu_1 - p.mu_2
    variance = (p.n_1 * p.sigma_1**2 + p.n_2 * p.sigma_2**2) / (p.n_1 + p.n_2)
    # Without any variance the posterior is a step; without a gap every score is 0, and the prior is left.
    steepest = min(1e12 / gap, 1e300) if gap > 0 else 1.0
    slope = min(gap / variance, steepest) if variance > 0 and gap > 0 else steepest
    return np.asarray((scores - threshold) * slope)


def probability(scores: Floats, p: Projection, threshold: float) -> Floats:
    """Posterior of the positive class: 0.5 at the threshold and above 0.5 just where the score is above it.

    >>> p = Projection(1.0, 0.5, -1.0, 0.5, 10, 10)
    >>> probability(np.array([-0.2, 0.0, 0.2]), p, 0.0).round(3)
    array([0.168, 0.5  , 0.832])
    """
    from scipy.special import expit

    return np.asarray(expit(log_odds(scores, p, threshold)))
