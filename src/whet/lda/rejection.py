"""Rejection thresholds on partial sums of a stage, which follow what is learned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet._kernels.statistics import leading_forms
from whet.lda.online import OnlineDiscriminant
from whet.lda.statistics import ClassStatistics

Floats = NDArray[np.float64]


def prefix_moments(statistics: ClassStatistics, coef: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation (T,) of w_1 x_1 + ... + w_t x_t over a class, for every t; O(T^2) in all.

    A partial sum is a projection like any other, so its moments follow from the same statistics, and so does a
    threshold on it: mean plus z deviations.

    >>> from whet.lda.statistics import CentredStatistics
    >>> X = np.array([[1.0, 0.0], [3.0, 2.0], [2.0, 4.0]])
    >>> mean, deviation = prefix_moments(CentredStatistics.from_samples(X), np.array([2.0, 1.0]))
    >>> mean, np.allclose(deviation, np.cumsum(X * [2.0, 1.0], axis=1).std(axis=0))
    (array([4., 6.]), True)
    """
    T = len(coef)
    mean = np.cumsum(coef * statistics.mean[:T])
    squares = leading_forms(statistics.scatter, coef)
    return mean, np.sqrt(np.maximum(squares, 0.0) / statistics.n)


FOLDS = 5
# The share of the positives that the exits of a stage may lose beyond what its threshold loses.
LOSS = 0.001
# In standard deviations. The first partial sums have few values, and a tenth of all positives may lie on the lowest of
# them: an exit that rounding lifts by one bit would reject them all.
LEAST_SLACK = 1e-6


@dataclass(frozen=True, eq=False)
class RejectionThresholds:
    """Exit t lies z_t standard deviations from the mean of the positives' partial sums; z (T,) is frozen.

    After the last weak learner the stage's own threshold decides, so z_T is -inf.
    """

    z: Floats

    @classmethod
    def calibrated(
        cls, sums: Floats, others: Floats, vote: OnlineDiscriminant, loss: float = LOSS
    ) -> RejectionThresholds:
        """Exits that nearly every positive passes which the stage accepts in the end.

        `sums` (T, samples) are partial sums of validation positives, `others` of negatives. What the stage loses
        anyway binds no exit. The lowest partial sums of the positives kept would be too tight: each new positive has
        one more chance to fall below for every exit. So all exits are lowered by one slack, in standard deviations,
        such that of the positives of each fold no more than the share `loss` would have failed the exits of the
        other folds. And an exit lies at least midway to the next sum below: the first sums have few values, and just
        below one of them, the next change of the weights would lose all that have it. Where no sample lies below,
        there is nothing to reject, and no exit.
        """
        mean, deviation = prefix_moments(vote.positive, vote.coef)
        kept = sums[:, sums[-1] > vote.threshold]
        if kept.shape[1] < FOLDS:
            return cls(np.full(len(sums), -np.inf))
        with np.errstate(divide="ignore", invalid="ignore"):
            heights = (kept - mean[:, None]) / deviation[:, None]
        binding = deviation > 0
        binding[-1] = False  # there the stage's own threshold decides
        slack = _slack(heights[binding], loss)
        every = (np.concatenate([sums, others], axis=1)[binding] - mean[binding, None]) / deviation[binding, None]
        z = np.full(len(sums), -np.inf)
        z[binding] = _with_room(heights[binding].min(axis=1), slack, every)
        return cls(z)

    def thresholds(self, vote: OnlineDiscriminant) -> Floats:
        """The exits (T,) of a vote as it is now."""
        mean, deviation = prefix_moments(vote.positive, vote.coef)
        with np.errstate(invalid="ignore"):  # -inf times 0
            return np.where(np.isneginf(self.z), -np.inf, mean + self.z * deviation)


def _slack(heights: Floats, loss: float) -> float:
    """How far new positives fall below the lowest heights (exits, samples) of others, but for the share `loss`."""
    if not len(heights):
        return LEAST_SLACK
    folds = np.array_split(np.arange(heights.shape[1]), FOLDS)  # neighbours may be near-duplicates
    depths = []
    for fold in folds:
        lowest = np.delete(heights, fold, axis=1).min(axis=1, keepdims=True)
        depths.append((lowest - heights[:, fold]).max(axis=0))
    return max(float(np.quantile(np.concatenate(depths), 1 - loss)), LEAST_SLACK)


def _with_room(lowest: Floats, slack: float, every: Floats) -> Floats:
    """Exits (T,) below the lowest heights (T,) that are kept, and midway to the next of every sample's (T, samples)."""
    below = np.where(every < lowest[:, None] - LEAST_SLACK, every, -np.inf).max(axis=1, initial=-np.inf)
    return np.asarray(np.minimum(lowest - slack, lowest / 2 + below / 2))
