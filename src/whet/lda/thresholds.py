"""Thresholds on scores (section OGSLDA_thresh of the paper), and rejection thresholds on partial sums of a stage."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from whet._kernels.lda_algebra import leading_forms
from whet.arrays import Floats
from whet.lda.statistics import ClassStatistics

if TYPE_CHECKING:
    from whet.lda.discriminant import OnlineDiscriminant


class Projection(NamedTuple):
    """The two classes on the line: means, standard deviations and counts; 1 is positive, 2 negative.

    `sigma_c = sqrt(w^T S_c w / n_c)`: the paper omits both the root and 1/n_c.
    """

    mu_1: float
    sigma_1: float
    mu_2: float
    sigma_2: float
    n_1: float
    n_2: float


Rule = Callable[[Projection], float]

# A class narrower than this share of the gap between the means has no variance that rounding would leave: a projected
# variance is a difference, exact to about 1e-16 of the squared scores.
LEAST_DEVIATION = 1e-7
# Below this deviation, whatever the gap, reciprocals of variances would overflow.
SMALLEST_DEVIATION = 1e-100


def deviations(p: Projection) -> tuple[float, float]:
    """sigma_1 and sigma_2, but at least a ten-millionth of the gap between the means.

    So what is derived from the densities goes to its limit, without a jump, when a variance goes to 0. One sample has
    no variance, which says nothing of its class: a class of one sample takes the deviation of the other.

    >>> deviations(Projection(2.0, 0.5, 0.0, 0.0, 10, 10))
    (0.5, 2e-07)
    >>> deviations(Projection(2.0, 0.5, 0.0, 0.0, 10, 1))
    (0.5, 0.5)
    """
    least = LEAST_DEVIATION * max(p.mu_1 - p.mu_2, 0.0) + SMALLEST_DEVIATION
    sigma_1, sigma_2 = max(p.sigma_1, least), max(p.sigma_2, least)
    return sigma_1 if p.n_1 > 1 else sigma_2, sigma_2 if p.n_2 > 1 else sigma_1


def bayes_crossing(p: Projection) -> float:
    """Score between the means where both projected densities are equal [w0Crit1].

    With t the distance from mu_2 in units of the gap, variances in its square, and l = log(v_2 / v_1), equal log
    densities are (v_1 - v_2) t^2 + 2 v_2 t - v_2 (1 - v_1 l) = 0. Of the two roots only

        t = (1 - v_1 l) / (1 + sqrt(v_1 / v_2 (1 + (v_2 - v_1) l)))

    can lie between the means. Written so, nothing cancels: not when the variances are nearly equal (the linear
    equation), nor when one is much smaller. As one goes to 0, the crossing goes to the mean of that class, and stays
    short of it by `LEAST_DEVIATION`: a threshold on mu_1 itself, no positive would exceed. Without a root between the
    means, or without any variance, it is the midpoint.

    (The paper adds log sigma_1 in c where it has to be subtracted, and orders the means the wrong way round.)

    >>> bayes_crossing(Projection(2.0, 1.0, 0.0, 1.0, 10, 10))
    1.0
    >>> round(bayes_crossing(Projection(2.0, 0.0, 0.0, 1.0, 10, 10)), 5)
    2.0
    """
    mu_1, sigma_1, mu_2, sigma_2, n_1, n_2 = p
    gap = mu_1 - mu_2
    if gap > 0:
        least = LEAST_DEVIATION * gap + SMALLEST_DEVIATION
        if sigma_1 <= least or sigma_2 <= least or n_1 <= 1 or n_2 <= 1:  # seldom, and every update comes here
            sigma_1, sigma_2 = deviations(p)
        a, b = sigma_1 / gap, sigma_2 / gap
        v1, v2 = a * a, b * b  # for a gap of almost nothing infinite, where a power would raise
        log_ratio = 2 * math.log(sigma_2 / sigma_1)
        t = (1 - v1 * log_ratio) / (1 + sigma_1 / sigma_2 * math.sqrt(1 + (v2 - v1) * log_ratio))
        if 0 < t < 1:
            return mu_2 + gap * t
    return mu_2 + gap / 2


@dataclass(frozen=True)
class Rate:
    """A threshold that follows the positives: mu_1 + z sigma_1, with a frozen z.

    Real scores are not Gaussian: a detector takes z from `calibrate_rate` rather than from the normal quantile.

    >>> Rate(-1.5)(Projection(2.0, 1.0, 0.0, 1.0, 10, 10))
    0.5
    """

    z: float

    def __call__(self, p: Projection) -> float:
        """Threshold of a projection."""
        return p.mu_1 + self.z * deviation_of_positives(p)


def deviation_of_positives(p: Projection) -> float:
    """The positives' sigma_1, but at least a thousandth of the gap between the means.

    A weak learner that separates the training samples perfectly leaves no variance: every threshold would be mu_1,
    which no positive exceeds.
    """
    return max(p.sigma_1, 1e-3 * (p.mu_1 - p.mu_2))


def detection_rate(miss_rate: float = 0.01) -> Rate:
    """The quantile that all but `miss_rate` of the projected positives exceed, were they Gaussian [w0Crit2].

    >>> round(detection_rate(0.5)(Projection(2.0, 1.0, 0.0, 1.0, 10, 10)), 6)
    2.0
    """
    from scipy.special import ndtri  # scipy.stats would take a second to import

    return Rate(float(ndtri(miss_rate)))


def negative_mean(p: Projection) -> float:
    """The projected mean of the negatives [w0Crit3]: half of them pass, if they are symmetric."""
    return p.mu_2


@dataclass(frozen=True)
class Asymmetric:
    """The paper's node goal: the lower of a detection rate [w0Crit2] and the negatives' mean [w0Crit3].

    >>> Asymmetric(Rate(-1.5))(Projection(2.0, 1.0, 0.0, 1.0, 10, 10))
    0.0
    """

    rate: Rate

    def __call__(self, p: Projection) -> float:
        """Threshold of a projection."""
        return min(self.rate(p), negative_mean(p))


def fisher(p: Projection) -> float:
    """Midpoint of the means, shifted by the log ratio of the priors [optThresh].

    Right only when w is A^-1 (m_1 - m_2) with A as a *covariance*; the paper has the scatter there. For that, A has to
    be the scatter of both classes: `check_combination` refuses the rule for LAC.

    >>> fisher(Projection(2.0, 1.0, 0.0, 1.0, 10, 10))
    1.0
    """
    return (p.mu_1 + p.mu_2) / 2 + math.log(p.n_2 / p.n_1)


def calibrate_rate(scores: Floats, p: Projection, detection_rate: float) -> float:
    """Find a z whose threshold at least `detection_rate` of the validation positives exceed, and no more than need be.

    >>> calibrate_rate(np.array([0.0, 1.0, 2.0, 3.0]), Projection(2.0, 1.0, 0.0, 1.0, 4, 4), 0.75) < -1.0
    True
    """
    deviation = deviation_of_positives(p)
    if not deviation > 0:
        raise ValueError("cannot calibrate a rate: positives and negatives have one score; check the samples")
    # A millionth of a deviation lower, so that rounding lifts no threshold onto the scores that it has to be below.
    return float((quantile_threshold(scores, detection_rate) - p.mu_1) / deviation - 1e-6)


def quantile_threshold(scores: Floats, detection_rate: float) -> float:
    """A threshold that at least `detection_rate` of the scores exceed, and no more than need be.

    Midway between the lowest score that is kept and the highest that is not: just below the lowest kept, the next
    change of the weights would lose whatever has that score.

    >>> quantile_threshold(np.array([0.0, 1.0, 2.0, 3.0]), 0.75)
    0.5
    """
    n_kept = max(math.ceil(detection_rate * len(scores) - 1e-9), 1)
    lowest_kept = np.partition(scores, len(scores) - n_kept)[len(scores) - n_kept]
    rejected = scores[scores < lowest_kept]
    if not len(rejected):
        return float(np.nextafter(lowest_kept, -np.inf))
    highest_rejected = rejected.max()
    middle = highest_rejected / 2 + lowest_kept / 2
    return float(middle if highest_rejected <= middle < lowest_kept else highest_rejected)


def rule(name: str, miss_rate: float = 0.01) -> Rule:
    """The threshold rule of this name.

    >>> rule("negative_mean")(Projection(2.0, 1.0, 0.0, 1.0, 10, 10))
    0.0
    """
    rules: dict[str, Rule] = {"bayes": bayes_crossing, "fisher": fisher, "negative_mean": negative_mean}
    if name in rules:
        return rules[name]
    if name == "asymmetric":
        return Asymmetric(detection_rate(miss_rate))
    if name == "detection_rate":
        return detection_rate(miss_rate)
    known = ", ".join([*rules, "asymmetric", "detection_rate"])
    raise ValueError(f"threshold={name!r} is not known; choose one of: {known}")


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
# The share of the positives that the rejection thresholds of a stage may lose beyond what its threshold loses.
LOSS = 0.001
# In standard deviations. The first partial sums have few values, and a tenth of all positives may lie on the lowest of
# them: a threshold that rounding raises by one bit would reject them all.
LEAST_SLACK = 1e-6


@dataclass(frozen=True, eq=False)
class RejectionThresholds:
    """Rejection threshold t lies z_t standard deviations from the positives' mean partial sum; z (T,) is frozen.

    After the last weak learner the stage's own threshold decides, so z_T of a stage is -inf.
    """

    z: Floats

    @classmethod
    def calibrated(
        cls, sums: Floats, others: Floats, vote: OnlineDiscriminant, loss: float = LOSS, *, with_last: bool = False
    ) -> RejectionThresholds:
        """Thresholds that nearly every positive passes which the stage accepts in the end.

        `sums` (T, samples) are partial sums of validation positives, `others` of negatives. Positives that the stage
        rejects anyway do not count. The lowest partial sums of the others would be too tight: each new positive has
        one more chance to fall below at every threshold. So all thresholds are lowered by one slack, in standard
        deviations: of the positives of each fold, at most the share `loss` would have failed the thresholds of the
        other folds. A threshold also lies at least midway to the next sum below: the first sums have few values, and
        just below one of them, the next change of the weights would lose all samples that have it. Where no sample
        lies below, nothing can be rejected, and the threshold is -inf. The last one is found only on request
        (`with_last`): there the stage's own threshold decides.
        """
        mean, deviation = prefix_moments(vote.positive, vote.coef)
        kept = sums[:, sums[-1] > vote.threshold]
        if kept.shape[1] < FOLDS:
            return cls(np.full(len(sums), -np.inf))
        with np.errstate(divide="ignore", invalid="ignore"):
            heights = (kept - mean[:, None]) / deviation[:, None]
        binding = deviation > 0
        binding[-1] &= with_last
        slack = _slack(heights[binding], loss)
        every = (np.concatenate([sums, others], axis=1)[binding] - mean[binding, None]) / deviation[binding, None]
        z = np.full(len(sums), -np.inf)
        z[binding] = _with_room(heights[binding].min(axis=1), slack, every)
        return cls(z)

    def thresholds(self, positive: ClassStatistics, coef: Floats) -> Floats:
        """The rejection thresholds (T,) of weights (T,), by the statistics of the positives."""
        mean, deviation = prefix_moments(positive, coef)
        with np.errstate(invalid="ignore"):  # -inf times 0
            return np.where(np.isneginf(self.z), -np.inf, mean + self.z * deviation)


def _slack(heights: Floats, loss: float) -> float:
    """How far new positives fall below the lowest heights (thresholds, samples) of others, but for the share `loss`."""
    if not len(heights):
        return LEAST_SLACK
    folds = np.array_split(np.arange(heights.shape[1]), FOLDS)  # neighbours may be near-duplicates
    depths = []
    for fold in folds:
        lowest = np.delete(heights, fold, axis=1).min(axis=1, keepdims=True)
        depths.append((lowest - heights[:, fold]).max(axis=0))
    return max(float(np.quantile(np.concatenate(depths), 1 - loss)), LEAST_SLACK)


def _with_room(lowest: Floats, slack: float, every: Floats) -> Floats:
    """Thresholds (T,) below the lowest kept heights (T,), and midway to the next below among all (T, samples)."""
    below = np.where(every < lowest[:, None] - LEAST_SLACK, every, -np.inf).max(axis=1, initial=-np.inf)
    return np.asarray(np.minimum(lowest - slack, lowest / 2 + below / 2))
