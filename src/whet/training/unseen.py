"""What a channel detector does with objects that it was not trained on: detections by folds, and a learning curve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet.errors import UnreadableImageError
from whet.evaluation.advice import Findings, LearningCurve
from whet.evaluation.error_kinds import count_errors
from whet.evaluation.evaluation import Detected, Evaluation, Labelled, evaluate_detections
from whet.images.boxes import Floats
from whet.images.detections import FiredWindows, report
from whet.io.annotations.annotation import AnnotatedImage
from whet.models.channels.fitting import (
    FOLDS,
    BoostedTrees,
    Indices,
    TreeSamples,
    fold_model,
    grow_models,
    rejection_by_slack,
)
from whet.models.channels.tree_model import TreeModel
from whet.parallel.workers import Workers, absolute
from whet.training.backgrounds import Background, Backgrounds
from whet.training.preparation import Preparation
from whet.training.samples import Places

# Trees of a model of the learning curve, as a share of those of the detector, and its negatives.
CURVE_TREES = 1 / 16
CURVE_NEGATIVES = 4000
CURVE_MODELS = FOLDS + 2
# False positives per image at which detection rates of the learning curve are measured.
CURVE_RATES = np.array([0.25, 0.5, 1.0, 2.0])


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
class HeldOutPlaces:
    """Places (n, 4) of held-out images that a model accepts and that hardly overlap any object; falling sums of votes.

    Windows beside objects that were trained on have high scores: they say nothing of other images.
    """

    places: Places
    sums: Floats
    n_images: int

    @classmethod
    def from_images(
        cls, held_out: Backgrounds, model: TreeModel, numbers: NDArray[np.intp] | None = None
    ) -> HeldOutPlaces:
        """Scan all images, or some of them by their numbers."""
        numbers = np.arange(len(held_out.images)) if numbers is None else numbers
        places, scores = held_out.accepted(model, numbers)
        is_apart = held_out.is_apart(places)
        return cls(places[is_apart], np.sort(scores[is_apart])[::-1] + model.votes.threshold[0], len(numbers))

    def exceeded_by(self, n: int, otherwise: float) -> float:
        """The sum of votes that n places of an image exceed; where there are fewer places, another value."""
        return float(self.sums[n * self.n_images]) if len(self.sums) > n * self.n_images else otherwise


def measure_scales(
    trees: BoostedTrees, places: HeldOutPlaces, folds: Sequence[BoostedTrees], held_out: Backgrounds
) -> list[Scale]:
    """The scales of trees, with the places that they accept by slack, and of those of each fold.

    Where there are many images, each fold scans some of them. Where one accepts too few places, all scales are given
    by the medians of both classes.
    """
    n, measured = len(held_out.images), [places]
    for k, other in enumerate(folds):
        # With this many held-out images, those of a scale are a part of them for each fold.
        own = np.arange(k, n, len(folds)) if n >= 4 * FOLDS else np.arange(n)
        model = fold_model(other, trees, held_out.choice.window, rejection_by_slack(trees))
        measured.append(HeldOutPlaces.from_images(held_out, model, own))
    nan = float("nan")
    # Sums of votes that this many places of a held-out image exceed are the low end of a scale; one is the high end.
    scales = [Scale(*(part.exceeded_by(n, otherwise=nan) for n in (10, 1))) for part in measured]
    if all(scale.high > scale.low for scale in scales):
        return scales
    return [Scale(float(part.median_negative[-1]), float(part.median[-1])) for part in (trees, *folds)]


# --- Detections -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class UnseenObjects:
    """Detections in annotated images by trees that were not trained on their objects, and the images' shapes.

    An image appears once for each fold that has objects in it; its other objects are ignored. `numbers` are those of
    its objects that are not ignored.
    """

    evaluation: Evaluation
    shapes: tuple[tuple[int, int], ...]
    numbers: tuple[list[int], ...]

    @property
    def n_found(self) -> int:
        """Objects that are found at any score."""
        return sum(len(image.found()) for image in self.evaluation.images)

    @property
    def n_objects(self) -> int:
        """Objects in the images that were scanned."""
        return self.evaluation.curve.n_truths

    @property
    def scores(self) -> Floats:
        """Scores (n,) of the objects in the images that were scanned, -inf where they are not found."""
        images = self.evaluation.images
        return np.concatenate([np.empty(0), *(image.truth_scores[~image.ignored] for image in images)])

    @property
    def scores_by_object(self) -> dict[int, float]:
        """The same by the number of the object."""
        numbers = [number for part in self.numbers for number in part]
        return dict(zip(numbers, self.scores.tolist(), strict=True))

    def findings(self, curve: LearningCurve, prepared: Preparation, min_score: float) -> Findings:
        """What is wrong above a score, and the learning curve."""
        choice = prepared.choice
        height, width = choice.object_size
        errors = count_errors(
            self.evaluation, min_score, shapes=self.shapes, min_size=choice.min_size or 0.0, aspect=width / height
        )
        aspects = choice.aspect_low, choice.aspect_high
        return Findings(errors, None, curve, prepared.positives.n_objects, aspects, choice.misfits)


def detect_unseen(
    images: Sequence[AnnotatedImage],
    fold_of: Mapping[int, int],
    folds: Sequence[BoostedTrees],
    trees: BoostedTrees,
    rejection: Floats,
    threshold: float,
    backgrounds: Sequence[Backgrounds],
    scales: Sequence[Scale],
    *,
    seed: int,
) -> UnseenObjects:
    """Scan images for objects with the trees of their folds; scores are converted to those of `trees`.

    `rejection` (trees,) and `threshold` are those of the model of all trees. At most 100 images are scanned. `fold_of`
    are the folds of objects by their numbers. `backgrounds` have pyramids of some of the images. `scales` are that of
    all trees, and then those of the folds.
    """
    own_scale, *fold_scales = scales
    first = backgrounds[0]
    held = {path: image for part in backgrounds for path, image in zip(part.images, part.held, strict=True)}
    models = []
    for other, scale in zip(folds, fold_scales, strict=True):
        least = float(own_scale.converted(np.array([threshold]), scale)[0])
        models.append(fold_model(other, trees, first.choice.window, rejection, least))
    numbers = np.cumsum([0, *(len(image.objects) for image in images)])
    # Annotated images that are scanned for objects that were not trained on.
    chosen = np.sort(np.random.default_rng([seed, 15]).permutation(len(images))[:100]).tolist()
    own = [np.array([fold_of.get(number, -1) for number in range(numbers[i], numbers[i + 1])]) for i in chosen]
    workers = first.workers
    scanned = workers.map(
        _FoldScan.run,
        repeat(workers.share(_FoldScan(tuple(models), tuple(fold_scales), own_scale, threshold))),
        [
            held.get(images[i].path) or Background(absolute(images[i].path), i, first.family, first.choice)
            for i in chosen
        ],
        [np.unique(part[part >= 0]).tolist() for part in own],
        lost=lambda *_: None,
    )
    owners = {path: part for part in backgrounds for path in part.images}
    pairs: list[tuple[Detected, Labelled, list[int]]] = []
    shapes = []
    for i, fold, result in zip(chosen, own, scanned, strict=True):
        if result is None or isinstance(result, UnreadableImageError):
            owners.get(images[i].path, first).warn_skipped(images[i].path, result)
            continue
        for k, fired in result.items():
            detected = report(fired, offset=first.choice.box_offset, by_object=True)
            ignored = images[i].ignore.copy()
            ignored[np.flatnonzero(~images[i].ignore)[fold != k]] = True
            objects = (numbers[i] + np.flatnonzero(fold == k)).tolist()
            pairs.append(((detected.boxes, detected.scores), (images[i].boxes, ignored), objects))
            shapes.append(images[i].shape)
    evaluation = evaluate_detections([detected for detected, _, _ in pairs], [truths for _, truths, _ in pairs])
    return UnseenObjects(evaluation, tuple(shapes), tuple(objects for _, _, objects in pairs))


@dataclass(frozen=True, eq=False)
class _FoldScan:
    """Scans of an image with the trees of folds; scores are converted to those of a model with a threshold."""

    models: tuple[TreeModel, ...]
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
        by_fold = {}
        for k in folds:
            fired = self.models[k].scan(pyramid, threads=1)
            sums = fired.scores + self.models[k].votes.threshold[0]
            scores = self.scales[k].converted(sums, self.own_scale) - self.threshold
            by_fold[k] = replace(fired, scores=scores).take(scores > 0)
        return by_fold


# --- The learning curve -----------------------------------------------------------------------------------------------


def learning_curve(
    samples: TreeSamples,
    fold: Indices,
    held_out: NDArray[np.uint8],
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
    objects = rng.permutation(np.unique(samples.objects[fold == 0]))
    images = rng.permutation(np.unique(samples.images))
    sixth = np.isin(samples.objects, objects[: len(objects) // 2])
    every = rng.permutation(len(samples.images))
    half = every[np.isin(samples.images[every], images[: max(len(images) // 2, 1)])]

    def rates(trees: BoostedTrees, among: NDArray[np.bool_]) -> Floats:
        """Detection rate (objects,) of each object among some positives (n,)."""
        scores = trees.running_scores(np.ascontiguousarray(samples.positives[:, among]))[-1]
        _, number = np.unique(samples.objects[among], return_inverse=True)
        best = np.full(number.max() + 1, -np.inf)
        np.maximum.at(best, number, scores)
        falling = np.append(np.sort(trees.running_scores(held_out)[-1])[::-1], -np.inf)
        least = falling[np.minimum(np.rint(CURVE_RATES * n_images).astype(int), len(falling) - 1)]
        return np.asarray((best[:, None] > least).mean(axis=1))

    few_of_all, few_of_half = (np.sort(part[:CURVE_NEGATIVES]) for part in (every, half))
    chosen = [sixth, fold == 0, fold == 0, *(fold != k for k in range(1, FOLDS))]
    negatives = [few_of_all, few_of_all, few_of_half, *[few_of_all] * (FOLDS - 1)]
    subsets = [(np.flatnonzero(part), rows) for part, rows in zip(chosen, negatives, strict=True)]
    few, some, other_images, *others = grow_models(samples, subsets, n_trees, rng, workers, progress)
    most = dict(enumerate(others, start=1))
    unseen = [
        rates(few, fold != 0),
        rates(some, fold != 0),
        np.concatenate([rates(trees, fold == k) for k, trees in most.items()]),
    ]
    seen = [
        rates(few, sixth),
        rates(some, fold == 0),
        np.concatenate([rates(trees, fold != k) for k, trees in most.items()]),
    ]
    return LearningCurve(
        tuple(len(np.unique(samples.objects[inside])) for inside in (sixth, fold == 0, fold != 1)),
        tuple(float(part.mean()) for part in unseen),
        tuple(float(part.mean()) for part in seen),
        (len(images) // 2, len(images)),
        (float(rates(other_images, fold != 0).mean()), float(unseen[1].mean())),
    )
