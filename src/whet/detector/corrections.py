"""Correction of mistakes in an image: the windows that made them are learned until the mistakes are gone."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whet.cascade.boxes import Boxes, BoxOffset, box_iou, checked_boxes
from whet.cascade.detect import GROUPING, IOU, Grouping, report
from whet.cascade.detections import Detections
from whet.cascade.pyramid import Pyramid, WindowIndex
from whet.cascade.scan import scan_pyramid
from whet.detector.records import Record, count_records, default_weight, record_windows
from whet.errors import BoxError

if TYPE_CHECKING:
    from whet.detector.detector import Detector

# A detection is the false positive that a box stands for from this IoU on, as in every evaluation.
SAME = 0.5
# What still fires is learned again, and counts so much more in every further round. One round removed 83 of 100 false
# positives, four removed all (benchmarks/correction_weight.py, seed 0).
MOST_ROUNDS = 4
GROWTH = 2
# A window with a lower IoU does not contain the object of the box.
LEAST_IOU = 0.5
# Beyond any image; products of such numbers are still far from the largest float.
FARTHEST_PIXEL = 1e9


@dataclass(frozen=True, eq=False)
class Correction:
    """Boxes (n, 4) of an image with labels (n,), and how its windows are scanned, grouped, weighted and judged.

    `weight` is how often a box counts. The windows of a false positive share it; where they are more than that, those
    with the highest margins do.
    """

    pyramid: Pyramid
    image: str
    boxes: Boxes
    is_object: NDArray[np.bool_]
    weight: int | None = None
    grouping: Grouping | None = GROUPING
    iou: float = IOU
    min_score: float = -np.inf
    threads: int | None = None

    def apply(self, detector: Detector) -> list[Record]:
        """Let a detector learn the boxes; returns the records of what it learned.

        An object is learned by the window nearest to its box. A false positive is learned by the windows behind the
        detections there, or, where nothing fires, by the nearest window. Without a weight, the image is then scanned
        again, and what still fires, or an object that is still missed, is learned with twice the weight, for a few
        rounds. A mistake that stays keeps its first round only: it is beyond these weak learners.
        """
        fired, targets = self._behind_boxes(detector)
        nearest = {i: self._nearest(i, detector.box_offset) for i in range(len(self.boxes)) if i not in fired}
        first = self._learn(detector, fired | nearest)
        objects = {i: nearest[i] for i in np.flatnonzero(self.is_object).tolist()}
        further = self._repeat(detector, targets, objects) if self.weight is None else {}
        return [*chain(*first.values()), *chain(*further.values())]

    def _repeat(
        self, detector: Detector, targets: dict[int, Boxes], objects: dict[int, WindowIndex]
    ) -> dict[int, list[Record]]:
        """Learn what still fires at the targets of each box, and objects that are still missed, in further rounds."""
        records: dict[int, list[Record]] = defaultdict(list)
        for turn in range(1, MOST_ROUNDS):
            wrong = self._still_wrong(detector, targets, objects)
            if not wrong:
                return records
            for i, new in self._learn(detector, wrong, GROWTH**turn).items():
                records[i] += new
        for i in self._still_wrong(detector, targets, objects):
            detector.subtract(count_records(detector.base, records.pop(i, [])))
        return records

    def _still_wrong(
        self, detector: Detector, targets: dict[int, Boxes], objects: dict[int, WindowIndex]
    ) -> dict[int, WindowIndex]:
        """The windows to learn once more: those that fire where they should not, and those of objects not found."""
        found = self._detect(detector)
        shared = box_iou(self.boxes, found.boxes)
        missed = {i: index for i, index in objects.items() if not (shared[i] >= SAME).any()}
        return self._at_targets(found, targets) | missed

    def _behind_boxes(self, detector: Detector) -> tuple[dict[int, WindowIndex], dict[int, Boxes]]:
        """The windows that fire behind each box that is not the object, and the boxes of their detections."""
        if self.is_object.all():
            return {}, {}
        found = self._detect(detector)
        shared = box_iou(self.boxes, found.boxes)
        shared[:, self._is_object_of_call(found.boxes)] = 0.0
        chosen = {i: _meant(shared[i]) for i in np.flatnonzero(~self.is_object).tolist()}
        targets = {i: np.concatenate([self.boxes[i : i + 1], found.boxes[rows]]) for i, rows in chosen.items()}
        return windows_behind(found, chosen), targets

    def _at_targets(self, found: Detections, targets: dict[int, Boxes]) -> dict[int, WindowIndex]:
        right = self._is_object_of_call(found.boxes)
        shared = {i: np.where(right, 0.0, box_iou(boxes, found.boxes).max(axis=0)) for i, boxes in targets.items()}
        behind = windows_behind(found, {i: np.flatnonzero(overlaps >= SAME) for i, overlaps in shared.items()})
        return {i: index for i, index in behind.items() if len(index)}

    def _is_object_of_call(self, detections: Boxes) -> NDArray[np.bool_]:
        """Which detections (n,) are objects of this very call: they are no false positives."""
        shared = box_iou(self.boxes[self.is_object], detections)
        return np.asarray((shared >= SAME).any(axis=0))

    def _detect(self, detector: Detector) -> Detections:
        fired = scan_pyramid(detector.cascade, self.pyramid, threads=self.threads)
        return report(fired, grouping=self.grouping, iou=self.iou, offset=detector.box_offset, min_score=self.min_score)

    def _nearest(self, i: int, offset: BoxOffset) -> WindowIndex:
        box = self.boxes[i]
        index = self.pyramid.nearest(offset.windows(box[None])[0])
        (ours,) = offset.boxes(self.pyramid.boxes(index))
        if not box_iou(box[None], ours[None])[0, 0] >= LEAST_IOU:
            height, width = (float(side * size) for side, size in zip(self.pyramid.window, offset.size, strict=True))
            rows, columns = self.pyramid.shape
            raise BoxError(
                f"boxes[{i}]: got {box.tolist()}; the nearest box that this detector can report in an image of "
                f"{columns} x {rows} is {ours.round(1).tolist()}, which overlaps it too little. Expected a box of "
                f"about {width:g} x {height:g} pixels or larger, of that shape, inside the image; nothing was changed"
            )
        return index

    def _learn(self, detector: Detector, windows: dict[int, WindowIndex], times: int = 1) -> dict[int, list[Record]]:
        records = {i: self._record(detector, i, index, times) for i, index in sorted(windows.items())}
        detector.add(count_records(detector.base, list(chain(*records.values()))))
        return records

    def _record(self, detector: Detector, i: int, index: WindowIndex, times: int) -> list[Record]:
        is_object = bool(self.is_object[i])
        weight = times * (default_weight(detector.base, is_object) if self.weight is None else self.weight)
        index = index.take(slice(weight))
        n = len(index)
        # Shared to the last count: what is left over goes to those with the highest margins.
        labels, weights = np.full(n, is_object), weight // max(n, 1) + (np.arange(n) < weight % max(n, 1))
        return record_windows(detector.base, self.image, index, self.pyramid.patches(index), labels, weights)


def windows_behind(found: Detections, chosen: dict[int, NDArray[np.intp]]) -> dict[int, WindowIndex]:
    """The windows of some detections for each key that has any, highest margins first.

    Windows that two keys share go to the first.
    """
    best_first = np.argsort(-found.windows.scores, kind="stable")
    index, group = found.windows.index.take(best_first), found.group[best_first]
    taken = np.zeros(len(group), np.bool_)
    behind = {}
    for key, detections in chosen.items():
        mine = np.isin(group, detections) & ~taken
        taken |= mine
        if len(detections):
            behind[key] = index.take(mine)
    return behind


def _meant(shared: NDArray[np.float64]) -> NDArray[np.intp]:
    """The detections that a box stands for, by their IoU (detections,) with it.

    All with an IoU of one half. A loosely drawn box may have none: then the best, if it overlaps so much that windows
    would be grouped.
    """
    same = np.flatnonzero(shared >= SAME)
    if len(same) or not len(shared) or shared.max() < IOU:
        return same
    return np.array([shared.argmax()])


def checked_labels(boxes: ArrayLike, labels: ArrayLike, shape: tuple[int, ...]) -> tuple[Boxes, NDArray[np.bool_]]:
    """Boxes (n, 4) with some area in an image (height, width), and labels (n,); or a `BoxError` with the reason."""
    try:
        array = checked_boxes(boxes)
    except (TypeError, ValueError) as error:
        raise BoxError(str(error)) from error
    height, width = shape
    inside = np.minimum(array[:, 2:], [width, height]) - np.maximum(array[:, :2], 0)
    for i in range(len(array)):
        if (array[i, 2:] <= array[i, :2]).any():
            raise BoxError(f"boxes[{i}] is {array[i].tolist()} and has no area; expected x1 < x2 and y1 < y2")
        if (inside[i] <= 0).any() or (abs(array[i]) > FARTHEST_PIXEL).any():
            raise BoxError(f"boxes[{i}] is {array[i].tolist()}, outside the {width} x {height} image")
    flags: NDArray[Any] = np.asarray(labels)
    if flags.shape == ():
        flags = np.full(len(array), flags)
    if flags.shape != (len(array),):
        raise ValueError(f"got labels of shape {flags.shape} for {len(array)} boxes; expected one for each")
    if not np.isin(flags, (0, 1)).all():
        raise ValueError("a label is True (the object) or False (not the object)")
    return array, flags.astype(np.bool_)
