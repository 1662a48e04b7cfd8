"""Forward feature selection (FFS) of Wu, Brubaker, Mullin and Rehg (2008): unweighted votes, no reweighting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from whet.models.gslda.candidates import BitResponses, Responses
from whet.models.gslda.fitting import FixedVote


@dataclass
class ForwardFeatureSelection:
    """FFS of Wu et al. (2008): every chosen learner has one vote."""

    needed: list[int] = field(default_factory=list, init=False, repr=False)

    def rounds(self, responses: BitResponses | Responses, n_most: int) -> Iterator[int]:
        """Indices of the chosen learners, at most `n_most`; one may come more than once."""
        self.needed = []
        for j, needed in rounds(responses, n_most):
            self.needed.append(needed)
            yield j

    def vote(self, responses: BitResponses | Responses, chosen: NDArray[np.intp]) -> FixedVote:  # noqa: ARG002
        """A count of votes against the number that is needed."""
        return FixedVote(np.ones(len(chosen)), self.needed[len(chosen) - 1] - 0.5)


def rounds(responses: BitResponses | Responses, n_most: int) -> Iterator[tuple[int, int]]:
    """Add, round by round, the learner with which the vote errs least: its index, and how many votes are needed.

    The error is class-balanced, over all candidates and all numbers of votes. A learner may come more than once.

    With v votes so far, v + h >= k holds where v >= k, and where v = k - 1 and h = 1. So for each k only the
    samples at v = k - 1 decide between the candidates: one pass over the bits. What a perfect candidate would
    reach there bounds the error from below, and most k need not be tried.

    >>> bits = BitResponses.from_responses(np.array([[1, 0, 0], [1, 1, 1]], dtype=bool), np.array([True, True, False]))
    >>> list(rounds(bits, 2))
    [(0, 1), (0, 1)]
    """
    is_positive = responses.layout.is_positive
    weight = np.array([1 / is_positive.sum(), 1 / (~is_positive).sum()]) / 2
    votes = np.zeros(len(is_positive), dtype=np.int64)
    for t in range(n_most):
        j, needed = _best_addition(responses, votes, is_positive, weight, t + 1)
        votes += responses.row(j)
        yield j, needed


def _best_addition(
    responses: BitResponses | Responses,
    votes: NDArray[np.int64],
    is_positive: NDArray[np.bool_],
    weight: NDArray[np.float64],
    n_votes: int,
) -> tuple[int, int]:
    """The candidate and the number of votes needed with the least error; ties to the lowest index."""
    histogram = np.array([np.bincount(votes[side], minlength=n_votes + 1) for side in (is_positive, ~is_positive)])
    below = np.cumsum(histogram, axis=1) - histogram  # samples with fewer votes than k
    above = histogram.sum(axis=1, keepdims=True) - below - histogram  # with more
    # With k + 1 votes needed, positives below k are lost and negatives above k pass, whatever the candidate.
    bound = weight[0] * below[0] + weight[1] * above[1]
    least, best = np.inf, (-1, 0)
    for k in np.argsort(bound[:n_votes], kind="stable"):
        if bound[k] >= least:
            break
        ones = responses.count_among(votes == k)
        errors = bound[k] + weight[0] * (histogram[0, k] - ones[0]) + weight[1] * ones[1]
        j = int(np.argmin(errors))
        if errors[j] < least:
            least, best = float(errors[j]), (j, int(k) + 1)
    return best
