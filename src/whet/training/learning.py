"""Learning from many images: corrections of boxes, examples from crops, and what they change, before and after."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import repeat
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet.arrays import Pixels
from whet.corrections.box_windows import ALIGNED, SAME, example_record
from whet.corrections.records import Record, check_site, image_hash
from whet.corrections.sampling import object_sample
from whet.detector.base import setbacks
from whet.detector.detector import Detector, nearest_shape
from whet.detector.shape import ShapeDetector
from whet.detector.state import Update
from whet.errors import BoxError, CannotLearnError, DataNotFoundError, UnreadableImageError
from whet.evaluation.runs import EvaluationRun, evaluate_on
from whet.images.boxes import BoxOffset, box_iou, intersection_over_first
from whet.images.pyramid import Pyramid, WindowIndex, level_at
from whet.io.annotations.annotation import AnnotatedImage, Boxes, Examples, check_disjoint
from whet.parallel.workers import ALL_THREADS, Workers, lost_image

Flags = NDArray[np.bool_]
Progress = Callable[[float], None]

BeforeAfter = tuple[EvaluationRun, EvaluationRun]

# A box that is marked as a false positive is that of a detection from this IoU on: it may be drawn roughly.
ROUGHLY = 0.25


@dataclass(frozen=True, eq=False)
class MarkedImage:
    """An image file and single boxes (n, 4) of it: True (n,) for a missed object, False for a false positive."""

    path: Path
    boxes: Boxes
    is_object: Flags


@dataclass(frozen=True, eq=False)
class LearningInput:
    """What to learn from: images with all their boxes, single boxes, and crops that one object fills.

    >>> shared = [Path("a.png")]
    >>> LearningInput(Examples((AnnotatedImage(shared[0], (9, 9)),)), crops=shared)
    Traceback (most recent call last):
    whet.errors.AnnotationError: a.png is given both with and without the object; remove it from one set
    """

    examples: Examples = field(default_factory=lambda: Examples(()))
    marked: Sequence[MarkedImage] = ()
    crops: Sequence[Path] = ()

    def __post_init__(self) -> None:
        """Raise `AnnotationError` if an image without the object is also given with it."""
        with_object = [image.path for image in self.marked if image.is_object.any()]
        check_disjoint([*self.crops, *with_object], [i.path for i in self.examples.images if _is_empty(i)])

    def __len__(self) -> int:
        """Number of images."""
        return len(self.examples.images) + len(self.marked) + len(self.crops)

    @property
    def paths(self) -> list[Path]:
        """All image files."""
        annotated = [image.path for image in self.examples.images]
        return [*annotated, *(image.path for image in self.marked), *self.crops]

    @property
    def n_objects(self) -> int:
        """Number of objects, in boxes and in crops."""
        return self.examples.n_objects + sum(int(image.is_object.sum()) for image in self.marked) + len(self.crops)


def _is_empty(image: AnnotatedImage) -> bool:
    """Whether an image is known to have no object."""
    return not len(image) and image.is_complete


def tight_crop_warning(given: LearningInput, offset: BoxOffset) -> str | None:
    """A warning if objects fill their images, and the detector's windows are larger than the boxes that it reports.

    A crop has no pixels around the object: the window that is learned is too small, or none fits.

    >>> tight = AnnotatedImage(Path("a.png"), (20, 40), np.array([[0.0, 0, 40, 20]]), ("van",), np.array([False]))
    >>> print(tight_crop_warning(LearningInput(Examples((tight,))), BoxOffset(0.1, 0.1, 0.9, 0.9)))
    1 image has no margin around the object, but the windows of this detector are 1.25 times as large as the object; ...
    >>> tight_crop_warning(LearningInput(Examples((tight,))), BoxOffset())
    """
    n = sum(image.is_filled for image in given.examples.images) + len(given.crops)
    ratio = 1 / max(offset.size)
    # A window may be this much larger than its box before crops are too tight.
    if not n or ratio < 1.05:
        return None
    images = "1 image has" if n == 1 else f"{n:,} images have"
    return (
        f"{images} no margin around the object, but the windows of this detector are {ratio:.3g} times as large as the "
        "object; use whole images with boxes (--annotations), or crops with a margin"
    )


def false_positives(detected: Boxes, image: AnnotatedImage) -> Boxes:
    """Those of the detected boxes (n, 4) that are neither an object of the image nor in a region to ignore.

    In an image whose annotations are incomplete, any detection may be an object: none is a false positive.

    >>> car = AnnotatedImage(Path("a.png"), (50, 90), np.array([[0.0, 0, 40, 20]]), ("car",), np.array([False]))
    >>> false_positives(np.array([[1.0, 0, 40, 20], [50, 0, 90, 20]]), car)
    array([[50.,  0., 90., 20.]])
    """
    if not image.is_complete:
        return detected[:0]
    is_object = (box_iou(detected, image.objects) >= SAME).any(axis=1)
    inside = (intersection_over_first(detected, image.ignored) >= SAME).any(axis=1)
    alike = (box_iou(detected, image.ignored) >= SAME).any(axis=1)
    return detected[~(is_object | inside | alike)]


@dataclass(eq=False)
class LearningReport:
    """Records made from images, numbers of boxes and crops, and the boxes and images that were skipped.

    `undetected` are the boxes that were marked as false positives, although the detector detects nothing there.
    """

    records: list[Record] = field(default_factory=list)
    n_objects: int = 0
    n_false_positives: int = 0
    n_examples: int = 0
    n_backgrounds: int = 0
    skipped_boxes: list[str] = field(default_factory=list)
    undetected: list[str] = field(default_factory=list)
    unread: list[UnreadableImageError] = field(default_factory=list)

    def __add__(self, other: LearningReport) -> LearningReport:
        return LearningReport(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def read(self, detector: Detector, path: Path) -> Pixels | None:
        """The image as the detector looks at it; or None, and one more that cannot be read."""
        try:
            return detector.shapes()[0].pixels(path)
        except UnreadableImageError as error:
            self.unread.append(error)
            return None

    def add_boxes(
        self,
        detector: Detector,
        path: Path,
        boxes: Boxes,
        is_object: Flags,
        texts: dict[str, str],
        options: dict[str, Any],
        ignored: Boxes | None = None,
    ) -> None:
        """Correct boxes (n, 4) of an image; those that fit no window are skipped.

        With `ignored` regions (m, 4), all objects of the image are among the boxes.
        """
        learns_rest = ignored is not None and detector.can_refit
        pixels = self.read(detector, path) if len(boxes) or learns_rest else None
        if pixels is None:
            return
        options = {**options, **texts, "name": path.name}
        if learns_rest:
            options |= {"all_objects": boxes[is_object], "ignored": ignored}
        try:
            new = detector.new_records(pixels, boxes, is_object, **options)
        except BoxError:
            new = list(self._fitting(detector, path, pixels, boxes, is_object, options))
        self.records += new
        self.n_objects += sum(record.is_object for record in new)
        self.n_false_positives += sum(record.kind == "correction" and not record.is_object for record in new)
        self.n_backgrounds += sum(record.kind == "sample" and not record.is_object for record in new)

    def _fitting(
        self,
        detector: Detector,
        path: Path,
        pixels: Pixels,
        boxes: Boxes,
        is_object: Flags,
        options: dict[str, Any],
    ) -> Iterator[Record]:
        """One box after the other; the windows of a false positive depend on the objects that fit."""
        background = {name: options[name] for name in ("all_objects", "ignored") if name in options}
        options = {name: value for name, value in options.items() if name not in background}
        if background:
            yield from detector.new_records(pixels, boxes[:0], is_object[:0], **options, **background)
        objects = np.empty((0, 4))
        for box, label in sorted(zip(boxes, is_object.tolist(), strict=True), key=lambda pair: not pair[1]):
            try:
                if label:
                    yield from detector.new_records(pixels, box[None], True, **options)
                    objects = np.concatenate([objects, box[None]])
                else:
                    together = np.concatenate([objects, box[None]])
                    new = detector.new_records(pixels, together, np.arange(len(together)) < len(objects), **options)
                    yield from (record for record in new if not record.is_object)
            except BoxError as error:
                self.skipped_boxes.append(f"{path}: {error}")

    def note_undetected(self, detector: Detector, marked: MarkedImage, options: dict[str, Any]) -> None:
        """Note the boxes that are marked as false positives, but that no detection overlaps, not even of the base."""
        left = marked.boxes[~marked.is_object]
        try:
            for one in (detector, detector.as_trained()):  # the base: an earlier correction may hold already
                if len(left):
                    found = one.detect(marked.path, **options).boxes
                    left = left[~(box_iou(left, found) >= ROUGHLY).any(axis=1)]
        except UnreadableImageError:  # reported where it is learned
            return
        self.undetected += [f"{marked.path}: box {_as_text(box)}" for box in left.tolist()]

    def add_crop(self, detector: Detector, path: Path, weight: int, texts: dict[str, str]) -> None:
        """Learn a crop that one object fills as an ordinary example; one that fits no window is skipped."""
        pixels = self.read(detector, path)
        if pixels is None:
            return
        shapes = detector.shapes()
        nearest = nearest_shape(shapes, np.array([[0.0, 0.0, pixels.shape[1], pixels.shape[0]]])).item()
        try:
            record = crop_record(shapes[nearest], pixels, weight)
        except BoxError as error:
            self.skipped_boxes.append(f"{path}: {error}")
            return
        self.records.append(record.described(int(time.time()), path.name, texts["note"], texts["site"]))
        self.n_examples += 1


def _as_text(box: Sequence[float]) -> str:
    """A box x1, y1, x2, y2 as x,y,w,h, as options take it."""
    x1, y1, x2, y2 = box
    return ",".join(f"{value:.6g}" for value in (x1, y1, x2 - x1, y2 - y1))


def crop_record(detector: ShapeDetector, pixels: Pixels, weight: int = 1) -> Record:
    """An example of an image that one object fills, which counts `weight` times; of a detector with samples, a sample.

    The window of an example is the one whose reported box is nearest to the whole image. Raises `BoxError` where it is
    far from it.

    >>> from whet.detector.storage import load
    >>> crop_record(load("face").only, np.zeros((9, 9), np.uint8))
    Traceback (most recent call last):
    whet.errors.BoxError: got a crop of 9 x 9 pixels; expected one that is at least about 27 x 30 and of that shape
    """
    (height, width), (rows, columns) = detector.window, pixels.shape[:2]
    whole, image = np.array([[0.0, 0.0, columns, rows]]), image_hash(pixels)
    if detector.base.crops is not None:
        sample = object_sample(detector.base.model, detector.box_offset, pixels, image, whole[0])
        return replace(sample, base_id=detector.base_id)
    x1, y1, x2, y2 = detector.box_offset.windows(whole)[0].tolist()
    scale = min(sqrt((y2 - y1) / height * (x2 - x1) / width), rows / height, columns / width)
    if scale >= 1:
        level = level_at(pixels, scale)
        y, x = (
            int(np.clip(round((first + last) / 2 / zoom - side / 2), 0, room - side))
            for first, last, zoom, side, room in (
                (y1, y2, level.scale_y, height, level.image.shape[0]),
                (x1, x2, level.scale_x, width, level.image.shape[1]),
            )
        )
        index = WindowIndex(np.array([scale]), np.array([y], np.intp), np.array([x], np.intp))
        box = detector.box_offset.boxes(level.boxes(index.y, index.x, detector.window))
        if box_iou(box, whole)[0, 0] >= ALIGNED:
            pyramid = Pyramid(pixels.shape, detector.window, (scale,), (level,))
            record = example_record(detector.base.model, pyramid, image, whole[0], index, True, weight)
            assert record is not None  # only negatives without contrast are left out
            return replace(record, base_id=detector.base_id)
    size = detector.box_offset.size
    raise BoxError(
        f"got a crop of {columns} x {rows} pixels; expected one that is at least about {width * size[1]:.0f} x "
        f"{height * size[0]:.0f} and of that shape"
    )


@dataclass(frozen=True, eq=False)
class NewDetection:
    """A box (4,) of an image that is detected now, and was not before."""

    path: Path
    box: Boxes
    score: float


@dataclass(frozen=True, eq=False)
class LearningRun:
    """The new detector, what it learned, and evaluations before and after: on the examples and on held-out images.

    `appeared` are new detections in images with single boxes, but for the objects that were marked there. `refit` are
    the estimates of the model that was made again, if it was; where it is worse, the detector keeps the earlier one.
    """

    detector: Detector
    update: Update
    report: LearningReport
    on_examples: BeforeAfter | None = None
    held_out: BeforeAfter | None = None
    appeared: tuple[NewDetection, ...] = ()
    refit: Update | None = None
    is_refit_kept: bool = False

    @property
    def setbacks(self) -> list[str]:
        """What became worse, on the held-out images or else by the estimate; empty if nothing did."""
        if self.held_out is not None:
            return held_out_setbacks(*self.held_out)
        return self.update.setbacks


def held_out_setbacks(before: EvaluationRun, after: EvaluationRun) -> list[str]:
    """What is worse on held-out images than before."""
    # Held-out results are worse if recall falls by more, or if there are more false positives.
    return setbacks(
        before.recall - after.recall > 0.003,
        after.n_false_positives > before.n_false_positives,
        (before.recall, after.recall),
        (before.n_false_positives / len(before.paths), after.n_false_positives / len(after.paths)),
    )


def learn_from(
    detector: Detector,
    given: LearningInput,
    *,
    weight: int = 1,
    note: str = "",
    site: str = "",
    held_out: Sequence[AnnotatedImage] = (),
    min_score: float | str | None = None,
    refit: bool = False,
    force: bool = False,
    progress: Progress = lambda _: None,
    refit_progress: Callable[[str, float], None] = lambda *_: None,
    workers: Workers = ALL_THREADS,
    **options: Any,  # noqa: ANN401 - those of Detector.learn, which checks them
) -> LearningRun:
    """Correct a copy of a detector of one class by all that is given; it does not change itself.

    In images of `given.examples` each box is the object, and each detection of the base away from all boxes is a false
    positive. So the corrections do not depend on what was learned before. Crops count `weight` times each. `note` and
    `site` are kept with all records. With `refit`, the model is made again from all samples, and kept if it is not
    worse by the estimates, or with `force`. `progress` is called with the fraction done. Each of the `workers` reads
    and scans an image of its own.

    >>> from whet.detector.storage import load
    >>> learn_from(load("face"), LearningInput(Examples.from_annotations(negatives=[Path("nowhere.png")])))
    Traceback (most recent call last):
    whet.errors.DataNotFoundError: got no image to learn from; 1 could not be read: nowhere.png cannot be ...
    """
    detector.check_can_learn(examples=bool(given.crops) and not detector.can_refit)
    if weight != 1 and detector.can_refit:
        raise CannotLearnError(
            f"got weight {weight}; crops of this detector are samples of the next refit, which count once: leave it out"
        )
    check_site(site)
    images, unread = given.examples.images, given.examples.unread
    if not len(given):
        first = f"; {len(unread)} could not be read: {unread[0]}" if unread else ""
        raise DataNotFoundError(f"got no image to learn from{first}")
    is_base = not detector.records and all(not shape.counts or shape.counts.is_empty for shape in detector.shapes())
    n, m = len(images), len(held_out)
    scans = (n, 0 if is_base else n, m, len(given), n, m)
    parts = _ProgressParts(progress, [size for size in scans if size])

    def measure(one: Detector, over: Sequence[AnnotatedImage]) -> EvaluationRun:
        return evaluate_on(workers, one, over, min_score=min_score, progress=parts.next(), **options)

    trained = measure(detector.as_trained(), images) if images else None
    before = trained if is_base or not images else measure(detector, images)
    held_before = measure(detector, held_out) if held_out else None
    inner = {**options, "min_score": min_score, "threads": workers.threads_of_task(len(given))}
    report = _collect(
        workers, _Learner(detector, weight, {"note": note, "site": site}, inner), given, trained, parts.next()
    )
    corrected = detector.copy()
    update = corrected.add(report.records)
    refitted, is_kept = None, False
    if refit and corrected.needs_refit:
        again = corrected.copy()
        refitted = again.refit(workers=workers, progress=refit_progress)
        is_kept = force or not refitted.setbacks
        corrected = again if is_kept else corrected
    on_examples = None if before is None else (before, measure(corrected, images))
    held = None if held_before is None else (held_before, measure(corrected, held_out))
    return LearningRun(
        corrected,
        update,
        report,
        on_examples,
        held,
        _appeared(detector, corrected, given.marked, inner),
        refitted,
        is_kept,
    )


def _appeared(
    before: Detector, after: Detector, marked: Sequence[MarkedImage], options: dict[str, Any]
) -> tuple[NewDetection, ...]:
    """Where a false positive is gone, a window beside it may become a detection: new ones, best first."""
    found = []
    for path in dict.fromkeys(each.path for each in marked):
        objects = np.concatenate([each.boxes[each.is_object] for each in marked if each.path == path])
        try:
            old, new = (one.detect(path, **options) for one in (before, after))
        except UnreadableImageError:  # reported where it is learned
            continue
        is_new = ~(box_iou(new.boxes, old.boxes) >= SAME).any(axis=1)
        is_new &= ~(box_iou(new.boxes, objects) >= ROUGHLY).any(axis=1)
        found += [NewDetection(path, new.boxes[i], float(new.scores[i])) for i in np.flatnonzero(is_new)]
    return tuple(sorted(found, key=lambda one: -one.score))


@dataclass(frozen=True, eq=False)
class _Learner:
    """Makes records of single images; `texts` are note and site, the options those of `Detector.new_records`."""

    detector: Detector
    weight: int
    texts: dict[str, str]
    options: dict[str, Any]

    def boxes(self, path: Path, boxes: Boxes, is_object: Flags, ignored: Boxes | None = None) -> LearningReport:
        """Correct boxes (n, 4) of an image whose detections are known."""
        report = LearningReport()
        report.add_boxes(self.detector, path, boxes, is_object, self.texts, self.options, ignored)
        return report

    def marked(self, path: Path, boxes: Boxes, is_object: Flags) -> LearningReport:
        """Correct boxes (n, 4) of an image, and note those at which nothing is detected."""
        report = LearningReport()
        report.note_undetected(self.detector, MarkedImage(path, boxes, is_object), self.options)
        return report + self.boxes(path, boxes, is_object)

    def crop(self, path: Path) -> LearningReport:
        """Count a crop."""
        report = LearningReport()
        report.add_crop(self.detector, path, self.weight, self.texts)
        return report


def _collect(
    workers: Workers, learner: _Learner, given: LearningInput, trained: EvaluationRun | None, progress: Progress
) -> LearningReport:
    """Make the records of all images; `trained` are the detections of the base."""
    detected = {} if trained is None else _detected(trained)
    rows: list[tuple[str, Path, tuple[Any, ...]]] = []  # a method of the learner, the image, further arguments
    for image in given.examples.images:
        if image.path in detected:  # those that cannot be read are reported by the evaluation
            wrong = false_positives(detected[image.path], image)
            boxes = np.concatenate([image.objects, wrong])
            is_object = np.arange(len(boxes)) < len(image.objects)
            rows.append(("boxes", image.path, (boxes, is_object, image.ignored if image.is_complete else None)))
    rows += [("marked", each.path, (each.boxes, each.is_object)) for each in given.marked]
    rows += [("crop", path, ()) for path in given.crops]
    held, columns = workers.share(learner), zip(*rows, strict=True)
    report = LearningReport()
    for done, part in enumerate(workers.map(_learn_image, repeat(held), *columns, lost=_lost), start=1):
        report += part
        progress(done / len(rows))
    return report


def _learn_image(learner: _Learner, kind: str, path: Path, arguments: tuple[Any, ...]) -> LearningReport:
    found: LearningReport = getattr(learner, kind)(path, *arguments)
    return found


def _lost(_: object, __: str, path: Path, *___: object) -> LearningReport:
    return LearningReport(unread=[lost_image(path)])


def _detected(run: EvaluationRun) -> dict[Path, Boxes]:
    """Boxes (n, 4) above the minimum score in each image that could be read."""
    results = zip(run.paths, run.evaluation.images, strict=True)
    return {path: result.boxes[result.scores > run.threshold] for path, result in results}


class _ProgressParts:
    """Progress of several parts that take different times, as one fraction."""

    def __init__(self, progress: Callable[[float], None], sizes: Sequence[int]) -> None:
        self._progress, self._sizes, self._number = progress, sizes, 0

    def next(self) -> Callable[[float], None]:
        done, size, total = sum(self._sizes[: self._number]), self._sizes[self._number], sum(self._sizes)
        self._number += 1
        return lambda share: self._progress((done + share * size) / total)
