"""A detector that is shown pictures and learns from them, judged before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from whet.errors import DataNotFoundError, UnreadableImageError
from whet.io.annotations.annotation import AnnotatedPicture, Boxes
from whet.model.reporting import Frame
from whet.training.detector import Detector
from whet.training.evaluation_run import EvaluationRun, evaluate_many
from whet.training.lessons import (
    Lessons,
    check_no_contradiction,
    crops,
    empty_pictures,
    false_alarms,
    teach,
    turns,
)

# Of its box's size, what a window may show without that a crop lacks something.
LITTLE_MORE = 1.05

Judgement = tuple[EvaluationRun, EvaluationRun]


@dataclass(frozen=True, eq=False)
class Shown:
    """Pictures to learn from, and those that were meant but cannot be read."""

    pictures: tuple[AnnotatedPicture, ...]
    unread: tuple[UnreadableImageError, ...] = ()

    @classmethod
    def of(
        cls,
        annotated: Iterable[AnnotatedPicture] = (),
        positives: Iterable[Path] = (),
        negatives: Iterable[Path] = (),
    ) -> Shown:
        """Annotated pictures, pictures that one object fills, and pictures without the object.

        Raises `AnnotationError` for a picture that is said to have the object and not to have it.
        """
        filled, bad = crops(positives)
        empty, worse = empty_pictures(negatives)
        with_boxes = [*annotated, *filled]
        check_no_contradiction(with_boxes, empty)
        return cls((*with_boxes, *empty), (*bad, *worse))

    @property
    def boxes(self) -> Boxes:
        """The boxes (n, 4) of the object in all pictures."""
        return np.concatenate([np.empty((0, 4)), *(picture.objects for picture in self.pictures)])

    @property
    def n_objects(self) -> int:
        """Boxes of the object."""
        return sum(len(picture.objects) for picture in self.pictures)


def too_tight(shown: Shown, frame: Frame) -> str | None:
    """What to tell where objects fill their pictures, and a detector's windows show more than the box it reports.

    Around such an object there is nothing that a window could show: one that is too small is taught, or none fits.

    >>> tight = AnnotatedPicture(Path("a.png"), (20, 40), np.array([[0.0, 0, 40, 20]]), ("van",), np.array([False]))
    >>> print(too_tight(Shown((tight,)), Frame(0.1, 0.1, 0.9, 0.9)))
    1 picture ends where its object ends, and this detector looks at 1.25 times as much: it is taught ...
    >>> too_tight(Shown((tight,)), Frame())
    """
    n = sum(picture.is_filled for picture in shown.pictures)
    more = 1 / max(frame.size)
    if not n or more < LITTLE_MORE:
        return None
    told = "1 picture ends where its object ends" if n == 1 else f"{n:,} pictures end where their object ends"
    return (
        f"{told}, and this detector looks at {more:.3g} times as much: it is taught windows that are too small. Better "
        "show the whole pictures, with boxes (--annotations), or cut the object out with so much around it"
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
    held_out: Sequence[AnnotatedPicture] = (),
    threshold: float | str | None = None,
    tell: Callable[[float], None] = lambda _: None,
    **options: Any,  # noqa: ANN401 - those of Detector.detect, which checks them
) -> LearningRun:
    """Teach a copy of a detector all that is shown (see `whet.training.lessons.teach`); the detector stays as it is.

    `tell` gets the share that is done.

    >>> from whet.training.detector import load
    >>> learn_from(load("face"), Shown.of(negatives=[Path("nowhere.png")]))
    Traceback (most recent call last):
    whet.errors.DataNotFoundError: there is no picture to learn from; 1 could not be read: nowhere.png cannot be ...
    """
    detector.taught.check_can_learn()
    if not shown.pictures:
        first = f"; {len(shown.unread)} could not be read: {shown.unread[0]}" if shown.unread else ""
        raise DataNotFoundError(f"there is no picture to learn from{first}")
    n, m = len(shown.pictures), len(held_out)
    sizes = (n, m, 2 * n, n, m) if m else (n, 2 * n, n)  # teaching a picture takes some two looks at it
    part = _Parts(tell, sizes)
    taught = detector.copy()
    options = {**options, "threshold": threshold}

    def judge(one: Detector, pictures: Sequence[AnnotatedPicture]) -> EvaluationRun:
        return evaluate_many(one, pictures, tell=part.next(), **options)

    before = judge(detector, shown.pictures)
    held_before = judge(detector, held_out) if held_out else None
    expected = _count_false_alarms(before, shown.pictures)
    lessons = teach(taught, shown.pictures, weight, expected=expected, tell=part.next(), **options)
    after = judge(taught, shown.pictures)
    held = None if held_before is None else (held_before, judge(taught, held_out))
    moved = turns(detector.taught.cascade(), taught.taught.cascade())
    return LearningRun(taught, lessons, (before, after), held, tuple(moved))


def _count_false_alarms(run: EvaluationRun, pictures: Sequence[AnnotatedPicture]) -> int:
    """How many detections would be taught as wrong: not those of evaluations, where a second look at one is, too."""
    are_read = set(run.paths)
    seen = [picture for picture in pictures if picture.path in are_read]
    return sum(
        len(false_alarms(result.boxes[result.scores > run.threshold], picture))
        for picture, result in zip(seen, run.evaluation.pictures, strict=True)
    )


class _Parts:
    """One share of all that is done, told by parts that take different times."""

    def __init__(self, tell: Callable[[float], None], sizes: Sequence[int]) -> None:
        self._tell, self._sizes, self._number = tell, sizes, 0

    def next(self) -> Callable[[float], None]:
        done, size, total = sum(self._sizes[: self._number]), self._sizes[self._number], sum(self._sizes)
        self._number += 1
        return lambda share: self._tell((done + share * size) / total)
