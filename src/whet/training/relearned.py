"""The stages of an OpenCV cascade, each with its own weak learners and with weights and a threshold from examples.

Stage after stage is counted on the positives and on what the stages before let through of images without the object.
Where that is too little, a stage keeps OpenCV's votes until it has counted more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from whet.cascade.cascade import Cascade
from whet.cascade.stage import Stage
from whet.detector.base import StageBase, Votes
from whet.detector.counting import weight_in
from whet.lda.discriminant import OnlineDiscriminant
from whet.lda.statistics import BinaryStatistics
from whet.lda.thresholds import Rate, calibrate_rate, deviation_of_positives, quantile_threshold
from whet.training.adopt import NEGATIVES_A_LEARNER, responses_of
from whet.training.mining import Miner

Patches = NDArray[np.uint8]

Tell = Callable[[int, StageBase | Stage, int], None]


def relearned(
    stages: Sequence[Stage],
    window: tuple[int, int],
    miner: Miner,
    positives: tuple[Patches, Patches],
    detection_rate: float | None,
    n_negatives: int,
    ridge: float,
    tell: Tell,
) -> list[StageBase | Stage]:
    """Every stage with weights and a threshold from examples, on the windows that those before it let through."""
    negatives = np.empty((0, *window), dtype=np.uint8)
    bases: list[StageBase | Stage] = []
    is_exhausted = False
    for number, stage in enumerate(stages):
        needed = NEGATIVES_A_LEARNER * len(stage)
        if len(negatives) < max(n_negatives // 2, needed) and not is_exhausted:
            wanted = max(n_negatives, needed) - len(negatives)
            mined = miner.mine(Cascade(window, _run(bases) or _all_pass(stage)), wanted, number)
            # Where a cap an image, and not the images, was the end, later turns find more.
            is_exhausted = mined.is_exhausted and len(mined.patches) == 0
            negatives = np.concatenate([negatives, mined.patches])
        count = _counted if len(negatives) >= needed else _waiting
        base = count(stage, _Examples(positives[0], negatives, positives[1]), detection_rate, ridge) or stage
        bases.append(base)
        tell(number, base, len(negatives))
        negatives = negatives[_run([base])[0].accepts(negatives)]
    weight = weight_in(bases, is_positive=False)
    return [_patient(base, weight) for base in bases]


def _run(bases: Sequence[StageBase | Stage]) -> tuple[Stage, ...]:
    return tuple(base.stage() if isinstance(base, StageBase) else base for base in bases)


def _all_pass(stage: Stage) -> tuple[Stage, ...]:
    """One stage that lets everything through: what the first stage sees."""
    first = slice(0, 1)
    weak = stage.weak.take(np.arange(1))
    return (Stage(stage.features.take(first), weak, np.zeros(1), -1.0),)


@dataclass(frozen=True, eq=False)
class _Examples:
    """Patches that a stage is counted on, and positives that a detection rate is measured on."""

    positives: Patches
    negatives: Patches
    validation: Patches


def _counted(stage: Stage, examples: _Examples, detection_rate: float | None, ridge: float) -> StageBase | None:
    """The stage's weak learners, with the statistics of these samples and a threshold by its goal.

    None if all positives get one score: then there is no deviation that a threshold could follow.
    """
    of_positives, of_negatives = (_responses(stage, seen) for seen in (examples.positives, examples.negatives))
    positive, negative = BinaryStatistics.from_samples(of_positives), BinaryStatistics.from_samples(of_negatives)
    vote = OnlineDiscriminant(positive, negative, len(stage), rule=Rate(0.0), ridge=ridge)
    if not deviation_of_positives(vote.projection) > 0:
        return None
    if detection_rate is None:
        let_through = float((_sums(of_negatives, stage.coef) > stage.threshold).mean())
        z = calibrate_rate(_sums(of_negatives, vote.coef), vote.projection, let_through)
    else:
        z = calibrate_rate(_sums(_responses(stage, examples.validation), vote.coef), vote.projection, detection_rate)
    vote.rule = Rate(z)
    return StageBase.from_discriminant(stage.features, stage.weak, vote)


def _waiting(stage: Stage, examples: _Examples, detection_rate: float | None, ridge: float) -> StageBase | None:
    """The stage with OpenCV's votes, and what it needs to go on without them once it has counted more negatives.

    None if all positives get one score.
    """
    of_positives, of_negatives = (_responses(stage, seen) for seen in (examples.positives, examples.negatives))
    sums = _sums(of_positives, stage.coef)
    if not sums.std() > 0:
        return None
    cut = stage.threshold
    if detection_rate is not None:
        cut = quantile_threshold(_sums(_responses(stage, examples.validation), stage.coef), detection_rate)
    rule = Rate(float((cut - sums.mean()) / sums.std()))
    positive, negative = BinaryStatistics.from_samples(of_positives), BinaryStatistics.from_samples(of_negatives)
    votes = Votes(stage.coef.copy(), stage.threshold, NEGATIVES_A_LEARNER * len(stage))
    return StageBase(stage.features, stage.weak, positive, negative, rule, ridge=ridge, votes=votes)


def _patient(base: StageBase | Stage, weight: int) -> StageBase | Stage:
    """A stage that waits for corrections of this weight: from ten that count forty times each, it would know little."""
    if isinstance(base, Stage) or base.votes is None:
        return base
    return replace(base, votes=replace(base.votes, until=base.votes.until * weight))


def _sums(responses: NDArray[np.uint8], coef: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weighted sums (samples,), added in the order of the learners, as a scan adds them."""
    return np.asarray(np.cumsum(responses * coef, axis=1)[:, -1])


def _responses(stage: Stage, patches: Patches) -> NDArray[np.uint8]:
    return responses_of(stage.features, stage.weak, patches).view(np.uint8).T
