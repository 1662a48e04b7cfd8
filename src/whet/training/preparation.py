"""Prepare a training: read annotations, choose the window, cut positives, collect images and split the data."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet._kernels.windows import OPENCV_MIN_SIGMA
from whet._kernels.workers import ALL_THREADS, Threads, Workers
from whet.cascade.pyramid import SCALE_FACTOR
from whet.errors import ConfigError, WhetError
from whet.features.families import TRAINABLE
from whet.features.integral import FeatureFamily, IntegralStack
from whet.features.training import train_weak_learners
from whet.io.annotations.annotation import Annotations, Problem
from whet.io.annotations.formats import read_annotations
from whet.lda.discriminant import DEFAULT_RIDGE
from whet.training.cascade import train_cascade
from whet.training.channel_preparation import ChannelPreparation, data_line, mean_megapixels, prepare_channels
from whet.training.config import CHANNELS, TrainingConfig
from whet.training.data import TrainingData
from whet.training.mining import MAX_PER_IMAGE, Miner
from whet.training.negatives import ExcludedBoxes, backgrounds_of, images_to_mine
from whet.training.positives import Positives, WindowChoice, cut_positives, window_of
from whet.training.progress import duration
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
    workers: Workers = ALL_THREADS,
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
    negatives = _hard_windows(few, positives, groups, images, excluded_boxes, config, workers)
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
        errors[k] = _errors(few, inside, outside, workers)
        progress(0.5 + 0.5 * (k + 1) / FOLDS)
    return _best(errors)


def _hard_windows(
    family: FeatureFamily,
    positives: Patches,
    groups: NDArray[np.intp],
    images: Sequence[Path],
    excluded_boxes: ExcludedBoxes | None,
    config: TrainingConfig,
    workers: Workers,
) -> Patches:
    """False positives of a small cascade; none if even that cannot be trained."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the training repeats the warnings
        try:
            cascade, _, _ = train_cascade(
                family, positives, images, config, groups=groups, excluded_boxes=excluded_boxes, workers=workers
            )
        except WhetError:
            return positives[:0]
        miner = Miner(images, family.window, config.seed, workers=workers, excluded_boxes=excluded_boxes or {})
        return miner.mine(cascade, N_NEGATIVES, turn=0).patches


def _errors(
    family: FeatureFamily, inside: tuple[Patches, Patches], outside: tuple[Patches, Patches], workers: Workers
) -> list[float]:
    """1 - AUC on the held-out samples of a fold, for each ridge; the weak learners are trained once."""
    patches, is_positive = np.concatenate(inside), np.arange(sum(map(len, inside))) < len(inside[0])
    # Hundreds of rounds on few samples: messages would take ten times as long as the work.
    here = Threads(workers.threads)
    weak, responses = train_weak_learners(family, patches, is_positive, workers=here)
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


# Core seconds on a server of 2024: per feature and sample, and per megapixel that is scanned.
SECONDS_PER_RESPONSE = 6e-9
SECONDS_PER_MEGAPIXEL = 0.15
# Windows of a pyramid per pixel of its image.
WINDOWS_PER_PIXEL = 1 / (1 - 1 / SCALE_FACTOR**2)
# Context on each side, as a share of the box size.
MARGIN = 0.1
# The part of a data set to train on, if it exists and no other was selected.
TRAIN = "train"
# With more objects, the data outweigh any ridge.
FEW_OBJECTS = 500


@dataclass(frozen=True, eq=False)
class Preparation:
    """Prepared data: annotations of one class, window, positives, features, and the training and held-out parts."""

    config: TrainingConfig
    annotations: Annotations
    choice: WindowChoice
    positives: Positives
    families: tuple[FeatureFamily, ...]
    data: TrainingData
    ridge: RidgeChoice | None = None
    faults: tuple[Problem, ...] = ()

    @property
    def images(self) -> tuple[Path, ...]:
        """Images that supply negatives, held-out images included."""
        return (*self.data.images, *self.data.held_out_images)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Unusable annotations, boxes and images."""
        return (*self.annotations.problems, *self.positives.problems, *self.faults)

    @property
    def n_features(self) -> int:
        """Number of features of all families."""
        return sum(map(len, self.families))

    @property
    def memory(self) -> int:
        """Bytes that the largest stage needs: one bit per response, and the integral images."""
        height, width = self.choice.window
        samples = len(self.positives) + self.config.negatives_per_stage
        return max(map(len, self.families)) * samples // 8 + 2 * 4 * (height + 1) * (width + 1) * samples

    def seconds(self, workers: Workers = ALL_THREADS) -> float:
        """Estimated training time, within a factor of two or three."""
        samples = len(self.positives) + self.config.negatives_per_stage
        stage = SECONDS_PER_RESPONSE * self.n_features / len(self.families) * samples
        megapixels = mean_megapixels(self.images)
        scanning = SECONDS_PER_MEGAPIXEL * megapixels * self._n_scans(1e6 * megapixels * WINDOWS_PER_PIXEL)
        return (self.config.max_stages * stage + scanning) / workers.slots

    def _n_scans(self, windows_per_image: float) -> float:
        """Images that all stages together scan: each stage as many as supply its negatives.

        Held-out images are scanned twice more, for the reference set and for the operating points.
        """
        config, n_held_out = self.config, len(self.data.held_out_images)
        sides = (len(self.data.images), config.negatives_per_stage), (n_held_out, config.held_out_per_stage)
        found = windows_per_image * config.max_false_positive_rate ** np.arange(config.max_stages)
        return 2 * n_held_out + float(
            sum(np.minimum(n, wanted / np.clip(found, None, MAX_PER_IMAGE)).sum() for n, wanted in sides)
        )

    def describe(self, workers: Workers = ALL_THREADS) -> str:
        """A summary of data and settings, one topic per line."""
        config, excluded = self.config, self.data.excluded_boxes
        name = self.annotations.classes[0] if self.annotations.classes else "object"
        sizes = config.max_weak_learners
        size = str(sizes) if isinstance(sizes, int) else ", ".join(map(str, sizes))
        return "\n".join(
            (
                f"data       {data_line(self.annotations)}",
                f"object     {name}: {self.annotations.summary()}",
                f"window     {self.choice}",
                f"positives  {self.positives}",
                f"negatives  {len(self.images):,} images, up to {config.negatives_per_stage:,} windows per stage"
                + (f"; {len(excluded):,} are annotated and mined outside their boxes" if excluded else ""),
                f"held out   {len(self.data.held_out_positives):,} positives and {len(self.data.held_out_images):,} "
                f"images (validation_share {config.validation_share:g})",
                f"features   {self.n_features:,} ({config.features})",
                f"cascade    up to {config.max_stages} stages of up to {size} weak learners",
                *([] if self.ridge is None else [f"ridge      {self.ridge}"]),
                f"memory     {self.memory / 1e6:,.0f} MB",
                f"time       about {duration(self.seconds(workers))}, within a factor of two or three",
            )
        )


def read_set(config: TrainingConfig, progress: Callable[[str, float], None] = lambda *_: None) -> Annotations:
    """The annotations that a config names, of all classes and parts."""
    if config.annotations is None:
        raise ConfigError("annotations=None: expected a file or folder with boxes, such as annotations='cars.csv'")
    return read_annotations(
        config.annotations, config.format, config.images, lambda share: progress("reading annotations", share)
    )


def select_class(config: TrainingConfig, found: Annotations) -> tuple[Annotations, set[Path]]:
    """The annotations of the class and part that a config selects, and the annotated images of all parts.

    Those of a test part must not be mined either.
    """
    known = {image.path.resolve() for image in found.images}
    split = config.split or (TRAIN if TRAIN in found.splits else None)
    found = found if split is None else found.select_split(split)
    return found.select(config.class_name), known


def prepare(
    config: TrainingConfig,
    progress: Callable[[str, float], None] = lambda *_: None,
    workers: Workers = ALL_THREADS,
    found: Annotations | None = None,
) -> Preparation | ChannelPreparation:
    """Read, cut and split the data that a config describes; `progress` receives the current step and its share done.

    `found` are the annotations of the config, as `read_set` gives them, if they were read before.
    """
    annotations, known = select_class(config, read_set(config, progress) if found is None else found)
    if config.features == CHANNELS:
        return prepare_channels(config, annotations, known, progress, workers)
    choice = _window(annotations, config)
    positives = cut_positives(
        annotations,
        choice,
        copies=config.copies_per_object,
        jitter=config.jitter,
        mirror=config.mirror,
        seed=config.seed,
        workers=workers,
        progress=lambda share: progress("cutting positives", share),
    )
    excluded_boxes = backgrounds_of(annotations) if config.backgrounds else {}
    images, unreadable = images_to_mine(excluded_boxes, config.negatives, known, choice.window, annotations.shapes)
    data = TrainingData.from_patches(
        positives.patches, images, choice.window, config, positives.groups, excluded_boxes, are_checked=True
    )
    families = families_for(choice.window, config)
    ridge = None
    if config.ridge is None and positives.n_objects < FEW_OBJECTS:
        ridge = choose_ridge(
            families[0],
            positives.patches,
            positives.groups,
            images,
            excluded_boxes=excluded_boxes,
            min_sigma=config.min_sigma,
            seed=config.seed,
            workers=workers,
            progress=lambda share: progress("choosing the ridge", share),
        )
    return Preparation(config, annotations, choice, positives, families, data, ridge, unreadable)


def _window(annotations: Annotations, config: TrainingConfig) -> WindowChoice:
    margin = config.margin
    if margin is None:
        margin = 0.0 if annotations.format == "crops" else MARGIN
    choice = window_of(annotations.boxes, margin=margin)
    if config.window is None:
        return choice
    width, height = config.window
    return replace(choice, height=height, width=width)


def families_for(window: tuple[int, int], config: TrainingConfig) -> tuple[FeatureFamily, ...]:
    """Feature pools, each sampled down to `max_features`; the seed fixes the sample.

    >>> [len(pool) for pool in families_for((24, 24), TrainingConfig(features="haar,lbp", max_features=5000))]
    [5000, 5000]
    """
    rng = np.random.default_rng([config.seed, 3])
    pools: list[FeatureFamily] = []
    for name in config.features.split(","):
        pool = TRAINABLE[name].from_window(window)
        if len(pool) > config.max_features:
            pool = pool.take(np.sort(rng.choice(len(pool), config.max_features, replace=False)))
        pools.append(pool)
    return tuple(pools)
