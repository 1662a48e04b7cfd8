"""AdaBoost and AsymBoost over fixed weak learners, on bit rows of their responses."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from whet.features.response_matrix import BitResponses
from whet.learn.boosting_weights import SMALLEST_ERROR, balanced, reweighted


def rounds(
    responses: BitResponses, n_most: int, asymmetry: float = 1.0, balance: bool = True
) -> Iterator[tuple[int, float]]:
    """In each round the learner of least weighted error: its index, and its vote log((1 - e) / e).

    Unlike in `whet.AdaBoost`, the learners stay as they were trained under equal weights, so a round is one pass
    over the bits. With `asymmetry` above 1 a missed positive costs that many false alarms, spread over `n_most`
    rounds, as in `whet.AsymBoost`. With `balance` both classes start with one half of the weight, as Viola and Jones
    have it; without it all samples start alike, however many there are of a class. Stops early at a learner without
    error, or at none better than chance.

    >>> bits = BitResponses.of(np.array([[1, 0, 0], [1, 1, 1]], dtype=bool), np.array([True, True, False]))
    >>> [(j, round(vote, 3)) for j, vote in rounds(bits, 1)]
    [(0, 1.099)]
    """
    is_positive = responses.layout.is_positive
    up = asymmetry ** (0.5 / n_most)
    tilt = np.where(is_positive, up, 1 / up)
    n = len(is_positive)
    D = balanced(is_positive, np.ones(n, dtype=np.int64)) if balance else np.full(n, 1 / n)
    for _ in range(n_most):
        D = D * tilt
        D /= D.sum()
        j = int(np.argmin(responses.weighted_errors(D)))
        right = responses.row(j) == is_positive
        error = float(D[~right].sum())
        if error >= 0.5:
            return
        error = max(error, SMALLEST_ERROR)
        yield j, math.log((1 - error) / error)
        if error == SMALLEST_ERROR:
            return
        D = reweighted(D, right, error)
