"""The queue: in which order images are worth a review.

A training on reviewed images needs objects, and it needs what the detector takes for one or misses. So the queue takes
turns between the image that most probably has an object and the one that most probably has an error, both per click.
Near-duplicates of an image come after all other images had a turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp

import numpy as np
from numpy.typing import NDArray

from whet.cascade.boxes import box_iou
from whet.cascade.detections import Detections
from whet.detector.corrections import SAME


@dataclass(frozen=True)
class Expected:
    """What is expected of the review of an image: objects among the detections shown, and errors to correct.

    Errors are wrong boxes among the detections shown, and objects below the minimum score.
    """

    objects: float = 0.0
    errors: float = 0.0

    @classmethod
    def from_detections(cls, found: Detections, min_score: float, labelled: NDArray[np.float64]) -> Expected:
        """Expectations by the probabilities of detections at any score.

        Those that overlap a `labelled` box (n, 4) are decided already. Without probabilities, a detection is as likely
        wrong as right.

        >>> found = Detections(np.array([[0.0, 0, 9, 9], [20, 0, 29, 9]]), np.array([5.0, 1.0]))
        >>> Expected.from_detections(found, 2.0, np.empty((0, 4)))
        Expected(objects=0.5, errors=1.0)
        >>> Expected.from_detections(found, 2.0, found.boxes[:1])
        Expected(objects=0.0, errors=0.5)
        """
        if not len(found):
            return cls()
        is_open = ~(box_iou(found.boxes, labelled) >= SAME).any(axis=1)
        likely, is_shown = np.nan_to_num(found.probabilities, nan=0.5), found.scores > min_score
        wrong = np.where(is_shown, 1 - likely, likely)
        return cls(float(likely[is_open & is_shown].sum()), float(wrong[is_open].sum()))

    @property
    def clicks(self) -> float:
        """Two for an error, one to confirm."""
        return 1 + 2 * self.errors

    @property
    def object_gain(self) -> float:
        """The chance of any object per click.

        >>> [round(Expected(objects, errors=0.5).object_gain, 2) for objects in (0.0, 1.0, 10.0)]
        [0.0, 0.32, 0.5]
        """
        return (1 - exp(-self.objects)) / self.clicks

    @property
    def error_gain(self) -> float:
        """The chance of any error per click. Errors of one image resemble each other: many are not worth many clicks.

        >>> [round(Expected(errors=errors).error_gain, 2) for errors in (0.0, 0.5, 1.0, 10.0)]
        [0.0, 0.2, 0.21, 0.05]
        """
        return (1 - exp(-self.errors)) / self.clicks


@dataclass(frozen=True)
class Candidate:
    """An image for the queue; near-duplicates have the same group."""

    id: str
    group: int
    expected: Expected
    is_reviewed: bool = False


def queue(images: Sequence[Candidate]) -> list[str]:
    """The ids of images, the next to review first; those that are reviewed come last.

    >>> sure, unsure, empty = Expected(1.0, 0.1), Expected(0.6, 0.6), Expected(0.0, 0.1)
    >>> twins = [Candidate("a", 1, sure), Candidate("a2", 1, sure)]
    >>> others = [Candidate("b", 2, unsure), Candidate("c", 3, empty)]
    >>> queue([*twins, *others])
    ['a', 'b', 'c', 'a2']
    >>> queue([Candidate("a", 1, sure, is_reviewed=True), twins[1], *others])
    ['b', 'c', 'a2', 'a']
    """
    done = [image.id for image in images if image.is_reviewed]
    objects = ranked(images, lambda expected: expected.object_gain)
    errors = ranked(images, lambda expected: expected.error_gain)
    # A page asks for the queue again after every review. Turns by the ones in the binary number of reviewed images are
    # as many for both, also where images are reviewed two at a time.
    is_errors_turn = len(done).bit_count() % 2
    turns = zip(errors, objects, strict=True) if is_errors_turn else zip(objects, errors, strict=True)
    return [*dict.fromkeys(key for turn in turns for key in turn), *done]


def ranked(images: Sequence[Candidate], gain: Callable[[Expected], float]) -> list[str]:
    """The images to review, the largest gain first; of a group, one after all other groups had a turn."""
    seen = Counter(image.group for image in images if image.is_reviewed)
    turns = []
    for image in sorted(images, key=lambda image: -gain(image.expected)):
        if not image.is_reviewed:
            seen[image.group] += 1
            turns.append((seen[image.group], -gain(image.expected), image.id))
    return [key for *_, key in sorted(turns, key=lambda turn: turn[:2])]
