"""Training of the paper's cascade, and the samples that it learns online afterwards.

A stage of greedy LDA has the paper's asymmetric threshold, the lower of [w0Crit2] and [w0Crit3], or, to compare, one
that keeps 99 % of its training faces and follows them. It grows until it passes 99 % of its training faces and at most
half of its negatives. Negatives are the false positives of the stages before. Training stops when the images have too
few of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.face_samples import WINDOW
from experiments.mining import Miner
from experiments.random_windows import windows_of_images
from whet.detector.base import DetectorBase
from whet.detector.state import count_patches
from whet.lda.discriminant import DEFAULT_RIDGE, OnlineDiscriminant
from whet.models.gslda.cascade import AT_ONCE, Cascade, LearningStage, Stage
from whet.models.gslda.cascade_model import CascadeModel, ExampleCounts
from whet.models.gslda.fitting import GreedyLDA, StageGoal, StageValidation
from whet.models.gslda.haar import HaarPool
from whet.models.gslda.weak_training import train_weak_learners
from whet.parallel.threads import for_each_block
from whet.training.gslda import FEWEST

GOAL = StageGoal(detection_rate=0.99, false_positive_rate=0.5)
STEP = 2  # between windows: a quarter of them, and still more than any but the last stages can use
KEEP_BELOW = 1e-3  # acceptance rate below which false positives are kept
KEPT_PER_IMAGE = 200
BLOCK = 20_000  # patches in memory while a stage learns
MAX_PER_IMAGE = 600  # patches to learn: enough for a quota from a hundred images

Patches = NDArray[np.uint8]


@dataclass(frozen=True)
class CascadeSettings:
    """Limits of the training: stages, weak learners of a stage, negatives of a stage."""

    n_stages: int = 30
    n_weak: int = 200
    n_negatives: int = 5000
    ridge: float = DEFAULT_RIDGE
    seed: int = 0
    balanced: bool = True  # stumps of least class-balanced error; else of least plain error
    follows: bool = False  # a threshold that keeps 99 % of the training faces, instead of the paper's


def train(
    pool: HaarPool,
    faces: Patches,
    images: Sequence[Path],
    settings: CascadeSettings,
    progress: Callable[[int], None] = lambda _: None,
) -> DetectorBase:
    """Train stages until the images have too few false positives left; `progress` receives the number of stages."""
    source = FalsePositives(images, settings.seed)
    negatives = windows_of_images(images, settings.n_negatives, WINDOW, np.random.default_rng(settings.seed))
    stages: list[LearningStage] = []
    while len(negatives) >= FEWEST * settings.n_negatives:
        stages.append(train_stage(pool, faces, negatives, settings))
        progress(len(stages))
        if len(stages) == settings.n_stages:
            break
        negatives = source.accepted_by(cascade_of(stages), settings.n_negatives)
    return DetectorBase(CascadeModel(WINDOW, tuple(stages)))


def train_stage(pool: HaarPool, faces: Patches, negatives: Patches, settings: CascadeSettings) -> LearningStage:
    """Add weak learners until the goal holds on the training samples at the paper's threshold."""
    patches = np.concatenate([faces, negatives])
    is_face = np.arange(len(patches)) < len(faces)
    weak, responses = train_weak_learners(pool, patches, is_face, seed=settings.seed, balanced=settings.balanced)
    candidates = pool.take(weak.feature)
    judge = StageValidation(GOAL, candidates, weak, patches, is_face)
    learner = GreedyLDA(ridge=settings.ridge, threshold="asymmetric", miss_rate=1 - GOAL.detection_rate)
    chosen: list[int] = []
    for j in learner.rounds(responses, settings.n_weak):
        chosen.append(j)
        judge.add(j)
        # From 20 on every fifth size is evaluated: evaluating all of them takes longer than the selection.
        is_evaluated = len(chosen) <= 20 or len(chosen) % 5 == 0
        if is_evaluated:
            vote = learner.vote(responses, np.array(chosen))
            if judge.set_threshold(vote) if settings.follows else reaches_goal(judge, vote, is_face):
                break
    at = np.array(chosen)
    vote = learner.vote(responses, at)
    if settings.follows:
        judge.set_threshold(vote)
    return LearningStage.from_discriminant(candidates.take(at), weak.take(at), vote)


def reaches_goal(judge: StageValidation, vote: OnlineDiscriminant, is_face: NDArray[np.bool_]) -> bool:
    """Whether the vote passes enough faces, and few enough others, at its own threshold."""
    passed = judge.partial_sums(vote)[-1] > vote.threshold
    enough = passed[is_face].mean() >= GOAL.detection_rate
    return bool(enough and passed[~is_face].mean() <= GOAL.false_positive_rate)


def cascade_of(stages: Sequence[LearningStage]) -> Cascade:
    """The cascade of these stages."""
    return Cascade(WINDOW, tuple(stage.run() for stage in stages))


class FalsePositives:
    """Negatives for one stage after the other: the windows that a growing cascade accepts in images without faces.

    A late stage would scan all images again for windows that an earlier scan has found. So once the acceptance rate is
    below `KEEP_BELOW`, one scan keeps up to `KEPT_PER_IMAGE` windows of each image, and later stages filter these.
    """

    def __init__(self, images: Sequence[Path], seed: int) -> None:
        self.images, self.seed = images, seed
        self._miner = Miner(images, WINDOW, seed, step=STEP)
        self._kept: Patches | None = None
        self._rate = 1.0

    def accepted_by(self, cascade: Cascade, n: int) -> Patches:
        """Up to `n` windows that the cascade accepts; it has one stage more than in the last call."""
        turn = len(cascade.stages)
        if self._rate > KEEP_BELOW:
            mined = self._miner.mine(cascade, n, turn)
            self._rate = mined.acceptance_rate
            return mined.patches
        if self._kept is None:
            most = KEPT_PER_IMAGE * len(self.images)
            miner = Miner(self.images, WINDOW, self.seed, step=STEP, max_per_image=KEPT_PER_IMAGE)
            self._kept = miner.mine(cascade, most, turn).patches
        else:
            self._kept = self._kept[accepted(cascade.stages[-1], self._kept)]
        chosen = np.random.default_rng([self.seed, turn]).permutation(len(self._kept))[:n]
        return self._kept[chosen]


def accepted(stage: Stage, patches: Patches) -> NDArray[np.bool_]:
    """Which patches (n,) pass a stage, in blocks."""
    passed = np.empty(len(patches), dtype=np.bool_)

    def work(rows: slice) -> None:
        passed[rows] = stage.accepts(patches[rows])

    for_each_block(work, len(patches), AT_ONCE)
    return passed


def count_faces(base: DetectorBase, faces: Patches) -> ExampleCounts:
    """Counts of new faces: every stage learns each face once."""
    return _counted(base, faces, is_face=True)


def count_false_positives(
    base: DetectorBase, images: Sequence[Path], n: int, seed: int, progress: Callable[[float], None] = lambda _: None
) -> ExampleCounts:
    """Counts of up to `n` false positives of earlier stages, from new images, the same number for each stage.

    Every stage learns a random sample of the windows that reach it, as in its training. Windows that reach a late stage
    are not learned by the early ones, whose training distribution they do not have. If the images have fewer windows
    for a stage than its share, that stage and all later ones learn those that reach them. At most `BLOCK` patches are
    in memory.
    """
    assert isinstance(base.model, CascadeModel)
    stages = [stage for stage in base.model.stages if isinstance(stage, LearningStage)]
    quota = n // len(stages)
    total = ExampleCounts.empty([len(stage) for stage in stages])
    for number in range(len(stages)):
        own, n_found = ExampleCounts.empty(total.sizes), 0
        for patches in _reaching(stages[:number], images, quota, seed + number):
            own = own + _counted(base, patches, is_face=False)
            n_found += len(patches)
        progress((number + 1) / len(stages))
        if n_found < quota:
            return total + _only(own, slice(number, None))
        total = total + _only(own, slice(number, number + 1))
    return total


def _counted(base: DetectorBase, patches: Patches, *, is_face: bool) -> ExampleCounts:
    """Counts of patches, each once."""
    assert isinstance(base.model, CascadeModel)
    counts = count_patches(base.model, patches, np.full(len(patches), is_face))
    if counts is None:
        return ExampleCounts.empty([len(stage) for stage in base.model.stages])
    assert isinstance(counts, ExampleCounts)
    return counts


def _only(delta: ExampleCounts, kept: slice) -> ExampleCounts:
    """The counts of some of the stages."""
    stages = list(ExampleCounts.empty(delta.sizes).stages)
    stages[kept] = delta.stages[kept]
    return ExampleCounts(tuple(stages))


def _reaching(stages: Sequence[LearningStage], images: Sequence[Path], n: int, seed: int) -> Iterator[Patches]:
    """Windows that pass these stages, in blocks, at most `n` in all."""
    if not stages:
        rng = np.random.default_rng(seed)
        for start in range(0, n, BLOCK):
            yield windows_of_images(images, min(BLOCK, n - start), WINDOW, rng)
        return
    miner = Miner(images, WINDOW, seed, step=STEP, max_per_image=MAX_PER_IMAGE)
    cascade, turn = cascade_of(stages), 0
    while n > 0:
        mined = miner.mine(cascade, min(BLOCK, n), turn)
        yield mined.patches
        n, turn = n - len(mined.patches), turn + 1
        if mined.is_exhausted:
            return
