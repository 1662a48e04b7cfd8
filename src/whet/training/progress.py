"""Progress of a training: events, estimated time, stop reason and result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from whet.cascade.cascade import Cascade
from whet.cascade.stage import TrainedStage
from whet.evaluation.curves import image_interval
from whet.training.config import TrainingConfig
from whet.training.mining import MAX_PER_IMAGE, Mined

# Longer than any training: the estimate counts no further stages.
MOST_STAGES = 100


@dataclass(frozen=True)
class Pace:
    """A finished stage: seconds of training and of mining, images scanned, windows per image, false-positive rate."""

    training: float
    mining: float
    n_images: int
    windows_per_image: float
    rate: float

    def found_per_image(self, rate: float) -> float:
        """Windows that an image supplies if the cascade accepts this share."""
        return min(self.windows_per_image * rate, MAX_PER_IMAGE)


def seconds_left(paces: Sequence[Pace], config: TrainingConfig, n_images: int) -> float | None:
    """Estimate the seconds that the remaining stages take; None before two stages are finished.

    The estimate assumes that each stage divides the false-positive rate like the average stage so far, trains as long
    as the last one, and scans more images as each image supplies fewer windows. Training stops earlier if the images
    run out.

    >>> paces = [Pace(10.0, 4.0, 100, 50.0, 0.4), Pace(10.0, 8.0, 200, 50.0, 0.2)]
    >>> seconds_left(paces, TrainingConfig(max_stages=4), n_images=1000)  # (10 + 16) + (10 + 32)
    68.0
    """
    if len(paces) < 2 or not 0 < paces[-1].rate < paces[0].rate:
        return None
    last = paces[-1]
    ratio = float((last.rate / paces[0].rate) ** (1 / (len(paces) - 1)))
    n_more = min(
        _stages_to(config.target_false_positive_rate, last.rate, ratio), config.max_stages - len(paces), MOST_STAGES
    )
    seconds_per_image = last.mining / max(last.n_images, 1)
    rates = [last.rate * ratio**more for more in range(1, n_more + 1)]
    given = last.found_per_image(last.rate)
    scanned = [min(float(n_images), last.n_images * given / last.found_per_image(rate)) for rate in rates]
    return n_more * last.training + seconds_per_image * sum(scanned)


def _stages_to(goal: float, rate: float, ratio: float) -> int:
    if goal >= rate:
        return 0
    return MOST_STAGES if goal == 0 else math.ceil(math.log(goal / rate) / math.log(ratio) - 1e-9)


@dataclass(frozen=True, eq=False)
class Event:
    """Base of all events: stage number from 0, seconds since the start of all runs, and estimated seconds left.

    The estimate is None before two stages are finished.
    """

    stage: int
    seconds: float
    seconds_left: float | None

    def __str__(self) -> str:
        left = "" if self.seconds_left is None else f", about {duration(self.seconds_left)} left"
        return f"[{duration(self.seconds)}{left}] {self._title()}{self._text()}"

    def _title(self) -> str:
        return f"{self.part} {self.stage}: "

    @property
    def part(self) -> str:
        """What `stage` numbers: the stages of a cascade, or the rounds of a channel detector."""
        return "stage"

    def _text(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Resumed(Event):
    """Training continues from a checkpoint with `stage` finished stages."""

    def _text(self) -> str:
        return f"resumed from a checkpoint with {self.stage} finished stage{'s' * (self.stage != 1)}"


@dataclass(frozen=True, eq=False)
class StageStarted(Event):
    """Training of a stage starts on this many samples."""

    n_positives: int
    n_negatives: int

    def _text(self) -> str:
        return f"training on {self.n_positives} positives and {self.n_negatives} negatives"


@dataclass(frozen=True, eq=False)
class WeakAdded(Event):
    """A weak learner was added; both rates are on validation samples, at the threshold for `min_detection_rate`."""

    n_weak: int
    max_weak: int
    detection_rate: float
    false_positive_rate: float

    def _text(self) -> str:
        return f"{self.n_weak} of at most {self.max_weak} weak learners, {_rates(self)}"


@dataclass(frozen=True, eq=False)
class StageFinished(Event):
    """A stage was trained: the cascade so far, its newest stage, and the mined negatives (None for the first stage).

    Both rates are those of this stage alone, on validation samples; all earlier stages accept the negatives among
    these.
    """

    cascade: Cascade
    trained: TrainedStage
    n_negatives: int
    detection_rate: float
    false_positive_rate: float
    meets_goal: bool
    mined: Mined | None

    def _text(self) -> str:
        short = "" if self.meets_goal else "; above max_false_positive_rate"
        return f"trained, {len(self.trained)} weak learners, {_rates(self)}{short}"


@dataclass(frozen=True, eq=False)
class _RoundEvent(Event):
    """An event of a round of boosting; `stage` is the number of the round, from 0."""

    @property
    def part(self) -> str:
        """Rounds of a channel detector."""
        return "round"


@dataclass(frozen=True, eq=False)
class RoundStarted(_RoundEvent):
    """A round starts to grow trees on this many samples."""

    n_positives: int
    n_negatives: int

    def _text(self) -> str:
        return f"training on {self.n_positives} positives and {self.n_negatives} negatives"


@dataclass(frozen=True, eq=False)
class TreesAdded(_RoundEvent):
    """Some trees were grown, for the detector itself or for `purpose`."""

    n_trees: int
    max_trees: int
    purpose: str = ""

    def _text(self) -> str:
        return f"{self.purpose}{': ' * bool(self.purpose)}{self.n_trees} of {self.max_trees} trees"


@dataclass(frozen=True, eq=False)
class RoundFinished(_RoundEvent):
    """All trees of a round were grown; `gap` lies between the lowest positive and the median negative."""

    n_trees: int
    n_negatives: int
    gap: float

    def _text(self) -> str:
        return (
            f"trained {self.n_trees} tree{'s' * (self.n_trees != 1)} on {self.n_negatives} negatives, "
            f"lowest positive {self.gap:.1f} above the "
            "median negative"
        )


@dataclass(frozen=True, eq=False)
class StepStarted(Event):
    """A step after the last stage or round starts, such as cross-validation."""

    name: str

    def _title(self) -> str:
        return ""

    def _text(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Mining(Event):
    """Search for negatives of `stage` in the training images, or in the held-out images."""

    n_found: int
    n_wanted: int
    n_tested: int
    n_images: int
    most_images: int
    held_out: bool

    def _text(self) -> str:
        side = "held-out" if self.held_out else "training"
        return (
            f"mined {self.n_found} of {self.n_wanted} negatives in {self.n_images} of {self.most_images} "
            f"{side} images, {self.n_tested:,} windows"
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


# Training stops if the images supply less than this share of the requested negatives.
FEWEST = 0.1
# Fewer held-out windows cannot validate a further stage.
FEWEST_HELD_OUT = 10
# A random stage accepts negatives at the rate of positives. A stage that accepts more than this share of that rate
# costs positives and time, and rejects almost nothing.
STALLED = 0.95
# A detector that accepts a larger share of all windows, or finds a smaller share of the objects, is of no use.
MOST_ACCEPTED = 0.1
FEWEST_FOUND = 0.3


class StopReason(StrEnum):
    """Why training stopped."""

    TARGET_REACHED = "target reached"
    ALL_STAGES = "all stages"
    ALL_TREES = "all trees"
    IMAGES_EXHAUSTED = "images exhausted"
    CANNOT_IMPROVE = "cannot improve"


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """Why training stopped, and the rates of the whole cascade on held-out data, with 95 % intervals.

    `false_positive_rate` is the share of windows that the cascade accepts, of all places and scales in the held-out
    images. `detection_rate` is measured on the validation positives that also set the thresholds; expect a lower rate
    on a test set. `weak_stages` are the stages above `max_false_positive_rate`. `seconds` include all runs.
    `object_scores` (n,) are scores of held-out objects in their images, -inf if they are not found; with channels,
    cross-validated scores of all objects.
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


def stop_by_held_out(
    held_out: Mined, n_stages: int, config: TrainingConfig, stalled: float | None
) -> tuple[StopReason, str] | None:
    """Whether training stops after `n_stages` stages, by the windows that they accept in the held-out images."""
    _, high = image_interval(held_out.accepted, held_out.has_contrast)
    # A rate of 0 in few windows proves little: then the upper end of the interval has to be below the target.
    rate = held_out.acceptance_rate if held_out.n_accepted else high
    if rate <= config.target_false_positive_rate:
        return StopReason.TARGET_REACHED, (
            f"Reached the target false-positive rate of {config.target_false_positive_rate:g}"
        )
    if n_stages >= config.max_stages:
        return StopReason.ALL_STAGES, f"Trained all {config.max_stages} stages (max_stages)"
    if stalled is not None:
        return StopReason.CANNOT_IMPROVE, (
            f"Dropped stage {n_stages}: it accepts {stalled:.1%} of the held-out windows that pass all earlier stages. "
            "These windows resemble the object. Check that the negative images do not contain it; otherwise raise "
            "max_weak_learners or max_features, or lower min_detection_rate"
        )
    n = len(held_out.patches)
    if n < FEWEST_HELD_OUT:
        return StopReason.IMAGES_EXHAUSTED, (
            f"Found only {n} of {config.held_out_per_stage} negatives in held-out images; add images with --negatives"
        )
    return None


def stop_by_mined(mined: Mined, config: TrainingConfig) -> tuple[StopReason, str] | None:
    """Whether training stops because the training images supply too few negatives."""
    n = len(mined.patches)
    if n >= FEWEST * config.negatives_per_stage:
        return None
    return StopReason.IMAGES_EXHAUSTED, (
        f"Found only {n} of {config.negatives_per_stage} negatives in the training images; add images with --negatives"
    )
