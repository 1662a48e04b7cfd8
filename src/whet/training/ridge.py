"""Selection of the ridge by cross-validation over objects, on hard negatives.

Any ridge separates random windows from the object. So a small cascade is trained first, and the ridges are compared on
its false positives.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet._kernels.windows import OPENCV_MIN_SIGMA
from whet.errors import WhetError
from whet.features.integral import FeatureFamily, IntegralStack
from whet.features.training import train_weak_learners
from whet.lda.discriminant import DEFAULT_RIDGE
from whet.training.cascade import train_cascade
from whet.training.config import TrainingConfig
from whet.training.mining import Miner
from whet.training.negatives import ExcludedBoxes
from whet.training.stage import GreedyLDA

Patches = NDArray[np.uint8]

RIDGES = (2.0, DEFAULT_RIDGE, 200.0)
FOLDS = 4
PILOT = TrainingConfig(
    max_stages=3,
    max_weak_learners=20,
    negatives_per_stage=1000,
    min_detection_rate=0.99,
    max_false_positive_rate=0.4,
    target_false_positive_rate=0.0,
    validation_share=0.2,
    early_exits=False,
    drop_rejected_positives=False,
)
N_FEATURES, N_WEAK, N_NEGATIVES = 1500, 50, 1500
FEWEST_NEGATIVES = 100


@dataclass(frozen=True)
class RidgeChoice:
    """The selected ridge, and for each candidate the mean and standard error of 1 - AUC over the folds."""

    ridge: float
    errors: dict[float, tuple[float, float]]

    def __str__(self) -> str:
        if not self.errors:
            return f"{self.ridge:g}, the default: too few hard negatives for cross-validation"
        tried = ", ".join(f"{ridge:g}: {mean:.2%} +- {error:.2%}" for ridge, (mean, error) in self.errors.items())
        return f"{self.ridge:g}, by cross-validated 1 - AUC ({tried})"


def choose_ridge(
    family: FeatureFamily,
    positives: Patches,
    groups: NDArray[np.intp],
    images: Sequence[Path],
    *,
    excluded_boxes: ExcludedBoxes | None = None,
    min_sigma: float = OPENCV_MIN_SIGMA,
    seed: int = 0,
    threads: int | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> RidgeChoice:
    """Select one of `RIDGES`; the default stays unless another is better by more than a standard error.

    All copies of an object, numbered by `groups` (n,), are on one side of a fold, and so are nearly all windows of one
    image. All positives and images take part, including those that training holds out: they select only one of three
    numbers.
    """
    rng = np.random.default_rng([seed, 4])
    few = family.take(np.sort(rng.choice(len(family), min(N_FEATURES, len(family)), replace=False)))
    config = replace(PILOT, seed=seed, min_sigma=min_sigma)
    negatives = _hard_windows(few, positives, groups, images, excluded_boxes, config, threads)
    progress(0.5)
    if len(negatives) < FEWEST_NEGATIVES:
        return RidgeChoice(DEFAULT_RIDGE, {})
    _, number = np.unique(groups, return_inverse=True)
    # Windows come image by image: in blocks, those of one image stay together.
    blocks = np.arange(len(negatives)) * FOLDS // len(negatives)
    fold = rng.permutation(number.max() + 1)[number] % FOLDS, blocks
    errors = np.empty((FOLDS, len(RIDGES)))
    for k in range(FOLDS):
        inside = (positives[fold[0] != k], negatives[fold[1] != k])
        outside = (positives[fold[0] == k], negatives[fold[1] == k])
        errors[k] = _errors(few, inside, outside, threads)
        progress(0.5 + 0.5 * (k + 1) / FOLDS)
    return _best(errors)


def _hard_windows(
    family: FeatureFamily,
    positives: Patches,
    groups: NDArray[np.intp],
    images: Sequence[Path],
    excluded_boxes: ExcludedBoxes | None,
    config: TrainingConfig,
    threads: int | None,
) -> Patches:
    """False positives of a small cascade; none if even that cannot be trained."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the training repeats the warnings
        try:
            cascade, _, _ = train_cascade(
                family, positives, images, config, groups=groups, excluded_boxes=excluded_boxes, threads=threads
            )
        except WhetError:
            return positives[:0]
        miner = Miner(images, family.window, config.seed, threads=threads, excluded_boxes=excluded_boxes or {})
        return miner.mine(cascade, N_NEGATIVES, turn=0).patches


def _errors(
    family: FeatureFamily, inside: tuple[Patches, Patches], outside: tuple[Patches, Patches], threads: int | None
) -> list[float]:
    """1 - AUC on the held-out samples of a fold, for each ridge; the weak learners are trained once."""
    patches, is_positive = np.concatenate(inside), np.arange(sum(map(len, inside))) < len(inside[0])
    weak, responses = train_weak_learners(family, patches, is_positive, threads=threads)
    candidates = family.take(weak.feature)
    stack = IntegralStack.from_patches(np.concatenate(outside))
    found = []
    for ridge in RIDGES:
        learner = GreedyLDA(ridge=ridge)
        chosen = np.array(list(learner.rounds(responses, N_WEAK)))
        seen = weak.take(chosen).respond(candidates.take(chosen).evaluate(stack))
        scores = learner.vote(responses, chosen).coef @ seen
        found.append(1 - _auc(scores[: len(outside[0])], scores[len(outside[0]) :]))
    return found


def _auc(positives: NDArray[np.float64], negatives: NDArray[np.float64]) -> float:
    """The area under the ROC curve: the share of pairs in which the positive scores higher; ties count half."""
    falling = np.sort(negatives)
    below, up_to = (np.searchsorted(falling, positives, side=side) for side in ("left", "right"))
    return float((below + up_to).mean() / 2 / len(negatives))


def _best(errors: NDArray[np.float64]) -> RidgeChoice:
    """The best ridge by errors (folds, ridges), compared with the default fold by fold."""
    default = RIDGES.index(DEFAULT_RIDGE)
    gains = errors[:, default, None] - errors
    spread = gains.std(axis=0, ddof=1) / np.sqrt(len(errors))
    sure = np.where(gains.mean(axis=0) > spread, gains.mean(axis=0), 0.0)
    deviations = errors.std(axis=0, ddof=1) / np.sqrt(len(errors))
    tried = {
        ridge: (float(mean), float(error))
        for ridge, mean, error in zip(RIDGES, errors.mean(axis=0), deviations, strict=True)
    }
    return RidgeChoice(RIDGES[int(sure.argmax())] if sure.max() > 0 else DEFAULT_RIDGE, tried)
