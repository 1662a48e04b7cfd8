"""How probable the positive class is, given a score on the projected line."""

import numpy as np
from numpy.typing import NDArray

from whet.lda.thresholds import Projection


def log_odds(scores: NDArray[np.float64], p: Projection, threshold: float) -> NDArray[np.float64]:
    """Log odds of the two projected Gaussians, shifted to 0 at the threshold, monotone in the score.

    With unequal variances the log ratio is a parabola: beyond its extreme it would fall again, so there it is
    held constant. Where the threshold itself lies beyond the extreme, or a class has no variance, the
    variances are pooled: a line through the threshold.
    """
    gap = p.mu_1 - p.mu_2
    v1, v2 = p.sigma_1**2, p.sigma_2**2
    curvature = 0.5 / v2 - 0.5 / v1 if v1 > 0 and v2 > 0 else np.nan
    with np.errstate(divide="ignore", invalid="ignore"):
        # The derivative -(t - mu_1) / v1 + (t - mu_2) / v2 vanishes here; it is positive between the means.
        extreme = p.mu_2 - np.divide(gap / v1, 2 * curvature) if curvature else -np.inf
    bounded = scores
    if curvature > 0:
        bounded = np.maximum(scores, extreme)
        usable = threshold > extreme
    elif curvature < 0:
        bounded = np.minimum(scores, extreme)
        usable = threshold < extreme
    else:
        usable = curvature == 0
    if not usable or gap <= 0:
        return _pooled(scores, p, threshold)
    # The difference of the parabola at two places, in a form that does not cancel.
    middle = (bounded + threshold) / 2
    return np.asarray((bounded - threshold) * ((p.mu_1 - middle) / v1 + (middle - p.mu_2) / v2))


def _pooled(scores: NDArray[np.float64], p: Projection, threshold: float) -> NDArray[np.float64]:
    gap = p.mu_1 - p.mu_2
    variance = (p.n_1 * p.sigma_1**2 + p.n_2 * p.sigma_2**2) / (p.n_1 + p.n_2)
    slope = abs(gap) / max(variance, 1e-12 * gap**2) if gap else 1.0
    return np.asarray((scores - threshold) * slope)


def probability(scores: NDArray[np.float64], p: Projection, threshold: float) -> NDArray[np.float64]:
    """Posterior of the positive class: 0.5 at the threshold and above 0.5 just where the score is above it.

    >>> p = Projection(1.0, 0.5, -1.0, 0.5, 10, 10)
    >>> probability(np.array([-1.0, 0.0, 1.0]), p, 0.0).round(4)
    array([0.0003, 0.5   , 0.9997])
    """
    from scipy.special import expit

    return np.asarray(expit(log_odds(scores, p, threshold)))
