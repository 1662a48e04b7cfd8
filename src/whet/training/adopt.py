"""An OpenCV cascade that learns: its weak learners, with weights and thresholds from examples.

A cascade file has votes and no statistics. Shown examples of both classes once, stage after stage is counted: the
responses of OpenCV's own weak learners, on positives and on what the stages before let through of pictures without the
object. From then on the detector learns, unlearns and merges as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.errors import TrainingDataError
from whet.features.integral import IntegralStack
from whet.io.opencv_xml import read_opencv
from whet.lda.class_statistics import BinaryStatistics
from whet.lda.discriminant import DEFAULT_RIDGE
from whet.lda.online import OnlineDiscriminant
from whet.lda.thresholds import Rate, calibrate_rate, deviation_of_positives
from whet.model.cascade import Cascade
from whet.model.detector_base import DetectorBase, StageBase
from whet.model.opencv_cascade import OpenCVCascade
from whet.model.opencv_stages import stages_of
from whet.model.provenance import Provenance
from whet.model.reporting import Frame
from whet.model.stage import Stage
from whet.training.detector import Detector
from whet.training.mining import Miner

Patches = NDArray[np.uint8]

# A discriminant of T weak learners on fewer negatives than this times T fits the sample, not the class.
NEGATIVES_A_LEARNER = 5


def adopt(
    cascade: OpenCVCascade | str | PathLike[str],
    positives: Patches,
    pictures: Sequence[Path],
    *,
    detection_rate: float = 0.998,
    held_out: float = 0.25,
    n_negatives: int = 2000,
    ridge: float = DEFAULT_RIDGE,
    frame: Frame | None = None,
    provenance: Provenance | None = None,
    seed: int = 0,
    threads: int | None = None,
    tell: Callable[[int, StageBase | Stage, int], None] = lambda *_: None,
) -> Detector:
    """A detector of an OpenCV cascade's weak learners that learns online.

    `positives` are (samples, height, width) of the cascade's window; `pictures` have no object in them. A stage's
    weights come from linear discriminant analysis of up to `n_negatives` windows that reach it, and of the positives
    but for a share that is `held_out`; its threshold keeps `detection_rate` of those. A stage that fewer negatives
    reach than five for each weak learner keeps OpenCV's votes, fixed; so does one that gives all positives one
    score. `tell` hears the number of each stage, what
    became of it, and how many negatives reached it. The same seed gives the same detector.

    Raises `CannotConvertError` for a cascade of trees or tilted features.
    """
    source = cascade if isinstance(cascade, OpenCVCascade) else read_opencv(Path(cascade))
    stages = stages_of(source)
    train, validation = _halves(positives, source.window, held_out, seed)
    miner = Miner(list(pictures), source.window, seed=seed, threads=threads)
    negatives = np.empty((0, *source.window), dtype=np.uint8)
    bases: list[StageBase | Stage] = []
    is_exhausted = False
    for number, stage in enumerate(stages):
        wanted = max(n_negatives, NEGATIVES_A_LEARNER * len(stage)) - len(negatives)
        if wanted > 0 and not is_exhausted:
            mined = miner.mine(Cascade(source.window, _run(bases) or _all_pass(stage)), wanted, number)
            negatives, is_exhausted = np.concatenate([negatives, mined.patches]), mined.is_exhausted
        base: StageBase | Stage = stage
        if len(negatives) >= NEGATIVES_A_LEARNER * len(stage):
            base = _counted(stage, train, negatives, validation, detection_rate, ridge) or stage
        bases.append(base)
        tell(number, base, len(negatives))
        negatives = negatives[_run([base])[0].accepts(negatives)]
    return Detector.of_base(DetectorBase(source.window, tuple(bases), provenance=provenance or Provenance()), frame)


def _halves(positives: Patches, window: tuple[int, int], held_out: float, seed: int) -> tuple[Patches, Patches]:
    if positives.dtype != np.uint8 or positives.shape[1:] != window:
        raise TrainingDataError(
            f"got positives {positives.dtype} of shape {positives.shape}; expected uint8, (samples, {window[0]}, "
            f"{window[1]}), the cascade's window"
        )
    if not 0 < held_out < 1:
        raise ValueError(f"got held_out={held_out}; expected a share between 0 and 1")
    n = round(held_out * len(positives))
    if not 0 < n < len(positives):
        raise TrainingDataError(f"got {len(positives)} positives: too few to hold some of them out for the thresholds")
    order = np.random.default_rng(seed).permutation(len(positives))
    return positives[order[n:]], positives[order[:n]]


def _run(bases: Sequence[StageBase | Stage]) -> tuple[Stage, ...]:
    return tuple(base.stage() if isinstance(base, StageBase) else base for base in bases)


def _all_pass(stage: Stage) -> tuple[Stage, ...]:
    """One stage that lets everything through: what the first stage sees."""
    first = slice(0, 1)
    weak = stage.weak.take(np.arange(1))
    return (Stage(stage.features.take(first), weak, np.zeros(1), -1.0),)


def _counted(
    stage: Stage, positives: Patches, negatives: Patches, validation: Patches, detection_rate: float, ridge: float
) -> StageBase | None:
    """The stage's weak learners, with the statistics of these samples and a threshold calibrated on others.

    None if all positives get one score: then there is no deviation that a threshold could follow.
    """
    statistics = [BinaryStatistics.of(_responses(stage, patches)) for patches in (positives, negatives)]
    vote = OnlineDiscriminant(statistics[0], statistics[1], len(stage), rule=Rate(0.0), ridge=ridge)
    if not deviation_of_positives(vote.projection) > 0:
        return None
    # Added in the order of the learners, as a scan adds them.
    scores = np.cumsum(_responses(stage, validation) * vote.coef, axis=1)[:, -1]
    vote.rule = Rate(calibrate_rate(scores, vote.projection, detection_rate))
    return StageBase.of_vote(stage.features, stage.weak, vote)


def _responses(stage: Stage, patches: Patches) -> NDArray[np.uint8]:
    return stage.respond(IntegralStack.of(patches)).view(np.uint8).T
