"""Training of one stage: weak learners on every feature, selected and weighted until the stage meets its goal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from whet._kernels.threads import DEFAULT_MAX_MEMORY
from whet.cascade.cascade import Bools, LearningStage, Patches, Stage, TrainedStage
from whet.errors import CannotSeparateError
from whet.features import boosting
from whet.features.integral import FeatureFamily, IntegralStack
from whet.features.responses import BitResponses, class_statistics
from whet.features.training import Method, train_weak_learners
from whet.features.weak_learners import Stumps, Subsets
from whet.lda import selection, thresholds
from whet.lda.discriminant import DEFAULT_RIDGE, Criterion, OnlineDiscriminant
from whet.lda.thresholds import Rate, RejectionThresholds, calibrate_rate, quantile_threshold


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
        weak: Stumps | Subsets,
        patches: NDArray[np.uint8],
        is_positive: NDArray[np.bool_],
    ) -> None:
        if not 0 < is_positive.sum() < len(is_positive):
            raise ValueError("the validation set has samples of one class only; a goal needs both")
        self.goal = goal
        self.detection_rate = self.false_positive_rate = 1.0
        self._features, self._weak, self._is_positive = features, weak, is_positive
        self._stack = IntegralStack.from_patches(patches)
        self._responses: list[NDArray[np.uint8]] = []

    def add(self, j: int) -> None:
        """The node chose candidate j."""
        at = np.array([j])
        values = self._features.take(at).evaluate(self._stack)
        self._responses.append(self._weak.take(at).respond(values)[0].view(np.uint8))

    def partial_sums(self, vote: Vote) -> NDArray[np.float64]:
        """Weighted sums (T, samples) after each weak learner, added in their order, as a scan adds them."""
        return np.cumsum(np.array(self._responses) * vote.coef[:, None], axis=0)

    def rejection_thresholds(self, vote: OnlineDiscriminant) -> RejectionThresholds:
        """Early exits that all validation positives pass which the vote accepts."""
        sums = self.partial_sums(vote)
        return RejectionThresholds.calibrated(sums[:, self._is_positive], sums[:, ~self._is_positive], vote)

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


Indices = NDArray[np.intp]


@dataclass(eq=False)
class FixedVote:
    """Weights and threshold that no further sample will move."""

    coef: NDArray[np.float64]
    threshold: float


Vote = OnlineDiscriminant | FixedVote


class NodeLearner(Protocol):
    """Chooses weak learners one after the other, and weighs those that were chosen so far."""

    def rounds(self, responses: BitResponses, n_most: int) -> Iterator[int]:
        """Indices of the chosen learners, at most `n_most`."""

    def vote(self, responses: BitResponses, chosen: Indices) -> Vote:
        """The vote of the learners chosen so far, in the order of choice."""


@dataclass(frozen=True)
class GreedyLDA:
    """Greedy sparse LDA [ALG:GSLDA] by the FDA or the LAC criterion; its vote learns online."""

    criterion: Criterion = "fda"
    ridge: float = DEFAULT_RIDGE
    threshold: str = "bayes"
    miss_rate: float = 0.01

    def rounds(self, responses: BitResponses, n_most: int) -> Iterator[int]:
        """Indices of the chosen learners, at most `n_most`."""
        scatter = responses.scatter(self.criterion, self.ridge)
        for j, _ in selection.rounds(scatter, n_most, responses.threads):
            yield j

    def vote(self, responses: BitResponses, chosen: Indices) -> OnlineDiscriminant:
        """The discriminant of the chosen learners, with statistics to go on from."""
        positive, negative = class_statistics(responses, chosen)
        rule = thresholds.rule(self.threshold, self.miss_rate)
        return OnlineDiscriminant(
            positive, negative, len(chosen), rule=rule, criterion=self.criterion, ridge=self.ridge
        )


@dataclass
class Boosting:
    """AdaBoost, or with an `asymmetry` above 1 AsymBoost, over weak learners that stay as they are.

    With `balance` both classes start with the same weight; without it all samples do.
    """

    asymmetry: float = 1.0
    balance: bool = True
    votes: list[float] = field(default_factory=list, init=False, repr=False)

    def rounds(self, responses: BitResponses, n_most: int) -> Iterator[int]:
        """Indices of the chosen learners, at most `n_most`; one may come more than once."""
        self.votes = []
        for j, vote in boosting.rounds(responses, n_most, self.asymmetry, self.balance):
            self.votes.append(vote)
            yield j

    def vote(self, responses: BitResponses, chosen: Indices) -> FixedVote:  # noqa: ARG002
        """Viola and Jones's strong classifier: at least half of the weighted votes."""
        votes = np.array(self.votes[: len(chosen)])
        return FixedVote(votes, float(votes.sum()) / 2)


def train_stage(
    family: FeatureFamily,
    patches: Patches,
    is_positive: Bools,
    n_weak: int = 200,
    *,
    learner: NodeLearner | None = None,
    goal: NodeGoal | None = None,
    validation: tuple[Patches, Bools] | None = None,
    soft: bool = False,
    method: Method = "histogram",
    max_memory: int = DEFAULT_MAX_MEMORY,
    threads: int | None = None,
    seed: int = 0,
    tell: Callable[[int, Judge], None] = lambda *_: None,
) -> TrainedStage:
    """Train a weak learner on every feature of a pool, select some and weight them: a stage of a cascade.

    `patches` are (samples, height, width), `is_positive` (samples,). The `learner` is `GreedyLDA()`, which then
    learns online, or `Boosting()` on the same responses. Selection stops at `n_weak`, or
    as soon as a `goal` holds on the `validation` patches; the threshold is then the one that keeps the goal's
    detection rate there, and follows the positives online. A `soft` stage also has a rejection threshold after
    each weak learner; these follow in the same way and lose none of the validation positives. The same seed gives the
    same stage on any number of threads. `tell` hears of each weak learner that was added, with the judge of the goal.

    >>> from whet.features.haar import HaarPool
    >>> rng = np.random.default_rng(0)
    >>> patches = rng.integers(0, 200, (60, 6, 6), dtype=np.uint8)
    >>> patches[:30, :, 3:] += 50  # positives are brighter on the right
    >>> stage = train_stage(HaarPool.from_window((6, 6)), patches, np.arange(60) < 30, n_weak=3)
    >>> len(stage), stage.learns, bool(stage.run().accepts(patches)[:30].mean() > 0.8)
    (3, True, True)
    """
    if (goal is None) != (validation is None):
        raise ValueError("a goal is judged on validation=(patches, is_positive): give both or neither")
    if soft and goal is None:
        raise ValueError("early exits are calibrated on validation patches: soft=True needs a goal and validation")
    learner = GreedyLDA() if learner is None else learner
    weak, responses = train_weak_learners(
        family, patches, is_positive, method=method, max_memory=max_memory, threads=threads, seed=seed
    )
    candidates = family.take(weak.feature)
    judge = Judge(goal, candidates, weak, *validation) if goal and validation else None
    chosen: list[int] = []
    for j in learner.rounds(responses, n_weak):
        chosen.append(j)
        if judge is not None:
            judge.add(j)
            is_met = judge.set_threshold(learner.vote(responses, np.array(chosen)))
            tell(len(chosen), judge)
            if is_met:
                break
    if not chosen:
        raise CannotSeparateError("no feature tells the two classes apart: look at the patches and their labels")
    vote = learner.vote(responses, np.array(chosen))
    if judge is not None:
        judge.set_threshold(vote)
    features, learners = candidates.take(np.array(chosen)), weak.take(np.array(chosen))
    if not isinstance(vote, OnlineDiscriminant):
        return Stage(features, learners, vote.coef, float(vote.threshold))
    rejection = judge.rejection_thresholds(vote) if soft and judge is not None else None
    return LearningStage.from_discriminant(features, learners, vote, rejection)
