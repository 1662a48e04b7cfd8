"""An OpenCV cascade with one more stage: the best of all its weak learners, chosen and weighed by greedy sparse LDA.

OpenCV's own stages were boosted on more faces than most people can show; their votes stay as they are. Their thresholds
are lowered where they reject too many of the positives, the new stage rejects instead, and it goes on learning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from whet.errors import TrainingDataError
from whet.features.family import FeatureFamily
from whet.features.integral import IntegralStack
from whet.features.leaves import Weak
from whet.features.response_matrix import BitResponses
from whet.lda.thresholds import Rate, calibrate_rate
from whet.model.cascade import Cascade
from whet.model.columns import columns_of, family_name, from_columns
from whet.model.detector_base import StageBase
from whet.model.stage import Stage
from whet.training.learners import GreedyLDA
from whet.training.mining import Miner

Patches = NDArray[np.uint8]

# Negatives are windows that pass this share of the stages: what passes all of them is too rare to learn much from.
PASSED = 0.7
# A discriminant of T weak learners on fewer negatives than this times T fits the sample, not the class.
NEGATIVES_A_LEARNER = 5
FEWEST_LEARNERS = 5
# What a vote of OpenCV's counts in the score, next to one of the new stage, which knows better what is left; chosen on
# pasted faces, where 1/4 and 1/16 are nearly as good. A power of two: no decision changes, to the last bit.
SHARE = 1 / 8
# By so much a threshold lies below the sample that it was put on, for that to pass.
SLACK = 1e-9
AT_ONCE = 2000


def yielding(stages: Sequence[Stage], positives: Patches, rate: float) -> list[Stage]:
    """The stages with thresholds so low that each of them keeps this share of the positives, none above its own.

    Each stage is judged on all positives, not on those that the ones before it keep.
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"got stage_rate={rate}; expected a share from 0 to 1")
    blocks = (IntegralStack.of(block) for block in _blocks(positives))
    margins = np.concatenate([[stage.judge(stack)[0] for stage in stages] for stack in blocks], axis=1)
    missed = min(int((1 - rate) * len(positives)), len(positives) - 1)
    lowest = np.partition(margins, missed, axis=1)[:, missed] - SLACK
    lower = np.minimum(lowest, 0.0) if rate else np.zeros(len(stages))
    return [
        replace(stage, coef=SHARE * stage.coef, threshold=SHARE * (stage.threshold + float(by)))
        for stage, by in zip(stages, lower, strict=True)
    ]


def extension_of(
    stages: Sequence[Stage],
    window: tuple[int, int],
    train: Patches,
    validation: Patches,
    miner: Miner,
    *,
    n_weak: int,
    n_negatives: int,
    detection_rate: float,
    ridge: float,
) -> StageBase:
    """One more stage of up to `n_weak` of the cascade's weak learners, whose threshold keeps the detection rate."""
    negatives = _hard_windows(stages, window, miner, n_negatives, NEGATIVES_A_LEARNER * n_weak)
    n_weak = min(n_weak, len(negatives) // NEGATIVES_A_LEARNER)
    if n_weak < FEWEST_LEARNERS:
        raise TrainingDataError(
            f"the pictures gave {len(negatives)} windows that the cascade takes for the object; a stage that learns "
            f"needs at least {NEGATIVES_A_LEARNER * FEWEST_LEARNERS}: add pictures"
        )
    features, weak = joined(stages, window)
    patches = np.concatenate([train, negatives])
    responses = responses_of(features, weak, patches)
    bits = BitResponses.of(responses, np.arange(len(patches)) < len(train))
    learner = GreedyLDA(ridge=ridge)
    chosen = np.array(list(learner.rounds(bits, n_weak)))
    vote = learner.vote(bits, chosen)
    seen = responses_of(features.take(chosen), weak.take(chosen), validation)
    scores = np.cumsum(seen * vote.coef[:, None], axis=0)[-1]  # in the order of the learners, as a scan adds them
    vote.rule = Rate(calibrate_rate(scores, vote.projection, detection_rate))
    return StageBase.of_vote(features.take(chosen), weak.take(chosen), vote)


def joined(stages: Sequence[Stage], window: tuple[int, int]) -> tuple[FeatureFamily, Weak]:
    """The features and weak learners of all stages, one after the other; all are of one family."""
    columns = [columns_of(stage.features, stage.weak) for stage in stages]
    together = {name: np.concatenate([each[name] for each in columns]) for name in columns[0]}
    return from_columns(family_name(stages[0].features), window, together)


def _hard_windows(stages: Sequence[Stage], window: tuple[int, int], miner: Miner, most: int, needed: int) -> Patches:
    """Windows that pass most stages, and where these are not enough, some that pass fewer."""
    found = np.empty((0, *window), dtype=np.uint8)
    n = ceil(PASSED * len(stages))
    while n > 0 and len(found) < needed:
        more = miner.mine(Cascade(window, tuple(stages[:n])), most - len(found), turn=n).patches
        found = np.concatenate([found, more])
        n -= max(1, len(stages) // 10)
    return found


def responses_of(features: FeatureFamily, weak: Weak, patches: Patches) -> NDArray[np.bool_]:
    """Responses (learners, samples), some samples at a time: their integral images take more than they do."""
    parts = [weak.respond(features.evaluate(IntegralStack.of(block))) for block in _blocks(patches)]
    return np.concatenate([np.empty((len(weak), 0), np.bool_), *parts], axis=1)


def _blocks(patches: Patches) -> Iterator[Patches]:
    return (patches[start : start + AT_ONCE] for start in range(0, len(patches), AT_ONCE))
