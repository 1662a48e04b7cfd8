"""The object in the next frame: the windows that fire, those around its last box, and the motion prior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whet.arrays import Boxes, Floats
from whet.corrections.effects import Corrected
from whet.images.boxes import box_iou
from whet.images.detections import FiredWindows
from whet.images.pyramid import SCALE_FACTOR, Pyramid, WindowIndex
from whet.models.contract import Model

# Windows with this IoU or more with the best one are the same answer: the box is their mean.
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
    corrected: Corrected,
    pyramid: Pyramid,
    last: Floats | None,
    prior: MotionPrior,
    scale_factor: float = SCALE_FACTOR,
    threads: int | None = None,
) -> Track | None:
    """The object in the next frame, given its last box (4,); None until a window has fired."""
    fired = windows = corrected.scan(pyramid, fast=False, threads=threads)
    if last is not None:
        ratio = scale_factor**prior.steps
        near = scan_near(corrected.model, pyramid, last, reach=prior.reach, max_ratio=ratio, threads=threads)
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
    model: Model, pyramid: Pyramid, box: Boxes, *, reach: float, max_ratio: float, threads: int | None = None
) -> FiredWindows:
    """Windows around a box (4,), accepted or not, with their scores.

    Corrections are not applied here: they decide what is accepted. Centres are at most `reach` sides of the box away
    from its own, in either direction, and sizes at most `max_ratio` times larger or smaller. Windows without contrast
    are left out.
    """
    spans = pyramid.spans_around(box, reach * float(box[2] - box[0]), max_ratio)
    return model.scan(pyramid, model.votes.unlimited, spans=spans, threads=threads)
