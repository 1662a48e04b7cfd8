"""What a channel detector does with objects that it was not trained on: cross-validation and a learning curve."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet._kernels.workers import Workers, absolute
from whet.cascade.cascade import Cascade
from whet.cascade.channel_scan import scan_channels
from whet.cascade.detect import report
from whet.cascade.detections import FiredWindows
from whet.cascade.stage import Stage
from whet.errors import UnreadableImageError
from whet.evaluation.advice import LearningCurve
from whet.evaluation.evaluation import Detected, Evaluation, Labelled, evaluate_detections
from whet.features.weak_learners import LEAVES
from whet.io.annotations.annotation import AnnotatedImage
from whet.training.boosting import BoostedTrees, boost, draw_features, tree_stage
from whet.training.channel_samples import Background, Backgrounds, Places

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]

FOLDS = 3
# Places of a held-out image that the threshold of a detector lets through, far more than any operating point needs.
PLACES_PER_IMAGE = 10
# Trees of a model of the learning curve, as a share of those of the detector, and its negatives.
CURVE_TREES = 1 / 16
CURVE_NEGATIVES = 4000
CURVE_MODELS = FOLDS + 2
# False positives per image at which detection rates of the learning curve are measured.
CURVE_RATES = np.array([0.25, 0.5, 1.0, 2.0])
# Annotated images that are scanned for objects that were not trained on.
MOST_SCANNED = 100


@dataclass(frozen=True, eq=False)
class Samples:
    """Positives (features, n) with the objects (n,) that they show, negatives (features, m) and their images (m,)."""

    positives: Bytes
    groups: Indices
    negatives: Bytes
    images: NDArray[np.int32]

    @property
    def first_copies(self) -> Indices:
        """The first positive of each object: the one without jitter."""
        return np.unique(self.groups, return_index=True)[1]

    def __sizeof__(self) -> int:  # by which Dask knows what a worker holds
        return self.positives.nbytes + self.negatives.nbytes

    def grow(
        self,
        positives: Flags,
        negatives: Indices | slice,
        drawn: NDArray[np.int32],
        threads: int,
        progress: Callable[[int], None],
    ) -> BoostedTrees:
        """Grow trees on some of the positives (n,) and of the negatives (m,)."""
        chosen = np.concatenate([self.positives[:, positives], self.negatives[:, negatives]], axis=1)
        return boost(chosen, int(positives.sum()), drawn, threads=threads, progress=progress)


class Scale(NamedTuple):
    """Sums of votes that ten places of a held-out image exceed, and that one exceeds.

    Trees of fewer objects give lower scores to objects and to other places alike.
    """

    low: float
    high: float

    def converted(self, sums: Floats, to: Scale) -> Floats:
        """Sums of votes on this scale as those on another."""
        ratio = (to.high - to.low) / (self.high - self.low) if self.high > self.low else 1.0
        return np.asarray(to.low + (sums - self.low) * ratio)


@dataclass(frozen=True, eq=False)
class Apart:
    """Places (n, 4) of held-out images that a stage accepts and that hardly overlap any object; falling sums of votes.

    Windows beside objects that were trained on have high scores: they say nothing of other images.
    """

    places: Places
    sums: Floats
    n_images: int

    @classmethod
    def from_images(cls, held_out: Backgrounds, stage: Stage) -> Apart:
        """Scan all images."""
        places, scores = held_out.accepted(Cascade(stage.features.window, (stage,)))
        is_apart = held_out.is_apart(places)
        return cls(places[is_apart], np.sort(scores[is_apart])[::-1] + stage.threshold, len(held_out.images))

    def exceeded_by(self, n: int, otherwise: float) -> float:
        """The sum of votes that n places of an image exceed; where there are fewer places, another value."""
        return float(self.sums[n * self.n_images]) if len(self.sums) > n * self.n_images else otherwise


def measure_scales(
    trees: BoostedTrees, loose: Stage, apart: Apart, folds: Sequence[BoostedTrees], held_out: Backgrounds
) -> list[Scale]:
    """The scales of trees, with the places that `loose` accepts, and of those of each fold.

    Where one of them accepts too few places, all are given by the medians of both classes.
    """
    measured = [apart, *(Apart.from_images(held_out, fold_stage(other, trees, loose)) for other in folds)]
    scales = [Scale(*(each.exceeded_by(n, otherwise=float("nan")) for n in (PLACES_PER_IMAGE, 1))) for each in measured]
    if all(scale.high > scale.low for scale in scales):
        return scales
    return [Scale(float(one.median_negative[-1]), float(one.median[-1])) for one in (trees, *folds)]


@dataclass(frozen=True, eq=False)
class CrossValidation:
    """Trees grown without the objects of each fold, and the fold (n,) of each positive."""

    folds: tuple[BoostedTrees, ...]
    fold: Indices

    def unseen_scores(self, positives: Bytes, trees: BoostedTrees) -> Floats:
        """Running scores (trees, n) of `trees` for positives (features, n), as if it had not been trained on them.

        Scores of each fold are carried over by the medians of both classes, since trees differ.
        """
        scores = np.empty((len(trees), len(self.fold)))
        for k, other in enumerate(self.folds):
            outside = np.flatnonzero(self.fold == k)
            running = other.running_scores(np.ascontiguousarray(positives[:, outside]))
            scores[:, outside] = carried_over(running, other, trees)
        return scores


def cross_validate(
    samples: Samples, n_trees: int, seed: int, workers: Workers, progress: Callable[[int], None]
) -> CrossValidation:
    """Grow trees on the objects of all folds but one, and on all negatives; `progress` receives trees of all folds."""
    _, number = np.unique(samples.groups, return_inverse=True)
    rng = np.random.default_rng([seed, 13])
    fold = (rng.permutation(number.max() + 1) % FOLDS)[number]
    subsets = [(fold != k, slice(None)) for k in range(FOLDS)]
    return CrossValidation(tuple(_grow_models(samples, subsets, n_trees, rng, workers, progress)), fold)


def _grow_models(
    samples: Samples,
    subsets: Sequence[tuple[Flags, Indices | slice]],
    n_trees: int,
    rng: np.random.Generator,
    workers: Workers,
    progress: Callable[[int], None],
) -> list[BoostedTrees]:
    """Trees on each of some subsets of positives and negatives; `progress` receives the trees of all so far."""

    def grown(done: int, n: int) -> None:
        progress(done * n_trees + n)

    numbers = range(len(subsets))
    models = workers.map(
        Samples.grow,
        repeat(workers.share(samples)),
        *zip(*subsets, strict=True),
        [draw_features(len(samples.positives), n_trees, rng) for _ in numbers],
        repeat(workers.threads_of_task(1)),
        [partial(grown, k) if workers.in_process else _ignore for k in numbers],
        in_turn=True,
    )
    found = []
    for trees in models:
        found.append(trees)
        if not workers.in_process:
            progress(len(found) * n_trees)
    return found


def _ignore(_: int) -> None:
    """No progress: a task on a cluster cannot call back."""


def carried_over(running: Floats, other: BoostedTrees, trees: BoostedTrees) -> Floats:
    """Running scores (trees, n) of other trees as these trees would give them, by the medians of both classes.

    Where the first trees of one of them do not tell the medians apart, scores stay as they are.
    """
    gap, own_gap = ((each.median - each.median_negative)[:, None] for each in (other, trees))
    share = (running - other.median_negative[:, None]) / np.where(gap > 0, gap, 1.0)
    carried = trees.median_negative[:, None] + share * own_gap
    return np.where((gap > 0) & (own_gap > 0), carried, running)


def learning_curve(
    samples: Samples,
    fold: Indices,
    held_out: Bytes,
    n_images: int,
    n_trees: int,
    *,
    seed: int,
    workers: Workers,
    progress: Callable[[int], None] = lambda _: None,
) -> LearningCurve:
    """Detection rates of objects that were not trained on, with a sixth, a third and two thirds of the objects.

    All models are measured on the same objects: those that are not in the first `fold` (n,) of the positives. One more
    model has a third of the objects, and as many negatives from half of the images. To be cheap, models have few trees
    and few negatives. A detection rate is the mean over thresholds that accept 0.25 to 2 of the `held_out` negatives
    (features, m) per image; an object counts by its best positive, as in a scan. `progress` receives the trees
    of all models so far, of `CURVE_MODELS` times `n_trees`.
    """
    rng = np.random.default_rng([seed, 14])
    objects = rng.permutation(np.unique(samples.groups[fold == 0]))
    images = rng.permutation(np.unique(samples.images))
    sixth = np.isin(samples.groups, objects[: len(objects) // 2])
    every = rng.permutation(len(samples.images))
    half = every[np.isin(samples.images[every], images[: max(len(images) // 2, 1)])]

    def rates(trees: BoostedTrees, among: Flags) -> Floats:
        """Detection rate (objects,) of each object among some positives (n,)."""
        scores = trees.running_scores(np.ascontiguousarray(samples.positives[:, among]))[-1]
        _, number = np.unique(samples.groups[among], return_inverse=True)
        best = np.full(number.max() + 1, -np.inf)
        np.maximum.at(best, number, scores)
        falling = np.append(np.sort(trees.running_scores(held_out)[-1])[::-1], -np.inf)
        least = falling[np.minimum(np.rint(CURVE_RATES * n_images).astype(int), len(falling) - 1)]
        return np.asarray((best[:, None] > least).mean(axis=1))

    few_of_all, few_of_half = (np.sort(each[:CURVE_NEGATIVES]) for each in (every, half))
    subsets = [
        (sixth, few_of_all),
        (fold == 0, few_of_all),
        (fold == 0, few_of_half),
        *((fold != k, few_of_all) for k in range(1, FOLDS)),
    ]
    few, some, other_images, *others = _grow_models(samples, subsets, n_trees, rng, workers, progress)
    most = dict(enumerate(others, start=1))
    unseen = [rates(few, fold != 0), rates(some, fold != 0), *_joined(rates(most[k], fold == k) for k in most)]
    seen = [rates(few, sixth), rates(some, fold == 0), *_joined(rates(most[k], fold != k) for k in most)]
    return LearningCurve(
        tuple(len(np.unique(samples.groups[inside])) for inside in (sixth, fold == 0, fold != 1)),
        tuple(float(each.mean()) for each in unseen),
        tuple(float(each.mean()) for each in seen),
        (len(images) // 2, len(images)),
        (float(rates(other_images, fold != 0).mean()), float(unseen[1].mean())),
    )


def _joined(parts: Iterable[Floats]) -> list[Floats]:
    return [np.concatenate(list(parts))]


@dataclass(frozen=True, eq=False)
class UnseenObjects:
    """Detections in annotated images by trees that were not trained on their objects, and the images' shapes.

    An image appears once for each fold that has objects in it; its other objects are ignored. `numbers` are those of
    its objects that are not ignored.
    """

    evaluation: Evaluation
    shapes: tuple[tuple[int, int], ...]
    numbers: tuple[list[int], ...]


@dataclass(frozen=True, eq=False)
class Validated:
    """What was measured on objects that were not trained on."""

    curve: LearningCurve
    unseen: UnseenObjects

    @property
    def n_found(self) -> int:
        """Objects that are found at any score."""
        return sum(len(image.found()) for image in self.unseen.evaluation.images)

    @property
    def object_scores(self) -> Floats:
        """Scores (n,) of the objects in the images that were scanned, -inf where they are not found."""
        images = self.unseen.evaluation.images
        return np.concatenate([np.empty(0), *(image.truth_scores[~image.ignored] for image in images)])

    @property
    def scores_by_object(self) -> dict[int, float]:
        """The same by the number of the object."""
        numbers = [number for part in self.unseen.numbers for number in part]
        return dict(zip(numbers, self.object_scores.tolist(), strict=True))

    @property
    def n_objects(self) -> int:
        """Objects in the images that were scanned."""
        return self.unseen.evaluation.curve.n_truths


def detect_unseen(
    images: Sequence[AnnotatedImage],
    samples: Samples,
    validation: CrossValidation,
    trees: BoostedTrees,
    stage: Stage,
    backgrounds: Sequence[Backgrounds],
    scales: Sequence[Scale],
    *,
    seed: int,
    workers: Workers,
) -> UnseenObjects:
    """Scan images for objects with the trees of their folds; scores are converted to those of `stage`.

    At most 100 images are scanned. `backgrounds` have pyramids of some of the images. `scales` are that of the stage,
    and then those of the folds.
    """
    own_scale, *fold_scales = scales
    held = {path: one for each in backgrounds for path, one in zip(each.images, each.held, strict=True)}
    cascades = []
    for other, scale in zip(validation.folds, fold_scales, strict=True):
        made = fold_stage(other, trees, stage)
        threshold = float(own_scale.converted(np.array([stage.threshold]), scale)[0])
        cascades.append(Cascade(stage.features.window, (replace(made, threshold=threshold),)))
    folds = dict(zip(samples.groups.tolist(), validation.fold.tolist(), strict=True))
    numbers = np.cumsum([0, *(len(image.objects) for image in images)])
    some = np.sort(np.random.default_rng([seed, 15]).permutation(len(images))[:MOST_SCANNED]).tolist()
    choice = backgrounds[0].choice
    own = [np.array([folds.get(number, -1) for number in range(numbers[i], numbers[i + 1])]) for i in some]
    scanned = workers.map(
        _FoldScan.run,
        repeat(workers.share(_FoldScan(tuple(cascades), tuple(fold_scales), own_scale, stage.threshold))),
        [held.get(images[i].path) or Background(absolute(images[i].path), i, choice) for i in some],
        [np.unique(each[each >= 0]).tolist() for each in own],
        lost=lambda *_: None,
    )
    owners = {path: each for each in backgrounds for path in each.images}
    pairs: list[tuple[Detected, Labelled, list[int]]] = []
    shapes = []
    for i, fold, found in zip(some, own, scanned, strict=True):
        if found is None or isinstance(found, UnreadableImageError):
            owners.get(images[i].path, backgrounds[0]).warn_skipped(images[i].path, found)
            continue
        for k, fired in found.items():
            detected = report(fired, offset=choice.box_offset, by_object=True)
            ignored = images[i].ignore.copy()
            ignored[np.flatnonzero(~images[i].ignore)[fold != k]] = True
            objects = (numbers[i] + np.flatnonzero(fold == k)).tolist()
            pairs.append(((detected.boxes, detected.scores), (images[i].boxes, ignored), objects))
            shapes.append(images[i].shape)
    evaluation = evaluate_detections([found for found, _, _ in pairs], [truths for _, truths, _ in pairs])
    return UnseenObjects(evaluation, tuple(shapes), tuple(objects for _, _, objects in pairs))


@dataclass(frozen=True, eq=False)
class _FoldScan:
    """Scans of an image with the trees of folds; scores are converted to those of a stage with a threshold."""

    cascades: tuple[Cascade, ...]
    scales: tuple[Scale, ...]
    own_scale: Scale
    threshold: float

    def run(self, image: Background, folds: Sequence[int]) -> dict[int, FiredWindows] | UnreadableImageError:
        """The windows that fire, by fold; an error if the image cannot be read: its objects are not missed."""
        if not folds:
            return {}
        try:
            pyramid = image.pyramid()
        except UnreadableImageError as error:
            return error
        if pyramid is None:
            return dict.fromkeys(folds, FiredWindows())
        found = {}
        for k in folds:
            fired = scan_channels(self.cascades[k], pyramid, threads=1).fired
            sums = fired.scores + self.cascades[k].stages[0].threshold
            scores = self.scales[k].converted(sums, self.own_scale) - self.threshold
            found[k] = replace(fired, scores=scores).take(scores > 0)
        return found


def fold_stage(other: BoostedTrees, trees: BoostedTrees, stage: Stage) -> Stage:
    """The trees of a fold, with the thresholds of a stage of `trees`."""
    rejection = np.full(len(trees), -np.inf)
    if stage.rejection_thresholds is not None:
        rejection = stage.rejection_thresholds[LEAVES - 1 :: LEAVES]
    last = np.full((len(trees), 1), stage.threshold)
    thresholds = carried_over(np.column_stack([rejection, last]), trees, other)
    return tree_stage(other, stage.features.window, thresholds[:, 0], float(thresholds[-1, 1]))
