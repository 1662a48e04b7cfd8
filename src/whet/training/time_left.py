"""How long training will take, from the stages so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from whet.training.mining import MOST_OF_A_PICTURE
from whet.training.plan import Plan

# No training goes on for so many stages: an estimate beyond is no estimate.
MOST_STAGES = 100


@dataclass(frozen=True)
class Pace:
    """A finished stage: seconds to train it and to mine after it, pictures scanned, windows of each, and the rate."""

    training: float
    mining: float
    n_pictures: int
    windows_a_picture: float
    rate: float

    def found_a_picture(self, rate: float) -> float:
        """How many windows a picture gives when this share is accepted."""
        return min(self.windows_a_picture * rate, MOST_OF_A_PICTURE)


def seconds_left(paces: Sequence[Pace], plan: Plan, n_pictures: int) -> float | None:
    """An estimate of the seconds that the stages to come will take; None where there is nothing to go by.

    Each stage is taken to divide the false-positive rate as those so far did on average, to train as long as the
    last, and to scan more pictures as soon as each gives fewer windows, until there are no more. Training may end
    earlier, when the pictures run out.

    >>> paces = [Pace(10.0, 4.0, 100, 50.0, 0.4), Pace(10.0, 8.0, 200, 50.0, 0.2)]
    >>> seconds_left(paces, Plan(n_stages=4), n_pictures=1000)  # (10 + 16) + (10 + 32)
    68.0
    """
    if len(paces) < 2 or not 0 < paces[-1].rate < paces[0].rate:
        return None
    last = paces[-1]
    factor = float((last.rate / paces[0].rate) ** (1 / (len(paces) - 1)))
    n_more = min(_stages_to(plan.false_positive_rate, last.rate, factor), plan.n_stages - len(paces), MOST_STAGES)
    a_picture = last.mining / max(last.n_pictures, 1)
    rates = [last.rate * factor**more for more in range(1, n_more + 1)]
    given = last.found_a_picture(last.rate)
    scanned = [min(float(n_pictures), last.n_pictures * given / last.found_a_picture(rate)) for rate in rates]
    return n_more * last.training + a_picture * sum(scanned)


def _stages_to(goal: float, rate: float, factor: float) -> int:
    if goal >= rate:
        return 0
    return MOST_STAGES if goal == 0 else math.ceil(math.log(goal / rate) / math.log(factor) - 1e-9)
