"""Boosting: of weak learners that are trained already, on the bits of their responses, or trained anew each round."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from whet.models.gslda.candidates import BitResponses, Responses
from whet.models.gslda.weak_learners import Stumps
from whet.models.gslda.weak_training import BinnedFeatures

Learner = TypeVar("Learner")

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


def rounds(
    responses: BitResponses | Responses, n_most: int, asymmetry: float = 1.0, balance: bool = True
) -> Iterator[tuple[int, float]]:
    """In each round the learner of least weighted error: its index, and its vote log((1 - e) / e).

    The learners stay as they were trained under equal weights, so a round is one pass over the bits;
    `retrained_rounds` trains anew in each. With `asymmetry` above 1 a missed positive costs that many
    false positives, divided over `n_most` rounds, as in `AsymBoost`. With `balance` both classes start with one half of
    the weight, as Viola and Jones have it; without it all samples start with equal weights. Stops early at a learner
    without error, or if none is better than chance.

    >>> bits = BitResponses.from_responses(np.array([[1, 0, 0], [1, 1, 1]], dtype=bool), np.array([True, True, False]))
    >>> [(j, round(vote, 3)) for j, vote in rounds(bits, 1)]
    [(0, 1.099)]
    """
    is_positive = responses.layout.is_positive

    def best(D: NDArray[np.float64]) -> tuple[int, NDArray[np.bool_]]:
        j = int(np.argmin(responses.weighted_errors(D)))
        return j, responses.row(j) == is_positive

    yield from boost(best, is_positive, n_most, asymmetry, balance)


def retrained_rounds(
    features: BinnedFeatures, n_most: int, asymmetry: float = 1.0, balance: bool = True
) -> Iterator[tuple[Stumps, float]]:
    """As `rounds`, as published: in each round, all stumps are trained anew under the weights of the samples.

    Returns the stump of each round and its vote.
    """
    yield from boost(features.best_stump, features.layout.is_positive, n_most, asymmetry, balance)


def boost(
    best: Callable[[NDArray[np.float64]], tuple[Learner, NDArray[np.bool_]]],
    is_positive: NDArray[np.bool_],
    n_most: int,
    asymmetry: float,
    balance: bool,
) -> Iterator[tuple[Learner, float]]:
    """Rounds of AdaBoost; `best` returns the learner of least error under weights, and which samples it gets right."""
    up = asymmetry ** (0.5 / n_most)
    tilt = np.where(is_positive, up, 1 / up)
    n = len(is_positive)
    D = balanced(is_positive, np.ones(n, dtype=np.int64)) if balance else np.full(n, 1 / n)
    for _ in range(n_most):
        D = D * tilt
        D /= D.sum()
        learner, right = best(D)
        error = float(D[~right].sum())
        if error >= 0.5:
            return
        error = max(error, SMALLEST_ERROR)
        yield learner, math.log((1 - error) / error)
        if error == SMALLEST_ERROR:
            return
        D = reweighted(D, right, error)
