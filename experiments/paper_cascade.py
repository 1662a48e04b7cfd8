"""The paper's cascade: stages by greedy LDA with its asymmetric threshold.

A stage grows until, at the lower of [w0Crit2] and [w0Crit3], it passes 99 % of its training faces and at most half of
its negatives. Negatives are the false positives of the stages before; training ends when there are too few of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.face_samples import WINDOW
from experiments.false_positives import FalsePositives, cascade_of
from whet.cascade.cascade import LearningStage
from whet.detector.base import DetectorBase
from whet.features.haar import HaarPool
from whet.features.training import train_weak_learners
from whet.lda.discriminant import DEFAULT_RIDGE
from whet.lda.online import OnlineDiscriminant
from whet.training.config import TrainingConfig
from whet.training.negatives import windows_of_images
from whet.training.progress import FEWEST
from whet.training.stage import GreedyLDA, Judge, NodeGoal

# `train` uses the goals of a stage, max_stages, max_weak_learners, negatives_per_stage, ridge and seed.
CONFIG = TrainingConfig(
    max_stages=30,
    max_weak_learners=200,
    negatives_per_stage=5000,
    min_detection_rate=0.99,
    max_false_positive_rate=0.5,
    ridge=DEFAULT_RIDGE,
)

Patches = NDArray[np.uint8]


def train(
    pool: HaarPool,
    faces: Patches,
    images: Sequence[Path],
    config: TrainingConfig = CONFIG,
    progress: Callable[[int], None] = lambda _: None,
) -> DetectorBase:
    """Train stages until the images have too few false positives left; `progress` receives the number of stages."""
    source = FalsePositives(images, config.seed)
    negatives = windows_of_images(images, config.negatives_per_stage, WINDOW, np.random.default_rng(config.seed))
    stages: list[LearningStage] = []
    while len(negatives) >= FEWEST * config.negatives_per_stage:
        stages.append(train_stage(pool, faces, negatives, len(stages), config))
        progress(len(stages))
        if len(stages) == config.max_stages:
            break
        negatives = source.of(cascade_of(stages), config.negatives_per_stage)
    return DetectorBase(WINDOW, tuple(stages))


def train_stage(
    pool: HaarPool, faces: Patches, negatives: Patches, number: int, config: TrainingConfig
) -> LearningStage:
    """Add weak learners until the goal holds on the training samples at the paper's threshold."""
    patches = np.concatenate([faces, negatives])
    is_face = np.arange(len(patches)) < len(faces)
    weak, responses = train_weak_learners(pool, patches, is_face, seed=config.seed)
    candidates = pool.take(weak.feature)
    goal = NodeGoal(config.min_detection_rate, config.max_false_positive_rate)
    judge = Judge(goal, candidates, weak, patches, is_face)
    ridge = DEFAULT_RIDGE if config.ridge is None else config.ridge
    learner = GreedyLDA(ridge=ridge, threshold="asymmetric", miss_rate=1 - goal.detection_rate)
    chosen: list[int] = []
    for j in learner.rounds(responses, config.stage_size(number)):
        chosen.append(j)
        judge.add(j)
        # From 20 on every fifth size is judged: judging all of them takes longer than choosing.
        is_judged = len(chosen) <= 20 or len(chosen) % 5 == 0
        if is_judged and reaches_goal(judge, learner.vote(responses, np.array(chosen)), is_face):
            break
    features, at = candidates.take(np.array(chosen)), np.array(chosen)
    return LearningStage.from_discriminant(features, weak.take(at), learner.vote(responses, at))


def reaches_goal(judge: Judge, vote: OnlineDiscriminant, is_face: NDArray[np.bool_]) -> bool:
    """Whether the vote passes enough faces, and few enough others, at its own threshold."""
    passed = judge.partial_sums(vote)[-1] > vote.threshold
    enough = passed[is_face].mean() >= judge.goal.detection_rate
    return bool(enough and passed[~is_face].mean() <= judge.goal.false_positive_rate)
