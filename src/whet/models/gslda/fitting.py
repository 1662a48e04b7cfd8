"""Training of one stage: weak learners on every feature, selected and weighted until the stage meets its goal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from whet.errors import CannotSeparateError
from whet.lda import thresholds
from whet.lda.discriminant import DEFAULT_RIDGE, Criterion, OnlineDiscriminant, check_combination
from whet.lda.thresholds import Rate, RejectionThresholds, calibrate_rate, quantile_threshold
from whet.models.gslda import stump_boosting as boosting
from whet.models.gslda.candidates import Responses, class_statistics
from whet.models.gslda.integral import FeatureFamily, IntegralStack
from whet.models.gslda.stage import Bools, LearningStage, Patches, Stage, TrainedStage
from whet.models.gslda.weak_learners import Stumps, Subsets
from whet.models.gslda.weak_training import train_weak_learners
from whet.parallel.threads import DEFAULT_MAX_MEMORY
from whet.parallel.workers import ALL_THREADS, Workers


@dataclass(frozen=True)
class StageGoal:
    """Rates that a stage has to reach on a validation set; then no more weak learners are added.

    >>> StageGoal(detection_rate=0.995)
    StageGoal(detection_rate=0.995, false_positive_rate=0.5)
    """

    detection_rate: float = 0.99
    false_positive_rate: float = 0.5

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < 1:
                raise ValueError(f"{name}={value!r} must lie between 0 and 1, both excluded")


class StageValidation:
    """Measures a growing stage on validation samples, one weak learner at a time."""

    def __init__(
        self,
        goal: StageGoal,
        features: FeatureFamily,
        weak: Stumps | Subsets,
        patches: NDArray[np.uint8],
        is_positive: NDArray[np.bool_],
    ) -> None:
        if not 0 < is_positive.sum() < len(is_positive):
            raise ValueError("got validation samples of one class only; expected positives and negatives")
        self.goal = goal
        self.detection_rate = self.false_positive_rate = 1.0
        self._features, self._weak, self._is_positive = features, weak, is_positive
        self._stack = IntegralStack.from_patches(patches)
        self._responses: list[NDArray[np.uint8]] = []

    def add(self, j: int) -> None:
        """Add the responses of candidate j, which was selected."""
        at = np.array([j])
        values = self._features.take(at).evaluate(self._stack)
        self._responses.append(self._weak.take(at).respond(values)[0].view(np.uint8))

    def partial_sums(self, vote: Vote) -> NDArray[np.float64]:
        """Weighted sums (T, samples) after each weak learner, added in the order of a scan."""
        return np.cumsum(np.array(self._responses) * vote.coef[:, None], axis=0)

    def rejection_thresholds(self, vote: OnlineDiscriminant) -> RejectionThresholds:
        """Rejection thresholds that keep all validation positives above the threshold of the vote."""
        sums = self.partial_sums(vote)
        return RejectionThresholds.calibrated(sums[:, self._is_positive], sums[:, ~self._is_positive], vote)

    def set_threshold(self, vote: Vote) -> bool:
        """Set the vote's threshold to the goal's detection rate; returns whether the goal is reached."""
        scores = self.partial_sums(vote)[-1]
        positives = scores[self._is_positive]
        if isinstance(vote, OnlineDiscriminant):
            vote.rule = Rate(calibrate_rate(positives, vote.projection, self.goal.detection_rate))
        else:
            vote.threshold = quantile_threshold(positives, self.goal.detection_rate)
        self.detection_rate = float((positives > vote.threshold).mean())
        self.false_positive_rate = float((scores[~self._is_positive] > vote.threshold).mean())
        return self.false_positive_rate <= self.goal.false_positive_rate


Indices = NDArray[np.intp]


@dataclass(eq=False)
class FixedVote:
    """Weights and a threshold that do not learn."""

    coef: NDArray[np.float64]
    threshold: float


Vote = OnlineDiscriminant | FixedVote


class StageLearner(Protocol):
    """Selects weak learners one by one, and computes the weights of the selected ones."""

    def rounds(self, responses: Responses, n_most: int) -> Iterator[int]:
        """Indices of the selected learners, at most `n_most`."""

    def vote(self, responses: Responses, chosen: Indices) -> Vote:
        """Weights and threshold of the learners selected so far, in the order of selection."""


@dataclass(frozen=True)
class GreedyLDA:
    """Greedy sparse LDA [ALG:GSLDA] by the FDA or the LAC criterion; the stage learns online."""

    criterion: Criterion = "fda"
    ridge: float = DEFAULT_RIDGE
    threshold: str = "bayes"
    miss_rate: float = 0.01

    def __post_init__(self) -> None:
        check_combination(self.criterion, thresholds.rule(self.threshold, self.miss_rate))

    def rounds(self, responses: Responses, n_most: int) -> Iterator[int]:
        """Indices of the selected learners, at most `n_most`."""
        for j, _ in responses.selected(self.criterion, self.ridge, n_most):
            yield j

    def vote(self, responses: Responses, chosen: Indices) -> OnlineDiscriminant:
        """The discriminant of the selected learners, with their statistics."""
        positive, negative = class_statistics(responses, chosen)
        rule = thresholds.rule(self.threshold, self.miss_rate)
        return OnlineDiscriminant(
            positive, negative, len(chosen), rule=rule, criterion=self.criterion, ridge=self.ridge
        )


@dataclass
class Boosting:
    """AdaBoost, or with an `asymmetry` above 1 AsymBoost, over trained weak learners.

    With `balance` both classes start with the same weight; without it all samples do.
    """

    asymmetry: float = 1.0
    balance: bool = True
    votes: list[float] = field(default_factory=list, init=False, repr=False)

    def rounds(self, responses: Responses, n_most: int) -> Iterator[int]:
        """Indices of the selected learners, at most `n_most`; one may be selected more than once."""
        self.votes = []
        for j, vote in boosting.rounds(responses, n_most, self.asymmetry, self.balance):
            self.votes.append(vote)
            yield j

    def vote(self, responses: Responses, chosen: Indices) -> FixedVote:  # noqa: ARG002
        """The strong classifier of Viola and Jones: at least half of the sum of weights."""
        votes = np.array(self.votes[: len(chosen)])
        return FixedVote(votes, float(votes.sum()) / 2)


def train_stage(
    family: FeatureFamily,
    patches: Patches,
    is_positive: Bools,
    n_weak: int = 200,
    *,
    learner: StageLearner | None = None,
    goal: StageGoal | None = None,
    validation: tuple[Patches, Bools] | None = None,
    soft: bool = False,
    max_memory: int = DEFAULT_MAX_MEMORY,
    workers: Workers = ALL_THREADS,
    seed: int = 0,
    progress: Callable[[int, StageValidation], None] = lambda *_: None,
) -> TrainedStage:
    """Train a weak learner on every feature of a pool, select some and weight them: a stage of a cascade.

    `patches` are (samples, height, width), `is_positive` (samples,). The `learner` is `GreedyLDA()`, which then
    learns online, or `Boosting()` on the same responses. Selection stops at `n_weak`, or
    as soon as a `goal` holds on the `validation` patches; the threshold is then the one that keeps the goal's
    detection rate there, and follows the positives online. A `soft` stage also has a rejection threshold after
    each weak learner; these follow in the same way and lose none of the validation positives. The same seed gives the
    same stage on any number of `workers`. `progress` is called after each
    weak learner, with their number and the validation.

    >>> from whet.models.gslda.haar import HaarPool
    >>> rng = np.random.default_rng(0)
    >>> patches = rng.integers(0, 200, (60, 6, 6), dtype=np.uint8)
    >>> patches[:30, :, 3:] += 50  # positives are brighter on the right
    >>> stage = train_stage(HaarPool.from_window((6, 6)), patches, np.arange(60) < 30, n_weak=3)
    >>> len(stage), stage.learns, bool(stage.run().accepts(patches)[:30].mean() > 0.8)
    (3, True, True)
    """
    if (goal is None) != (validation is None):
        raise ValueError("got only one of goal and validation=(patches, is_positive); give both or neither")
    if soft and goal is None:
        raise ValueError("soft=True needs a goal and validation patches, to calibrate the rejection thresholds")
    learner = GreedyLDA() if learner is None else learner
    weak, responses = train_weak_learners(
        family, patches, is_positive, max_memory=max_memory, workers=workers, seed=seed
    )
    candidates = family.take(weak.feature)
    check = StageValidation(goal, candidates, weak, *validation) if goal and validation else None
    chosen: list[int] = []
    for j in learner.rounds(responses, n_weak):
        chosen.append(j)
        if check is not None:
            check.add(j)
            is_met = check.set_threshold(learner.vote(responses, np.array(chosen)))
            progress(len(chosen), check)
            if is_met:
                break
    if not chosen:
        raise CannotSeparateError("no feature separates the two classes; check the patches and their labels")
    vote = learner.vote(responses, np.array(chosen))
    if check is not None:
        check.set_threshold(vote)
    features, learners = candidates.take(np.array(chosen)), weak.take(np.array(chosen))
    if not isinstance(vote, OnlineDiscriminant):
        return Stage(features, learners, vote.coef, float(vote.threshold))
    rejection = check.rejection_thresholds(vote) if soft and check is not None else None
    return LearningStage.from_discriminant(features, learners, vote, rejection)
