"""The queue: in which order images are worth a review.

A training on reviewed images learns from objects, and from what the detector takes for one or misses. So the image
comes first in which most of these are expected. That its review takes more clicks is no reason against it: boxes that
are all right, or all wrong, are judged at once. Near-duplicates of an image come after all other images.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet.corrections.box_windows import SAME
from whet.images.boxes import box_iou
from whet.images.detections import Detections


@dataclass(frozen=True)
class Expected:
    """What is expected of an image: right and wrong boxes among the detections shown, and objects that are missed."""

    right: float = 0.0
    wrong: float = 0.0
    missed: float = 0.0

    @classmethod
    def from_detections(cls, found: Detections, min_score: float, labelled: NDArray[np.float64]) -> Expected:
        """Expectations by the probabilities of detections at any score.

        Those that overlap a `labelled` box (n, 4) are decided already. Without probabilities, a detection is as likely
        wrong as right.

        >>> found = Detections(np.array([[0.0, 0, 9, 9], [20, 0, 29, 9]]), np.array([5.0, 1.0]))
        >>> Expected.from_detections(found, 2.0, np.empty((0, 4)))
        Expected(right=0.5, wrong=0.5, missed=0.5)
        >>> Expected.from_detections(found, 2.0, found.boxes[:1])
        Expected(right=0.0, wrong=0.0, missed=0.5)
        """
        if not len(found):
            return cls()
        is_open = ~(box_iou(found.boxes, labelled) >= SAME).any(axis=1)
        likely, is_shown = np.nan_to_num(found.probabilities, nan=0.5)[is_open], (found.scores > min_score)[is_open]
        shown = likely[is_shown]
        return cls(float(shown.sum()), float((1 - shown).sum()), float(likely[~is_shown].sum()))

    @property
    def errors(self) -> float:
        """Wrong boxes and missed objects."""
        return self.wrong + self.missed

    @property
    def gain(self) -> float:
        """Objects and errors: a missed object is both.

        >>> Expected(right=1.0, wrong=2.0, missed=0.5).gain
        4.0
        """
        return self.right + self.missed + self.errors


@dataclass(frozen=True)
class Candidate:
    """An image for the queue; near-duplicates have the same group."""

    id: str
    group: int
    expected: Expected
    is_reviewed: bool = False


def queue(images: Sequence[Candidate]) -> list[str]:
    """The ids of images, the next to review first; those that are reviewed come last.

    Of a group, one image comes after all other groups had a turn; a reviewed image counts.

    >>> full, poor, empty = Expected(1.0, 2.0), Expected(0.9, 0.1), Expected(missed=0.1)
    >>> twins = [Candidate("a", 1, full), Candidate("a2", 1, full)]
    >>> others = [Candidate("b", 2, empty), Candidate("c", 3, poor)]
    >>> queue([*twins, *others])
    ['a', 'c', 'b', 'a2']
    >>> queue([Candidate("a", 1, full, is_reviewed=True), twins[1], *others])
    ['c', 'b', 'a2', 'a']
    """
    seen = Counter(image.group for image in images if image.is_reviewed)
    turns = []
    for image in sorted(images, key=lambda image: -image.expected.gain):
        if not image.is_reviewed:
            seen[image.group] += 1
            turns.append((seen[image.group], image.id))
    turns.sort(key=lambda turn: turn[0])
    return [*(key for _, key in turns), *(image.id for image in images if image.is_reviewed)]
