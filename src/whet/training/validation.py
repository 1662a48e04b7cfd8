"""What a model does with what it was not trained on: held-out images, operating points, the reference set.

A held-out image is scanned once with the final model (`ScannedImages`), and once more by a cascade for windows that it
nearly accepts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.corrections.box_windows import NEAR
from whet.corrections.reference import GUARD_NEGATIVE, GUARD_POSITIVE, NEGATIVE, POSITIVE, Reference
from whet.detector.base import DEFAULT_POINT
from whet.detector.detector import Detector
from whet.errors import UnreadableImageError
from whet.evaluation.advice import Findings
from whet.evaluation.evaluation import best_f1, evaluate_detections, image_interval, operating_point, rate_interval
from whet.evaluation.runs import detect_many
from whet.images.boxes import Boxes, Floats, box_iou, intersection_over_first
from whet.images.detections import IOU, Detections, FiredWindows, report, suppress_non_maxima
from whet.images.pyramid import Pixels, Pyramid, WindowIndex
from whet.models.contract import Model
from whet.models.gslda.fitting import Variations
from whet.models.responses import Responses
from whet.parallel.workers import ALL_THREADS, Workers, lost_image
from whet.training.backgrounds import Background, Backgrounds, BoxesByImage, SkippedImagesWarning
from whet.training.progress import Stop, TrainingResult
from whet.training.samples import Positives

Seen = tuple[Responses, Floats]  # responses to windows (n,) and gains (n,)

# False positives per image by the name of the operating point; the last measurable one is the default.
POINTS = {"one false positive per image": 1.0, "one per ten images": 0.1}
# A detection finds an object from this IoU on.
FOUND_IOU = 0.5
# Of each kind, in each half of a reference set: with 1,350 weak learners, half a megabyte in all.
MOST_POSITIVES = 750
MOST_NEGATIVES = 750
# Variations of each guarding object.
VARIATIONS = 6
HARDER = Variations(shift=0.02, scale=0.05, angle=8.0, noise=0.6, blur=1.2)
# Pixels around a held-out object, repeated from its rim: room for the windows that fire around it.
RIM = 0.25


# --- Held-out images --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ScannedImage:
    """Detections of a model in an image at any score, without those of its objects, and counts of windows.

    The objects of the image may be training positives: what is detected on them, or on parts of them, is left out.
    `responses` and `gains` are those of the best window of each detection, at most `MOST_NEGATIVES` of them: the score
    of a detection is that of its best window times the gain.
    """

    boxes: Boxes
    scores: Floats
    responses: Responses
    gains: Floats
    n_accepted: int
    n_tested: int

    @classmethod
    def from_background(cls, image: Background, model: Model) -> ScannedImage | UnreadableImageError:
        """Scan an image, or say why it cannot be read."""
        fired = image.fired(model)
        if isinstance(fired, UnreadableImageError):
            return fired
        detected = report(fired.windows, offset=image.choice.box_offset, by_object=model.grid.by_object)
        outside = detected[is_outside(detected.boxes, image.excluded)]
        index, gains = best_windows(outside, np.arange(min(len(outside), MOST_NEGATIVES)))
        responses = _responses(model, fired.pyramid, index)
        return cls(outside.boxes, outside.scores, responses, gains, fired.n_accepted, fired.n_tested)


@dataclass(frozen=True, eq=False)
class ScannedImages:
    """All held-out images, in order, as a model sees them; None where one cannot be read."""

    images: list[ScannedImage | None]

    @classmethod
    def from_backgrounds(cls, held_out: Backgrounds, model: Model) -> ScannedImages:
        """Scan each image once. Images that cannot be read are named; without any other, that is an error."""
        workers = held_out.workers
        results = list(
            workers.map(ScannedImage.from_background, held_out.held, repeat(workers.share(model)), lost=_no_result)
        )
        scanned = [result if isinstance(result, ScannedImage) else None for result in results]
        failed = [i for i, image in enumerate(scanned) if image is None]
        if failed:
            error = results[failed[0]] or lost_image(held_out.images[failed[0]])
            what = f"{len(failed)} of {len(scanned)} held-out images cannot be read, for example {error}"
            if len(failed) == len(scanned):
                raise UnreadableImageError(f"{what}; the training continues where it is with --resume")
            warnings.warn(f"{what}; operating points are set without them", SkippedImagesWarning, stacklevel=3)
        return cls(scanned)

    @property
    def readable(self) -> list[ScannedImage]:
        """The images that can be read."""
        return [image for image in self.images if image is not None]

    @property
    def seen(self) -> list[Seen]:
        """Responses and gains of the best window of each false positive, image by image."""
        return [(image.responses, image.gains) for image in self.readable]

    @property
    def acceptance_rate(self) -> tuple[float, tuple[float, float]]:
        """Share of the windows without the object that the model accepts, and its 95 % interval."""
        accepted, tested = np.array([(image.n_accepted, image.n_tested) for image in self.readable], np.int64).T
        return float(accepted.sum() / max(tested.sum(), 1)), image_interval(accepted, tested)

    def result(
        self,
        stop: Stop,
        found: tuple[int, int],
        n_stages: int,
        seconds: float,
        object_scores: Floats | None = None,
    ) -> TrainingResult:
        """The result of a training whose model finds some objects, of all that it was not trained on."""
        rate, interval = self.acceptance_rate
        n_found, n = found
        return TrainingResult(
            *stop,
            rate,
            interval,
            sum(image.n_tested for image in self.readable),
            len(self.readable),
            n_found / max(n, 1),
            rate_interval(n_found, n),
            (),
            n_stages,
            seconds,
            object_scores,
        )


def _responses(model: Model, pyramid: Pyramid | None, index: WindowIndex) -> Responses:
    """Responses to windows of a pyramid; an image without windows has none."""
    if pyramid is None or not len(index):
        return Responses.empty(model.votes.n_weak)
    return model.responses(pyramid, index)[0]


def _no_result(*_: object) -> None:
    return None


@dataclass(frozen=True, eq=False)
class Fitted:
    """A trained model, its result, and what it does with held-out images, where the family has scanned them.

    Without a `reference` set, one is made of held-out objects. `findings` are the errors on objects that were not
    trained on, above a score.
    """

    model: Model
    result: TrainingResult
    scanned: ScannedImages | None = None
    reference: Reference | None = None
    findings: Callable[[float], Findings] | None = None


@dataclass(frozen=True)
class Points:
    """Operating points by name, and false positives in held-out images at any score and at the default point."""

    thresholds: dict[str, float]
    n_images: int
    false_positives: int
    default_false_positives: int


def choose_points(
    detections: Sequence[tuple[Boxes, Floats]], object_scores: Floats | None = None, objects_per_image: float = 1.0
) -> Points:
    """Operating points by the detections of images, all of them false positives, at any score.

    The default point has the best F1, with the scores (n,) of enough objects that were not trained on, or else few
    false positives.
    """
    nothing = np.empty((0, 4)), np.empty(0, np.bool_)
    curve = evaluate_detections(detections, [nothing] * len(detections)).curve
    points: dict[str, float] = {}
    for name, rate in POINTS.items():
        threshold = operating_point(curve, rate)
        if np.isfinite(threshold):
            points[name] = threshold
            # With fewer images, a rate of one per ten images is a single false positive, or none.
            if rate >= 1 or len(detections) >= 10:
                points[DEFAULT_POINT] = threshold
    # With fewer objects that were not trained on, the best F1 is a matter of chance.
    if object_scores is not None and len(object_scores) >= 10:
        wrong = np.concatenate([np.empty(0), *(scores for _, scores in detections)])
        best = best_f1(object_scores, wrong, len(detections), objects_per_image)
        points |= {} if best is None else {DEFAULT_POINT: best}
    default = curve.false_positives[curve.thresholds >= points.get(DEFAULT_POINT, -np.inf)]
    return Points(points, len(detections), int(curve.false_positives[-1]), int(default.max(initial=0)))


def set_points(detector: Detector, points: Points) -> None:
    """Give a detector its operating points."""
    for name in (*POINTS, DEFAULT_POINT):
        detector.set_operating_point(name, points.thresholds.get(name))


def held_out_scores(detector: Detector, objects: Iterable[tuple[Path, Floats]], workers: Workers) -> Floats:
    """Scores (n,) of objects, boxes (4,) of images, -inf if they are not found.

    The reference set does not give them: objects that are larger than the window score higher, as more windows fire.
    """
    boxes: dict[Path, list[Floats]] = {}
    for path, box in objects:
        boxes.setdefault(path, []).append(box)
    scores = [np.empty(0)]
    for image in detect_many(detector, list(boxes), min_score=-np.inf, workers=workers):
        if image.found is not None:
            matches = box_iou(np.array(boxes[image.path]), image.found.boxes) > FOUND_IOU
            scores.append(np.where(matches, image.found.scores, -np.inf).max(axis=1, initial=-np.inf))
    return np.concatenate(scores)


def is_outside(boxes: Boxes, excluded: Boxes) -> NDArray[np.bool_]:
    """Which boxes (n, 4) neither overlap one of the excluded boxes much nor lie in it."""
    overlaps = (box_iou(boxes, excluded) >= IOU) | (intersection_over_first(boxes, excluded) >= 0.5)
    return np.asarray(~overlaps.any(axis=1))


def best_windows(detected: Detections, which: NDArray[np.intp]) -> tuple[WindowIndex, Floats]:
    """The best window of each of some detections, and the detection's score over that window's."""
    windows = [detected.windows_of(i) for i in which.tolist()]
    best = np.array([rows[np.argmax(detected.windows.scores[rows])] for rows in windows], np.intp)
    return detected.windows.index.take(best), detected.scores[which] / detected.windows.scores[best]


# --- The reference set ------------------------------------------------------------------------------------------------


def held_out_reference(
    model: Model,
    positives: Positives,
    held_out: Backgrounds,
    scanned: ScannedImages,
    *,
    seed: int = 0,
    progress: Callable[[float], None] = lambda _: None,
) -> Reference:
    """Responses to held-out objects, and to hard places of held-out images: detections, and what is nearly one.

    Whole images are taken, in random order, until there are enough places. Every other object and image guards, the
    others judge.
    """
    rng, workers, patches = np.random.default_rng([seed, 7]), held_out.workers, positives.windows
    parts = ReferenceParts()
    _, objects = np.unique(positives.objects, return_inverse=True)
    order = rng.permutation(len(patches))[: 2 * MOST_POSITIVES]
    guarding = np.sort(order[objects[order] % 2 == 0])
    parts.add(_hardest(model, patches[guarding], rng), GUARD_POSITIVE)
    judging = np.sort(order[objects[order] % 2 == 1])
    for number, i in enumerate(judging.tolist()):
        parts.add(_windows_of_object(model, patches[i], workers.threads), POSITIVE, one_item=True)
        progress(0.3 * (number + 1) / len(judging))
    n_judging, n_places = 0, [0, 0]
    numbers = [i for i in rng.permutation(len(held_out.images)).tolist() if scanned.images[i] is not None]
    images = [image for image in (scanned.images[i] for i in numbers) if image is not None]
    near = workers.map(
        _near_places,
        [held_out.held[i] for i in numbers],
        [image.boxes for image in images],
        repeat(workers.share(model)),
        lost=_no_result,
    )
    for number, (image, rejected) in enumerate(zip(images, near, strict=False)):
        half = number % 2
        if min(n_places) >= MOST_NEGATIVES:
            break
        if rejected is None or n_places[half] >= MOST_NEGATIVES:
            continue
        part = (GUARD_NEGATIVE, NEGATIVE)[half]
        parts.add((image.responses, image.gains), part)
        parts.add((rejected, np.full(len(rejected), np.nan)), part)
        n_places[half] += len(image.responses) + len(rejected)
        n_judging += half
        progress(0.3 + 0.7 * min(min(n_places) / MOST_NEGATIVES, 1.0))
    return _with_nearest_guards(model, parts.reference(model.votes.n_weak, n_judging))


def with_judging_negatives(reference: Reference, seen: Iterable[Seen], n_images: int) -> Reference:
    """A reference set that has no judging negatives, with false positives in held-out images as such."""
    parts = ReferenceParts()
    for windows in seen:
        parts.add(windows, NEGATIVE)
    n_weak = reference.responses.n_weak
    added = parts.reference(n_weak, n_images)
    first = int(reference.item.max(initial=-1)) + 1
    return Reference(
        Responses.concatenate([reference.responses, added.responses], n_weak),
        np.concatenate([reference.part, added.part]),
        np.concatenate([reference.gain, added.gain]),
        np.concatenate([reference.item, added.item + np.int32(first)]),
        n_images,
        reference.was_trained_on,
    )


class ReferenceParts:
    """Responses, gains and parts, collected one call after the other."""

    def __init__(self) -> None:
        self.responses: list[Responses] = []
        self.gains: list[Floats] = []
        self.parts: list[NDArray[np.uint8]] = []
        self.sizes: list[int] = []

    def add(self, windows: Seen, part: int, *, one_item: bool = False) -> None:
        """Add windows of one part; those that are `one_item` show one object."""
        responses, gains = windows
        self.responses.append(responses)
        self.gains.append(gains)
        self.parts.append(np.full(len(responses), part, np.uint8))
        self.sizes.extend([len(responses)] if one_item else [1] * len(responses))

    def reference(self, n_weak: int, n_images: int) -> Reference:
        """The reference set; samples that are no detections have the gain of a typical one of their class."""
        part = np.concatenate([np.empty(0, np.uint8), *self.parts])
        gain = np.concatenate([np.empty(0), *self.gains])
        for kinds in ((POSITIVE, GUARD_POSITIVE), (NEGATIVE, GUARD_NEGATIVE)):
            unknown = np.isnan(gain) & np.isin(part, kinds)
            known = gain[~np.isnan(gain) & np.isin(part, kinds)]
            gain[unknown] = np.median(known) if len(known) else 1.0
        item = np.repeat(np.arange(len(self.sizes), dtype=np.int32), self.sizes)
        responses = Responses.concatenate(self.responses, n_weak)
        return Reference(responses, part, gain.astype(np.float32), item, n_images)


def _with_nearest_guards(model: Model, reference: Reference) -> Reference:
    """The same with only those guarding negatives that the model is nearest to accepting."""
    guards = np.flatnonzero(reference.part == GUARD_NEGATIVE)
    closeness = model.votes.closeness(reference.of(GUARD_NEGATIVE))
    kept = np.ones(len(reference.part), np.bool_)
    # Of the negatives of the first half, the nearest to acceptance guard. With 1,000 of them, 20 corrected misses
    # lowered all scores, and recall by 2.6 points; with 300, by 0.7, at as many false positives as before (development
    # images).
    kept[guards[np.argsort(-closeness, kind="stable")[300:]]] = False
    return reference.take(kept)


def _hardest(model: Model, patches: Pixels, rng: np.random.Generator) -> Seen:
    """Turned, blurred and noisy variations of objects that the model only just accepts: the first to be lost."""
    (height, width), rim = model.window, [round(RIM * side) for side in model.window]
    box = rim[1], rim[0], rim[1] + width, rim[0] + height
    varied = [
        HARDER.cut(np.pad(patch, [(side, side) for side in rim], mode="edge"), box, model.window, VARIATIONS, rng)
        for patch in patches
    ]
    if not varied:
        return Responses.empty(model.votes.n_weak), np.empty(0)
    every = np.concatenate(varied)
    responses, has_contrast = model.responses(*Pyramid.from_patches(every, model.window))
    responses = responses.take(has_contrast & (model.votes.scores(responses) > 0))
    chosen = np.sort(np.argsort(model.votes.closeness(responses), kind="stable")[:MOST_POSITIVES])
    return responses.take(chosen), np.full(len(chosen), np.nan)


def _windows_of_object(model: Model, patch: Pixels, threads: int | None) -> Seen:
    """The best and some lesser windows on an object with a rim around it; where none fires, the object itself."""
    height, width = model.window
    rim = round(RIM * height), round(RIM * width)
    padded = np.pad(patch, [(side, side) for side in rim], mode="edge")
    pyramid = Pyramid.from_image(padded, model.window, grid=model.grid, threads=threads)
    detected = report(model.scan(pyramid, threads=threads))
    box = np.array([[rim[1], rim[0], rim[1] + width, rim[0] + height]], np.float64)
    hits = np.flatnonzero(box_iou(box, detected.boxes)[0] >= FOUND_IOU)
    if not len(hits):
        return model.responses(*Pyramid.from_patches(patch[None], model.window))[0], np.array([np.nan])
    rows = detected.windows_of(int(hits[0]))
    rows = rows[np.argsort(-detected.windows.scores[rows], kind="stable")]
    # Windows of a judging object, from the best to the least that fires: it is lost when all of them are.
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, 3).astype(int))]
    gain = detected.scores[hits[0]] / detected.windows.scores[rows[0]]
    return model.responses(pyramid, detected.windows.index.take(rows))[0], np.full(len(rows), gain)


def _near_places(image: Background, detected: Boxes, model: Model) -> Responses | None:
    """Responses to places that are nearest to being detected; None if the image cannot be read."""
    try:
        pyramid = image.pyramid()
    except UnreadableImageError:
        return None
    if pyramid is None:
        return Responses.empty(model.votes.n_weak)
    near = model.scan(pyramid, model.votes.loosened(NEAR), threads=1)
    # Windows of an image among which these places are chosen: a weak detector nearly accepts a hundred thousand.
    near = near.take(np.argsort(-near.scores, kind="stable")[:2000])
    offset = image.choice.box_offset
    is_far = ~(box_iou(near.boxes, offset.windows(detected)) >= IOU).any(axis=1)
    near = near.take(is_far & is_outside(offset.boxes(near.boxes), image.excluded))
    # Rejected places of an image, besides all that the base accepts there: corrections may let them through.
    return _responses(model, pyramid, _separate(near, 4))


def _separate(windows: FiredWindows, most: int) -> WindowIndex:
    """The best windows that do not overlap one another."""
    if not len(windows):
        return WindowIndex()
    groups = suppress_non_maxima(windows.boxes, windows.scores - windows.scores.min() + 1.0, iou=IOU)
    best = [
        int(np.flatnonzero(groups.group == g)[np.argmax(windows.scores[groups.group == g])])
        for g in range(len(groups.scores))
    ]
    return windows.index.take(np.array(best[:most], np.intp))


def false_positives_of(
    detector: Detector, images: Sequence[Path], excluded: BoxesByImage, workers: Workers = ALL_THREADS
) -> list[tuple[Boxes, Floats]]:
    """Detections of a detector in held-out images at any score, without those of their objects."""
    detections = []
    for image in detect_many(detector, images, workers=workers, min_score=-np.inf):
        if image.found is not None:
            outside = image.found[is_outside(image.found.boxes, excluded.get(image.path, np.empty((0, 4))))]
            detections.append((outside.boxes, outside.scores))
    return detections
