"""A mistake in an image, corrected: the windows that made it are taught, until it is gone."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from whet.cascade.boxes import box_iou
from whet.cascade.detect import GROUPING, Grouping, grouped
from whet.cascade.grouping import IOU
from whet.detector.counting import default_weight
from whet.detector.journal import Entry, Places, entries_of, lesson_of
from whet.detector.reporting import Frame
from whet.detector.taught import TaughtDetector
from whet.detector.windows import Boxes, ImageWindows
from whet.errors import BoxError

# A detection is the false positive that a box stands for from this overlap on, as in every evaluation.
SAME = 0.5
# What still fires after a lesson is taught again, and counts so much more in every further round. One round removed
# 83 of 100 false positives, four all (benchmarks/correction_weight.py, seed 0).
MOST_ROUNDS = 4
GROWTH = 2


@dataclass(frozen=True, eq=False)
class Correction:
    """Boxes (n, 4) of an image with labels (n,), and how its windows are scanned, merged, weighed and judged.

    `weight` is how often a box counts. The windows of a false positive share it; where they are more than that, those
    with the highest margins do.
    """

    windows: ImageWindows
    image: str
    boxes: Boxes
    is_object: NDArray[np.bool_]
    weight: int | None = None
    grouping: Grouping | None = GROUPING
    iou: float = IOU
    min_score: float = -np.inf
    threads: int | None = None

    def teach(self, detector: TaughtDetector) -> list[Entry]:
        """Teach a detector; returns what was learned.

        An object teaches the window nearest to its box. What is not the object teaches the windows behind the
        detections there, or, where nothing fires, the nearest. Without a weight of the user's own, the image is then
        scanned again, and what still fires, or an object that is still missed, is taught with twice the weight, for a
        few rounds. A mistake that stays all the same is beyond these weak learners: only its first lesson is kept.
        """
        fired, targets = self._behind_boxes(detector)
        nearest = {i: self._nearest(i, detector.reporting.frame) for i in range(len(self.boxes)) if i not in fired}
        first = self._taught(detector, fired | nearest)
        objects = {i: nearest[i] for i in np.flatnonzero(self.is_object).tolist()}
        further = self._insisted(detector, targets, objects) if self.weight is None else {}
        return [*chain(*first.values()), *chain(*further.values())]

    def _insisted(
        self, detector: TaughtDetector, targets: dict[int, Boxes], objects: dict[int, Places]
    ) -> dict[int, list[Entry]]:
        """Teach what still fires at the targets of each box, and objects that are still missed, in further rounds."""
        entries: dict[int, list[Entry]] = defaultdict(list)
        for turn in range(1, MOST_ROUNDS):
            wrong = self._still_wrong(detector, targets, objects)
            if not wrong:
                return entries
            for i, new in self._taught(detector, wrong, GROWTH**turn).items():
                entries[i] += new
        for i in self._still_wrong(detector, targets, objects):
            detector.remove_all(lesson_of(detector.base, entries.pop(i, [])))
        return entries

    def _still_wrong(
        self, detector: TaughtDetector, targets: dict[int, Boxes], objects: dict[int, Places]
    ) -> dict[int, Places]:
        """The windows to teach once more: those that fire where they should not, and those of objects not found."""
        scanned = self._scan(detector)
        shared = box_iou(self.boxes, scanned.boxes)
        missed = {i: places for i, places in objects.items() if not (shared[i] >= SAME).any()}
        return self._at_targets(scanned, targets) | missed

    def _behind_boxes(self, detector: TaughtDetector) -> tuple[dict[int, Places], dict[int, Boxes]]:
        """The windows that fire behind each box that is not the object, and the boxes of their detections."""
        if self.is_object.all():
            return {}, {}
        scanned = self._scan(detector)
        shared = box_iou(self.boxes, scanned.boxes)
        shared[:, self._is_found(scanned.boxes)] = 0.0
        chosen = {i: _meant(shared[i]) for i in np.flatnonzero(~self.is_object).tolist()}
        targets = {i: np.concatenate([self.boxes[i : i + 1], scanned.boxes[rows]]) for i, rows in chosen.items()}
        return scanned.windows_of(chosen), targets

    def _at_targets(self, scanned: _Scanned, targets: dict[int, Boxes]) -> dict[int, Places]:
        right = self._is_found(scanned.boxes)
        shared = {i: np.where(right, 0.0, box_iou(boxes, scanned.boxes).max(axis=0)) for i, boxes in targets.items()}
        found = scanned.windows_of({i: np.flatnonzero(overlaps >= SAME) for i, overlaps in shared.items()})
        return {i: places for i, places in found.items() if len(places.y)}

    def _is_found(self, detections: Boxes) -> NDArray[np.bool_]:
        """Which detections (n,) are objects of this very call: they are nobody's false positive."""
        shared = box_iou(self.boxes[self.is_object], detections)
        return np.asarray((shared >= SAME).any(axis=0))

    def _scan(self, detector: TaughtDetector) -> _Scanned:
        fired = self.windows.fired(detector.cascade(), self.threads)
        groups = grouped(fired, self.grouping, self.iou)
        best_first = np.argsort(-fired.scores, kind="stable")
        places = Places(fired.scale, fired.y, fired.x).take(best_first)
        stand = groups.scores > self.min_score  # best first: these come before all others
        return _Scanned(detector.reporting.frame.boxes(groups.boxes[stand]), places, groups.group[best_first])

    def _nearest(self, i: int, frame: Frame) -> Places:
        try:
            return self.windows.nearest(self.boxes[i], frame)
        except BoxError as error:
            raise BoxError(f"boxes[{i}]: {error}; nothing was changed") from error

    def _taught(self, detector: TaughtDetector, places: dict[int, Places], times: int = 1) -> dict[int, list[Entry]]:
        taught = {i: self._entries(detector, i, where, times) for i, where in sorted(places.items())}
        detector.insert_all(lesson_of(detector.base, list(chain(*taught.values()))))
        return taught

    def _entries(self, detector: TaughtDetector, i: int, where: Places, times: int) -> list[Entry]:
        is_object = bool(self.is_object[i])
        weight = times * (default_weight(detector.base, is_object) if self.weight is None else self.weight)
        where = where.take(np.arange(min(weight, len(where.y))))
        n = len(where.y)
        # Shared to the last count: what is left over goes to those with the highest margins.
        labels, weights = np.full(n, is_object), weight // max(n, 1) + (np.arange(n) < weight % max(n, 1))
        return entries_of(detector.base, self.image, where, self.windows.cut(where), labels, weights)


class _Scanned:
    """Detections (n, 4) of an image, and the windows behind them, those with the highest margins first."""

    def __init__(
        self, boxes: Boxes | None = None, places: Places | None = None, group: NDArray[np.intp] | None = None
    ) -> None:
        self.boxes = np.empty((0, 4)) if boxes is None else boxes
        self._places = Places() if places is None else places
        self._group = np.empty(0, np.intp) if group is None else group

    def windows_of(self, chosen: dict[int, NDArray[np.intp]]) -> dict[int, Places]:
        """The windows of some detections for each key that has any; what two keys share goes to the first."""
        taken = np.zeros(len(self._group), np.bool_)
        found = {}
        for key, detections in chosen.items():
            mine = np.isin(self._group, detections) & ~taken
            taken |= mine
            if len(detections):
                found[key] = self._places.take(np.flatnonzero(mine))
        return found


def _meant(shared: NDArray[np.float64]) -> NDArray[np.intp]:
    """The detections that a box stands for, by their overlap (detections,) with it.

    All with half in common. A box that was drawn loosely may have none: then the best, if they have so much in common
    that windows would be merged.
    """
    same = np.flatnonzero(shared >= SAME)
    if len(same) or not len(shared) or shared.max() < IOU:
        return same
    return np.array([shared.argmax()])
