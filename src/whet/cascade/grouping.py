"""Many windows fire around one object: one box for them all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet._kernels.boxes import absorb, suppress

Boxes = NDArray[np.float64]
Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

IOU = 0.3
# Between the best score of a group (infinity) and the sum of all (1).
NORM = 4
# A group that shares so much of itself, or of a better one, with that better one is no object of its own.
NESTED = 0.6


@dataclass(frozen=True, eq=False)
class Groups:
    """Merged boxes (groups, 4), their scores (groups,), best first, and the group of every window (windows,)."""

    boxes: Boxes
    scores: Floats
    group: Indices


def group_peaks(boxes: Boxes, scores: Floats, *, iou: float = IOU) -> Groups:
    """Groups as non-maximum suppression makes them: the best window and all that overlap it, and so on.

    A group's box is the mean of its windows, weighted by their `scores` (n,) > 0; its score their 4-norm: near the
    best of them, and more where more fire. A group that lies in a better one, or around it, is taken for a part of
    that: its windows join, and change neither box nor score.

    >>> boxes = np.array([[0, 0, 10, 10], [2, 0, 12, 10], [50, 0, 60, 10]], dtype=np.float64)
    >>> groups = group_peaks(boxes, np.array([1.0, 3.0, 2.0]))
    >>> groups.boxes[:, 0], groups.scores.round(3), groups.group
    (array([ 1.5, 50. ]), array([3.009, 2.   ]), array([0, 0, 1]))
    """
    group = suppress_non_maxima(boxes, scores, iou=iou).group
    together = (np.bincount(group, scores**NORM) ** (1 / NORM)).astype(np.float64)
    return _without_nested(_best_first(_means(boxes, scores, group), together, group))


def suppress_non_maxima(boxes: Boxes, scores: Floats, *, iou: float = IOU) -> Groups:
    """Keep the best window, drop all that overlap it, and so on with the next best that is left.

    The window that stays keeps its box and its score; those that it suppressed are its group.

    >>> boxes = np.array([[0, 0, 10, 10], [2, 0, 12, 10], [50, 0, 60, 10]], dtype=np.float64)
    >>> groups = suppress_non_maxima(boxes, np.array([1.0, 3.0, 2.0]))
    >>> groups.boxes[:, 0], groups.scores, groups.group
    (array([ 2., 50.]), array([3., 2.]), array([0, 0, 1]))
    """
    _check(boxes, scores, iou)
    order = np.argsort(boxes[:, 0], kind="stable")
    winner = np.empty(len(boxes), dtype=np.intp)
    suppress(boxes[order], np.argsort(-scores[order], kind="stable"), iou, winner)
    kept, inverse = np.unique(winner, return_inverse=True)
    group = np.empty(len(boxes), dtype=np.intp)
    group[order] = inverse
    return _best_first(boxes[order][kept], scores[order][kept], group)


def keep_all(boxes: Boxes, scores: Floats) -> Groups:
    """Every window by itself, best first."""
    return _best_first(boxes, scores, np.arange(len(boxes)))


def _without_nested(groups: Groups) -> Groups:
    """Groups that neither lie in a better one nor around it; the windows of the others join that one."""
    winner = np.empty(len(groups.boxes), dtype=np.intp)
    absorb(groups.boxes, NESTED, winner)
    kept, rank = np.unique(winner, return_inverse=True)
    return Groups(groups.boxes[kept], groups.scores[kept], rank[groups.group])


def _means(boxes: Boxes, weights: Floats, group: Indices) -> Boxes:
    """Weighted mean box (groups, 4) of each group."""
    columns = [np.bincount(group, weights * column) for column in boxes.T]
    return np.stack(columns, axis=-1) / np.bincount(group, weights)[:, None]


def _best_first(boxes: Boxes, scores: Floats, group: Indices) -> Groups:
    """Sort groups by falling score; equal ones from left to right and top to bottom."""
    order = np.lexsort((boxes[:, 1], boxes[:, 0], -scores))
    rank = np.empty(len(order), dtype=np.intp)
    rank[order] = np.arange(len(order))
    return Groups(boxes[order], scores[order], rank[group])


def _check(boxes: Boxes, scores: Floats, iou: float) -> None:
    if boxes.shape != (len(scores), 4):
        raise ValueError(f"got boxes {boxes.shape} and scores {scores.shape}; expected (n, 4) and (n,)")
    if not 0 < iou <= 1:
        raise ValueError(f"got iou={iou}; an intersection over union is above 0 and at most 1")
