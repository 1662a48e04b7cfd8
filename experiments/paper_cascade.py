"""The paper's cascade: stages by greedy LDA with its asymmetric threshold.

A stage grows until, at the lower of [w0Crit2] and [w0Crit3], it passes 99 % of its training faces and at most half of
its negatives. Negatives are the false positives of the stages before; training ends when there are too few of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.face_samples import WINDOW
from experiments.false_positives import FalsePositives, cascade_of
from whet.detector.base import DetectorBase, LearningStage
from whet.features.haar import HaarPool
from whet.features.training import train_weak_learners
from whet.lda.discriminant import DEFAULT_RIDGE
from whet.lda.online import OnlineDiscriminant
from whet.training.negatives import windows_of_images
from whet.training.progress import FEWEST
from whet.training.stage import GreedyLDA, StageValidation, NodeGoal

GOAL = NodeGoal(detection_rate=0.99, false_positive_rate=0.5)

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
    images: Sequence[Path],
    recipe: Recipe,
    tell: Callable[[int], None] = lambda _: None,
) -> DetectorBase:
    """Train stages until the images have too few false positives left; `tell` hears the number of stages."""
    source = FalsePositives(images, recipe.seed)
    negatives = windows_of_images(images, recipe.n_negatives, WINDOW, np.random.default_rng(recipe.seed))
    stages: list[LearningStage] = []
    while len(negatives) >= FEWEST * recipe.n_negatives:
        stages.append(train_stage(pool, faces, negatives, recipe))
        tell(len(stages))
        if len(stages) == recipe.n_stages:
            break
        negatives = source.of(cascade_of(stages), recipe.n_negatives)
    return DetectorBase(WINDOW, tuple(stages))


def train_stage(pool: HaarPool, faces: Patches, negatives: Patches, recipe: Recipe) -> LearningStage:
    """Add weak learners until the goal holds on the training samples at the paper's threshold."""
    patches = np.concatenate([faces, negatives])
    is_face = np.arange(len(patches)) < len(faces)
    weak, responses = train_weak_learners(pool, patches, is_face, seed=recipe.seed)
    candidates = pool.take(weak.feature)
    judge = StageValidation(GOAL, candidates, weak, patches, is_face)
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
    return LearningStage.from_discriminant(features, weak.take(at), learner.vote(responses, at))


def reaches_goal(judge: StageValidation, vote: OnlineDiscriminant, is_face: NDArray[np.bool_]) -> bool:
    """Whether the vote passes enough faces, and few enough others, at its own threshold."""
    passed = judge.partial_sums(vote)[-1] > vote.threshold
    enough = passed[is_face].mean() >= GOAL.detection_rate
    return bool(enough and passed[~is_face].mean() <= GOAL.false_positive_rate)
