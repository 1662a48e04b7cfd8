"""Windows cut out of a picture anywhere, at any size and angle, with the pixels that a scan would see there."""

from __future__ import annotations

from math import ceil, cos, radians, sin

import numpy as np
from numpy.typing import NDArray

from whet.detect.pyramid import resized

Grey = NDArray[np.uint8]
Floats = NDArray[np.float64]

# Turned pictures are sampled this much finer than the window, and made smaller after.
FINER = 3
ROUNDING = 1e-6


def moved_inside(window: Floats, shape: tuple[int, ...]) -> Floats:
    """A window (4,) moved into a picture (height, width), as a scan would see it; centred where it is larger.

    >>> moved_inside(np.array([-5.0, 10.0, 15.0, 110.0]), (80, 60))
    array([  0., -10.,  20.,  90.])
    """
    size, limit = window[2:] - window[:2], np.array(shape[::-1], dtype=np.float64)
    low = np.where(size <= limit, np.clip(window[:2], 0, np.maximum(limit - size, 0)), (limit - size) / 2)
    return np.concatenate([low, low + size])


def cut_window(grey: Grey, box: Floats, window: tuple[int, int], angle: float = 0.0) -> Grey:
    """The part of a picture in a box (4,), in the size (height, width) of the window, turned by an angle in degrees.

    Sampled as `whet.detect.pyramid.resized` samples a whole picture: what is cut where a scan has a window is that
    window. Beyond the picture its edge is repeated.
    """
    if angle:
        return _turned(grey, box, window, angle)
    from PIL import Image

    height, width = window
    scale = (box[2:] - box[:2]) / [width, height]
    # The filter reaches one pixel of the window further than the box; where the picture ends, so does the filter.
    reach = np.maximum(np.ceil(scale), 1) + 1
    limit = np.array(grey.shape[::-1])
    box = _without_rounding(box, limit)
    low, high = np.floor(box[:2] - reach).astype(int), np.ceil(box[2:] + reach).astype(int)
    low = np.where(box[:2] >= 0, np.maximum(low, 0), low)
    high = np.where(box[2:] <= limit, np.minimum(high, limit), high)
    part = _part(grey, low, high)
    size = np.array(part.shape[::-1], dtype=np.float64)
    x1, y1 = np.clip(box[:2] - low, 0, size).tolist()
    x2, y2 = np.clip(box[2:] - low, 0, size).tolist()
    image = Image.fromarray(np.ascontiguousarray(part))
    return np.asarray(image.resize((width, height), Image.Resampling.BILINEAR, (x1, y1, x2, y2)))


def _without_rounding(box: Floats, limit: NDArray[np.intp]) -> Floats:
    """The box, but inside the picture where it is outside by no more than rounding."""
    inside = np.clip(box, 0, np.tile(limit, 2))
    return np.where(abs(inside - box) < ROUNDING, inside, box)


def _part(grey: Grey, low: NDArray[np.intp], high: NDArray[np.intp]) -> Grey:
    """Pixels of a picture from x, y to x, y; beyond its edge, those of the edge."""
    rows = np.clip(np.arange(low[1], high[1]), 0, grey.shape[0] - 1)
    columns = np.clip(np.arange(low[0], high[0]), 0, grey.shape[1] - 1)
    inside = grey[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    if inside.shape == (len(rows), len(columns)):
        return inside
    return inside[np.ix_(rows - rows[0], columns - columns[0])]


def _turned(grey: Grey, box: Floats, window: tuple[int, int], angle: float) -> Grey:
    from PIL import Image

    height, width = window
    turn, lean = abs(cos(radians(angle))), abs(sin(radians(angle)))
    # As much more on each side, in pixels of the window, as the corners of the turned window reach out.
    more_x = ceil((width * turn + height * lean - width) / 2) + 1
    more_y = ceil((width * lean + height * turn - height) / 2) + 1
    scale = (box[2:] - box[:2]) / [width, height]
    more = np.array([more_x, more_y])
    around = np.concatenate([box[:2] - more * scale, box[2:] + more * scale])
    shape = (height + 2 * more_y) * FINER, (width + 2 * more_x) * FINER
    fine = Image.fromarray(cut_window(grey, around, shape)).rotate(angle, Image.Resampling.BILINEAR)
    x, y = more_x * FINER, more_y * FINER
    inner = np.asarray(fine)[y : y + height * FINER, x : x + width * FINER]
    return resized(np.ascontiguousarray(inner), window)
