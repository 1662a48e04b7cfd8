"""One object from frame to frame: the best window, where one near the last is more likely than one far away."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from whet.cascade.boxes import box_iou
from whet.cascade.cascade import Cascade
from whet.cascade.detect import windows_of_levels
from whet.cascade.detections import FiredWindows
from whet.cascade.pyramid import SCALE_FACTOR, level_scales, levels_at
from whet.cascade.scan import near_windows, unrejecting

GreyImage = NDArray[np.uint8]
Floats = NDArray[np.float64]

# Windows that share so much with the best one are the same answer: the box is their mean.
SAME = 0.6


@dataclass(frozen=True)
class Prior:
    """Where the object is expected, and what a surprise costs.

    A window's margin is lowered by `cost` times the squared distance from the last box, in standard deviations:
    `places` sides of the box, and `sizes` in the logarithm of its size. No distance counts more than `most`: an
    object may leave the image and come back elsewhere. Around the last box, up to `reach` sides away and
    `steps` levels larger or smaller, windows are looked at even if the detector rejects them. Chosen on made-up
    footage (`experiments.drifting_faces`).
    """

    cost: float = 4.0
    places: float = 0.15
    sizes: float = 0.12
    most: float = 10.0
    reach: float = 0.35
    steps: float = 1.5
    softness: float = 8.0  # margins by which windows weigh in the mean: e times less for each

    def penalty(self, boxes: Floats, last: Floats) -> Floats:
        """What is taken off the margins of boxes (n, 4) when the last one (4,) is known.

        >>> boxes = np.array([[0.0, 0.0, 100.0, 100.0], [15.0, 0.0, 115.0, 100.0], [500.0, 0.0, 600.0, 100.0]])
        >>> Prior().penalty(boxes, boxes[0])
        array([ 0.,  4., 40.])
        """
        side = last[2] - last[0]
        moved = ((boxes[:, :2] + boxes[:, 2:]) - (last[:2] + last[2:])) / 2 / (self.places * side)
        grown = np.log((boxes[:, 2] - boxes[:, 0]) / side) / self.sizes
        return np.asarray(self.cost * np.minimum((moved**2).sum(axis=1) + grown**2, self.most))


@dataclass(frozen=True, eq=False)
class Sighting:
    """The object in one frame: its window's box (4,), margin, and place (scale, y, x); and all windows that fired.

    `accepts` says whether the detector accepted that window, or whether it was only the likeliest near the last.
    `patch` (height, width) is what it shows, cut from the level that was scanned.
    """

    box: Floats
    score: float
    place: tuple[float, int, int]
    accepts: bool
    fired: FiredWindows
    patch: GreyImage


@dataclass(eq=False)
class Follower:
    """Follows one object through a video.

    >>> follower = Follower()
    >>> follower.last is None
    True
    """

    prior: Prior = field(default_factory=Prior)
    scale_factor: float = SCALE_FACTOR
    last: Floats | None = None
    threads: int | None = None
    _unrejecting: tuple[Cascade, Cascade] | None = field(default=None, repr=False)

    def look(self, cascade: Cascade, image: GreyImage) -> Sighting | None:
        """The object in the next frame, a grey image (height, width); None as long as nothing has ever fired."""
        scales = level_scales(image.shape, cascade.window, self.scale_factor)
        levels = levels_at(image, scales, self.threads)
        fired = windows_of_levels(cascade, levels, scales, threads=self.threads)
        windows, last = fired, self.last
        if last is not None:
            near = near_windows(
                self._open(cascade),
                levels,
                scales,
                last,
                reach=self.prior.reach,
                steps=self.prior.steps,
                scale_factor=self.scale_factor,
                threads=self.threads,
            )
            windows = _both(fired, near)
        if not len(windows):
            return None
        worth = windows.scores - (0.0 if last is None else self.prior.penalty(windows.boxes, last))
        best = int(np.argmax(worth))
        same = box_iou(windows.boxes[best : best + 1], windows.boxes)[0] > SAME
        weight = np.exp((worth[same] - worth[best]) / self.prior.softness)
        self.last = np.asarray(weight @ windows.boxes[same] / weight.sum())
        place = (float(windows.scale[best]), int(windows.y[best]), int(windows.x[best]))
        accepts = bool(((fired.scale == place[0]) & (fired.y == place[1]) & (fired.x == place[2])).any())
        (height, width), (scale, y, x) = cascade.window, place
        patch = levels[scales.index(scale)].image[y : y + height, x : x + width].copy()
        return Sighting(self.last, float(windows.scores[best]), place, accepts, fired, patch)

    def _open(self, cascade: Cascade) -> Cascade:
        if self._unrejecting is None or self._unrejecting[0] is not cascade:
            self._unrejecting = cascade, unrejecting(cascade)
        return self._unrejecting[1]


def _both(first: FiredWindows, second: FiredWindows) -> FiredWindows:
    names = ("scale", "y", "x", "boxes", "scores")
    return replace(first, **{name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in names})
