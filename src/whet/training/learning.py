"""Learning from many annotated images, evaluated before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet.cascade.boxes import BoxOffset, box_iou, intersection_over_first
from whet.cascade.cascade import Cascade, LearningStage
from whet.detector.corrections import SAME
from whet.detector.detector import Detector
from whet.detector.records import CORRECTION_SHARE, Record, default_weight
from whet.errors import AnnotationError, BoxError, DataNotFoundError, UnreadableImageError
from whet.evaluation.runs import EvaluationRun, evaluate
from whet.io.annotations.annotation import ONLY_CLASS, AnnotatedImage, Boxes
from whet.io.images import image_shape, read_grey

Grey = NDArray[np.uint8]

# All objects of one call together count this share of the base's positives.
TOGETHER = 0.25

BeforeAfter = tuple[EvaluationRun, EvaluationRun]


@dataclass(eq=False)
class LearningReport:
    """What a detector learned from images: records, numbers of boxes, boxes that were skipped, and unread images."""

    records: list[Record] = field(default_factory=list)
    n_objects: int = 0
    n_false_positives: int = 0
    skipped_boxes: list[str] = field(default_factory=list)
    unread: list[UnreadableImageError] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Examples:
    """Images to learn from, and the errors of those that cannot be read."""

    images: tuple[AnnotatedImage, ...]
    unread: tuple[UnreadableImageError, ...] = ()

    @classmethod
    def from_annotations(
        cls,
        annotated: Iterable[AnnotatedImage] = (),
        positives: Iterable[Path] = (),
        negatives: Iterable[Path] = (),
    ) -> Examples:
        """Annotated images, images that one object fills, and images without the object.

        Raises `AnnotationError` if an image is given both with objects and as one without.
        """
        filled, unread_filled = crops(positives)
        empty, unread_empty = empty_images(negatives)
        with_boxes = [*annotated, *filled]
        check_no_contradiction(with_boxes, empty)
        return cls((*with_boxes, *empty), (*unread_filled, *unread_empty))

    @property
    def boxes(self) -> Boxes:
        """The boxes (n, 4) of the object in all images."""
        return np.concatenate([np.empty((0, 4)), *(image.objects for image in self.images)])

    @property
    def n_objects(self) -> int:
        """Number of boxes of the object."""
        return sum(len(image.objects) for image in self.images)


def crops(paths: Iterable[Path]) -> tuple[list[AnnotatedImage], list[UnreadableImageError]]:
    """Images that one object fills, and the errors of those that cannot be read.

    The rest of a crop is a region to ignore: other detections in it are not false positives.
    """
    return _read_shapes(paths, is_filled=True)


def empty_images(paths: Iterable[Path]) -> tuple[list[AnnotatedImage], list[UnreadableImageError]]:
    """Images without the object, and the errors of those that cannot be read: all detections are false positives."""
    return _read_shapes(paths, is_filled=False)


def check_no_contradiction(images: Sequence[AnnotatedImage], without: Sequence[AnnotatedImage]) -> None:
    """Raise `AnnotationError` if an image without the object is also given with objects."""
    named = {image.path.resolve(): image for image in images if len(image.objects)}
    for image in without:
        if image.path.resolve() in named:
            raise AnnotationError(f"{image.path} is given both with and without the object; remove it from one set")


def learn_images(
    detector: Detector,
    images: Sequence[AnnotatedImage],
    weight: int | None = None,
    *,
    n_false_positives: int | None = None,
    progress: Callable[[float], None] = lambda _: None,
    **options: Any,  # noqa: ANN401 - those of Detector.detect, which checks them
) -> LearningReport:
    """Correct a detector by image after image: boxes are the object, all other detections are false positives.

    `weight` and `options` are those of `Detector.learn`. Without a weight, many objects share one (`object_weight`),
    and so do several false positives (`false_positive_weight`). A false positive has an IoU below one half with every
    box, and does not lie in a region to ignore. Without `n_false_positives`, their number in all images, they are
    counted by one more scan. Images that cannot be read and boxes that fit no window are skipped and reported.
    `progress` is called with the fraction done.

    >>> from whet.detector.detector import load
    >>> learn_images(load("face"), crops([Path("nowhere.png")])[0]).records
    []
    """
    report = LearningReport()
    of_object, of_false_positive, counting, n_wrong = weight, weight, 0.0, n_false_positives or 0
    if weight is None:
        if n_false_positives is None:
            counting = 0.25
            n_wrong = _count_false_positives(detector, images, options, lambda done: progress(counting * done))
        of_object = object_weight(detector, sum(len(image.objects) for image in images))
    for number, image in enumerate(images, start=1):
        if weight is None:  # corrections may cause false positives that were not there when they were counted
            of_false_positive = false_positive_weight(detector, max(n_wrong, report.n_false_positives + 1), of_object)
        try:
            _learn_image(detector, image, read_grey(image.path), (of_object, of_false_positive), options, report)
        except UnreadableImageError as error:
            report.unread.append(error)
        progress(counting + (1 - counting) * number / len(images))
    return report


def object_weight(detector: Detector, n_objects: int) -> int | None:
    """Weight of each of many objects: together a quarter of the positives in the base. None for few objects.

    A single correction counts 4 % of the base, so more than six of them exceed that quarter. On drawn vans and
    pedestrians, 44 boxes at 4 % each made a detector worse on other images; with a weight of 5 to 20 each, it became
    better or stayed as it was.

    >>> from whet.detector.detector import load
    >>> object_weight(load("face"), 3), object_weight(load("face"), 100)
    (None, 31)
    """
    base = max((stage.positive.n for stage in detector.base.stages if isinstance(stage, LearningStage)), default=0)
    share = int(TOGETHER * base) // max(n_objects, 1)
    return None if share >= default_weight(detector.base, True) else max(share, 1)


def false_positive_weight(detector: Detector, n: int, of_object: int | None = None) -> int | None:
    """Weight of each of several false positives: together as much as one correction. None for one.

    At 4 % of the base each, twenty false positives of the face detector in 161 images changed its weights so much that
    it made 2,200. Sharing these 4 %, thirteen were left, and none of two in other images. With many objects, which
    share a weight, a false positive counts as much as one of them, and all of them at most a quarter of the base.

    >>> from whet.detector.detector import load
    >>> false_positive_weight(load("face"), 1), false_positive_weight(load("face"), 20)
    (None, 24)
    >>> [false_positive_weight(load("face"), n, of_object=31) for n in (20, 900)]
    [31, 3]
    """
    single = default_weight(detector.base, False)
    if of_object is not None:
        return max(min(of_object, int(TOGETHER / CORRECTION_SHARE * single) // max(n, 1)), 1)
    return None if n <= 1 else max(single // n, 1)


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


def rotation_degrees(before: Cascade, after: Cascade) -> list[float]:
    """Angles in degrees between the weights of each stage before and after."""
    degrees = []
    for old, new in zip(before.stages, after.stages, strict=True):
        lengths = float(np.linalg.norm(old.coef) * np.linalg.norm(new.coef))
        cosine = float(old.coef @ new.coef) / lengths if lengths else 1.0
        is_same = np.array_equal(old.coef, new.coef)
        degrees.append(0.0 if is_same else float(np.degrees(np.arccos(np.clip(cosine, -1, 1)))))
    return degrees


def _read_shapes(paths: Iterable[Path], *, is_filled: bool) -> tuple[list[AnnotatedImage], list[UnreadableImageError]]:
    images, unread = [], []
    for path in paths:
        try:
            height, width = image_shape(path)
        except UnreadableImageError as error:
            unread.append(error)
            continue
        whole = np.array([[0.0, 0.0, width, height]])
        if is_filled:
            boxes, ignore = np.concatenate([whole, whole]), np.array([False, True])
            images.append(AnnotatedImage(path, (height, width), boxes, (ONLY_CLASS, ONLY_CLASS), ignore))
        else:
            images.append(AnnotatedImage(path, (height, width)))
    return images, unread


def _count_false_positives(
    detector: Detector, images: Sequence[AnnotatedImage], options: dict[str, Any], progress: Callable[[float], None]
) -> int:
    n = 0
    for number, image in enumerate(images, start=1):
        with suppress(UnreadableImageError):  # reported when the image is learned
            n += len(false_positives(detector.detect(read_grey(image.path), **options).boxes, image))
        progress(number / len(images))
    return n


def _learn_image(
    detector: Detector,
    image: AnnotatedImage,
    grey: Grey,
    weights: tuple[int | None, int | None],
    options: dict[str, Any],
    report: LearningReport,
) -> None:
    """Learn an image's false positives and objects: in one call, or if their weights differ, objects last."""
    wrong = false_positives(detector.detect(grey, **options).boxes, image)
    boxes = np.concatenate([image.objects, wrong])
    is_object = np.arange(len(boxes)) < len(image.objects)
    of_object, of_false_positive = weights
    if of_object == of_false_positive:
        _learn_boxes(detector, image, grey, boxes, is_object, of_object, options, report)
        return
    for kind, weight in ((~is_object, of_false_positive), (is_object, of_object)):
        _learn_boxes(detector, image, grey, boxes[kind], is_object[kind], weight, options, report)


def _learn_boxes(
    detector: Detector,
    image: AnnotatedImage,
    grey: Grey,
    boxes: Boxes,
    is_object: NDArray[np.bool_],
    weight: int | None,
    options: dict[str, Any],
    report: LearningReport,
) -> None:
    try:
        report.records += detector.learn(grey, boxes, is_object, weight, **options)
    except BoxError:
        errors = [_box_error(detector, grey, box, options) for box in boxes]
        report.skipped_boxes += [f"{image.path}: {error}" for error in errors if error is not None]
        fits = np.array([error is None for error in errors])
        boxes, is_object = boxes[fits], is_object[fits]
        report.records += detector.learn(grey, boxes, is_object, weight, **options)
    report.n_objects += int(is_object.sum())
    report.n_false_positives += int((~is_object).sum())


def _box_error(detector: Detector, grey: Grey, box: Boxes, options: dict[str, Any]) -> BoxError | None:
    """Why no window fits a box; tried on a copy."""
    try:
        detector.copy().learn(grey, box[None], [True], 1, **options)
    except BoxError as error:
        return error.__cause__ if isinstance(error.__cause__, BoxError) else error
    return None


# A window may be this much larger than its box before crops are too tight.
MAX_MARGIN = 1.05


def tight_crop_warning(examples: Examples, offset: BoxOffset) -> str | None:
    """A warning if objects fill their images, and the detector's windows are larger than the boxes that it reports.

    A crop has no pixels around the object: the window that is learned is too small, or none fits.

    >>> tight = AnnotatedImage(Path("a.png"), (20, 40), np.array([[0.0, 0, 40, 20]]), ("van",), np.array([False]))
    >>> print(tight_crop_warning(Examples((tight,)), BoxOffset(0.1, 0.1, 0.9, 0.9)))
    1 image has no margin around the object, but the windows of this detector are 1.25 times as large as the object; ...
    >>> tight_crop_warning(Examples((tight,)), BoxOffset())
    """
    n = sum(image.is_filled for image in examples.images)
    ratio = 1 / max(offset.size)
    if not n or ratio < MAX_MARGIN:
        return None
    images = "1 image has" if n == 1 else f"{n:,} images have"
    return (
        f"{images} no margin around the object, but the windows of this detector are {ratio:.3g} times as large as the "
        "object; use whole images with boxes (--annotations), or crops with a margin"
    )


@dataclass(frozen=True, eq=False)
class LearningRun:
    """The new detector, what it learned, and evaluations before and after: on the examples and on held-out images.

    `rotations` are the angles in degrees by which the weights of each stage have changed.
    """

    detector: Detector
    report: LearningReport
    on_examples: BeforeAfter
    held_out: BeforeAfter | None
    rotations: tuple[float, ...]


def learn_from(
    detector: Detector,
    examples: Examples,
    weight: int | None = None,
    *,
    held_out: Sequence[AnnotatedImage] = (),
    min_score: float | str | None = None,
    progress: Callable[[float], None] = lambda _: None,
    **options: Any,  # noqa: ANN401 - those of Detector.detect, which checks them
) -> LearningRun:
    """Correct a copy of a detector by all examples (see `learn_images`); the detector itself does not change.

    `progress` is called with the fraction done.

    >>> from whet.detector.detector import load
    >>> learn_from(load("face"), Examples.from_annotations(negatives=[Path("nowhere.png")]))
    Traceback (most recent call last):
    whet.errors.DataNotFoundError: got no image to learn from; 1 could not be read: nowhere.png cannot be ...
    """
    detector.check_can_learn()
    if not examples.images:
        first = f"; {len(examples.unread)} could not be read: {examples.unread[0]}" if examples.unread else ""
        raise DataNotFoundError(f"got no image to learn from{first}")
    n, m = len(examples.images), len(held_out)
    parts = _ProgressParts(progress, (n, m, 2 * n, n, m) if m else (n, 2 * n, n))  # to learn an image takes two scans
    corrected = detector.copy()
    options = {**options, "min_score": min_score}

    def measure(one: Detector, images: Sequence[AnnotatedImage]) -> EvaluationRun:
        return evaluate(one, images, progress=parts.next(), **options)

    before = measure(detector, examples.images)
    held_before = measure(detector, held_out) if held_out else None
    n_wrong = _count_in_run(before, examples.images)
    report = learn_images(
        corrected, examples.images, weight, n_false_positives=n_wrong, progress=parts.next(), **options
    )
    after = measure(corrected, examples.images)
    held = None if held_before is None else (held_before, measure(corrected, held_out))
    rotations = rotation_degrees(detector.cascade, corrected.cascade)
    return LearningRun(corrected, report, (before, after), held, tuple(rotations))


def _count_in_run(run: EvaluationRun, images: Sequence[AnnotatedImage]) -> int:
    """How many detections would be learned as false positives; an evaluation counts duplicates as well."""
    are_read = set(run.paths)
    evaluated = [image for image in images if image.path in are_read]
    return sum(
        len(false_positives(result.boxes[result.scores > run.threshold], image))
        for image, result in zip(evaluated, run.evaluation.images, strict=True)
    )


class _ProgressParts:
    """Progress of several parts that take different times, as one fraction."""

    def __init__(self, progress: Callable[[float], None], sizes: Sequence[int]) -> None:
        self._progress, self._sizes, self._number = progress, sizes, 0

    def next(self) -> Callable[[float], None]:
        done, size, total = sum(self._sizes[: self._number]), self._sizes[self._number], sum(self._sizes)
        self._number += 1
        return lambda share: self._progress((done + share * size) / total)
