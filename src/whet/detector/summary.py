"""What is inside a detector, as plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from whet.cascade.cascade import LearningStage, Stage, TrainedStage
from whet.cascade.columns import family_name
from whet.detector.detector import Detector


@dataclass(frozen=True)
class StageSummary:
    """A stage: its features, and for one that learns the samples it has counted, in training and since.

    `rejects` is the share of the negatives it was trained on that its threshold rejects, as the two projected Gaussians
    say it: an estimate without any image, of windows that all stages before accept. Early exits reject some more.
    """

    family: str
    n_weak: int
    is_soft: bool
    learns: bool
    positives: int = 0
    negatives: int = 0
    learned_positives: int = 0
    learned_negatives: int = 0
    rejects: float | None = None


@dataclass(frozen=True)
class Summary:
    """A detector: window (height, width), stages, numbers of learned samples, operating points and provenance."""

    window: tuple[int, int]
    n_weak: int
    base_id: str
    min_sigma: float
    stages: tuple[StageSummary, ...]
    operating_points: dict[str, float]
    provenance: dict[str, Any]

    @classmethod
    def from_detector(cls, detector: Detector) -> Summary:
        """Summarise a detector.

        >>> from whet.detector.detector import load
        >>> face = Summary.from_detector(load("face"))
        >>> face.window, len(face.stages), face.stages[1].family
        ((24, 24), 10, 'lbp')
        """
        base = detector.base
        parts = zip(base.stages, detector.delta.counts, base.cascade.stages, strict=True)
        stages = tuple(_summary(*part) for part in parts)
        return cls(
            (int(base.window[0]), int(base.window[1])),
            sum(stage.n_weak for stage in stages),
            base.base_id,
            base.min_sigma,
            stages,
            dict(detector.reporting.operating_points),
            asdict(base.provenance),
        )

    def table(self) -> dict[str, Any]:
        """All of it as a table for JSON."""
        return asdict(self)


def _summary(stage: TrainedStage, learned: tuple[int, int], run: Stage) -> StageSummary:
    family, is_soft = family_name(stage.features), run.rejection_thresholds is not None
    if not isinstance(stage, LearningStage):
        return StageSummary(family, len(stage), is_soft, learns=False)
    counts = int(stage.positive.n), int(stage.negative.n), int(learned[0]), int(learned[1])
    return StageSummary(family, len(stage), is_soft, True, *counts, _rejects(stage))


def _rejects(stage: LearningStage) -> float | None:
    from scipy.special import ndtr

    vote = stage.discriminant()
    p = vote.projection
    return float(ndtr((vote.threshold - p.mu_2) / p.sigma_2)) if p.sigma_2 > 0 else None
