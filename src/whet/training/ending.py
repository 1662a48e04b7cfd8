"""Why training ended, and what the cascade is worth as far as its own data can tell."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from whet.training.mining import Mined
from whet.training.plan import Plan
from whet.training.rates import picture_interval

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
    PICTURES_EXHAUSTED = "pictures exhausted"
    GOAL_CANNOT_BE_MET = "goal cannot be met"


@dataclass(frozen=True, eq=False)
class Ending:
    """Why training ended, and the rates of the whole cascade on data it was not trained on, with 95 % intervals.

    `false_positive_rate` is the share of windows, of all places and scales in the held-out pictures, that the
    cascade accepts. `detection_rate` is that of the validation positives, on which the thresholds were set: a test
    set will show less. `short_stages` are those that did not reach the goal of a stage. `seconds` count all runs.
    """

    why: Why
    reason: str
    false_positive_rate: float
    interval: tuple[float, float]
    n_windows: int
    n_pictures: int
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
            f"{self.n_windows:,} windows of {self.n_pictures} held-out pictures, detection rate "
            f"{self.detection_rate:.2%} on validation{short}"
        )


def judged_verdict(judged: Mined, n_stages: int, plan: Plan, stalled: float | None) -> tuple[Why, str] | None:
    """Whether training ends by what the held-out pictures say."""
    _, high = picture_interval(judged.accepted, judged.looked_at)
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
            "pictures show it; else allow more weak learners or features, or a lower detection rate"
        )
    n = len(judged.patches)
    if n < FEWEST_HELD_OUT:
        return Why.PICTURES_EXHAUSTED, (
            f"the held-out pictures ran out of negatives ({n} of {plan.n_held_out}): add pictures"
        )
    return None


def mined_verdict(mined: Mined, plan: Plan) -> tuple[Why, str] | None:
    """Whether training ends because the pictures to train on give no more negatives."""
    n = len(mined.patches)
    if n >= FEWEST * plan.n_negatives:
        return None
    return Why.PICTURES_EXHAUSTED, f"the pictures ran out of negatives ({n} of {plan.n_negatives}): add pictures"
