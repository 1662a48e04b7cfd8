"""Windows near a box, scored without being rejected: a cascade as a graded opinion.

A cascade drops what does not look like the object, and gives no score to what it dropped. Where the object was a
moment ago, that is too strict: it is most likely still there, turned away or in a shadow, and the question is only
where exactly. So all windows around are scored, by the margins in the same stages that score accepted windows, and
negative ones count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log

import numpy as np
from numpy.typing import NDArray

from whet.detect.detections import FiredWindows
from whet.detect.pyramid import FACTOR, Level
from whet.detect.scan import Scan, scan_pictures
from whet.kernels.lanes import LANES
from whet.model.cascade import Cascade

Box = NDArray[np.float64]

# Lower than any margin of a stage: weights of discriminants sum to tens.
LOWEST = -1e4


def unrejecting(cascade: Cascade) -> Cascade:
    """The same cascade without exits, its thresholds so low that all windows with contrast pass."""
    stages = tuple(replace(stage, threshold=stage.threshold + LOWEST, exits=None) for stage in cascade.stages)
    return Cascade(cascade.window, stages, cascade.min_sigma)


def near_windows(
    unrejecting: Cascade,
    levels: Sequence[Level],
    scales: Sequence[float],
    box: Box,
    *,
    reach: float,
    steps: float,
    factor: float = FACTOR,
    threads: int | None = None,
) -> FiredWindows:
    """Windows around a box (4,) in the levels of a pyramid, with their margins in the later half of the stages.

    Centres are at most `reach` sides of the box away from its own, in either direction, and sizes at most `steps`
    levels of the pyramid larger or smaller. The cascade is one that `unrejecting` made.
    """
    side, window = float(box[2] - box[0]), unrejecting.window
    cuts = [
        _Cut.around(box, reach * side, level, scale, window)
        for level, scale in zip(levels, scales, strict=True)
        if abs(log(scale * window[1] / side)) <= steps * log(factor) + 1e-9
    ]
    cuts = [cut for cut in cuts if cut.holds(window)]
    if not cuts:
        return FiredWindows()
    scans = scan_pictures(unrejecting, [cut.picture(window) for cut in cuts], threads=threads)
    found = [cut.windows(scan, window) for cut, scan in zip(cuts, scans, strict=True)]
    scored = len(unrejecting.stages) - unrejecting.first_scoring
    names = ("scale", "y", "x", "boxes", "scores")
    scale, y, x, boxes, scores = (np.concatenate([getattr(part, name) for part in found]) for name in names)
    return FiredWindows(scale, y, x, boxes, scores + scored * LOWEST)


@dataclass(frozen=True, eq=False)
class _Cut:
    """The part of a level that windows near a box cover."""

    level: Level
    scale: float
    left: int
    right: int
    top: int
    bottom: int

    @classmethod
    def around(cls, box: Box, reach: float, level: Level, scale: float, window: tuple[int, int]) -> _Cut:
        (height, width), (rows, columns) = window, level.picture.shape
        left, right = _span((box[0] + box[2]) / 2, reach, level.scale_x, width, columns)
        top, bottom = _span((box[1] + box[3]) / 2, reach, level.scale_y, height, rows)
        return cls(level, scale, left, right, top, bottom)

    def holds(self, window: tuple[int, int]) -> bool:
        return self.bottom - self.top >= window[0] and self.right - self.left >= window[1]

    def picture(self, window: tuple[int, int]) -> NDArray[np.uint8]:
        """What to scan: made wider, to as many windows a row as are scanned at once.

        That costs nothing, and cuts of few widths are few layouts to compile a cascade for.
        """
        places = -(-(self.right - self.left - window[1] + 1) // LANES) * LANES
        wide = self.left + window[1] - 1 + places
        return np.ascontiguousarray(self.level.picture[self.top : self.bottom, self.left : wide])

    def windows(self, scan: Scan, window: tuple[int, int]) -> FiredWindows:
        """Those that were asked for, at their places in the level."""
        asked = scan.x <= self.right - self.left - window[1]
        y, x = scan.y[asked] + self.top, scan.x[asked] + self.left
        boxes = self.level.boxes(y, x, window)
        return FiredWindows(np.full(len(y), self.scale), y, x, boxes, scan.scores[asked])


def _span(centre: float, reach: float, scale: float, length: int, side: int) -> tuple[int, int]:
    """First and last pixel of a level that windows with centres within reach cover."""
    first = max(int((centre - reach) / scale - length / 2), 0)
    return first, min(int(np.ceil((centre + reach) / scale + length / 2)), side)
