"""The paper's cascade: stages by greedy LDA with its asymmetric threshold, and what new samples teach each of them.

A stage grows until, at the lower of [w0Crit2] and [w0Crit3], it passes 99 % of its training faces and at most half of
its negatives. Negatives are the false positives of the stages before; training ends when there are too few of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.features.haar import HaarPool
from whet.features.parallel import for_each_block
from whet.features.weak_training import train_weak_learners
from whet.lda.discriminant import DEFAULT_RIDGE
from whet.lda.online import OnlineDiscriminant
from whet.model.cascade import Cascade
from whet.model.delta import Delta
from whet.model.detector_base import DetectorBase, StageBase
from whet.model.stage import Stage
from whet.training.learners import GreedyLDA
from whet.training.mining import Miner
from whet.training.node import AT_ONCE
from whet.training.node_goal import Judge, NodeGoal
from whet.training.online import lesson
from whet.training.windows import windows_of_pictures

WINDOW = (24, 24)
GOAL = NodeGoal(detection_rate=0.99, false_positive_rate=0.5)
FEWEST = 0.1  # of the negatives that were asked for: with fewer, training ends
BLOCK = 20_000  # patches in memory while a stage is taught
KEEP_BELOW = 1e-3  # acceptance rate from which on false positives are kept
KEPT_OF_A_PICTURE = 200
MOST_OF_A_PICTURE = 600  # of those that teach: enough for a quota from a hundred pictures

Patches = NDArray[np.uint8]


@dataclass(frozen=True)
class Recipe:
    """How large a cascade may become, and from how many negatives a stage."""

    n_stages: int = 30
    n_weak: int = 200
    n_negatives: int = 5000
    ridge: float = DEFAULT_RIDGE
    seed: int = 0


def train(
    pool: HaarPool,
    faces: Patches,
    pictures: Sequence[Path],
    recipe: Recipe,
    tell: Callable[[int], None] = lambda _: None,
) -> DetectorBase:
    """Train stages until the pictures have too few false positives left; `tell` hears the number of stages."""
    source = FalsePositives(pictures, recipe.seed)
    negatives = windows_of_pictures(pictures, recipe.n_negatives, WINDOW, np.random.default_rng(recipe.seed))
    stages: list[StageBase] = []
    while len(negatives) >= FEWEST * recipe.n_negatives:
        stages.append(train_stage(pool, faces, negatives, recipe))
        tell(len(stages))
        if len(stages) == recipe.n_stages:
            break
        negatives = source.of(cascade_of(stages), recipe.n_negatives)
    return DetectorBase(WINDOW, tuple(stages))


class FalsePositives:
    """Negatives for stage after stage: scans pictures, and from a low acceptance rate on keeps what was left.

    A late stage would need all pictures scanned to find what the stage before it had found already, less what its own
    last stage refuses. So one pass keeps all that is accepted, up to `KEPT_OF_A_PICTURE`, and later stages sieve it.
    """

    def __init__(self, pictures: Sequence[Path], seed: int) -> None:
        self.pictures, self.seed = pictures, seed
        self._miner = Miner(pictures, WINDOW, seed)
        self._kept: Patches | None = None
        self._rate = 1.0

    def of(self, cascade: Cascade, n: int) -> Patches:
        """Up to `n` windows that the cascade accepts; it has one stage more than the last time."""
        turn = len(cascade.stages)
        if self._rate > KEEP_BELOW:
            mined = self._miner.mine(cascade, n, turn)
            self._rate = mined.acceptance_rate
            return mined.patches
        if self._kept is None:
            most = KEPT_OF_A_PICTURE * len(self.pictures)
            miner = Miner(self.pictures, WINDOW, self.seed, most_of_a_picture=KEPT_OF_A_PICTURE)
            self._kept = miner.mine(cascade, most, turn).patches
        else:
            self._kept = self._kept[accepted(cascade.stages[-1], self._kept)]
        chosen = np.random.default_rng([self.seed, turn]).permutation(len(self._kept))[:n]
        return self._kept[chosen]


def accepted(stage: Stage, patches: Patches) -> NDArray[np.bool_]:
    """Which patches (n,) pass a stage, block by block."""
    passed = np.empty(len(patches), dtype=np.bool_)

    def work(rows: slice) -> None:
        passed[rows] = stage.accepts(patches[rows])

    for_each_block(work, len(patches), AT_ONCE)
    return passed


def cascade_of(stages: Sequence[StageBase]) -> Cascade:
    """The cascade of some stages as they were trained."""
    return Cascade(WINDOW, tuple(stage.stage() for stage in stages))


def train_stage(pool: HaarPool, faces: Patches, negatives: Patches, recipe: Recipe) -> StageBase:
    """Add weak learners until the goal holds on the training samples at the paper's threshold."""
    patches = np.concatenate([faces, negatives])
    is_face = np.arange(len(patches)) < len(faces)
    weak, responses = train_weak_learners(pool, patches, is_face, seed=recipe.seed)
    candidates = pool.take(weak.feature)
    judge = Judge(GOAL, candidates, weak, patches, is_face)
    learner = GreedyLDA(ridge=recipe.ridge, threshold="asymmetric", miss_rate=1 - GOAL.detection_rate)
    chosen: list[int] = []
    for j in learner.rounds(responses, recipe.n_weak):
        chosen.append(j)
        judge.add(j)
        # From 20 on every fifth size is judged: judging all of them takes longer than choosing.
        is_judged = len(chosen) <= 20 or len(chosen) % 5 == 0
        if is_judged and reaches_goal(judge, learner.vote(responses, np.array(chosen)), is_face):
            break
    features, at = candidates.take(np.array(chosen)), np.array(chosen)
    return StageBase.of_vote(features, weak.take(at), learner.vote(responses, at))


def reaches_goal(judge: Judge, vote: OnlineDiscriminant, is_face: NDArray[np.bool_]) -> bool:
    """Whether the vote passes enough faces, and few enough others, at its own threshold."""
    passed = judge.partial_sums(vote)[-1] > vote.threshold
    enough = passed[is_face].mean() >= GOAL.detection_rate
    return bool(enough and passed[~is_face].mean() <= GOAL.false_positive_rate)


def lesson_of_faces(base: DetectorBase, faces: Patches) -> Delta:
    """New faces teach all stages, each face once."""
    return lesson(base, faces, np.ones(len(faces), dtype=np.bool_), weights=1)


def lesson_of_false_positives(
    base: DetectorBase, pictures: Sequence[Path], n: int, seed: int, tell: Callable[[float], None] = lambda _: None
) -> Delta:
    """Up to `n` false positives of earlier stages, from new pictures, divided evenly among the stages.

    Every stage is taught a random sample of the windows that reach it, as in its training. A window that was looked
    for because it reaches a late stage does not teach the early ones: they would learn that most of the world looks
    like a face. Where the pictures have fewer windows for a stage than its part, these are all there are, and teach
    that stage and those after it, as far as they reach. At most `BLOCK` patches are in memory.
    """
    stages = [stage for stage in base.stages if isinstance(stage, StageBase)]
    quota = n // len(stages)
    total = Delta.empty([len(stage) for stage in stages])
    for number in range(len(stages)):
        own, n_found = Delta.empty(total.sizes), 0
        for patches in _reaching(stages[:number], pictures, quota, seed + number):
            own = own + lesson(base, patches, np.zeros(len(patches), dtype=np.bool_), weights=1)
            n_found += len(patches)
        tell((number + 1) / len(stages))
        if n_found < quota:
            return total + _only(own, slice(number, None))
        total = total + _only(own, slice(number, number + 1))
    return total


def _only(delta: Delta, kept: slice) -> Delta:
    """What a delta teaches some of its stages."""
    stages = list(Delta.empty(delta.sizes).stages)
    stages[kept] = delta.stages[kept]
    return Delta(tuple(stages))


def _reaching(stages: Sequence[StageBase], pictures: Sequence[Path], n: int, seed: int) -> Iterator[Patches]:
    """Windows that pass these stages, in blocks, at most `n` in all."""
    if not stages:
        rng = np.random.default_rng(seed)
        for start in range(0, n, BLOCK):
            yield windows_of_pictures(pictures, min(BLOCK, n - start), WINDOW, rng)
        return
    miner = Miner(pictures, WINDOW, seed, most_of_a_picture=MOST_OF_A_PICTURE)
    cascade, turn = cascade_of(stages), 0
    while n > 0:
        mined = miner.mine(cascade, min(BLOCK, n), turn)
        yield mined.patches
        n, turn = n - len(mined.patches), turn + 1
        if mined.is_exhausted:
            return
