"""What a detector found in an image, and the way there: windows, grouping, box offset, minimum score."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, log2
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from whet._kernels.box_overlaps import absorb, suppress
from whet.arrays import Bools, Boxes, Floats, Indices
from whet.errors import BoxError, MissingExtraError
from whet.images.boxes import BoxOffset, areas
from whet.images.pyramid import WindowIndex

if TYPE_CHECKING:
    import supervision

# The class of objects whose class has no name.
ONLY_CLASS = "object"
# Probabilities (n,) of scores (n,) of detections of classes (n,).
Calibration = Callable[[Floats, Indices], Floats]


def _no_indices() -> Indices:
    return np.empty(0, dtype=np.intp)


@dataclass(frozen=True, eq=False)
class FiredWindows:
    """Windows that a model accepted, before grouping: their index in the pyramid, boxes (n, 4) and scores (n,).

    `n_windows` is the number of windows that were looked at to find them, without those of too little contrast; 0 if
    that is not known.
    """

    index: WindowIndex = field(default_factory=WindowIndex)
    boxes: Floats = field(default_factory=lambda: np.empty((0, 4)))
    scores: Floats = field(default_factory=lambda: np.empty(0))
    n_windows: int = 0

    def __len__(self) -> int:
        return len(self.scores)

    def take(self, rows: Indices | Bools | slice) -> FiredWindows:
        """Those at these indices, in this order."""
        return FiredWindows(self.index.take(rows), self.boxes[rows], self.scores[rows], self.n_windows)

    @classmethod
    def concatenate(cls, parts: Sequence[FiredWindows]) -> FiredWindows:
        """One set of windows after the other."""
        boxes, scores = ([getattr(part, name) for part in (cls(), *parts)] for name in ("boxes", "scores"))
        index = WindowIndex.concatenate([part.index for part in parts])
        return cls(index, np.concatenate(boxes), np.concatenate(scores), sum(part.n_windows for part in parts))


@dataclass(frozen=True, eq=False)
class Detections:
    """Boxes (N, 4) as x1, y1, x2, y2 in pixels, half-open, and scores (N,), best first.

    `windows` are all windows that fired, and `group` (windows,) the detection that each of them belongs to, or -1
    if it was left out. So the windows of a false positive are known.

    >>> found = Detections(np.array([[10.0, 20.0, 34.0, 44.0]]), np.array([2.5]))
    >>> len(found), found
    (1, Detections(1: 24 x 24 at (10, 20) scores 2.5))
    >>> for (x1, y1, x2, y2), score in found:
    ...     print(f"from {x1:g}, {y1:g} to {x2:g}, {y2:g}: {score:g}")
    from 10, 20 to 34, 44: 2.5
    >>> Detections().boxes.shape
    (0, 4)

    They convert to and from arrays, COCO results and supervision; what fired behind them is lost on that way.

    >>> found.to_array()
    array([[10. , 20. , 34. , 44. ,  2.5]])
    >>> found.to_coco(image_id=7)
    [{'image_id': 7, 'category_id': 1, 'bbox': [10.0, 20.0, 24.0, 24.0], 'score': 2.5}]
    >>> Detections.from_coco(found.to_coco(image_id=7))
    Detections(1: 24 x 24 at (10, 20) scores 2.5)
    """

    boxes: Floats = field(default_factory=lambda: np.empty((0, 4)))
    scores: Floats = field(default_factory=lambda: np.empty(0))
    windows: FiredWindows = field(default_factory=FiredWindows)
    group: Indices = field(default_factory=_no_indices)
    calibration: Calibration | None = field(default=None, repr=False)
    class_names: tuple[str, ...] = ()
    class_ids: Indices = field(default_factory=_no_indices)

    def __post_init__(self) -> None:
        if not len(self.class_ids):
            object.__setattr__(self, "class_ids", np.zeros(len(self.scores), dtype=np.intp))
        if self.class_ids.shape != self.scores.shape:
            raise ValueError(f"got class_ids {self.class_ids.shape} for {len(self.scores)} scores; expected as many")
        if self.boxes.shape != (len(self.scores), 4) or len(self.group) != len(self.windows):
            raise ValueError(f"got boxes {self.boxes.shape} and scores {self.scores.shape}; expected (N, 4) and (N,)")
        if (np.diff(self.scores) > 0).any():
            raise ValueError("scores must not rise: sort detections by score, best first")

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, which: int | slice | Indices | Bools) -> Detections:
        """Some of the detections, by number, slice, indices or flags: `found[0]` is the best one."""
        rows = np.atleast_1d(np.arange(len(self))[which])
        order = np.full(len(self) + 1, -1)  # the last one stands for -1, which no detection has
        order[rows] = np.arange(len(rows))
        boxes, scores, class_ids = self.boxes[rows], self.scores[rows], self.class_ids[rows]
        return replace(self, boxes=boxes, scores=scores, group=order[self.group], class_ids=class_ids)

    @property
    def labels(self) -> list[str]:
        """The class name of each detection; empty texts where the detector does not name its class."""
        return [self.class_names[i] if self.class_names else "" for i in self.class_ids.tolist()]

    def of_class(self, name: str) -> Detections:
        """The detections of one class."""
        return self[np.array([label == name for label in self.labels], np.bool_)]

    @classmethod
    def from_classes(cls, by_class: Mapping[str, Detections]) -> Detections:
        """Detections of several classes, by the name of the class, as one: best first, whatever the class.

        >>> one, two = (Detections.from_boxes([[0, 0, 8, 8]], [score]) for score in (1, 2))
        >>> Detections.from_classes({"cat": one, "dog": two}).labels
        ['dog', 'cat']
        """
        parts = list(by_class.values())
        class_ids = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        boxes = np.concatenate([np.empty((0, 4)), *(part.boxes for part in parts)])
        scores = np.concatenate([np.empty(0), *(part.scores for part in parts)])
        order = np.argsort(-scores, kind="stable")
        rank = np.full(len(order) + 1, -1)  # the last one stands for -1, which no detection has
        rank[order] = np.arange(len(order))
        before = np.cumsum([0, *(len(part) for part in parts)])
        numbers = [np.where(part.group < 0, -1, part.group + n) for part, n in zip(parts, before, strict=False)]
        group = rank[np.concatenate([_no_indices(), *numbers])]
        windows = FiredWindows.concatenate([part.windows for part in parts])
        calibration = _of_each_class([part.calibration for part in parts])
        return cls(boxes[order], scores[order], windows, group, calibration, tuple(by_class), class_ids[order])

    @property
    def probabilities(self) -> Floats:
        """The probability (N,) that each detection is the object, in images with one object on average.

        It is calibrated on samples held out from the training, rises with the score, and follows what is learned. NaN
        where the detector has no reference set.
        """
        return np.full(len(self), np.nan) if self.calibration is None else self.calibration(self.scores, self.class_ids)

    def __iter__(self) -> Iterator[tuple[Floats, float]]:
        """Each box (4,) with its score, best first."""
        yield from zip(self.boxes, self.scores.tolist(), strict=True)

    def __repr__(self) -> str:
        boxes = (
            f"{label}{' ' * bool(label)}{x2 - x1:.0f} x {y2 - y1:.0f} at ({x1:.0f}, {y1:.0f}) scores {score:.3g}"
            for label, (x1, y1, x2, y2), score in zip(self.labels[:5], self.boxes[:5], self.scores[:5], strict=True)
        )
        more = ", ..." if len(self) > 5 else ""
        return f"Detections({len(self)}: {', '.join(boxes)}{more})" if len(self) else "Detections(0)"

    def windows_of(self, i: int) -> Indices:
        """Indices into `windows` of those behind detection i."""
        return np.flatnonzero(self.group == i)

    def first(self, n: int) -> Detections:
        """The n best detections."""
        return self[: max(n, 0)]

    def with_min_score(self, min_score: float) -> Detections:
        """The detections with scores above `min_score`; a higher one keeps a subset."""
        return self.first(int((self.scores > min_score).sum()))

    @classmethod
    def from_boxes(cls, boxes: ArrayLike, scores: ArrayLike | None = None) -> Detections:
        """Detections from boxes (N, 4) and scores (N,) in any order; without scores, all have the same, 1.

        >>> Detections.from_boxes([[0, 0, 8, 8], [5, 5, 9, 9]], [0.5, 2]).scores
        array([2. , 0.5])
        """
        corners = np.asarray(boxes, dtype=np.float64)
        corners = np.empty((0, 4)) if corners.size == 0 else corners
        if corners.ndim != 2 or corners.shape[1] != 4 or not np.isfinite(corners).all():
            raise BoxError(f"got boxes of shape {corners.shape}; expected (N, 4), finite: x1, y1, x2, y2")
        marks = np.ones(len(corners)) if scores is None else np.asarray(scores, dtype=np.float64).reshape(-1)
        if len(marks) != len(corners) or np.isnan(marks).any():
            raise BoxError(f"got {len(marks)} scores for {len(corners)} boxes; expected a number for each")
        order = np.argsort(-marks, kind="stable")
        return cls(corners[order], marks[order])

    def to_array(self) -> Floats:
        """Rows (N, 5) of x1, y1, x2, y2 and score."""
        return np.column_stack([self.boxes, self.scores])

    @classmethod
    def from_array(cls, rows: ArrayLike) -> Detections:
        """Detections from rows (N, 5) of x1, y1, x2, y2 and score, in any order."""
        array = np.asarray(rows, dtype=np.float64)
        array = np.empty((0, 5)) if array.size == 0 else array
        if array.ndim != 2 or array.shape[1] != 5:
            raise BoxError(f"got rows of shape {array.shape}; expected (N, 5): x1, y1, x2, y2, score")
        return cls.from_boxes(array[:, :4], array[:, 4])

    def to_coco(self, image_id: int | str, category_id: int = 1) -> list[dict[str, Any]]:
        """The detections as records of a COCO results file, as `pycocotools` loads and evaluates them.

        `category_id` is that of the first class; further classes have the numbers after it.
        """
        return [
            {"image_id": image_id, "category_id": category_id + i, "bbox": [x1, y1, x2 - x1, y2 - y1], "score": score}
            for i, (x1, y1, x2, y2), score in zip(
                self.class_ids.tolist(), self.boxes.tolist(), self.scores.tolist(), strict=True
            )
        ]

    @classmethod
    def from_coco(
        cls,
        results: Iterable[Mapping[str, Any]],
        image_id: int | str | None = None,
        category_id: int | None = None,
    ) -> Detections:
        """Detections from the records of a COCO results file: of one image and one category, if they are named."""
        chosen = [
            row
            for row in results
            if image_id in (None, row.get("image_id")) and category_id in (None, row.get("category_id"))
        ]
        try:
            corners = [(x, y, x + width, y + height) for x, y, width, height in (row["bbox"] for row in chosen)]
        except (KeyError, TypeError, ValueError) as error:
            raise BoxError(f"a result has no bbox of x, y, width and height: {error}") from error
        return cls.from_boxes(corners, [row.get("score", 1.0) for row in chosen])

    def to_supervision(self, class_id: int = 0) -> supervision.Detections:
        """The detections as those of the package supervision: its annotators draw them, its trackers follow them.

        `class_id` is that of the first class; further classes have the numbers after it. Class names go along.
        """
        try:
            from supervision import Detections as Theirs
        except ImportError as error:
            raise MissingExtraError("supervision", "supervision") from error
        # Copies, and in 32 bits as everywhere there.
        boxes, scores = self.boxes.astype(np.float32), self.scores.astype(np.float32)
        data: dict[str, Any] = {"class_name": np.array(self.labels, str)} if self.class_names else {}
        return Theirs(boxes, confidence=scores, class_id=self.class_ids + class_id, data=data)

    @classmethod
    def from_supervision(cls, detections: supervision.Detections) -> Detections:
        """Detections from those of supervision; where these have no confidence, all score 1."""
        return cls.from_boxes(detections.xyxy, detections.confidence)


def _of_each_class(calibrations: Sequence[Calibration | None]) -> Calibration | None:
    """The probabilities that each class has by itself; NaN for a class without, None if no class has any."""
    if not any(calibrations):
        return None

    def probability(scores: Floats, class_ids: Indices) -> Floats:
        probabilities = np.full(len(scores), np.nan)
        for number, calibration in enumerate(calibrations):
            rows = class_ids == number
            if calibration is not None:
                probabilities[rows] = calibration(scores[rows], np.zeros(int(rows.sum()), np.intp))
        return probabilities

    return probability


Grouping = Literal["peaks", "nms"]
GROUPING: Grouping = "peaks"
IOU = 0.3
# Between the best score of a group (infinity) and the sum of all (1).
NORM = 4


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
    fired = fired.take(np.argsort(-fired.scores, kind="stable")[: 20 * most])
    if not len(fired):
        return fired
    winners = suppress_non_maxima(fired.boxes, fired.scores, iou=0.6).group
    _, first = np.unique(winners, return_index=True)  # sorted by score: the first of a group is its best
    return fired.take(first[:most])


def keep_all(boxes: Boxes, scores: Floats) -> Groups:
    """Every window by itself, best first."""
    return _best_first(boxes, scores, np.arange(len(boxes)))


def _without_nested(groups: Groups) -> Groups:
    """Groups that neither lie in a better one nor around it; the windows of the others join that one."""
    winner = np.empty(len(groups.boxes), dtype=np.intp)
    # A group that shares this part of its area, or of a better group's, with the better group is no object of its own.
    absorb(groups.boxes, 0.6, winner)
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
