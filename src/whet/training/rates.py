"""Rates with their doubt: intervals of shares of windows, alone and by the picture."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def rate_interval(n_accepted: float, n: float, confidence: float = 0.95) -> tuple[float, float]:
    """Clopper-Pearson interval of a rate of which `n_accepted` of `n` independent samples were seen.

    >>> tuple(round(bound, 3) for bound in rate_interval(0, 100))
    (0.0, 0.036)
    """
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = betaincinv(n_accepted, n - n_accepted + 1, tail) if n_accepted else 0.0
    high = betaincinv(n_accepted + 1, n - n_accepted, 1 - tail) if n_accepted < n else 1.0
    return float(low), float(high)


def picture_interval(
    accepted: NDArray[np.int64], looked_at: NDArray[np.int64], confidence: float = 0.95
) -> tuple[float, float]:
    """Interval of the share of windows that are accepted, from counts of each picture (pictures,).

    Windows of one picture are accepted together, so that pictures are the samples, not windows. This is the
    interval of Korn and Graubard (1998) for clusters: Clopper and Pearson's for as many independent windows as
    would have the variance that is seen between pictures. Where no window was accepted, or there is one
    picture only, that variance cannot be seen, and windows count as independent.

    >>> same = picture_interval(np.full(20, 5), np.full(20, 1000))
    >>> uneven = picture_interval(np.array([100] + 19 * [0]), np.full(20, 1000))
    >>> same[1] < 0.0065 and uneven[1] > 0.02
    True
    """
    from scipy.special import stdtrit

    k, n = len(accepted), int(looked_at.sum())
    rate = int(accepted.sum()) / max(n, 1)
    if k < 2 or not 0 < rate < 1:
        return rate_interval(int(accepted.sum()), n, confidence)
    spread = k / (k - 1) * float(((accepted - rate * looked_at) ** 2).sum()) / n**2
    tail = (1 - confidence) / 2
    worth = rate * (1 - rate) / max(spread, rate * (1 - rate) / n)  # never more than the windows there are
    worth *= float(stdtrit(n - 1, tail) / stdtrit(k - 1, tail)) ** 2
    return rate_interval(rate * worth, worth, confidence)
