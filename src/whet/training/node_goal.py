"""When a node is good enough: a detection rate and a false-positive rate on samples it was not trained on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet.features.family import FeatureFamily
from whet.features.integral import IntegralStack
from whet.features.weak_training import TrainedWeak
from whet.lda.exits import Exits
from whet.lda.online import OnlineDiscriminant
from whet.lda.thresholds import Rate, calibrate_rate, quantile_threshold
from whet.training.learners import Vote


@dataclass(frozen=True)
class NodeGoal:
    """What a node has to reach on a validation set before no more weak learners are added.

    >>> NodeGoal(detection_rate=0.995)
    NodeGoal(detection_rate=0.995, false_positive_rate=0.5)
    """

    detection_rate: float = 0.99
    false_positive_rate: float = 0.5

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < 1:
                raise ValueError(f"{name}={value!r} must lie between 0 and 1, both excluded")


class Judge:
    """Follows a growing node on validation samples, one weak learner at a time."""

    def __init__(
        self,
        goal: NodeGoal,
        features: FeatureFamily,
        weak: TrainedWeak,
        patches: NDArray[np.uint8],
        is_positive: NDArray[np.bool_],
    ) -> None:
        if not 0 < is_positive.sum() < len(is_positive):
            raise ValueError("the validation set has samples of one class only; a goal needs both")
        self.goal = goal
        self.detection_rate = self.false_positive_rate = 1.0
        self._features, self._weak, self._is_positive = features, weak, is_positive
        self._stack = IntegralStack.of(patches)
        self._responses: list[NDArray[np.uint8]] = []

    def add(self, j: int) -> None:
        """The node chose candidate j."""
        at = np.array([j])
        values = self._features.take(at).evaluate(self._stack)
        self._responses.append(self._weak.take(at).respond(values)[0].view(np.uint8))

    def partial_sums(self, vote: Vote) -> NDArray[np.float64]:
        """Weighted sums (T, samples) after each weak learner, added in their order, as a scan adds them."""
        return np.cumsum(np.array(self._responses) * vote.coef[:, None], axis=0)

    def exits(self, vote: OnlineDiscriminant) -> Exits:
        """Early exits that all validation positives pass which the vote accepts."""
        sums = self.partial_sums(vote)
        return Exits.calibrated(sums[:, self._is_positive], sums[:, ~self._is_positive], vote)

    def set_threshold(self, vote: Vote) -> bool:
        """Lower or raise the vote's threshold to the goal's detection rate; tell whether the goal holds with it."""
        scores = self.partial_sums(vote)[-1]
        positives = scores[self._is_positive]
        if isinstance(vote, OnlineDiscriminant):
            vote.rule = Rate(calibrate_rate(positives, vote.projection, self.goal.detection_rate))
        else:
            vote.threshold = quantile_threshold(positives, self.goal.detection_rate)
        self.detection_rate = float((positives > vote.threshold).mean())
        self.false_positive_rate = float((scores[~self._is_positive] > vote.threshold).mean())
        return self.false_positive_rate <= self.goal.false_positive_rate
