"""Learning from many annotated images, evaluated before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet.cascade.boxes import box_iou, intersection_over_first
from whet.cascade.cascade import Cascade
from whet.detector.base import StageBase
from whet.detector.corrections import SAME
from whet.detector.counting import CORRECTION_SHARE, default_weight
from whet.detector.detector import Detector
from whet.detector.journal import Entry
from whet.detector.reporting import Frame
from whet.errors import AnnotationError, BoxError, DataNotFoundError, UnreadableImageError
from whet.evaluation.runs import EvaluationRun, evaluate_many
from whet.io.annotations.annotation import ONLY_CLASS, AnnotatedImage, Boxes
from whet.io.images import image_shape, read_grey

Grey = NDArray[np.uint8]

# Of the base's objects, what all that are shown at once count together.
TOGETHER = 0.25


@dataclass(eq=False)
class Lessons:
    """What was taught: entries, boxes of objects and false positives; what fitted no window, and what was not read."""

    entries: list[Entry] = field(default_factory=list)
    n_objects: int = 0
    n_false_positives: int = 0
    unfit: list[str] = field(default_factory=list)
    unread: list[UnreadableImageError] = field(default_factory=list)


def crops(paths: Iterable[Path]) -> tuple[list[AnnotatedImage], list[UnreadableImageError]]:
    """Images that one object fills, and those that cannot be read.

    All around the object is a region to be ignored: what else is detected in a crop is no false positive.
    """
    return _shown(paths, is_filled=True)


def empty_images(paths: Iterable[Path]) -> tuple[list[AnnotatedImage], list[UnreadableImageError]]:
    """Images without the object, and those that cannot be read: whatever is detected in them is a false positive."""
    return _shown(paths, is_filled=False)


def check_no_contradiction(images: Sequence[AnnotatedImage], without: Sequence[AnnotatedImage]) -> None:
    """Raise `AnnotationError` where an image is said to have no object, and is shown with objects, too."""
    named = {image.path.resolve(): image for image in images if len(image.objects)}
    for image in without:
        if image.path.resolve() in named:
            raise AnnotationError(
                f"{image.path} is among the images without the object, and among those with it: take it out of one"
            )


def teach(
    detector: Detector,
    images: Sequence[AnnotatedImage],
    weight: int | None = None,
    *,
    expected: int | None = None,
    tell: Callable[[float], None] = lambda _: None,
    **options: Any,  # noqa: ANN401 - those of Detector.detect, which checks them
) -> Lessons:
    """Teach a detector image after image: boxes are the object, detections beside all of them are not.

    `weight` and `options` are those of `Detector.learn`; without a weight, many objects share one (`shared_weight`),
    and several false positives another (`weight_of_false_positives`). A false positive has less than half in common
    with any box, and does not lie in a region to be ignored. How many are `expected` in all images is counted, by one
    more look at each, where it is not known. An image that cannot be read and a box that no window fits are left out
    and named. `tell` gets the share that is done.

    >>> from whet.detector.detector import load
    >>> teach(load("face"), crops([Path("nowhere.png")])[0]).entries
    []
    """
    lessons = Lessons()
    of_object, of_false_positive, begun, wrong = weight, weight, 0.0, expected or 0
    if weight is None:
        if expected is None:
            begun = 0.25
            wrong = _count_false_positives(detector, images, options, lambda share: tell(begun * share))
        of_object = shared_weight(detector, sum(len(image.objects) for image in images))
    for number, image in enumerate(images, start=1):
        if weight is None:  # lessons may cause false positives that were not there when they were counted
            of_false_positive = weight_of_false_positives(
                detector, max(wrong, lessons.n_false_positives + 1), of_object
            )
        try:
            _teach_image(detector, image, read_grey(image.path), (of_object, of_false_positive), options, lessons)
        except UnreadableImageError as error:
            lessons.unread.append(error)
        tell(begun + (1 - begun) * number / len(images))
    return lessons


def shared_weight(detector: Detector, n_objects: int) -> int | None:
    """How often each of many objects counts: together a quarter of the objects in the base. None for few objects.

    A single correction has to be felt, and counts 4 % of the base; as many such as one hand has fingers are more than
    that quarter already. On drawn vans and walkers, 44 boxes at 4 % each made a detector worse on others, 5 to 20
    times each, it became better or stayed as it was.

    >>> from whet.detector.detector import load
    >>> shared_weight(load("face"), 3), shared_weight(load("face"), 100)
    (None, 31)
    """
    base = max((stage.positive.n for stage in detector.taught.base.stages if isinstance(stage, StageBase)), default=0)
    share = int(TOGETHER * base) // max(n_objects, 1)
    return None if share >= default_weight(detector.taught.base, True) else max(share, 1)


def weight_of_false_positives(detector: Detector, n: int, of_object: int | None = None) -> int | None:
    """How often each of several false positives counts: together as often as a single correction; None for one.

    Each at 4 % of the base, twenty false positives of the face detector in 161 images turned its weights so far that
    there were 2,200. Sharing those 4 %, thirteen were left, and none of two in other images. With many objects, which
    share a weight, a false positive counts as often as one of those, and all of them a quarter of the base at most.

    >>> from whet.detector.detector import load
    >>> weight_of_false_positives(load("face"), 1), weight_of_false_positives(load("face"), 20)
    (None, 24)
    >>> [weight_of_false_positives(load("face"), n, of_object=31) for n in (20, 900)]
    [31, 3]
    """
    single = default_weight(detector.taught.base, False)
    if of_object is not None:
        return max(min(of_object, int(TOGETHER / CORRECTION_SHARE * single) // max(n, 1)), 1)
    return None if n <= 1 else max(single // n, 1)


def false_positives(detected: Boxes, image: AnnotatedImage) -> Boxes:
    """Those of the detected boxes (n, 4) that show neither an object of the image nor what is to be ignored.

    In an image that is not complete any of them may show an object.

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


def turns(before: Cascade, after: Cascade) -> list[float]:
    """Degrees by which the weights of each stage have turned."""
    degrees = []
    for old, new in zip(before.stages, after.stages, strict=True):
        lengths = float(np.linalg.norm(old.coef) * np.linalg.norm(new.coef))
        cosine = float(old.coef @ new.coef) / lengths if lengths else 1.0
        is_same = np.array_equal(old.coef, new.coef)
        degrees.append(0.0 if is_same else float(np.degrees(np.arccos(np.clip(cosine, -1, 1)))))
    return degrees


def _shown(paths: Iterable[Path], *, is_filled: bool) -> tuple[list[AnnotatedImage], list[UnreadableImageError]]:
    shown, unread = [], []
    for path in paths:
        try:
            height, width = image_shape(path)
        except UnreadableImageError as error:
            unread.append(error)
            continue
        whole = np.array([[0.0, 0.0, width, height]])
        if is_filled:
            boxes, ignore = np.concatenate([whole, whole]), np.array([False, True])
            shown.append(AnnotatedImage(path, (height, width), boxes, (ONLY_CLASS, ONLY_CLASS), ignore))
        else:
            shown.append(AnnotatedImage(path, (height, width)))
    return shown, unread


def _count_false_positives(
    detector: Detector, images: Sequence[AnnotatedImage], options: dict[str, Any], tell: Callable[[float], None]
) -> int:
    n = 0
    for number, image in enumerate(images, start=1):
        with suppress(UnreadableImageError):  # told when it is its turn to teach
            n += len(false_positives(detector.detect(read_grey(image.path), **options).boxes, image))
        tell(number / len(images))
    return n


def _teach_image(
    detector: Detector,
    image: AnnotatedImage,
    grey: Grey,
    weights: tuple[int | None, int | None],
    options: dict[str, Any],
    lessons: Lessons,
) -> None:
    """Teach an image's false positives and its objects: at once, or if they count differently, objects last."""
    wrong = false_positives(detector.detect(grey, **options).boxes, image)
    boxes = np.concatenate([image.objects, wrong])
    is_object = np.arange(len(boxes)) < len(image.objects)
    of_object, of_false_positive = weights
    if of_object == of_false_positive:
        _teach_boxes(detector, image, grey, boxes, is_object, of_object, options, lessons)
        return
    for kind, weight in ((~is_object, of_false_positive), (is_object, of_object)):
        _teach_boxes(detector, image, grey, boxes[kind], is_object[kind], weight, options, lessons)


def _teach_boxes(
    detector: Detector,
    image: AnnotatedImage,
    grey: Grey,
    boxes: Boxes,
    is_object: NDArray[np.bool_],
    weight: int | None,
    options: dict[str, Any],
    lessons: Lessons,
) -> None:
    try:
        lessons.entries += detector.learn(grey, boxes, is_object, weight, **options)
    except BoxError:
        faults = [_fault(detector, grey, box, options) for box in boxes]
        lessons.unfit += [f"{image.path}: {fault}" for fault in faults if fault is not None]
        fits = np.array([fault is None for fault in faults])
        boxes, is_object = boxes[fits], is_object[fits]
        lessons.entries += detector.learn(grey, boxes, is_object, weight, **options)
    lessons.n_objects += int(is_object.sum())
    lessons.n_false_positives += int((~is_object).sum())


def _fault(detector: Detector, grey: Grey, box: Boxes, options: dict[str, Any]) -> BoxError | None:
    """Why no window fits a box; tried on a copy."""
    try:
        detector.copy().learn(grey, box[None], [True], 1, **options)
    except BoxError as error:
        return error.__cause__ if isinstance(error.__cause__, BoxError) else error
    return None


# Of its box's size, what a window may show without that a crop lacks something.
LITTLE_MORE = 1.05

Judgement = tuple[EvaluationRun, EvaluationRun]


@dataclass(frozen=True, eq=False)
class Shown:
    """Images to learn from, and those that were meant but cannot be read."""

    images: tuple[AnnotatedImage, ...]
    unread: tuple[UnreadableImageError, ...] = ()

    @classmethod
    def from_annotations(
        cls,
        annotated: Iterable[AnnotatedImage] = (),
        positives: Iterable[Path] = (),
        negatives: Iterable[Path] = (),
    ) -> Shown:
        """Annotated images, images that one object fills, and images without the object.

        Raises `AnnotationError` for an image that is said to have the object and not to have it.
        """
        filled, bad = crops(positives)
        empty, worse = empty_images(negatives)
        with_boxes = [*annotated, *filled]
        check_no_contradiction(with_boxes, empty)
        return cls((*with_boxes, *empty), (*bad, *worse))

    @property
    def boxes(self) -> Boxes:
        """The boxes (n, 4) of the object in all images."""
        return np.concatenate([np.empty((0, 4)), *(image.objects for image in self.images)])

    @property
    def n_objects(self) -> int:
        """Boxes of the object."""
        return sum(len(image.objects) for image in self.images)


def too_tight(shown: Shown, frame: Frame) -> str | None:
    """What to tell where objects fill their images, and a detector's windows show more than the box it reports.

    Around such an object there is nothing that a window could show: one that is too small is taught, or none fits.

    >>> tight = AnnotatedImage(Path("a.png"), (20, 40), np.array([[0.0, 0, 40, 20]]), ("van",), np.array([False]))
    >>> print(too_tight(Shown((tight,)), Frame(0.1, 0.1, 0.9, 0.9)))
    1 image ends where its object ends, and this detector looks at 1.25 times as much: it is taught ...
    >>> too_tight(Shown((tight,)), Frame())
    """
    n = sum(image.is_filled for image in shown.images)
    more = 1 / max(frame.size)
    if not n or more < LITTLE_MORE:
        return None
    told = "1 image ends where its object ends" if n == 1 else f"{n:,} images end where their object ends"
    return (
        f"{told}, and this detector looks at {more:.3g} times as much: it is taught windows that are too small. Better "
        "show the whole images, with boxes (--annotations), or cut the object out with so much around it"
    )


@dataclass(frozen=True, eq=False)
class LearningRun:
    """What was learned, and how the detector did before and after: on what it was shown, and on what it was not."""

    detector: Detector
    lessons: Lessons
    shown: Judgement
    held_out: Judgement | None
    turns: tuple[float, ...]


def learn_from(
    detector: Detector,
    shown: Shown,
    weight: int | None = None,
    *,
    held_out: Sequence[AnnotatedImage] = (),
    min_score: float | str | None = None,
    tell: Callable[[float], None] = lambda _: None,
    **options: Any,  # noqa: ANN401 - those of Detector.detect, which checks them
) -> LearningRun:
    """Teach a copy of a detector all that is shown (see `whet.training.learning.teach`); the detector stays as it is.

    `tell` gets the share that is done.

    >>> from whet.detector.detector import load
    >>> learn_from(load("face"), Shown.from_annotations(negatives=[Path("nowhere.png")]))
    Traceback (most recent call last):
    whet.errors.DataNotFoundError: there is no image to learn from; 1 could not be read: nowhere.png cannot be ...
    """
    detector.taught.check_can_learn()
    if not shown.images:
        first = f"; {len(shown.unread)} could not be read: {shown.unread[0]}" if shown.unread else ""
        raise DataNotFoundError(f"there is no image to learn from{first}")
    n, m = len(shown.images), len(held_out)
    sizes = (n, m, 2 * n, n, m) if m else (n, 2 * n, n)  # teaching an image takes some two looks at it
    part = _Parts(tell, sizes)
    taught = detector.copy()
    options = {**options, "min_score": min_score}

    def judge(one: Detector, images: Sequence[AnnotatedImage]) -> EvaluationRun:
        return evaluate_many(one, images, tell=part.next(), **options)

    before = judge(detector, shown.images)
    held_before = judge(detector, held_out) if held_out else None
    expected = _count_in_run(before, shown.images)
    lessons = teach(taught, shown.images, weight, expected=expected, tell=part.next(), **options)
    after = judge(taught, shown.images)
    held = None if held_before is None else (held_before, judge(taught, held_out))
    moved = turns(detector.taught.cascade(), taught.taught.cascade())
    return LearningRun(taught, lessons, (before, after), held, tuple(moved))


def _count_in_run(run: EvaluationRun, images: Sequence[AnnotatedImage]) -> int:
    """How many detections would be taught as wrong: not those of evaluations, where a second look at one is, too."""
    are_read = set(run.paths)
    seen = [image for image in images if image.path in are_read]
    return sum(
        len(false_positives(result.boxes[result.scores > run.threshold], image))
        for image, result in zip(seen, run.evaluation.images, strict=True)
    )


class _Parts:
    """One share of all that is done, told by parts that take different times."""

    def __init__(self, tell: Callable[[float], None], sizes: Sequence[int]) -> None:
        self._tell, self._sizes, self._number = tell, sizes, 0

    def next(self) -> Callable[[float], None]:
        done, size, total = sum(self._sizes[: self._number]), self._sizes[self._number], sum(self._sizes)
        self._number += 1
        return lambda share: self._tell((done + share * size) / total)
