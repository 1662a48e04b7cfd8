"""Weights of samples in boosting: where they start, and how they move from round to round."""

import numpy as np
from numpy.typing import NDArray

# The smallest weighted error that a vote is computed from; a perfect stump would have an infinite one.
SMALLEST_ERROR = 1e-10


def reweighted(D: NDArray[np.float64], right: NDArray[np.bool_], error: float) -> NDArray[np.float64]:
    """Weights for the next round: samples that were right count e / (1 - e) of what they did."""
    return np.asarray(np.where(right, D * (error / (1 - error)), D))


def balanced(is_positive: NDArray[np.bool_], weights: NDArray[np.int64]) -> NDArray[np.float64]:
    """Weights that sum to one half over each class (N,).

    >>> balanced(np.array([True, False, False]), np.array([1, 1, 1]))
    array([0.5 , 0.25, 0.25])
    """
    of_class = np.where(is_positive, weights[is_positive].sum(), weights[~is_positive].sum())
    return np.asarray(weights / (2.0 * of_class))
