"""The ridge, chosen from the data: by cross-validation over objects, on windows that are hard to tell from them.

Random windows are told from the object whatever the ridge. So a small cascade is trained first, and what it takes for
the object is what the ridges are compared on.
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
from whet.training.config import Plan
from whet.training.mining import Miner
from whet.training.negatives import Forbidden
from whet.training.stage import GreedyLDA, NodeGoal

Patches = NDArray[np.uint8]

RIDGES = (2.0, DEFAULT_RIDGE, 200.0)
FOLDS = 4
PILOT = Plan(NodeGoal(0.99, 0.4), n_stages=3, n_weak=20, n_negatives=1000, false_positive_rate=0.0)
N_FEATURES, N_WEAK, N_NEGATIVES = 1500, 50, 1500
FEWEST_NEGATIVES = 100


@dataclass(frozen=True)
class RidgeChoice:
    """The ridge, and for each that was tried the mean and standard error of 1 - AUC over the folds."""

    ridge: float
    errors: dict[float, tuple[float, float]]

    def __str__(self) -> str:
        if not self.errors:
            return f"{self.ridge:g}, the default: there were too few hard windows to choose by"
        tried = ", ".join(f"{ridge:g}: {mean:.2%} +- {error:.2%}" for ridge, (mean, error) in self.errors.items())
        return f"{self.ridge:g}, by cross-validated 1 - AUC ({tried})"


def choose_ridge(
    family: FeatureFamily,
    positives: Patches,
    groups: NDArray[np.intp],
    images: Sequence[Path],
    *,
    forbidden: Forbidden | None = None,
    min_sigma: float = OPENCV_MIN_SIGMA,
    seed: int = 0,
    threads: int | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> RidgeChoice:
    """Choose among some ridges; the default stays unless another is better by more than a standard error.

    Objects, numbered by `groups` (n,), are on one side of a fold with all their copies, and so are nearly all windows
    of one image. All positives and images take part, those too that a training will keep apart: it is one number
    of three that they choose.
    """
    rng = np.random.default_rng([seed, 4])
    few = family.take(np.sort(rng.choice(len(family), min(N_FEATURES, len(family)), replace=False)))
    plan = replace(PILOT, seed=seed, threads=threads, min_sigma=min_sigma)
    negatives = _hard_windows(few, positives, groups, images, forbidden, plan)
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
    forbidden: Forbidden | None,
    plan: Plan,
) -> Patches:
    """Windows without the object that a small cascade takes for it; none where not even that can be trained."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the training itself will say the same
        try:
            cascade, _, _ = train_cascade(family, positives, images, plan, groups=groups, forbidden=forbidden)
        except WhetError:
            return positives[:0]
        miner = Miner(images, family.window, plan.seed, threads=plan.threads, forbidden=forbidden or {})
        return miner.mine(cascade, N_NEGATIVES, turn=0).patches


def _errors(
    family: FeatureFamily, inside: tuple[Patches, Patches], outside: tuple[Patches, Patches], threads: int | None
) -> list[float]:
    """1 - AUC on the samples outside of a fold, for each ridge; the weak learners are trained once."""
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
    """The share of pairs in which the positive scores higher; ties count half."""
    falling = np.sort(negatives)
    below, up_to = (np.searchsorted(falling, positives, side=side) for side in ("left", "right"))
    return float((below + up_to).mean() / 2 / len(negatives))


def _best(errors: NDArray[np.float64]) -> RidgeChoice:
    """The best ridge of errors (folds, ridges), by differences to the default fold by fold."""
    default = RIDGES.index(DEFAULT_RIDGE)
    gains = errors[:, default, None] - errors
    spread = gains.std(axis=0, ddof=1) / np.sqrt(len(errors))
    sure = np.where(gains.mean(axis=0) > spread, gains.mean(axis=0), 0.0)
    deviations = errors.std(axis=0, ddof=1) / np.sqrt(len(errors))
    told = {
        ridge: (float(mean), float(error))
        for ridge, mean, error in zip(RIDGES, errors.mean(axis=0), deviations, strict=True)
    }
    return RidgeChoice(RIDGES[int(sure.argmax())] if sure.max() > 0 else DEFAULT_RIDGE, told)
