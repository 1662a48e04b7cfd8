"""Make a model again from kept samples: the crops of the first training, and of all that was learned since.

The result is a function of the set of crops alone: any order of learning gives the same bytes. No image is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import repeat
from pathlib import Path
from typing import cast

import numpy as np

from whet.arrays import Bools, Boxes, Floats, Indices
from whet.corrections.kept import BACKGROUND, BESIDE, HELD_OUT, MISTAKE, OBJECT, Crop, Crops
from whet.corrections.records import image_hash
from whet.corrections.reference import Estimate
from whet.corrections.sampling import NEAR_OBJECT
from whet.detector.base import DetectorBase, RefitSettings, Reporting
from whet.errors import CannotLearnError, UnreadableImageError
from whet.images.boxes import BoxOffset, box_iou
from whet.images.detections import IOU, report, suppress_non_maxima
from whet.images.pyramid import SMALLEST, Pyramid
from whet.models.channels.fitting import (
    FOLDS,
    BoostedTrees,
    CrossValidation,
    TreeSamples,
    boost,
    columns_of,
    cross_validate,
    draw_features,
    fold_model,
    grow_models,
    rejection_by_slack,
    rejection_of_accepted,
    tree_model,
)
from whet.models.channels.tree_model import AT_ONCE, TreeModel
from whet.models.contract import Model
from whet.models.responses import Responses
from whet.parallel.threads import blocks, map_in_order
from whet.parallel.workers import ALL_THREADS, Workers
from whet.training.backgrounds import Background
from whet.training.channels import ChannelTraining, guarding_reference
from whet.training.loop import FEWEST_OBJECTS, FamilyTraining, Training
from whet.training.samples import NO_PLACES, Jitter, Places, Windows, copies_for, cut_sides, is_safe_to_mirror
from whet.training.validation import ScannedImages, best_windows, with_judging_negatives
from whet.training.windows import WindowChoice, cell_window

# Negatives that a model keeps of its training, and false positives of each held-out image.
MOST_NEGATIVES = 2500
HELD_OUT_PER_IMAGE = 10
# Copies of a detection that somebody called wrong, shifted and resized: there are few of them.
COPIES_OF_MISTAKES = 6
# Copies of objects, without mirror images: more took longer, and average precision was the same. They are not turned.
MOST_COPIES = 6
COPIES = Jitter(rotation=0.0)
CROPS_AT_ONCE = 100
# A detection in the crop of an object finds it from this IoU on; one in that of a background is the one that it shows.
FOUND, SHOWN = 0.5, 0.3
# The threshold of the model is the sum of votes that this share of the held-out backgrounds stays below.
LOWEST = 0.25
# Sizes at which a crop is scanned, as shares of that of its window.
SMALLER, LARGER = 0.8, 1.3
# Called with the name of a step and the share of it that is done.
RefitProgress = Callable[[str, float], None]


@dataclass(frozen=True, eq=False)
class GrownAgain:
    """A model made again with its reference set, its reporting, and a comparison with the model of the training.

    The comparison is on the objects that were learned since: none of the models has seen them.
    """

    base: DetectorBase
    reporting: Reporting
    compared: tuple[Estimate, Estimate] | None


def grow_again(
    base: DetectorBase,
    reporting: Reporting,
    crops: Crops,
    *,
    workers: Workers = ALL_THREADS,
    progress: RefitProgress = lambda *_: None,
) -> GrownAgain:
    """The trees of all crops, with their window, reference set and operating points.

    `base` and its `reporting` are those of the first training.
    """
    settings = base.settings
    if settings is None or base.crops is None:
        raise CannotLearnError("the detector keeps no samples: train it with samples to let it learn from them")
    threads = workers.threads
    cut = _Cut.from_crops(crops, base, reporting, threads, partial(progress, "cutting samples"))
    samples, window, n_trees = cut.samples, cut.choice.window, settings.trees
    drawn = draw_features(len(samples.columns), n_trees, np.random.default_rng([settings.seed, 12, 3]))
    trees = boost(
        samples.columns,
        samples.n_positives,
        drawn,
        threads=threads,
        progress=lambda n: progress("growing trees", n / n_trees),
    )
    validation = cut.cross_validate(settings, workers, lambda n: progress("validation", n / (n_trees * FOLDS)))
    limits = rejection_by_slack(trees)
    loose = tree_model(trees, window, limits, float(limits[-1]))
    held_out = [(crop, box) for crop, box in cut.boxes if crop.role == HELD_OUT]
    scan = partial(_best_in_crop, offset=cut.choice.box_offset)
    sums = [found.score + float(loose.votes.threshold[0]) for found in _each(scan, loose, held_out, threads) if found]
    least = float(np.quantile(sums, LOWEST)) if sums else float(limits[-1])
    unseen = validation.unseen_scores(samples.positives, trees)
    model = tree_model(trees, window, rejection_of_accepted(trees, unseen, least), least)
    score_of = _unseen_scores(cut, validation, trees, model, threads)
    found = [part for part in _each(scan, model, held_out, threads) if part]
    reference = with_judging_negatives(
        guarding_reference(samples, trees, model, score_of),
        [(part.responses, np.array([part.gain])) for part in found],
        settings.n_images,
    )
    gain = float(np.median([part.gain for part in found])) if found else 1.0
    wrong = np.concatenate([[part.score for part in found], _unseen_wrong(cut, validation, trees, least) * gain])
    n_images = settings.n_images + settings.n_mined + cut.n_learned_images(base.crops)
    scores = np.array([score_of[number] for number in range(len(cut.objects))])
    compared = _Compared.from_objects(base, reporting, cut, scores, wrong, n_images, threads)
    own = reporting.operating_points
    points = {name: point if name in reporting.fixed else compared.point(point) for name, point in own.items()}
    again = DetectorBase(model, base.provenance, None, reference, base.training_images)
    again_reporting = Reporting(cut.choice.box_offset, points, reporting.fixed, cut.choice.min_size)
    old, new = reporting.min_score(None), again_reporting.min_score(None)
    return GrownAgain(again, again_reporting, compared.estimates(max(old, 0.0), max(new, 0.0)))


def _rate(base: DetectorBase, point: float) -> float:
    """False positives per image of the first training above a score."""
    reference = base.reference
    if reference is None or not reference.n_images:
        return 1.0
    return float((reference.judge(base.model.votes).negative > point).sum()) / reference.n_images


def _with_rate(wrong: Floats, n_images: int, rate: float) -> float:
    """The lowest score from 0 on that at most this many false positives per image exceed."""
    falling, n = np.sort(wrong)[::-1], int(rate * n_images)
    return max(float(falling[n]), 0.0) if n < len(falling) else 0.0


@dataclass(frozen=True, eq=False)
class _Compared:
    """Scores of objects that neither model has seen, by the model of the training and by the one made again.

    They are those that were learned since the training, or else all. `wrong` are scores of backgrounds that the new
    model has not seen; it makes more mistakes at places that no model before it has found.
    """

    base: DetectorBase
    before: Floats
    after: Floats
    wrong: Floats
    n_images: int

    @classmethod
    def from_objects(
        cls,
        base: DetectorBase,
        reporting: Reporting,
        cut: _Cut,
        scores: Floats,
        wrong: Floats,
        n_images: int,
        threads: int | None,
    ) -> _Compared:
        """Scan the crops of objects that were learned since the training."""
        old = set() if base.crops is None else set(base.crops)
        new = [number for number, (crop, _) in enumerate(cut.objects) if crop not in old]
        if not new:
            before = np.empty(0) if base.reference is None else base.reference.judge(base.model.votes).positive
            return cls(base, before, scores, wrong, n_images)
        scan = partial(_best_in_crop, offset=reporting.box_offset)
        found = _each(scan, base.model, [cut.objects[number] for number in new], threads)
        before = np.array([-np.inf if part is None else part.score for part in found])
        return cls(base, before, scores[new], wrong, n_images)

    def point(self, point: float) -> float:
        """The score that stands for an operating point of the training.

        One with as much recall has fewer false positives, one with as many false positives has more recall: it lies in
        the middle between the two.
        """
        recall = float((self.before > point).mean()) if len(self.before) else 1.0
        falling = np.sort(self.after[np.isfinite(self.after)])[::-1]
        n = min(round(recall * len(self.after)), len(falling))
        least = 0.0 if not n else float(np.nextafter(falling[n - 1], -np.inf))
        return (max(least, 0.0) + _with_rate(self.wrong, self.n_images, _rate(self.base, point))) / 2

    def estimates(self, old: float, new: float) -> tuple[Estimate, Estimate] | None:
        """Recall and false positives per image at both default points; None without objects."""
        if not len(self.before):
            return None
        recalls = (float((scores > point).mean()) for scores, point in ((self.before, old), (self.after, new)))
        rates = _rate(self.base, old), float((self.wrong > new).sum()) / self.n_images
        before, after = (Estimate(recall, rate) for recall, rate in zip(recalls, rates, strict=True))
        return before, after


def keep_samples(training: Training, base: DetectorBase, scanned: ScannedImages) -> DetectorBase:
    """The base with crops to make it again from: all objects, the hardest negatives, and held-out false positives."""
    prepared, config = training.prepared, training.prepared.config
    choice, model = prepared.choice, cast("TreeModel", base.model)
    samples = training.samples
    windows = samples.all_negatives
    votes = model.votes.unlimited
    scores = np.concatenate([votes.scores(model.respond(windows[rows])) for rows in blocks(len(windows), AT_ONCE)])
    hardest = np.sort(np.argsort(-scores, kind="stable")[:MOST_NEGATIVES])
    n, places = len(samples.negatives), [samples.negatives.places, samples.held_out_negatives.places]
    parts = [places[0][hardest[hardest < n]], places[1][hardest[hardest >= n] - n]]
    rows: dict[Path, tuple[Background | None, Places, Boxes, Boxes]] = {
        image.path: (None, NO_PLACES, image.objects, np.empty((0, 4))) for image in prepared.annotations.images
    }
    for held_out, part in zip((False, True), parts, strict=True):
        images = training.backgrounds(held_out)
        for number, (path, image) in enumerate(zip(images.images, images.held, strict=True)):
            found = scanned.images[number] if held_out else None
            wrong = np.empty((0, 4)) if found is None else choice.box_offset.windows(found.boxes[:HELD_OUT_PER_IMAGE])
            objects = rows[path][2] if path in rows else np.empty((0, 4))
            rows[path] = image, part[part[:, 0] == number], objects, wrong
    cut = training.workers.map(
        _crops_of_image,
        repeat(prepared.family),
        repeat(choice),
        list(rows),
        *zip(*rows.values(), strict=True),
        lost=_no_crops,
    )
    crops = Crops.from_iterable(crop for part in cut for crop in part)
    settings = RefitSettings(
        config.seed,
        config.trees,
        len(scanned.readable),
        len(training.images.images),
        config.mirror,
        config.margin,
        None if config.window is None else (config.window[1], config.window[0]),
        config.copies_per_object,
    )
    return replace(base, crops=crops, settings=settings)


def _crops_of_image(
    family: FamilyTraining,
    choice: WindowChoice,
    path: Path,
    image: Background | None,
    places: Places,
    objects: Boxes,
    wrong: Boxes,
) -> list[Crop]:
    try:
        if not len(objects) + len(places) + len(wrong):
            return []
        pixels = family.read(path)
        negatives = np.empty((0, 4)) if image is None or not len(places) else image.boxes(places)
    except UnreadableImageError:
        return []
    name = bytes.fromhex(image_hash(pixels))
    rows = [
        *((OBJECT, box, window) for box, window in zip(objects, choice.windows(objects), strict=True)),
        *((BACKGROUND, window, window) for window in negatives),
        *((HELD_OUT, window, window) for window in wrong),
    ]
    return [Crop.cut(role, name, pixels, box, window, choice.window) for role, box, window in rows]


def _no_crops(*_: object) -> list[Crop]:
    return []


# --- Windows of crops -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Cut:
    """Crops with the boxes (4,) of their objects, and the windows that are cut from those to train on.

    `images` are those of the crops that are trained on, `image_of_positive` (n,) the numbers of those of the positives;
    `is_mistake` (m,) says which negatives are copies of detections that somebody called wrong.
    """

    choice: WindowChoice
    boxes: list[tuple[Crop, Floats]]
    samples: TreeSamples
    images: list[bytes]
    image_of_positive: Indices
    is_mistake: Bools
    box_of_negative: Boxes

    @property
    def objects(self) -> list[tuple[Crop, Floats]]:
        """The crops of objects, in the order of their numbers."""
        return [row for row in self.boxes if row[0].role == OBJECT]

    def n_learned_images(self, known: Crops) -> int:
        """The completely annotated images whose backgrounds were learned since the training."""
        old = {crop.image for crop in known}
        return len({crop.image for crop, _ in self.boxes if crop.role == BACKGROUND} - old)

    @cached_property
    def fold_of_image(self) -> Indices | None:
        """The fold (n,) of each image, as many with objects in each; None where a fold leaves too few images."""
        has_objects = np.isin(np.arange(len(self.images)), self.image_of_positive)
        if has_objects.sum() < FOLDS:
            return None
        fold, rng = np.empty(len(self.images), np.intp), np.random.default_rng(13)
        for part in (has_objects, ~has_objects):
            fold[part] = rng.permutation(int(part.sum())) % FOLDS
        others = fold[self.samples.images]
        return fold if all((others != k).any() for k in range(FOLDS)) else None

    def cross_validate(
        self, settings: RefitSettings, workers: Workers, progress: Callable[[int], None]
    ) -> CrossValidation:
        """Grow trees without the objects and the backgrounds of the images of each fold."""
        fold = self.fold_of_image
        if fold is None:
            return cross_validate(self.samples, settings.trees, settings.seed, workers, progress)
        own, others = fold[self.image_of_positive], fold[self.samples.images]
        subsets = [(np.flatnonzero(own != k), np.flatnonzero(others != k)) for k in range(FOLDS)]
        rng = np.random.default_rng([settings.seed, 13])
        grown = grow_models(self.samples, subsets, settings.trees, rng, workers, progress)
        return CrossValidation(tuple(grown), own)

    @classmethod
    def from_crops(
        cls,
        crops: Crops,
        base: DetectorBase,
        reporting: Reporting,
        threads: int | None,
        progress: Callable[[float], None],
    ) -> _Cut:
        """Choose the window by all objects, and cut; backgrounds that show a known object are left out."""
        family, settings, offset = ChannelTraining(), base.settings, reporting.box_offset
        assert settings is not None
        objects = crops.of(OBJECT)
        if len(objects) < FEWEST_OBJECTS:
            raise _too_few(len(objects))
        boxes = np.array([crop.box for crop in objects])
        # Single objects that were missed have other shapes than most: they do not choose the window.
        complete = {crop.image for crop in base.crops or ()} | {c.image for c in crops if c.role == BACKGROUND}
        choosing = np.array([crop.image in complete for crop in objects])
        choice = cell_window(boxes[choosing] if choosing.any() else boxes, settings.margin, settings.window)
        known: dict[bytes, Boxes] = {}
        for image in dict.fromkeys(crop.image for crop in objects):
            known[image] = boxes[[crop.image == image for crop in objects]]
        rows = []
        for crop in crops:
            box = np.array(crop.box)
            box = box if crop.role == OBJECT else offset.boxes(box[None])[0]
            near = crop.role in (BACKGROUND, BESIDE) and crop.image in known
            hidden = near and bool((box_iou(box[None], known[crop.image]) >= NEAR_OBJECT).any())
            if not hidden:
                rows.append((crop, box))
        if not any(crop.role == BACKGROUND for crop, _ in rows):
            raise _too_few(len(objects))
        copies = settings.copies or min(copies_for(len(objects)), MOST_COPIES)
        cutter = _Cutter(family, choice, copies, settings.seed)
        trained = [row for row in rows if row[0].role != HELD_OUT]
        windows: list[Windows] = []
        for part in map_in_order(
            cutter.block, [trained[rows] for rows in blocks(len(trained), CROPS_AT_ONCE)], threads
        ):
            windows += part
            progress(len(windows) / len(trained))
        is_object = [crop.role == OBJECT for crop, _ in trained]
        pairs = [part for part, flag in zip(windows, is_object, strict=True) if flag]
        mirrored = settings.mirror
        if mirrored == "safe":
            mirrored = is_safe_to_mirror(family.as_grey(np.array([pair[0, 0] for pair in pairs])))
        positives = np.concatenate([pair[:, : 1 + bool(mirrored)].reshape(-1, *pair.shape[2:]) for pair in pairs])
        numbers = np.repeat(np.arange(len(pairs)), copies * (1 + bool(mirrored)))
        others = [
            (part[:, 0], crop) for part, (crop, _), flag in zip(windows, trained, is_object, strict=True) if not flag
        ]
        names = {image: number for number, image in enumerate(sorted({crop.image for crop, _ in trained}))}
        n_windows = [len(part) for part, _ in others]
        images = np.repeat(np.array([names[crop.image] for _, crop in others], np.int32), n_windows)
        of_positives = np.array([names[crop.image] for crop in objects], np.intp)[numbers]
        columns = columns_of(positives, np.concatenate([part for part, _ in others]))
        return cls(
            choice,
            rows,
            TreeSamples(columns, numbers, images),
            list(names),
            of_positives,
            np.repeat([crop.role == MISTAKE for _, crop in others], n_windows),
            np.repeat(np.array([offset.boxes(np.array(crop.box)[None])[0] for _, crop in others]), n_windows, axis=0),
        )


def _too_few(n_objects: int) -> CannotLearnError:
    return CannotLearnError(
        f"got samples of {n_objects} objects; expected at least {FEWEST_OBJECTS}, and backgrounds beside them: learn "
        "completely annotated images, or train again"
    )


@dataclass(frozen=True, eq=False)
class _Cutter:
    family: ChannelTraining
    choice: WindowChoice
    copies: int
    seed: int

    def block(self, rows: Sequence[tuple[Crop, Floats]]) -> list[Windows]:
        """Windows of several crops."""
        return [self.windows(row) for row in rows]

    def windows(self, row: tuple[Crop, Floats]) -> Windows:
        """Windows (copies, 2, ...) of a crop with their mirror images; the first is the crop's own."""
        crop, box = row
        pixels = crop.pixels()
        own = crop.local(self.choice.windows(box[None]))[0]
        copies = {OBJECT: self.copies, MISTAKE: COPIES_OF_MISTAKES}.get(crop.role, 1)
        whole = np.array([crop.x, crop.y, crop.scale])
        rng = np.random.default_rng([self.seed, *crop.image, *whole.view(np.uint64).tolist()])
        places = [(own, 0.0), *(COPIES.draw(own, rng, by_shorter=True) for _ in range(copies - 1))]
        sides = crop.role == OBJECT
        return np.array([cut_sides(self.family, self.choice, pixels, *place, both=sides) for place in places])


# --- Detections in crops ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Found:
    """The best detection in a crop: its score, that over the score of its best window, and the responses to it."""

    score: float
    gain: float
    responses: Responses


def _best_in_crop(model: Model, row: tuple[Crop, Floats], offset: BoxOffset) -> _Found | None:
    """The best detection of what a crop shows."""
    crop, box = row
    window = crop.local(offset.windows(box[None]))[0]
    side, least = float((window[2:] - window[:2]).max()), SMALLEST * max(model.window)
    if LARGER * side < least:  # too small for any window
        return None
    pyramid = Pyramid.from_image(
        crop.pixels(),
        model.window,
        min_size=max(SMALLER * side, least),
        max_size=LARGER * side,
        grid=model.grid,
        threads=1,
    )
    if not pyramid.levels:
        return None
    detected = report(model.scan(pyramid, threads=1), offset=offset, by_object=model.grid.by_object)
    overlap = box_iou(crop.local(box[None]), detected.boxes)[0]
    hits = np.flatnonzero(overlap >= (FOUND if crop.role == OBJECT else SHOWN))
    if not len(hits):
        return None
    index, gain = best_windows(detected, hits[:1])
    return _Found(float(detected.scores[hits[0]]), float(gain[0]), model.responses(pyramid, index)[0])


def _each(
    scan: Callable[..., _Found | None], model: Model, rows: Sequence[tuple[Crop, Floats]], threads: int | None
) -> Iterator[_Found | None]:
    return map_in_order(lambda row: scan(model, row), rows, threads)


def _unseen_scores(
    cut: _Cut, validation: CrossValidation, trees: BoostedTrees, model: TreeModel, threads: int | None
) -> dict[int, float]:
    """The score of each object by trees that were not grown on it, on the scale of all trees; -inf if not found."""
    objects = cut.objects
    _, first = np.unique(cut.samples.objects, return_index=True)
    fold, window = validation.fold[first], cut.choice.window
    least, scores = float(model.votes.threshold[0]), dict[int, float]()
    gap = float(trees.median[-1] - trees.median_negative[-1])
    limits = model.votes.limits[3::4]
    for k, other in enumerate(validation.folds):
        ratio = float(other.median[-1] - other.median_negative[-1]) / gap
        own_least = float(other.median_negative[-1]) + (least - float(trees.median_negative[-1])) * ratio
        unseen = fold_model(other, trees, window, limits, own_least)
        numbers: Indices = np.flatnonzero(fold == k)
        scan = partial(_best_in_crop, offset=cut.choice.box_offset)
        found = _each(scan, unseen, [objects[i] for i in numbers.tolist()], threads)
        scores |= {
            i: -np.inf if part is None else part.score / ratio for i, part in zip(numbers.tolist(), found, strict=True)
        }
    return scores


def _unseen_wrong(cut: _Cut, validation: CrossValidation, trees: BoostedTrees, least: float) -> Floats:
    """The scores above `least` of backgrounds by trees without their images; of those that overlap, only the best."""
    fold = cut.fold_of_image
    if fold is None:
        return np.empty(0)
    samples, scores = cut.samples, np.full(len(cut.samples.images), -np.inf)
    low, gap = float(trees.median_negative[-1]), float(trees.median[-1] - trees.median_negative[-1])
    for k, other in enumerate(validation.folds):
        rows = np.flatnonzero((fold[samples.images] == k) & ~cut.is_mistake)
        sums = other.running_scores(np.ascontiguousarray(samples.negatives[:, rows]))[-1]
        ratio = gap / float(other.median[-1] - other.median_negative[-1])
        scores[rows] = low + (sums - float(other.median_negative[-1])) * ratio - least
    kept = [np.empty(0)]
    for image in np.unique(samples.images[scores > 0]).tolist():
        rows = np.flatnonzero((samples.images == image) & (scores > 0))
        kept.append(suppress_non_maxima(cut.box_of_negative[rows], scores[rows], iou=IOU).scores)
    return np.concatenate(kept)
