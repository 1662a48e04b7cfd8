"""Training settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from whet._kernels.threads import DEFAULT_MAX_MEMORY
from whet._kernels.windows import OPENCV_MIN_SIGMA
from whet.detector.model_file import MOST_WEAK
from whet.training.stage import NodeGoal, StageLearner


@dataclass(frozen=True)
class Plan:
    """How a cascade is trained.

    `goal` is that of each stage. `n_weak` bounds a stage, by its number from 0 if it is a sequence (the last one
    holds for all further stages). A stage trains on all positives but the share for `validation`, and on
    `n_negatives` windows; with `drop_rejected`, on those positives only that the stages before it accept.
    `false_positive_rate` is that of the whole cascade, in windows of images without the object that were kept
    apart. Windows whose standard deviation is not above `min_sigma` are never looked at; the default is OpenCV's.
    """

    goal: NodeGoal = field(default_factory=NodeGoal)
    n_stages: int = 20
    n_weak: int | Sequence[int] = 200
    n_negatives: int = 5000
    validation: float = 0.2
    false_positive_rate: float = 1e-6
    soft: bool = False
    learner: StageLearner | None = None
    max_memory: int = DEFAULT_MAX_MEMORY
    threads: int | None = None
    seed: int = 0
    drop_rejected: bool = False
    min_sigma: float = OPENCV_MIN_SIGMA

    def __post_init__(self) -> None:
        sizes = [self.n_weak] if isinstance(self.n_weak, int) else list(self.n_weak)
        for name, value in (
            ("n_stages", self.n_stages),
            ("n_negatives", self.n_negatives),
            ("n_weak", min(sizes, default=0)),
        ):
            if value < 1:
                raise ValueError(f"{name}={getattr(self, name)!r}: expected at least 1")
        if max(sizes) > MOST_WEAK:
            raise ValueError(f"n_weak={self.n_weak!r}: a stage in a file has at most {MOST_WEAK} weak learners")
        if not 0 < self.validation < 1:
            raise ValueError(f"validation={self.validation!r}: expected a share between 0 and 1, such as 0.2")
        if not 0 < self.min_sigma < np.inf:
            raise ValueError(f"min_sigma={self.min_sigma!r}: expected a number above 0, such as {OPENCV_MIN_SIGMA:g}")
        if not 0 <= self.false_positive_rate < 1:
            raise ValueError(f"false_positive_rate={self.false_positive_rate!r}: expected 0 or more, and below 1")

    def most_weak(self, stage: int) -> int:
        """How many weak learners a stage may have.

        >>> Plan(n_weak=(10, 20)).most_weak(5)
        20
        """
        return self.n_weak if isinstance(self.n_weak, int) else self.n_weak[min(stage, len(self.n_weak) - 1)]

    @property
    def n_held_out(self) -> int:
        """How many windows of the images kept apart judge a stage.

        >>> Plan(n_negatives=5000, validation=0.2).n_held_out
        1000
        """
        return max(round(self.n_negatives * self.validation), 100)
