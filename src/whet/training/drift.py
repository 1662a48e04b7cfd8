"""Has a detector that taught itself drifted? Asked of the statistics of its own training, without any picture.

The base keeps how its weak learners answered to the positives and to the negatives of the first training: counts, means
and scatter. By whatever weights and thresholds the stages have now, these classes project to two Gaussians, and tell
which share of either each stage would let through. A detector that learned the object from a new side still tells these
classes apart; one that was taught something else does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whet.kernels.rank_one import project_binary
from whet.lda.class_statistics import BinaryStatistics
from whet.model.detector_base import StageBase
from whet.model.stage import Stage
from whet.model.taught_detector import TaughtDetector


@dataclass(frozen=True)
class Memory:
    """What is left of the first training: shares of its positives and negatives that would pass all stages.

    >>> Memory(0.5, 0.25).lost(Memory(0.25, 0.5))
    (0.5, 2.0)
    """

    kept: float
    accepted: float

    def lost(self, now: Memory) -> tuple[float, float]:
        """How much smaller the share of positives has become, and how many times larger that of negatives."""
        return 1 - now.kept / max(self.kept, 1e-300), now.accepted / max(self.accepted, 1e-300)


def memory_of(taught: TaughtDetector) -> Memory:
    """What the detector, as it is now, would do with the samples that its base was trained on.

    Each stage was trained on the negatives that reached it, so shares multiply. Stages of fixed weights do not change.
    """
    kept = accepted = 1.0
    for base, stage in zip(taught.base.stages, taught.cascade().stages, strict=True):
        if isinstance(base, StageBase) and base.votes is None:  # where there are votes, it was trained on too few
            kept *= _share(base.positive, stage)
            accepted *= _share(base.negative, stage)
    return Memory(kept, accepted)


def moved(taught: TaughtDetector) -> float:
    """How far the weights of the stages have turned from the base's, in lengths of those; 0 if nothing was learned."""
    now, base = (np.concatenate([stage.coef for stage in c.stages]) for c in (taught.cascade(), taught.base.cascade))
    return float(np.linalg.norm(now - base) / np.linalg.norm(base))


def _share(seen: BinaryStatistics, stage: Stage) -> float:
    """Share of a Gaussian class that a stage lets through."""
    from scipy.special import ndtr

    mean, variance = project_binary(seen.n, seen.s, seen.C, stage.coef, np.zeros_like(stage.coef))
    deviation = max(variance, 1e-12) ** 0.5
    return float(ndtr((mean - stage.threshold) / deviation))
