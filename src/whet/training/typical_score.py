"""What the objects that a detector was trained on score on average: the unit of its scores.

Scores are sums of margins, and how large these are depends on how many stages count, how many weak learners a stage has
and how far its threshold lies below the objects. So a score that is high for one detector is out of reach for another.
"""

from __future__ import annotations

from math import fsum

from whet.model.detector_base import DetectorBase, StageBase
from whet.model.stage import Stage


def typical_score(base: DetectorBase) -> float:
    """The mean score of the positives that the base counted, by its own weights: from statistics, without a picture.

    A mean of sums is the sum of means, so this is no approximation where all stages counted the same positives; a stage
    of fixed weights has counted none, and adds a guess. Nothing that is learned later has a part in it.

    >>> import whet
    >>> detector = whet.load("face")
    >>> round(typical_score(detector.taught.base), 2)
    82.83
    """
    scored = range(base.cascade.first_scoring, len(base.stages))
    return fsum(_mean_margin(base.stages[i], base.cascade.stages[i]) for i in scored)


def _mean_margin(base: StageBase | Stage, stage: Stage) -> float:
    if isinstance(base, StageBase):
        return fsum(stage.coef * base.positive.s) / base.positive.n - stage.threshold
    # One deviation of its sum, were responses coins that are tossed. In the later halves of five of OpenCV's face
    # cascades, faces have 0.8 to 1.5 times that (docs/decisions.md).
    return fsum(stage.coef**2) ** 0.5 / 2
