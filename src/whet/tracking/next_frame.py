"""The object in the next frame: the windows that fire, those around its last box, and the motion prior."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from whet._kernels.jit import SIMD_WIDTH
from whet.cascade.boxes import Boxes, box_iou
from whet.cascade.cascade import Cascade
from whet.cascade.detections import FiredWindows
from whet.cascade.pyramid import SCALE_FACTOR, Level, Pyramid, WindowIndex
from whet.cascade.scan import Scan, scan_images, scan_pyramid

Floats = NDArray[np.float64]

# Windows that overlap the best one so much are the same answer: the box is their mean.
SAME = 0.6


@dataclass(frozen=True)
class MotionPrior:
    """Where the object is expected, and what a surprise costs.

    A window's margin is lowered by `cost` times the squared distance from the last box, in standard deviations:
    `places` sides of the box, and `sizes` in the logarithm of its size. No distance counts more than `most`: an object
    may leave the image and come back elsewhere. Around the last box, up to `reach` sides away and `steps` levels
    larger or smaller, windows are scored even if the detector rejects them. Chosen on made-up footage
    (`experiments.drifting_faces`).
    """

    cost: float = 4.0
    places: float = 0.15
    sizes: float = 0.12
    most: float = 10.0
    reach: float = 0.35
    steps: float = 1.5
    softness: float = 8.0  # margins by which windows weigh in the mean: e times less for each

    def penalty(self, boxes: Floats, last: Floats) -> Floats:
        """What is subtracted from the margins of boxes (n, 4) when the last box (4,) is known.

        >>> boxes = np.array([[0.0, 0.0, 100.0, 100.0], [15.0, 0.0, 115.0, 100.0], [500.0, 0.0, 600.0, 100.0]])
        >>> MotionPrior().penalty(boxes, boxes[0])
        array([ 0.,  4., 40.])
        """
        side = last[2] - last[0]
        moved = ((boxes[:, :2] + boxes[:, 2:]) - (last[:2] + last[2:])) / 2 / (self.places * side)
        grown = np.log((boxes[:, 2] - boxes[:, 0]) / side) / self.sizes
        return np.asarray(self.cost * np.minimum((moved**2).sum(axis=1) + grown**2, self.most))


@dataclass(frozen=True, eq=False)
class Track:
    """The object in one frame: its box (4,), its window's margin and index, all windows that fired, and the pyramid.

    The box is a mean of windows around the best one, `window` (4,) the box of that one. `accepted` is set if the
    detector accepts this window; else it was only the best near the last box.
    """

    box: Floats
    score: float
    index: WindowIndex
    accepted: bool
    fired: FiredWindows
    pyramid: Pyramid
    window: Floats


def track(
    cascade: Cascade,
    pyramid: Pyramid,
    last: Floats | None,
    prior: MotionPrior | None = None,
    scale_factor: float = SCALE_FACTOR,
    threads: int | None = None,
) -> Track | None:
    """The object in the next frame, given its last box (4,); None until a window has fired."""
    prior = MotionPrior() if prior is None else prior
    fired = windows = scan_pyramid(cascade, pyramid, threads=threads)
    if last is not None:
        ratio = scale_factor**prior.steps
        near = scan_near(cascade, pyramid, last, reach=prior.reach, max_ratio=ratio, threads=threads)
        windows = FiredWindows.concatenate([fired, near])
    if not len(windows):
        return None
    worth = windows.scores - (0.0 if last is None else prior.penalty(windows.boxes, last))
    best = int(np.argmax(worth))
    same = box_iou(windows.boxes[best : best + 1], windows.boxes)[0] > SAME
    weight = np.exp((worth[same] - worth[best]) / prior.softness)
    box = np.asarray(weight @ windows.boxes[same] / weight.sum())
    index = windows.index.take(slice(best, best + 1))
    here = [getattr(fired.index, name) == getattr(index, name) for name in ("scale", "y", "x")]
    accepted = bool(np.logical_and.reduce(here).any())
    return Track(box, float(windows.scores[best]), index, accepted, fired, pyramid, windows.boxes[best])


def scan_near(
    cascade: Cascade,
    pyramid: Pyramid,
    box: Boxes,
    *,
    reach: float,
    max_ratio: float,
    threads: int | None = None,
) -> FiredWindows:
    """Windows around a box (4,), accepted or not, with their margins in the later half of the stages.

    Corrections are not applied here: they decide what is accepted.

    Centres are at most `reach` sides of the box away from its own, in either direction, and sizes at most `max_ratio`
    times larger or smaller. Windows without contrast are left out.
    """
    side = float(box[2] - box[0])
    if cascade.uses_channels:
        from whet.cascade.channel_scan import scan_channels, span_around

        centre = float(box[1] + box[3]) / 2, float(box[0] + box[2]) / 2
        spans = {
            scale: span_around(pyramid, number, centre, reach * side)
            for number, scale in enumerate(pyramid.scales)
            if abs(log(scale * cascade.window[1] / side)) <= log(max_ratio) + 1e-9
        }
        return scan_channels(cascade, pyramid, reject=False, spans=spans, threads=threads).fired
    cuts = [
        _Cut.around(box, reach * side, level, scale, cascade.window)
        for level, scale in zip(pyramid.levels, pyramid.scales, strict=True)
        if abs(log(scale * cascade.window[1] / side)) <= log(max_ratio) + 1e-9
    ]
    cuts = [cut for cut in cuts if cut.holds(cascade.window)]
    images = [cut.image(cascade.window) for cut in cuts]
    scans = scan_images(cascade, images, reject=False, threads=threads)
    return FiredWindows.concatenate([cut.windows(scan, cascade.window) for cut, scan in zip(cuts, scans, strict=True)])


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
    def around(
        cls, box: NDArray[np.float64], reach: float, level: Level, scale: float, window: tuple[int, int]
    ) -> _Cut:
        (height, width), (rows, columns) = window, level.image.shape
        left, right = _span((box[0] + box[2]) / 2, reach, level.scale_x, width, columns)
        top, bottom = _span((box[1] + box[3]) / 2, reach, level.scale_y, height, rows)
        return cls(level, scale, left, right, top, bottom)

    def holds(self, window: tuple[int, int]) -> bool:
        return self.bottom - self.top >= window[0] and self.right - self.left >= window[1]

    def image(self, window: tuple[int, int]) -> NDArray[np.uint8]:
        """What to scan: made wider, to as many windows a row as are scanned at once.

        That costs nothing, and cuts of few widths are few layouts to compile a cascade for.
        """
        places = -(-(self.right - self.left - window[1] + 1) // SIMD_WIDTH) * SIMD_WIDTH
        wide = self.left + window[1] - 1 + places
        return np.ascontiguousarray(self.level.image[self.top : self.bottom, self.left : wide])

    def windows(self, scan: Scan, window: tuple[int, int]) -> FiredWindows:
        """Those that were asked for, at their places in the level."""
        asked = scan.x <= self.right - self.left - window[1]
        y, x = scan.y[asked] + self.top, scan.x[asked] + self.left
        index = WindowIndex(np.full(len(y), self.scale), y, x)
        return FiredWindows(index, self.level.boxes(y, x, window), scan.scores[asked])


def _span(centre: float, reach: float, scale: float, length: int, side: int) -> tuple[int, int]:
    """First and last pixel of a level that windows with centres within reach cover."""
    first = max(int((centre - reach) / scale - length / 2), 0)
    return first, min(int(np.ceil((centre + reach) / scale + length / 2)), side)
