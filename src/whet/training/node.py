"""One strong classifier over image features: a node of a cascade."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from whet.errors import CannotSeparateError
from whet.features.family import FeatureFamily
from whet.features.integral import IntegralStack
from whet.features.leaves import TrainedLeaves
from whet.features.memory import DEFAULT_MAX_MEMORY
from whet.features.parallel import for_each_block
from whet.features.stump_training import Method
from whet.features.weak_training import TrainedWeak, train_weak_learners
from whet.lda.class_statistics import BinaryStatistics
from whet.lda.exits import Exits
from whet.lda.online import OnlineDiscriminant
from whet.model.detector_base import StageBase
from whet.model.stage import Stage
from whet.training.learners import FixedVote, GreedyLDA, NodeLearner, Vote
from whet.training.node_goal import Judge, NodeGoal

Patches = NDArray[np.uint8]
Labels = NDArray[np.bool_]

# Patches a task: their integrals are 10 MB, and 200 feature values of each another 3.
AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class Node:
    """Selected features, the weak learners on them, and their vote."""

    features: FeatureFamily
    weak: TrainedWeak
    vote: Vote
    exits: Exits | None = None

    def __len__(self) -> int:
        return len(self.features)

    def respond(self, patches: Patches) -> NDArray[np.uint8]:
        """Weak responses (samples, T) to patches (samples, height, width)."""
        values = self.features.evaluate(IntegralStack.of(patches))
        return self.weak.respond(values).view(np.uint8).T

    def score(self, patches: Patches, threads: int | None = None) -> NDArray[np.float64]:
        """Margins (samples,): weighted sums of the responses above the threshold."""
        stage = self.stage()
        scores = np.empty(len(patches))

        def work(rows: slice) -> None:
            scores[rows] = stage.score(patches[rows])

        for_each_block(work, len(patches), AT_ONCE, threads)
        return scores

    def stage(self) -> Stage:
        """The node as it is now, as a stage of a cascade: the same scores, and nothing more to learn."""
        vote, exits = self.vote, None
        if self.exits is not None and isinstance(vote, OnlineDiscriminant):
            exits = self.exits.thresholds(vote)
        return Stage(self.features, self.weak, vote.coef.copy(), float(vote.threshold), exits)

    def base(self) -> StageBase | Stage:
        """The node as the base of a stage that goes on learning; a boosted node is a stage that does not."""
        if isinstance(self.vote, OnlineDiscriminant):
            return StageBase.of_vote(self.features, self.weak, self.vote, self.exits)
        return self.stage()

    @classmethod
    def of_base(cls, stage: StageBase | Stage) -> Node:
        """The node whose base this is; raises ValueError for leaves of trees, which no training makes."""
        if isinstance(stage.weak, TrainedLeaves):
            raise ValueError("a stage is of leaves of trees, as OpenCV's are: no node of ours")
        if isinstance(stage, Stage):
            return cls(stage.features, stage.weak, FixedVote(stage.coef, stage.threshold))
        vote = OnlineDiscriminant(
            stage.positive.copy(),
            stage.negative.copy(),
            len(stage),
            rule=stage.rule,
            criterion=stage.criterion,
            ridge=stage.ridge,
        )
        return cls(stage.features, stage.weak, vote, stage.exits)

    def predict(self, patches: Patches, threads: int | None = None) -> Labels:
        """Which patches (samples,) the node takes for positive by its threshold; exits do not count here."""
        return self.score(patches, threads) > 0

    def learn(self, patches: Patches, is_positive: Labels, threads: int | None = None) -> None:
        """Count further patches; weights and threshold follow. Depends on neither order nor threads."""
        vote = self.vote
        if not isinstance(vote, OnlineDiscriminant):
            raise TypeError("a boosted node has no statistics and cannot learn online; train it with GreedyLDA")
        lock = Lock()

        def work(rows: slice) -> None:
            X, positive = self.respond(patches[rows]), is_positive[rows]
            new = [BinaryStatistics.of(X if side.all() else X[side]) for side in (positive, ~positive)]
            with lock:
                vote.positive, vote.negative = vote.positive + new[0], vote.negative + new[1]

        for_each_block(work, len(patches), AT_ONCE, threads)
        vote.forget_caches()


def train_node(
    family: FeatureFamily,
    patches: Patches,
    is_positive: Labels,
    n_weak: int = 200,
    *,
    learner: NodeLearner | None = None,
    goal: NodeGoal | None = None,
    validation: tuple[Patches, Labels] | None = None,
    soft: bool = False,
    method: Method = "histogram",
    max_memory: int = DEFAULT_MAX_MEMORY,
    threads: int | None = None,
    seed: int = 0,
    tell: Callable[[int, Judge], None] = lambda *_: None,
) -> Node:
    """Train a weak learner on every feature of a pool, choose and weigh: a strong classifier of patches.

    `patches` are (samples, height, width), `is_positive` (samples,). The `learner` is `GreedyLDA()`, which then
    learns online, or `Boosting()` or `ForwardFeatureSelection()` on the same responses. It stops at `n_weak`, or
    as soon as a `goal` holds on the `validation` patches; the threshold is then the one that keeps the goal's
    detection rate there, and follows the positives online. A `soft` node also has early exits, one after each weak
    learner, that follow in the same way and lose none of the validation positives. The same seed gives the same
    node on any number of threads. `tell` hears of each weak learner that was added, with the judge of the goal.

    >>> from whet.features.haar import HaarPool
    >>> rng = np.random.default_rng(0)
    >>> patches = rng.integers(0, 200, (60, 6, 6), dtype=np.uint8)
    >>> patches[:30, :, 3:] += 50  # positives are brighter on the right
    >>> node = train_node(HaarPool.of_window((6, 6)), patches, np.arange(60) < 30, n_weak=3)
    >>> len(node), bool(node.predict(patches)[:30].mean() > 0.8)
    (3, True)
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
    exits = None
    if judge is not None:
        judge.set_threshold(vote)
        exits = judge.exits(vote) if soft and isinstance(vote, OnlineDiscriminant) else None
    return Node(candidates.take(np.array(chosen)), weak.take(np.array(chosen)), vote, exits)
