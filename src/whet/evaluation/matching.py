"""Which detections of one image are right, by the rule of the PASCAL challenge.

Detections are taken by falling score. Each finds the truth that it overlaps most among those not yet found, if their
intersection over union is above one half. A second detection of the same object is a false positive.

Since the order is by score, a threshold that takes away the lowest detections changes nothing for the others: one
matching serves all points of a curve.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whet.arrays import Bools, Floats, Indices
from whet.images.boxes import box_iou, checked_boxes, intersection_over_first

NOT_FOUND = -1


class Label(IntEnum):
    """What a detection is: right, a false positive, or neither."""

    IGNORED = -1
    FALSE = 0
    TRUE = 1


@dataclass(frozen=True, eq=False)
class Matching:
    """Detections and truths of one image, matched.

    `labels` (N,) has a `Label` for each detection; `found_by` (M,) has for each truth the index of the detection that
    found it, or `NOT_FOUND`. A truth to be ignored is never found.
    """

    labels: NDArray[np.int8]
    found_by: Indices


def match(
    boxes: ArrayLike,
    scores: ArrayLike,
    truths: ArrayLike,
    ignored: ArrayLike | None = None,
    *,
    iou: float = 0.5,
    ignore_overlap: float = 0.5,
) -> Matching:
    """Match the detections of one image to its truths.

    `boxes` (N, 4) and `scores` (N,) are the detections, in any order; those of equal score are taken as they stand.
    `truths` (M, 4) are the true boxes and `ignored` (M,) bool marks those that neither count as found nor as missed:
    unclear objects, or whole regions. A detection that finds no truth is ignored too where more than `ignore_overlap`
    of its own area lies in such a region. Overlaps have to be *above* `iou`; equal ones go to the first truth.

    >>> cars = [[0, 0, 10, 10], [20, 0, 30, 10]]
    >>> result = match([[0, 0, 10, 9], [0, 0, 10, 10], [20, 0, 24, 10]], [0.5, 0.9, 0.7], cars)
    >>> result.labels.tolist(), result.found_by.tolist()
    ([0, 1, 0], [1, -1])
    >>> match([[20, 0, 24, 10]], [0.7], cars, [False, True]).labels.tolist()
    [-1]
    """
    boxes, truths = checked_boxes(boxes, "detections"), checked_boxes(truths, "truths")
    scores = checked_scores(scores, len(boxes))
    is_ignored = checked_flags(ignored, len(truths))
    for name, value in (("iou", iou), ("ignore_overlap", ignore_overlap)):
        if not 0 <= value < 1:
            raise ValueError(f"{name}={value!r} must be at least 0 and below 1")
    overlaps = box_iou(boxes, truths)
    found_by = _find(np.where(is_ignored, 0.0, overlaps), np.argsort(-scores, kind="stable"), iou)
    labels = np.full(len(boxes), Label.FALSE, dtype=np.int8)
    # With a low `iou`, a detection may be as good as a match of an ignored truth and yet lie mostly beside it.
    in_ignored = intersection_over_first(boxes, truths[is_ignored]) > ignore_overlap
    labels[(in_ignored | (overlaps[:, is_ignored] > iou)).any(axis=1)] = Label.IGNORED
    labels[found_by[found_by != NOT_FOUND]] = Label.TRUE
    return Matching(labels, found_by)


def _find(overlaps: Floats, order: Indices, smallest: float) -> Indices:
    found_by = np.full(overlaps.shape[1], NOT_FOUND, dtype=np.intp)
    left = overlaps.copy()
    near_any = np.flatnonzero((overlaps > smallest).any(axis=1))  # few: most false positives are near no truth
    for i in order[np.isin(order, near_any)]:
        truth = int(np.argmax(left[i]))
        if left[i, truth] > smallest:
            found_by[truth] = i
            left[:, truth] = 0.0
    return found_by


def checked_scores(scores: ArrayLike, n: int) -> Floats:
    """Scores as (n,) float64, all finite, or a `ValueError`.

    >>> checked_scores([1, 2], 2)
    array([1., 2.])
    """
    array = np.asarray(scores, dtype=np.float64)
    if array.shape != (n,):
        raise ValueError(f"scores have shape {array.shape}; expected ({n},), one for each detection")
    finite = np.isfinite(array)
    if not finite.all():
        raise ValueError(f"scores[{int(np.argmin(finite))}] is not finite; detections cannot be ranked by it")
    return array


def checked_flags(ignored: ArrayLike | None, n: int) -> Bools:
    """Flags as (n,) bool, or a `ValueError`; None flags nothing.

    >>> checked_flags(None, 2)
    array([False, False])
    """
    array = np.zeros(n, dtype=np.bool_) if ignored is None else np.asarray(ignored)
    if array.shape != (n,):
        raise ValueError(f"ignore flags have shape {array.shape}; expected ({n},), one for each truth")
    # Indices of the truths to ignore look much like flags, but for their type.
    if n and array.dtype != np.bool_:
        raise ValueError(f"ignore flags are {array.dtype}; expected bool, one for each truth")
    return array.astype(np.bool_)
