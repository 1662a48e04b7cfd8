"""The order in which images are worth looking at: where most corrections are expected, near-duplicates later."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from whet.cascade.boxes import box_iou
from whet.cascade.detections import Detections
from whet.detector.corrections import SAME


def expected_change(found: Detections, min_score: float, labelled: NDArray[np.float64]) -> float:
    """The number of corrections that an image is expected to need: wrong boxes among those shown, objects below.

    `found` are detections at any score; those that overlap a `labelled` box (n, 4) are decided already. Without
    probabilities, a detection is as likely wrong as right.

    >>> found = Detections(np.array([[0.0, 0, 9, 9], [20, 0, 29, 9]]), np.array([5.0, 1.0]))
    >>> expected_change(found, 2.0, np.empty((0, 4))), expected_change(found, 2.0, found.boxes[:1])
    (1.0, 0.5)
    """
    if not len(found):
        return 0.0
    is_open = ~(box_iou(found.boxes, labelled) >= SAME).any(axis=1)
    likely = np.nan_to_num(found.probabilities, nan=0.5)
    wrong = np.where(found.scores > min_score, 1 - likely, likely)
    return float(wrong[is_open].sum())


def in_turns(images: Sequence[tuple[str, int, float]]) -> list[str]:
    """Images (id, group, expected change), the largest change first; of a group, one after all other groups had a turn.

    >>> in_turns([("a", 1, 3.0), ("b", 1, 2.9), ("c", 2, 1.0)])
    ['a', 'c', 'b']
    """
    ordered = sorted(images, key=lambda image: -image[2])
    seen: dict[int, int] = {}
    turns = []
    for key, group, change in ordered:
        seen[group] = seen.get(group, 0) + 1
        turns.append((seen[group], -change, key))
    return [key for _, _, key in sorted(turns, key=lambda turn: turn[:2])]
