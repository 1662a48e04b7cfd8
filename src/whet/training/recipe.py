"""All that a training from annotated pictures is made by: what a person decides, and sensible values for the rest."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

from whet.kernels.normalisation import OPENCV_MIN_SIGMA
from whet.lda.discriminant import DEFAULT_RIDGE
from whet.training.learners import GreedyLDA
from whet.training.node_goal import NodeGoal
from whet.training.plan import Plan
from whet.training.positives import Jitter

Features = Literal["both", "haar", "lbp"]
Mirror = bool | Literal["safe"]

FEATURES: tuple[Features, ...] = ("both", "haar", "lbp")


@dataclass(frozen=True)
class Recipe:
    """Annotations, pictures without the object, and how a detector is trained on them.

    Paths are as the user gave them. `negatives` are pictures without the object; with `backgrounds`, the parts of the
    annotated pictures outside of every box serve as well. `window` is (width, height); without one it is chosen from
    the boxes, with a `margin` of their size around (0.1; 0 for crops, which have nothing around). `mirror`, `copies`
    and the jitter (`shift`, `scale`, `rotation`) stretch few positives, see
    `whet.training.positives.cut_positives`. `most_features` bounds each family's pool, from which so many are drawn.
    Without a `ridge`, one is chosen from the data where there are few objects. The rest are goals and sizes of
    `whet.training.plan.Plan`.

    >>> Recipe("cars.csv", stages=8).plan.n_stages
    8
    >>> Recipe("cars.csv", features="colour")
    Traceback (most recent call last):
    ValueError: features='colour': expected one of both, haar, lbp
    """

    annotations: str
    format: str | None = None
    images: str | None = None
    class_name: str | None = None
    split: str | None = None
    negatives: tuple[str, ...] = ()
    backgrounds: bool = True
    window: tuple[int, int] | None = None
    margin: float | None = None
    mirror: Mirror = "safe"
    copies: int | None = None
    shift: float = Jitter.shift
    scale: float = Jitter.scale
    rotation: float = Jitter.rotation
    features: Features = "both"
    most_features: int = 10_000
    stages: int = 12
    learners: int = 100
    n_negatives: int = 3000
    detection_rate: float = 0.98
    stage_false_positive_rate: float = 0.4
    false_positive_rate: float = 1e-6
    validation: float = 0.25
    ridge: float | None = None
    soft: bool = True
    drop_rejected: bool = True
    min_sigma: float = OPENCV_MIN_SIGMA / 2
    seed: int = 0

    def __post_init__(self) -> None:
        if self.features not in FEATURES:
            raise ValueError(f"features={self.features!r}: expected one of {', '.join(FEATURES)}")
        if self.mirror not in (True, False, "safe"):
            raise ValueError(f"mirror={self.mirror!r}: expected true, false or 'safe'")
        if self.window is not None and not _is_window(self.window):
            raise ValueError(f"window={self.window}: expected a width and a height, whole numbers of at least 4 pixels")
        for name in ("most_features", "copies"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value}: expected at least 1")
        if self.margin is not None and not 0 <= self.margin <= 1:
            raise ValueError(f"margin={self.margin}: expected a share of the box's size from 0 to 1")
        if self.ridge is not None and not 0 <= self.ridge < inf:
            raise ValueError(f"ridge={self.ridge}: expected a number from 0 on")
        if self.seed < 0:
            raise ValueError(f"seed={self.seed}: expected 0 or more")
        _ = self.jitter, self.plan  # which check the rest

    @property
    def jitter(self) -> Jitter:
        """How copies of a positive differ from it."""
        return Jitter(self.shift, self.scale, self.rotation)

    @property
    def plan(self) -> Plan:
        """The plan of the cascade."""
        return Plan(
            NodeGoal(self.detection_rate, self.stage_false_positive_rate),
            n_stages=self.stages,
            n_weak=self.learners,
            n_negatives=self.n_negatives,
            validation=self.validation,
            false_positive_rate=self.false_positive_rate,
            soft=self.soft,
            drop_rejected=self.drop_rejected,
            learner=GreedyLDA(ridge=DEFAULT_RIDGE if self.ridge is None else self.ridge),
            seed=self.seed,
            min_sigma=self.min_sigma,
        )


def _is_window(window: tuple[int, ...]) -> bool:
    return len(window) == 2 and all(isinstance(side, int) and side >= 4 for side in window)
