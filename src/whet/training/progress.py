"""Progress of a training: events, stop reason and result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from whet.models.contract import Model
    from whet.training.backgrounds import Mined
    from whet.training.samples import Samples

# Detection rate and false-positive rate on validation samples.
Rates = tuple[float, float]

# A detector that accepts a larger share of all windows, or finds a smaller share of the objects, is of no use.
MOST_ACCEPTED = 0.1
FEWEST_FOUND = 0.3


@dataclass(frozen=True, eq=False)
class Event:
    """Base of all events: number of the step from 0, seconds since the start of all runs, and estimated seconds left.

    A step fits a stage of a cascade, or a round of trees. The estimate is None before two steps are finished.
    """

    stage: int
    seconds: float
    seconds_left: float | None

    def __str__(self) -> str:
        left = "" if self.seconds_left is None else f", about {duration(self.seconds_left)} left"
        return f"[{duration(self.seconds)}{left}] {self.text}"

    @property
    def text(self) -> str:
        """What happens, without the times."""
        return self._text()

    def _text(self) -> str:
        raise NotImplementedError


Callback = Callable[[Event], None]


@dataclass(frozen=True, eq=False)
class Resumed(Event):
    """Training continues from a checkpoint with `stage` finished steps."""

    def _text(self) -> str:
        return f"resumed from a checkpoint with {self.stage} finished step{'s' * (self.stage != 1)}"


@dataclass(frozen=True, eq=False)
class FitStarted(Event):
    """A step starts to fit a model to this many samples."""

    n_positives: int
    n_negatives: int

    def _text(self) -> str:
        return f"step {self.stage}: training on {self.n_positives} positives and {self.n_negatives} negatives"


@dataclass(frozen=True, eq=False)
class FitProgress(Event):
    """Some weak learners or trees were added, for the model or for another `purpose`; rates, where they are known."""

    n_done: int
    n_most: int
    what: str
    purpose: str = ""
    rates: Rates | None = None

    def _text(self) -> str:
        purpose = self.purpose or f"step {self.stage}"
        return f"{purpose}: {self.n_done:,} of {self.n_most:,} {self.what}{_rates(self.rates)}"


@dataclass(frozen=True, eq=False)
class FitFinished(Event):
    """A step fitted a model to samples; `mined` are counts of what was mined for it, None before the first mining."""

    model: Model
    samples: Samples
    mined: Mined | None
    what: str
    rates: Rates | None = None

    def _text(self) -> str:
        return f"step {self.stage}: trained {self.what}{_rates(self.rates)}"


@dataclass(frozen=True, eq=False)
class Mining(Event):
    """Search for negatives of a step in the training images, or in the held-out images."""

    n_found: int
    n_wanted: int
    n_tested: int
    n_images: int
    most_images: int
    held_out: bool

    def _text(self) -> str:
        side = "held-out" if self.held_out else "training"
        return (
            f"step {self.stage}: mined {self.n_found:,} of {self.n_wanted:,} negatives in {self.n_images:,} of "
            f"{self.most_images:,} {side} images, {self.n_tested:,} windows"
        )


@dataclass(frozen=True, eq=False)
class StepStarted(Event):
    """A part of the training before the first or after the last step starts, such as cross-validation."""

    name: str

    def _text(self) -> str:
        return self.name


def _rates(rates: Rates | None) -> str:
    return "" if rates is None else f", detection rate {rates[0]:.2%}, false-positive rate {rates[1]:.2%}"


def duration(seconds: float) -> str:
    """Seconds as hours, minutes and seconds.

    >>> duration(59.6), duration(3725)
    ('1:00', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class StopReason(StrEnum):
    """Why training stopped."""

    TARGET_REACHED = "target reached"
    ALL_STAGES = "all stages"
    ALL_TREES = "all trees"
    ALL_STEPS = "all steps"
    IMAGES_EXHAUSTED = "images exhausted"
    CANNOT_IMPROVE = "cannot improve"


Stop = tuple[StopReason, str]


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """Why training stopped, and the rates of the model on held-out data, with 95 % intervals.

    `false_positive_rate` is the share of windows that the model accepts, of all places and scales in the held-out
    images. `detection_rate` is measured on objects that were not trained on; those of a cascade also set its
    thresholds, so expect a lower rate on a test set. `weak_stages` are the stages above `max_false_positive_rate`.
    `seconds` include all runs. `object_scores` (n,) are scores of held-out objects in their images, -inf if they are
    not found; with channels, cross-validated scores of all objects.
    """

    stop_reason: StopReason
    message: str
    false_positive_rate: float
    false_positive_interval: tuple[float, float]
    n_windows: int
    n_images: int
    detection_rate: float
    detection_interval: tuple[float, float]
    weak_stages: tuple[int, ...]
    n_stages: int
    seconds: float
    object_scores: NDArray[np.float64] | None = None

    @property
    def fault(self) -> str | None:
        """Why the detector is not usable; None if it is."""
        if self.false_positive_rate > MOST_ACCEPTED:
            return (
                f"accepts {self.false_positive_rate:.0%} of all windows of held-out images; add images without the "
                "object (--negatives), and check that boxes fit their objects"
            )
        if self.detection_rate < FEWEST_FOUND:
            return (
                f"finds {self.detection_rate:.0%} of the held-out objects; add annotated objects, and check that boxes "
                "of one class show one kind of object from one side"
            )
        return None

    def __str__(self) -> str:
        low, high = self.false_positive_interval
        weak = (
            f"; stages above max_false_positive_rate: {', '.join(map(str, self.weak_stages))}"
            if self.weak_stages
            else ""
        )
        return (
            f"{self.message}. False-positive rate {self.false_positive_rate:.2g} ({low:.2g} to {high:.2g}) in "
            f"{self.n_windows:,} windows of {self.n_images} held-out images, detection rate "
            f"{self.detection_rate:.2%} on validation positives{weak}"
        )
