"""Guards of self-training: expected scores and drift, from the statistics of the base."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, fsum, pi, sqrt

import numpy as np

from whet._kernels.statistics import project_binary
from whet.cascade.cascade import Stage, TrainedStage
from whet.detector.base import DetectorBase
from whet.detector.detector import Detector
from whet.lda.statistics import BinaryStatistics


@dataclass(frozen=True)
class Retention:
    """Shares of the training's positives and negatives that would pass all stages.

    >>> Retention(0.5, 0.25).change(Retention(0.25, 0.5))
    (0.5, 2.0)
    """

    kept: float
    accepted: float

    def change(self, now: Retention) -> tuple[float, float]:
        """How much smaller the share of positives has become, and how many times larger that of negatives."""
        return 1 - now.kept / max(self.kept, 1e-300), now.accepted / max(self.accepted, 1e-300)


def retention_of(detector: Detector) -> Retention:
    """The retention of the training samples by the detector as it is now.

    Each stage was trained on the negatives that reached it, so shares multiply. Stages of fixed weights do not change.
    """
    kept = accepted = 1.0
    for base, stage in zip(detector.base.stages, detector.cascade.stages, strict=True):
        if base.learns:
            positive, negative = base.statistics
            kept *= _share(positive, stage)
            accepted *= _share(negative, stage)
    return Retention(kept, accepted)


def weight_change(detector: Detector) -> float:
    """Distance of the weights of all stages from those of the base, relative to their length; 0 without learning."""
    now, base = (np.concatenate([stage.coef for stage in c.stages]) for c in (detector.cascade, detector.base.cascade))
    return float(np.linalg.norm(now - base) / np.linalg.norm(base))


def _share(seen: BinaryStatistics, stage: Stage) -> float:
    """Share of a Gaussian class that passes a stage."""
    from scipy.special import ndtr

    mean, variance = project_binary(seen.n, seen.s, seen.C, stage.coef, np.zeros_like(stage.coef))
    deviation = max(variance, 1e-12) ** 0.5
    return float(ndtr((mean - stage.threshold) / deviation))


@dataclass(frozen=True)
class ExpectedScores:
    """The mean score of negatives that pass all stages, and that of positives.

    >>> ExpectedScores(10.0, 60.0).between(0.5)
    35.0
    """

    negative: float
    positive: float

    def between(self, share: float) -> float:
        """The score that lies this share of the way from the negatives to the positives."""
        return self.negative + share * (self.positive - self.negative)


def expected_scores(base: DetectorBase) -> ExpectedScores:
    """The scores of the samples that the base was trained on, by its own weights and thresholds.

    That of the positives is exact if all stages counted the same ones: the mean of a sum is the sum of the means.
    Negatives of a stage are taken for a Gaussian, of which those above the threshold pass.

    >>> import whet
    >>> scores = expected_scores(whet.load("face").base)
    >>> round(scores.negative, 2), round(scores.positive, 2)
    (10.71, 82.83)
    """
    scored = range(base.cascade.first_scoring, len(base.stages))
    means = [_mean_margins(base.stages[i], base.cascade.stages[i]) for i in scored]
    return ExpectedScores(*(fsum(of_class) for of_class in zip(*means, strict=True)))


def _mean_margins(base: TrainedStage, stage: Stage) -> tuple[float, float]:
    """Mean margins in one stage, of negatives that pass and of positives."""
    if not base.learns:
        # If responses were tossed coins, this would be the deviation of their sum. In the later halves of five of
        # OpenCV's cascades, the mean margin of faces is 0.8 to 1.5 times that (docs/decisions.md).
        deviation = sqrt(fsum(stage.coef**2)) / 2
        return _mean_above_zero(-deviation, deviation), deviation
    positive, negative = base.statistics
    return _mean_above_zero(*_margins(negative, stage)), _margins(positive, stage)[0]


def _margins(seen: BinaryStatistics, stage: Stage) -> tuple[float, float]:
    """Mean and deviation of the margins of a class."""
    mean, variance = project_binary(seen.n, seen.s, seen.C, stage.coef, np.zeros_like(stage.coef))
    return float(mean - stage.threshold), sqrt(max(variance, 0.0))


def _mean_above_zero(mean: float, deviation: float) -> float:
    """The mean of that part of a Gaussian which is above zero."""
    from scipy.special import log_ndtr

    deviation = max(deviation, 1e-3 * abs(mean), 1e-12)
    z = mean / deviation
    return mean + deviation * exp(-z * z / 2 - float(log_ndtr(z))) / sqrt(2 * pi)
