"""Partial sums of a projection: where a sum of weighted responses stands after each of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whet.kernels.leading_blocks import leading_forms
from whet.lda.class_statistics import ClassStatistics

Floats = NDArray[np.float64]


def prefix_moments(statistics: ClassStatistics, coef: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation (T,) of w_1 x_1 + ... + w_t x_t over a class, for every t; O(T^2) in all.

    A partial sum is a projection like any other, so its moments follow from the same statistics, and so does a
    threshold on it: mean plus z deviations.

    >>> from whet.lda.class_statistics import CentredStatistics
    >>> X = np.array([[1.0, 0.0], [3.0, 2.0], [2.0, 4.0]])
    >>> mean, deviation = prefix_moments(CentredStatistics.of(X), np.array([2.0, 1.0]))
    >>> mean, np.allclose(deviation, np.cumsum(X * [2.0, 1.0], axis=1).std(axis=0))
    (array([4., 6.]), True)
    """
    T = len(coef)
    mean = np.cumsum(coef * statistics.mean[:T])
    squares = leading_forms(statistics.scatter, coef)
    return mean, np.sqrt(np.maximum(squares, 0.0) / statistics.n)
