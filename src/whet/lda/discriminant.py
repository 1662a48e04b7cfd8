"""The direction that separates two classes best, Fisher's [FDA] or Wu's asymmetric one [LAC], and probabilities."""

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from whet._kernels import cholesky
from whet.errors import SingularScatterError
from whet.lda.statistics import ClassStatistics
from whet.lda.thresholds import Projection

Criterion = Literal["fda", "lac"]

# In units of scatter, so a prior worth 80 samples of independent fair coins (each scatters 1/4): it steadies few
# samples and fades as more come. docs/decisions.md tells how it was chosen.
DEFAULT_RIDGE = 20.0


def regularised_scatter(
    positive: ClassStatistics, negative: ClassStatistics, criterion: Criterion, ridge: float
) -> NDArray[np.float64]:
    """A = S_1 + S_2 + ridge I for FDA, S_1 + ridge I for LAC; (P, P), in units of scatter (not covariance)."""
    return regularised(positive.scatter, negative.scatter, criterion, ridge)


def regularised(
    positive: NDArray[np.float64], negative: NDArray[np.float64], criterion: Criterion, ridge: float
) -> NDArray[np.float64]:
    """The same, of scatters (P, P) that are known already."""
    A = positive + negative if criterion == "fda" else positive.copy()
    np.einsum("ii->i", A)[:] += ridge  # its diagonal, in whatever order it lies in memory
    return A


def degrees_of_freedom(n_positive: float, n_negative: float, criterion: Criterion) -> float:
    """What scatter has to be divided by to be a covariance, at least 1.

    As a factor of w it keeps scores from shrinking as samples come, and makes Fisher's prior term right.
    """
    return max(n_positive + n_negative - 2 if criterion == "fda" else n_positive - 1, 1)


def factorise(A: NDArray[np.float64]) -> NDArray[np.float64]:
    """Upper Cholesky factor of the regularised scatter."""
    U, failed = cholesky.factorise(A)
    check_factor(U, failed)
    return U


def check_factor(U: NDArray[np.float64], failed: int) -> None:
    """Raise SingularScatterError if the pivot of a row was zero; -1 stands for none."""
    if failed >= 0:
        raise SingularScatterError(
            f"the scatter matrix ({len(U)} x {len(U)}) is singular at row {failed}: two weak learners respond "
            "alike, or one never changes; use a larger ridge"
        )


def direction(
    positive: ClassStatistics, negative: ClassStatistics, criterion: Criterion = "fda", ridge: float = 0.0
) -> NDArray[np.float64]:
    """Direction w = (n_1 + n_2 - 2) A^-1 (m_1 - m_2), equation [FDA], or its LAC form [LAC] with n_1 - 1.

    >>> from whet.lda.statistics import CentredStatistics
    >>> ones = CentredStatistics.from_samples(np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 1.0], [2.0, -1.0]]))
    >>> zeros = CentredStatistics.from_samples(np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]))
    >>> direction(ones, zeros)
    array([3., 0.])
    """
    U = factorise(regularised_scatter(positive, negative, criterion, ridge))
    freedom = degrees_of_freedom(positive.n, negative.n, criterion)
    return freedom * cholesky.solve(U, positive.mean - negative.mean)


def log_odds(scores: NDArray[np.float64], p: Projection, threshold: float) -> NDArray[np.float64]:
    """Log odds of the two projected Gaussians, shifted to 0 at the threshold, monotone in the score.

    With unequal variances the log ratio is a parabola: beyond its extreme it would fall again, so there it is
    held constant. Where the threshold itself lies beyond the extreme, or a class has no variance, the
    variances are pooled: a line through the threshold.
    """
    v1, v2 = p.sigma_1**2, p.sigma_2**2
    low, high = _monotone_range(p.mu_1, v1, p.mu_2, v2)
    if not low < threshold < high:
        return _pooled(scores, p, threshold)
    bounded = np.clip(scores, low, high)
    # The difference of the parabola at two places, in a form that does not cancel: (x - t) times the slope midway.
    middle = (bounded + threshold) / 2
    slope = (p.mu_1 - p.mu_2) / v1 + (middle - p.mu_2) * (1 / v2 - 1 / v1)
    return np.asarray((bounded - threshold) * slope)


def _monotone_range(mu_1: float, v1: float, mu_2: float, v2: float) -> tuple[float, float]:
    """Where the log ratio of the two densities rises: it does between the means, up to its extreme."""
    gap = mu_1 - mu_2
    # A class that is narrower than this has no spread to speak of, and its square would overflow below.
    least = max(1e-24 * gap * gap, 1e-200)
    if not (gap > 0 and v1 > least and v2 > least):
        return 0.0, 0.0
    if v1 == v2:
        return -math.inf, math.inf
    extreme = mu_2 - gap * v2 / (v1 - v2)  # below mu_2 if v1 > v2, else above mu_1
    return (extreme, math.inf) if v1 > v2 else (-math.inf, extreme)


def _pooled(scores: NDArray[np.float64], p: Projection, threshold: float) -> NDArray[np.float64]:
    gap = p.mu_1 - p.mu_2
    variance = (p.n_1 * p.sigma_1**2 + p.n_2 * p.sigma_2**2) / (p.n_1 + p.n_2)
    # Without any variance the posterior is a step; without a gap every score is 0, and the prior is left.
    steepest = min(1e12 / gap, 1e300) if gap > 0 else 1.0
    slope = min(gap / variance, steepest) if variance > 0 and gap > 0 else steepest
    return np.asarray((scores - threshold) * slope)


def probability(scores: NDArray[np.float64], p: Projection, threshold: float) -> NDArray[np.float64]:
    """Posterior of the positive class: 0.5 at the threshold and above 0.5 just where the score is above it.

    >>> p = Projection(1.0, 0.5, -1.0, 0.5, 10, 10)
    >>> probability(np.array([-0.2, 0.0, 0.2]), p, 0.0).round(3)
    array([0.168, 0.5  , 0.832])
    """
    from scipy.special import expit

    return np.asarray(expit(log_odds(scores, p, threshold)))
