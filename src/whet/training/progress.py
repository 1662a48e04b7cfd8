"""Progress of a training: events, time left, and the result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from whet.cascade.cascade import Cascade, TrainedStage
from whet.evaluation.curves import image_interval
from whet.training.config import Plan
from whet.training.mining import MAX_PER_IMAGE, Mined

# No training goes on for so many stages: an estimate beyond is no estimate.
MOST_STAGES = 100


@dataclass(frozen=True)
class Pace:
    """A finished stage: seconds to train it and to mine after it, images scanned, windows of each, and the rate."""

    training: float
    mining: float
    n_images: int
    windows_per_image: float
    rate: float

    def found_per_image(self, rate: float) -> float:
        """How many windows an image gives when this share is accepted."""
        return min(self.windows_per_image * rate, MAX_PER_IMAGE)


def seconds_left(paces: Sequence[Pace], plan: Plan, n_images: int) -> float | None:
    """An estimate of the seconds that the stages to come will take; None where there is nothing to go by.

    Each stage is taken to divide the false-positive rate as those so far did on average, to train as long as the
    last, and to scan more images as soon as each gives fewer windows, until there are no more. Training may end
    earlier, when the images run out.

    >>> paces = [Pace(10.0, 4.0, 100, 50.0, 0.4), Pace(10.0, 8.0, 200, 50.0, 0.2)]
    >>> seconds_left(paces, Plan(n_stages=4), n_images=1000)  # (10 + 16) + (10 + 32)
    68.0
    """
    if len(paces) < 2 or not 0 < paces[-1].rate < paces[0].rate:
        return None
    last = paces[-1]
    scale_factor = float((last.rate / paces[0].rate) ** (1 / (len(paces) - 1)))
    n_more = min(_stages_to(plan.false_positive_rate, last.rate, scale_factor), plan.n_stages - len(paces), MOST_STAGES)
    a_image = last.mining / max(last.n_images, 1)
    rates = [last.rate * scale_factor**more for more in range(1, n_more + 1)]
    given = last.found_per_image(last.rate)
    scanned = [min(float(n_images), last.n_images * given / last.found_per_image(rate)) for rate in rates]
    return n_more * last.training + a_image * sum(scanned)


def _stages_to(goal: float, rate: float, scale_factor: float) -> int:
    if goal >= rate:
        return 0
    return MOST_STAGES if goal == 0 else math.ceil(math.log(goal / rate) / math.log(scale_factor) - 1e-9)


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
    """A stage was trained: the cascade so far, its newest stage, and what was mined for it (None for the first).

    Both rates are those of this stage alone, on validation samples; the negatives among them are windows that all
    stages before accept.
    """

    cascade: Cascade
    trained: TrainedStage
    n_negatives: int
    detection_rate: float
    false_positive_rate: float
    meets_goal: bool
    mined: Mined | None

    def _says(self) -> str:
        short = "" if self.meets_goal else "; short of its goal"
        return f"trained, {len(self.trained)} weak learners, {_rates(self)}{short}"


@dataclass(frozen=True, eq=False)
class Mining(Event):
    """Negatives are searched for `stage`: in the images that are trained on, or in those `held_out`."""

    n_found: int
    n_wanted: int
    n_looked_at: int
    n_images: int
    most_images: int
    held_out: bool

    def _says(self) -> str:
        side = "held-out" if self.held_out else "training"
        return (
            f"mined {self.n_found} of {self.n_wanted} negatives in {self.n_images} of {self.most_images} "
            f"{side} images, {self.n_looked_at:,} windows"
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


# A stage needs that many negatives of the number that was asked for; with fewer, training has come to its end.
FEWEST = 0.1
# With fewer held-out windows nothing can be said of a further stage.
FEWEST_HELD_OUT = 10
# By chance, negatives would be accepted at the rate of positives. A stage that accepts more than this share of it
# costs positives and time for next to nothing.
STALLED = 0.95


class Why(StrEnum):
    """The four ways in which training ends."""

    GOAL_REACHED = "goal reached"
    ALL_STAGES = "all stages"
    IMAGES_EXHAUSTED = "images exhausted"
    GOAL_CANNOT_BE_MET = "goal cannot be met"


@dataclass(frozen=True, eq=False)
class Ending:
    """Why training ended, and the rates of the whole cascade on data it was not trained on, with 95 % intervals.

    `false_positive_rate` is the share of windows, of all places and scales in the held-out images, that the
    cascade accepts. `detection_rate` is that of the validation positives, on which the thresholds were set: a test
    set will show less. `short_stages` are those that did not reach the goal of a stage. `seconds` count all runs.
    """

    why: Why
    reason: str
    false_positive_rate: float
    interval: tuple[float, float]
    n_windows: int
    n_images: int
    detection_rate: float
    detection_interval: tuple[float, float]
    short_stages: tuple[int, ...]
    n_stages: int
    seconds: float

    def __str__(self) -> str:
        low, high = self.interval
        short = f"; stages short of their goal: {', '.join(map(str, self.short_stages))}" if self.short_stages else ""
        return (
            f"{self.reason}. False-positive rate {self.false_positive_rate:.2g} ({low:.2g} to {high:.2g}) in "
            f"{self.n_windows:,} windows of {self.n_images} held-out images, detection rate "
            f"{self.detection_rate:.2%} on validation{short}"
        )


def judged_verdict(judged: Mined, n_stages: int, plan: Plan, stalled: float | None) -> tuple[Why, str] | None:
    """Whether training ends by what the held-out images say."""
    _, high = image_interval(judged.accepted, judged.looked_at)
    # A rate of 0 in few windows proves little: then the interval has to be below the goal.
    rate = judged.acceptance_rate if judged.n_accepted else high
    if rate <= plan.false_positive_rate:
        return Why.GOAL_REACHED, "the false-positive rate of the plan is reached"
    if n_stages >= plan.n_stages:
        return Why.ALL_STAGES, "all stages of the plan are trained"
    if stalled is not None:
        return Why.GOAL_CANNOT_BE_MET, (
            f"stage {n_stages} was left out: it accepts {stalled:.1%} of the held-out windows that the stages before "
            "accept, at the detection rate of its goal. These windows look like the object: see whether the "
            "images show it; else allow more weak learners or features, or a lower detection rate"
        )
    n = len(judged.patches)
    if n < FEWEST_HELD_OUT:
        return Why.IMAGES_EXHAUSTED, (
            f"the held-out images ran out of negatives ({n} of {plan.n_held_out}): add images"
        )
    return None


def mined_verdict(mined: Mined, plan: Plan) -> tuple[Why, str] | None:
    """Whether training ends because the images to train on give no more negatives."""
    n = len(mined.patches)
    if n >= FEWEST * plan.n_negatives:
        return None
    return Why.IMAGES_EXHAUSTED, f"the images ran out of negatives ({n} of {plan.n_negatives}): add images"
