"""What training tells while it goes on: data for a view, and a line of text for each."""

from __future__ import annotations

from dataclasses import dataclass

from whet.model.cascade import Cascade
from whet.training.mining import Mined
from whet.training.node import Node


@dataclass(frozen=True, eq=False)
class Event:
    """Which stage, from 0; seconds since training began, earlier runs included; and an estimate of those left.

    The estimate comes from the stages so far: None before there are two.
    """

    stage: int
    seconds: float
    seconds_left: float | None

    def __str__(self) -> str:
        left = "" if self.seconds_left is None else f", about {duration(self.seconds_left)} left"
        return f"[{duration(self.seconds)}{left}] stage {self.stage}: {self._says()}"

    def _says(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Resumed(Event):
    """A checkpoint was read; training goes on after `stage` stages."""

    def _says(self) -> str:
        return f"resumed from a checkpoint, {self.stage} stages are trained"


@dataclass(frozen=True, eq=False)
class StageStarted(Event):
    """A stage begins to train on so many samples."""

    n_positives: int
    n_negatives: int

    def _says(self) -> str:
        return f"training on {self.n_positives} positives and {self.n_negatives} negatives"


@dataclass(frozen=True, eq=False)
class WeakAdded(Event):
    """A weak learner was added; both rates are on validation samples, at the threshold that the goal asks for."""

    n_weak: int
    most_weak: int
    detection_rate: float
    false_positive_rate: float

    def _says(self) -> str:
        return f"{self.n_weak} weak learners of at most {self.most_weak}, {_rates(self)}"


@dataclass(frozen=True, eq=False)
class StageFinished(Event):
    """A stage was trained: the cascade so far, its newest node, and what was mined for it (None for the first).

    Both rates are those of this stage alone, on validation samples; the negatives among them are windows that all
    stages before accept.
    """

    cascade: Cascade
    node: Node
    n_negatives: int
    detection_rate: float
    false_positive_rate: float
    meets_goal: bool
    mined: Mined | None

    def _says(self) -> str:
        short = "" if self.meets_goal else "; short of its goal"
        return f"trained, {len(self.node)} weak learners, {_rates(self)}{short}"


@dataclass(frozen=True, eq=False)
class Mining(Event):
    """Negatives are searched for `stage`: in the pictures that are trained on, or in those `held_out`."""

    n_found: int
    n_wanted: int
    n_looked_at: int
    n_pictures: int
    most_pictures: int
    held_out: bool

    def _says(self) -> str:
        side = "held-out" if self.held_out else "training"
        return (
            f"mined {self.n_found} of {self.n_wanted} negatives in {self.n_pictures} of {self.most_pictures} "
            f"{side} pictures, {self.n_looked_at:,} windows"
        )


def duration(seconds: float) -> str:
    """Seconds as hours, minutes and seconds.

    >>> duration(59.6), duration(3725)
    ('1:00', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _rates(event: WeakAdded | StageFinished) -> str:
    return f"detection rate {event.detection_rate:.2%}, false-positive rate {event.false_positive_rate:.2%}"
