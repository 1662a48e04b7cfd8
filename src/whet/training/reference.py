"""The reference set of a trained detector: responses to held-out objects, and to hard places of held-out images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet._kernels.workers import ALL_THREADS, Workers
from whet.cascade.boxes import BoxOffset, box_iou, intersection_over_first
from whet.cascade.cascade import Cascade
from whet.cascade.detect import IOU, report, suppress_non_maxima
from whet.cascade.detections import Detections, FiredWindows
from whet.cascade.pyramid import Pyramid, WindowIndex
from whet.cascade.scan import scan_pyramid
from whet.detector.base import DetectorBase
from whet.detector.corrections import NEAR, Windows
from whet.detector.detector import Detector
from whet.detector.reference import GUARD_NEGATIVE, GUARD_POSITIVE, NEGATIVE, POSITIVE, Reference
from whet.errors import UnreadableImageError
from whet.io.images import read_grey
from whet.training.negatives import ExcludedBoxes
from whet.training.positives import Variations

Patches = NDArray[np.uint8]
Bits = NDArray[np.uint8]
Boxes = NDArray[np.float64]
Found = tuple[Bits, NDArray[np.float64]]  # responses (n, weak learners) and gains (n,)

# Of each kind, in each half: with 1,350 weak learners, half a megabyte in all.
MOST_POSITIVES = 750
MOST_NEGATIVES = 750
# Of the negatives of the first half, the nearest to acceptance guard. With 1,000 of them, 20 corrected misses lowered
# all scores, and recall by 2.6 points; with 300, by 0.7, at as many false positives as before (development images).
GUARDS = 300
# Rejected places of an image, besides all that the base accepts there: corrections may let them through.
REJECTED_PER_IMAGE = 4
# Windows of an image among which these places are chosen: a weak detector nearly accepts a hundred thousand.
MOST_NEAR = 2000
# Variations of each guarding object.
VARIATIONS = 6
HARDER = Variations(shift=0.02, scale=0.05, angle=8.0, noise=0.6, blur=1.2)
# Windows of a judging object, from the best to the least that fires: it is lost when all of them are.
WINDOWS_PER_OBJECT = 3
# Pixels around a held-out object, repeated from its rim: room for the windows that fire around it.
RIM = 0.25


def make_reference(
    base: DetectorBase,
    positives: Patches,
    images: Sequence[Path],
    *,
    groups: NDArray[np.intp] | None = None,
    excluded_boxes: ExcludedBoxes | None = None,
    offset: BoxOffset | None = None,
    seed: int = 0,
    workers: Workers = ALL_THREADS,
    progress: Callable[[float], None] = lambda _: None,
) -> Reference:
    """Responses to held-out objects (n, height, width), and to hard places of held-out images outside of some boxes.

    Patches with the same number in `groups` (n,) show the same object. Whole images are taken, in random order, until
    there are enough places. Every other object and image guards, the others judge.
    """
    rng = np.random.default_rng([seed, 7])
    samples = _Samples([], [], [], [])
    _, objects = np.unique(np.arange(len(positives)) if groups is None else groups, return_inverse=True)
    order = rng.permutation(len(positives))[: 2 * MOST_POSITIVES]
    guarding = np.sort(order[objects[order] % 2 == 0])
    samples.add(_hardest(base, _varied(base, positives[guarding], rng)), GUARD_POSITIVE)
    judging = np.sort(order[objects[order] % 2 == 1])
    for number, i in enumerate(judging.tolist()):
        samples.add(_windows_of_object(base, positives[i], workers.threads), POSITIVE, one_item=True)
        progress(0.3 * (number + 1) / len(judging))
    n_judging, n_places = 0, [0, 0]
    paths = [images[i] for i in rng.permutation(len(images)).tolist()]
    found = workers.map(
        _hard_places,
        paths,
        map((excluded_boxes or {}).get, paths),
        repeat(workers.share(base)),
        repeat(offset or BoxOffset()),
        lost=_nothing,
    )
    for number, hard in enumerate(found):
        half = number % 2
        if min(n_places) >= MOST_NEGATIVES:
            break
        if hard is None or n_places[half] >= MOST_NEGATIVES:
            continue
        samples.add(hard, (GUARD_NEGATIVE, NEGATIVE)[half])
        n_places[half] += len(hard[0])
        n_judging += half
        progress(0.3 + 0.7 * min(min(n_places) / MOST_NEGATIVES, 1.0))
    return _with_nearest_guards(base, samples.reference(base.cascade.n_weak, n_judging))


def with_judging_places(
    detector: Detector, images: Sequence[Path], excluded_boxes: ExcludedBoxes, workers: Workers = ALL_THREADS
) -> Reference:
    """The reference set of a channel detector, with its false positives in held-out images as judging negatives."""
    reference = detector.base.reference
    assert reference is not None
    samples, n_images = _Samples([], [], [], []), 0
    boxes = map(excluded_boxes.get, images)
    for places in workers.map(_judging_places, images, boxes, repeat(workers.share(detector)), lost=_nothing):
        if places is not None:
            samples.add(places, NEGATIVE)
            n_images += 1
    added = samples.reference(reference.n_weak, n_images)
    first = int(reference.item.max(initial=-1)) + 1
    return Reference(
        np.concatenate([reference.responses, added.responses]),
        np.concatenate([reference.part, added.part]),
        np.concatenate([reference.gain, added.gain]),
        np.concatenate([reference.item, added.item + np.int32(first)]),
        n_images,
        reference.n_weak,
    )


def _judging_places(path: Path, excluded: Boxes | None, detector: Detector) -> Found | None:
    """The best windows of the false positives in an image; None if it cannot be read."""
    try:
        pixels = detector.pixels(path)
    except UnreadableImageError:
        return None
    found = detector.detect_pixels(pixels, min_score=-np.inf, threads=1)
    outside = np.flatnonzero(is_outside(found.boxes, excluded))[:MOST_NEGATIVES]
    index, gains = _best_windows(found, outside)
    return detector.cascade.responses(detector.pyramid(pixels, threads=1), index), gains


def _nothing(*_: object) -> None:
    """Places of an image with which workers died."""


def _with_nearest_guards(base: DetectorBase, reference: Reference) -> Reference:
    """The same with only those guarding negatives that the base is nearest to accepting."""
    guards = np.flatnonzero(reference.part == GUARD_NEGATIVE)
    closeness = (base.cascade.margins(reference.of(GUARD_NEGATIVE)) / base.lengths).min(axis=1, initial=np.inf)
    kept = np.ones(len(reference.part), np.bool_)
    kept[guards[np.argsort(-closeness, kind="stable")[GUARDS:]]] = False
    return replace(
        reference,
        responses=reference.responses[kept],
        part=reference.part[kept],
        gain=reference.gain[kept],
        item=reference.item[kept],
    )


@dataclass(frozen=True, eq=False)
class _Samples:
    """Responses, gains and parts, collected one call after the other."""

    responses: list[Bits]
    gains: list[NDArray[np.float64]]
    parts: list[NDArray[np.uint8]]
    sizes: list[int]

    def add(self, found: Found, part: int, *, one_item: bool = False) -> None:
        self.responses.append(found[0])
        self.gains.append(found[1])
        self.parts.append(np.full(len(found[0]), part, np.uint8))
        self.sizes.extend([len(found[0])] if one_item else [1] * len(found[0]))

    def reference(self, n_weak: int, n_images: int) -> Reference:
        responses = np.concatenate([np.empty((0, n_weak), np.uint8), *self.responses])
        part = np.concatenate([np.empty(0, np.uint8), *self.parts])
        gain = np.concatenate([np.empty(0), *self.gains])
        # Samples that are no detections have no gain of their own: that of a typical one of their class.
        for kinds in ((POSITIVE, GUARD_POSITIVE), (NEGATIVE, GUARD_NEGATIVE)):
            unknown = np.isnan(gain) & np.isin(part, kinds)
            known = gain[~np.isnan(gain) & np.isin(part, kinds)]
            gain[unknown] = np.median(known) if len(known) else 1.0
        item = np.repeat(np.arange(len(self.sizes), dtype=np.int32), self.sizes)
        return Reference(np.packbits(responses, axis=1), part, gain.astype(np.float32), item, n_images, n_weak)


def _varied(base: DetectorBase, positives: Patches, rng: np.random.Generator) -> Windows:
    """Turned, blurred and noisy variations of objects that the base accepts."""
    (height, width), rim = base.window, [round(RIM * side) for side in base.window]
    box = rim[1], rim[0], rim[1] + width, rim[0] + height
    varied = [
        HARDER.cut(np.pad(patch, [(side, side) for side in rim], mode="edge"), box, base.window, VARIATIONS, rng)
        for patch in positives
    ]
    found = Windows.from_patches(
        base, *_all(np.concatenate([np.empty((0, *base.window), np.uint8), *varied])), near=0.0
    )
    return found.take(np.flatnonzero(base.cascade.scores_of_responses(found.responses) > 0))


def _hardest(base: DetectorBase, found: Windows) -> Found:
    """Those that the base only just accepts: the first that would be lost."""
    chosen = np.sort(np.argsort(found.closeness(base), kind="stable")[:MOST_POSITIVES])
    return found.responses[chosen], np.full(len(chosen), np.nan)


def _all(patches: Patches) -> tuple[WindowIndex, Patches]:
    """Patches without a place in any image."""
    nowhere = np.zeros(len(patches), np.intp)
    return WindowIndex(np.ones(len(patches)), nowhere, nowhere), patches


def _windows_of_object(base: DetectorBase, patch: Patches, threads: int | None) -> Found:
    """The best and some lesser windows on an object with a rim around it; where none fires, the object itself."""
    height, width = base.window
    rim = round(RIM * height), round(RIM * width)
    padded = np.pad(patch, [(side, side) for side in rim], mode="edge")
    pyramid = Pyramid.from_image(padded, base.window, threads=threads)
    found = report(scan_pyramid(base.cascade, pyramid, threads=threads))
    box = np.array([[rim[1], rim[0], rim[1] + width, rim[0] + height]], np.float64)
    hits = np.flatnonzero(box_iou(box, found.boxes)[0] >= 0.5)
    if not len(hits):
        return base.cascade.respond(patch[None])[0], np.array([np.nan])
    rows = found.windows_of(int(hits[0]))
    rows = rows[np.argsort(-found.windows.scores[rows], kind="stable")]
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, WINDOWS_PER_OBJECT).astype(int))]
    gain = found.scores[hits[0]] / found.windows.scores[rows[0]]
    return base.cascade.respond(pyramid.patches(found.windows.index.take(rows)))[0], np.full(len(rows), gain)


def _hard_places(path: Path, excluded: Boxes | None, base: DetectorBase, offset: BoxOffset) -> Found | None:
    """The best window of every detection that is no object, and of the places that are nearest to being one.

    None if the image cannot be read.
    """
    try:
        pyramid = Pyramid.from_image(read_grey(path), base.window, threads=1)
    except UnreadableImageError:
        return None
    nothing = np.empty((0, base.cascade.n_weak), np.uint8)
    if not pyramid.levels:
        return nothing, np.empty(0)
    found = report(scan_pyramid(base.cascade, pyramid, threads=1))
    found = found[is_outside(offset.boxes(found.boxes), excluded)]
    near = scan_pyramid(_loosened(base), pyramid, threads=1)
    near = near.take(np.argsort(-near.scores, kind="stable")[:MOST_NEAR])
    is_far = ~(box_iou(near.boxes, found.boxes) >= IOU).any(axis=1) & is_outside(offset.boxes(near.boxes), excluded)
    near = near.take(is_far)
    index, gains = _best_windows(found, np.arange(len(found)))
    index = WindowIndex.concatenate([index, _separate(near, REJECTED_PER_IMAGE)])
    gains = np.concatenate([gains, np.full(len(index) - len(gains), np.nan)])
    return base.cascade.respond(pyramid.patches(index))[0] if len(index) else nothing, gains


def is_outside(boxes: NDArray[np.float64], excluded: NDArray[np.float64] | None) -> NDArray[np.bool_]:
    """Which boxes (n, 4) neither overlap one of the excluded boxes much nor lie in it."""
    if excluded is None or not len(excluded):
        return np.ones(len(boxes), np.bool_)
    overlaps = (box_iou(boxes, excluded) >= IOU) | (intersection_over_first(boxes, excluded) >= 0.5)
    return np.asarray(~overlaps.any(axis=1))


def _loosened(base: DetectorBase) -> Cascade:
    """The cascade with all thresholds lowered by as much as corrections may be concerned with."""
    pairs = zip(base.cascade.stages, base.lengths.tolist(), strict=True)
    stages = tuple(stage.loosened(NEAR * length) for stage, length in pairs)
    return replace(base.cascade.full, stages=stages)


def _best_windows(found: Detections, which: NDArray[np.intp]) -> tuple[WindowIndex, NDArray[np.float64]]:
    """The best window of each of some detections, and the detection's score over that window's."""
    windows = [found.windows_of(i) for i in which.tolist()]
    best = np.array([rows[np.argmax(found.windows.scores[rows])] for rows in windows], np.intp)
    return found.windows.index.take(best), found.scores[which] / found.windows.scores[best]


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
