"""Windows near a box, scored without being rejected: a cascade as a graded opinion.

A cascade drops what does not look like the object, and gives no score to what it dropped. Where the object was a
moment ago, that is too strict: it is most likely still there, turned away or in a shadow, and the question is only
where exactly. So all windows around are scored, by the margins in the same stages that score accepted windows, and
negative ones count.
"""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
from numpy.typing import NDArray

from whet.detect.detect import windows_of_levels
from whet.detect.detections import FiredWindows
from whet.detect.pyramid import FACTOR, Level, level_at, level_scales
from whet.model.cascade import Cascade

Picture = NDArray[np.uint8]
Box = NDArray[np.float64]

# Lower than any margin of a stage: weights of discriminants sum to tens.
LOWEST = -1e4


def unrejecting(cascade: Cascade) -> Cascade:
    """The same cascade without exits, its thresholds so low that all windows with contrast pass."""
    stages = tuple(replace(stage, threshold=stage.threshold + LOWEST, exits=None) for stage in cascade.stages)
    return Cascade(cascade.window, stages, cascade.min_sigma)


def near_windows(
    unrejecting: Cascade,
    picture: Picture,
    box: Box,
    *,
    reach: float,
    steps: float,
    factor: float = FACTOR,
    threads: int | None = None,
) -> FiredWindows:
    """Windows around a box (4,) of a grey picture (height, width), with their margins in the later half of the stages.

    Centres are at most `reach` sides of the box away from its own, in either direction, and sizes at most `steps`
    levels of the pyramid larger or smaller. The cascade is one that `unrejecting` made.
    """
    side, window = float(box[2] - box[0]), unrejecting.window
    scales = [
        scale
        for scale in level_scales(picture.shape, window, factor)
        if abs(log(scale * window[1] / side)) <= steps * log(factor) + 1e-9
    ]
    parts = [_near(unrejecting, level_at(picture, scale), scale, box, reach * side, threads) for scale in scales]
    found = [part for part in parts if part is not None and len(part)]
    if not found:
        return FiredWindows()
    scored = len(unrejecting.stages) - unrejecting.first_scoring
    names = ("scale", "y", "x", "boxes", "scores")
    scale, y, x, boxes, scores = (np.concatenate([getattr(part, name) for part in found]) for name in names)
    return FiredWindows(scale, y, x, boxes, scores + scored * LOWEST)


def _near(
    cascade: Cascade, level: Level, scale: float, box: Box, reach: float, threads: int | None
) -> FiredWindows | None:
    """The windows of one level, scanned in a cut of it."""
    height, width = cascade.window
    centre_x, centre_y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    left, right = _span(centre_x, reach, level.scale_x, width, level.picture.shape[1])
    top, bottom = _span(centre_y, reach, level.scale_y, height, level.picture.shape[0])
    if right - left < width or bottom - top < height:
        return None
    cut = Level(np.ascontiguousarray(level.picture[top:bottom, left:right]), level.scale_y, level.scale_x)
    found = windows_of_levels(cascade, [cut], [scale], threads=threads)
    y, x = found.y + top, found.x + left
    return replace(found, y=y, x=x, boxes=level.boxes(y, x, cascade.window))


def _span(centre: float, reach: float, scale: float, length: int, side: int) -> tuple[int, int]:
    """First and last pixel of a level that windows with centres within reach cover."""
    first = max(int((centre - reach) / scale - length / 2), 0)
    return first, min(int(np.ceil((centre + reach) / scale + length / 2)), side)
