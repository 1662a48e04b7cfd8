"""A mistake in a picture, corrected: the windows that made it are taught, until it is gone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet.detect.detect import Merge, merged
from whet.detect.grouping import OVERLAP
from whet.errors import BoxError
from whet.evaluate.overlap import intersection_over_union
from whet.model.detector_base import DetectorBase
from whet.model.reporting import Frame
from whet.model.taught_detector import TaughtDetector
from whet.training.journal_entry import Entry, Places, entries_of, lesson_of
from whet.training.online import default_weight
from whet.training.picture_windows import Boxes, PictureWindows

Labels = NDArray[np.bool_]

# A detection is the false alarm that a box stands for from this overlap on, as in every evaluation.
SAME = 0.5
MOST_ROUNDS = 10


@dataclass(frozen=True, eq=False)
class Correction:
    """Boxes (n, 4) of a picture with labels (n,), and how its windows are scanned, merged and weighed.

    A `weight` is how often a box counts. It is shared by the windows of a false alarm, each counting at least once.
    """

    windows: PictureWindows
    picture: str
    boxes: Boxes
    is_object: Labels
    weight: int | None = None
    merge: Merge | None = "mean"
    overlap: float = OVERLAP
    threads: int | None = None

    def teach(self, detector: TaughtDetector) -> list[Entry]:
        """Teach a detector; returns what was learned.

        An object teaches the window nearest to its box. What is not the object teaches the windows behind the
        detections there, or, where nothing fires, the nearest. With the default weight the picture is scanned again,
        and what still fires is taught, up to ten times; with a weight of the user's own it is taught once.
        """
        fired = self._fired(detector)
        nearest = {i: self._nearest(i, detector.reporting.frame) for i in range(len(self.boxes)) if i not in fired}
        entries = self._taught(detector, fired | nearest)
        for _ in range(0 if self.weight is not None else MOST_ROUNDS - 1):
            fired = self._fired(detector)
            if not fired:
                break
            entries += self._taught(detector, fired)
        return entries

    def _nearest(self, i: int, frame: Frame) -> Places:
        try:
            return self.windows.nearest(self.boxes[i], frame)
        except BoxError as error:
            raise BoxError(f"boxes[{i}]: {error}; nothing was changed") from error

    def _fired(self, detector: TaughtDetector) -> dict[int, Places]:
        """The windows behind each box that is not the object; a window that is behind two counts for the first."""
        wrong = np.flatnonzero(~self.is_object)
        if not len(wrong):
            return {}
        fired = self.windows.fired(detector.cascade(), self.threads)
        groups = merged(fired, self.merge, self.overlap)
        shared = intersection_over_union(self.boxes, detector.reporting.frame.boxes(groups.boxes))
        taken = np.zeros(len(fired), np.bool_)
        found = {}
        for i in wrong.tolist():
            mine = np.isin(groups.group, _same(shared[i])) & ~taken
            taken |= mine
            if mine.any():
                found[i] = Places(fired.scale[mine], fired.y[mine], fired.x[mine])
        return found

    def _taught(self, detector: TaughtDetector, places: dict[int, Places]) -> list[Entry]:
        entries: list[Entry] = []
        for i, where in places.items():
            n = len(where.y)
            labels = np.full(n, self.is_object[i])
            weights = np.full(n, self._weight(detector.base, bool(self.is_object[i]), n))
            entries += entries_of(detector.base, self.picture, where, self.windows.cut(where), labels, weights)
        detector.insert_all(lesson_of(detector.base, entries))
        return entries

    def _weight(self, base: DetectorBase, is_object: bool, n: int) -> int:
        return max(1, (default_weight(base, is_object) if self.weight is None else self.weight) // n)


def _same(shared: NDArray[np.float64]) -> NDArray[np.intp]:
    """The detections that a box stands for, by their overlap with it (detections,).

    All with half in common. A box that was drawn loosely may have none: then the best, if it has so much in common
    with it that windows would be merged.
    """
    same = np.flatnonzero(shared >= SAME)
    if len(same) or not len(shared) or shared.max() < OVERLAP:
        return same
    return np.array([shared.argmax()])
