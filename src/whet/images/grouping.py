"""From windows to detections: grouping, box offset, minimum score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, log2
from typing import Literal, get_args

import numpy as np

from whet._kernels.box_overlaps import absorb, suppress
from whet.arrays import Bools, Boxes, Floats, Indices
from whet.images.boxes import BoxOffset, areas
from whet.images.detections import Calibration, Detections, FiredWindows

Grouping = Literal["peaks", "nms"]
GROUPING: Grouping = "peaks"
IOU = 0.3
# Between the best score of a group (infinity) and the sum of all (1).
NORM = 4
# A group that shares this part of its area, or of a better group's, with the better group is no object of its own.
NESTED = 0.6
# Windows of one image with a higher IoU are near-copies of one mistake; those among which near-copies are left out.
NEAR_COPIES = 0.6
MOST_FIRED = 20


def report(
    fired: FiredWindows,
    *,
    grouping: Grouping | None = GROUPING,
    iou: float = IOU,
    offset: BoxOffset | None = None,
    min_score: float | None = None,
    max_detections: int | None = None,
    calibration: Calibration | None = None,
    by_object: bool = False,
    class_name: str | None = None,
) -> Detections:
    """Detections of the windows that fired: grouped, with the box that is reported for a window, and thresholded.

    Windows are grouped by their own overlap; with `by_object`, by that of the boxes that are reported for them. Windows
    with a wide margin overlap even where their objects stand side by side.
    """
    offset = BoxOffset() if offset is None else offset
    windows = replace(fired, boxes=offset.boxes(fired.boxes)) if by_object else fired
    groups = group_windows(windows, grouping, iou)
    boxes = groups.boxes if by_object else offset.boxes(groups.boxes)
    names = () if class_name is None else (class_name,)
    detections = Detections(boxes, groups.scores, fired, groups.group, calibration, names)
    detections = detections if min_score is None else detections.with_min_score(min_score)
    return detections if max_detections is None else detections.first(max_detections)


def merge_shapes(parts: Sequence[Detections], grouping: Grouping | None = GROUPING, iou: float = IOU) -> Detections:
    """Detections of several detectors of one class as one: those that overlap are grouped, as windows are.

    Scores of all of them must compare. The probability of a score is the mean of those that they give it.

    >>> tall = Detections.from_boxes([[0, 0, 8, 12]], [3])
    >>> wide = Detections.from_boxes([[0, 0, 12, 8], [50, 0, 62, 8]], [1, 2])
    >>> merge_shapes([tall, wide])
    Detections(2: 9 x 11 at (0, 0) scores 3.01, 12 x 8 at (50, 0) scores 2)
    >>> [group.tolist() for group in group_shapes([tall, wide])[1]]  # the best of a part comes first
    [[0], [1, 0]]
    """
    return group_shapes(parts, grouping, iou)[0]


def group_shapes(
    parts: Sequence[Detections], grouping: Grouping | None = GROUPING, iou: float = IOU
) -> tuple[Detections, list[Indices]]:
    """The same as `merge_shapes`, and for each part the merged detection (n,) that each of its detections is part of.

    It is -1 for a detection in a better one, or around it, that changes neither its box nor its score.
    """
    every = Detections.from_classes({str(number): part for number, part in enumerate(parts)})
    groups = group_windows(FiredWindows(boxes=every.boxes, scores=every.scores), grouping, iou)
    group = np.append(groups.group, -1)[every.group]  # the last one stands for -1, which no detection has
    known = [part.calibration for part in parts if part.calibration is not None]

    def probability(scores: Floats, class_ids: Indices) -> Floats:
        return np.asarray(np.mean([calibration(scores, class_ids) for calibration in known], axis=0))

    merged = Detections(groups.boxes, groups.scores, every.windows, group, probability if known else None)
    part_of = np.where(groups.is_nested, -1, groups.group)
    # Detections are best first, in a part and in all of them.
    return merged, [part_of[every.class_ids == number] for number in range(len(parts))]


def group_windows(fired: FiredWindows, grouping: Grouping | None = GROUPING, iou: float = IOU) -> Groups:
    """One box for all windows that fired around one object."""
    match grouping:
        case None:
            return keep_all(fired.boxes, fired.scores)
        case "peaks":
            return group_peaks(fired.boxes, fired.scores, iou=iou)
        case "nms":
            return suppress_non_maxima(fired.boxes, fired.scores, iou=iou)
    raise ValueError(f"got grouping={grouping!r}; expected one of {', '.join(get_args(Grouping))}, or None")


@dataclass(frozen=True, eq=False)
class Groups:
    """Merged boxes (groups, 4), their scores (groups,), best first, and the group of every window (windows,).

    `is_nested` (windows,) are those that have no part in box and score of their group.
    """

    boxes: Boxes
    scores: Floats
    group: Indices
    is_nested: Bools


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
    winner = _winners(boxes[order], np.argsort(-scores[order], kind="stable"), iou)
    kept, inverse = np.unique(winner, return_inverse=True)
    group = np.empty(len(boxes), dtype=np.intp)
    group[order] = inverse
    return _best_first(boxes[order][kept], scores[order][kept], group)


def _winners(boxes: Boxes, best_first: Indices, iou: float) -> Indices:
    """For each of the boxes (n, 4), sorted by x1, the index of the best box that suppresses it, or its own (n,)."""
    # Classes are powers of two of the area, and an IoU is at most the ratio of two areas; one more for the rounding.
    _, size = np.frexp(areas(boxes))
    by_size = np.argsort(size, kind="stable")
    ends = np.searchsorted(size[by_size], np.arange(size.min(initial=0), size.max(initial=0) + 2))
    place, winner = np.empty(len(boxes), np.intp), np.empty(len(boxes), np.intp)
    place[by_size] = np.arange(len(boxes))
    suppress(boxes[by_size], ends, ceil(-log2(iou)) + 1, place[best_first], iou, winner)
    return np.asarray(by_size[winner][place])


def without_near_copies(fired: FiredWindows, most: int) -> FiredWindows:
    """The `most` windows with the highest scores, of those that overlap much only the best; falling scores."""
    fired = fired.take(np.argsort(-fired.scores, kind="stable")[: most * MOST_FIRED])
    if not len(fired):
        return fired
    winners = suppress_non_maxima(fired.boxes, fired.scores, iou=NEAR_COPIES).group
    _, first = np.unique(winners, return_index=True)  # sorted by score: the first of a group is its best
    return fired.take(first[:most])


def keep_all(boxes: Boxes, scores: Floats) -> Groups:
    """Every window by itself, best first."""
    return _best_first(boxes, scores, np.arange(len(boxes)))


def _without_nested(groups: Groups) -> Groups:
    """Groups that neither lie in a better one nor around it; the windows of the others join that one."""
    winner = np.empty(len(groups.boxes), dtype=np.intp)
    absorb(groups.boxes, NESTED, winner)
    kept, rank = np.unique(winner, return_inverse=True)
    is_nested = winner != np.arange(len(winner))
    return Groups(groups.boxes[kept], groups.scores[kept], rank[groups.group], is_nested[groups.group])


def _means(boxes: Boxes, weights: Floats, group: Indices) -> Boxes:
    """Weighted mean box (groups, 4) of each group."""
    columns = [np.bincount(group, weights * column) for column in boxes.T]
    return np.stack(columns, axis=-1) / np.bincount(group, weights)[:, None]


def _best_first(boxes: Boxes, scores: Floats, group: Indices) -> Groups:
    """Sort groups by falling score; equal ones from left to right and top to bottom."""
    order = np.lexsort((boxes[:, 1], boxes[:, 0], -scores))
    rank = np.empty(len(order), dtype=np.intp)
    rank[order] = np.arange(len(order))
    return Groups(boxes[order], scores[order], rank[group], np.zeros(len(group), np.bool_))


def _check(boxes: Boxes, scores: Floats, iou: float) -> None:
    if boxes.shape != (len(scores), 4):
        raise ValueError(f"got boxes {boxes.shape} and scores {scores.shape}; expected (n, 4) and (n,)")
    if not 0 < iou <= 1:
        raise ValueError(f"got iou={iou}; an intersection over union is above 0 and at most 1")
