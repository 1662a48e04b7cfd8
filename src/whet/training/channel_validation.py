"""What a channel detector does with objects that it was not trained on: cross-validation and a learning curve."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet._kernels.threads import map_in_order
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
from whet.io.images import as_rgb
from whet.training.boosting import BoostedTrees, boost, tree_stage
from whet.training.channel_samples import Backgrounds, Places

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
    samples: Samples, n_trees: int, seed: int, threads: int | None, progress: Callable[[int], None]
) -> CrossValidation:
    """Grow trees on the objects of all folds but one, and on all negatives; `progress` receives trees of all folds."""
    _, number = np.unique(samples.groups, return_inverse=True)
    rng = np.random.default_rng([seed, 13])
    fold = (rng.permutation(number.max() + 1) % FOLDS)[number]
    folds = []
    for k in range(FOLDS):
        inside = np.flatnonzero(fold != k)
        chosen = np.concatenate([samples.positives[:, inside], samples.negatives], axis=1)

        def grown(n: int, done: int = k) -> None:
            progress(done * n_trees + n)

        folds.append(boost(chosen, len(inside), n_trees, rng, threads=threads, progress=grown))
    return CrossValidation(tuple(folds), fold)


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
    threads: int | None,
    progress: Callable[[int], None] = lambda _: None,
) -> LearningCurve:
    """Detection rates of objects that were not trained on, with a sixth, a third and two thirds of the objects.

    All models are measured on the same objects: those that are not in the first `fold` (n,) of the positives. One more
    model has a third of the objects, and as many negatives from half of the images. To be cheap, models have few trees
    and few negatives. A detection rate is the mean over thresholds that accept 0.25 to 2 of the `held_out` negatives
    (features, m) per image; an object counts by its best positive, as in a scan. `progress` receives the number of
    models that are done, of `CURVE_MODELS`.
    """
    rng = np.random.default_rng([seed, 14])
    objects = rng.permutation(np.unique(samples.groups[fold == 0]))
    images = rng.permutation(np.unique(samples.images))
    sixth = np.isin(samples.groups, objects[: len(objects) // 2])
    every = rng.permutation(len(samples.images))
    half = every[np.isin(samples.images[every], images[: max(len(images) // 2, 1)])]

    def grow(inside: Flags, negatives: Indices) -> BoostedTrees:
        chosen = samples.negatives[:, np.sort(negatives[:CURVE_NEGATIVES])]
        both = np.concatenate([samples.positives[:, inside], chosen], axis=1)
        return boost(both, int(inside.sum()), n_trees, rng, threads=threads)

    def rates(trees: BoostedTrees, among: Flags) -> Floats:
        """Detection rate (objects,) of each object among some positives (n,)."""
        scores = trees.running_scores(np.ascontiguousarray(samples.positives[:, among]))[-1]
        _, number = np.unique(samples.groups[among], return_inverse=True)
        best = np.full(number.max() + 1, -np.inf)
        np.maximum.at(best, number, scores)
        falling = np.append(np.sort(trees.running_scores(held_out)[-1])[::-1], -np.inf)
        least = falling[np.minimum(np.rint(CURVE_RATES * n_images).astype(int), len(falling) - 1)]
        return np.asarray((best[:, None] > least).mean(axis=1))

    chosen = [(sixth, every), (fold == 0, every), (fold == 0, half), *((fold != k, every) for k in range(1, FOLDS))]
    models = []
    for inside, negatives in chosen:
        models.append(grow(inside, negatives))
        progress(len(models))
    few, some, other_images, *others = models
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
    threads: int | None,
) -> UnseenObjects:
    """Scan images for objects with the trees of their folds; scores are converted to those of `stage`.

    At most 100 images are scanned. `backgrounds` have pyramids of some of the images. `scales` are that of the stage,
    and then those of the folds.
    """
    own_scale, *fold_scales = scales
    places = {path: (each, number) for each in backgrounds for number, path in enumerate(each.images)}
    cascades = []
    for other, scale in zip(validation.folds, fold_scales, strict=True):
        made = fold_stage(other, trees, stage)
        threshold = float(own_scale.converted(np.array([stage.threshold]), scale)[0])
        cascades.append(Cascade(stage.features.window, (replace(made, threshold=threshold),)))
    folds = dict(zip(samples.groups.tolist(), validation.fold.tolist(), strict=True))
    numbers = np.cumsum([0, *(len(image.objects) for image in images)])
    some = np.sort(np.random.default_rng([seed, 15]).permutation(len(images))[:MOST_SCANNED])

    def scan(i: int) -> list[tuple[Detected, Labelled, list[int]]]:
        image = images[i]
        own = np.array([folds.get(number, -1) for number in range(numbers[i], numbers[i + 1])])
        source, number = places.get(image.path, (backgrounds[0], -1))
        try:
            pyramid = source.pyramid(number) if number >= 0 else source.pyramid_of(as_rgb(image.path))
        except UnreadableImageError:
            return []
        found: list[tuple[Detected, Labelled, list[int]]] = []
        for k in np.unique(own[own >= 0]).tolist():
            fired = FiredWindows()
            if pyramid is not None and pyramid.levels:
                fired = scan_channels(cascades[k], pyramid, threads=1).fired
                sums = fired.scores + cascades[k].stages[0].threshold
                scores = fold_scales[k].converted(sums, own_scale) - stage.threshold
                fired = replace(fired, scores=scores).take(scores > 0)
            detected = report(fired, offset=source.choice.box_offset, by_object=True)
            ignored = image.ignore.copy()
            ignored[np.flatnonzero(~image.ignore)[own != k]] = True
            objects = (numbers[i] + np.flatnonzero(own == k)).tolist()
            found.append(((detected.boxes, detected.scores), (image.boxes, ignored), objects))
        return found

    parts = list(map_in_order(scan, some.tolist(), threads))
    pairs = [pair for part in parts for pair in part]
    shapes = [images[i].shape for i, part in zip(some.tolist(), parts, strict=True) for _ in part]
    evaluation = evaluate_detections([found for found, _, _ in pairs], [truths for _, truths, _ in pairs])
    return UnseenObjects(evaluation, tuple(shapes), tuple(objects for _, _, objects in pairs))


def fold_stage(other: BoostedTrees, trees: BoostedTrees, stage: Stage) -> Stage:
    """The trees of a fold, with the thresholds of a stage of `trees`."""
    rejection = np.full(len(trees), -np.inf)
    if stage.rejection_thresholds is not None:
        rejection = stage.rejection_thresholds[LEAVES - 1 :: LEAVES]
    last = np.full((len(trees), 1), stage.threshold)
    thresholds = carried_over(np.column_stack([rejection, last]), trees, other)
    return tree_stage(other, stage.features.window, thresholds[:, 0], float(thresholds[-1, 1]))
