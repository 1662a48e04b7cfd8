"""Parts of images, resized as the levels of a pyramid are."""

from __future__ import annotations

import numpy as np

from whet.arrays import Floats, Indices, Pixels

ROUNDING = 1e-6


def cut_box(image: Pixels, box: Floats, shape: tuple[int, int]) -> Pixels:
    """The part of an image in a box (4,), resized to a shape (height, width).

    The sampling is that of `whet.images.pyramid.resized`: a box at a scan window gives exactly that window. Outside
    the image, its edge pixels repeat.
    """
    from PIL import Image

    height, width = shape
    scale = (box[2:] - box[:2]) / [width, height]
    # The filter extends one window pixel beyond the box, but not beyond the image.
    reach = np.maximum(np.ceil(scale), 1) + 1
    limit = np.array(image.shape[1::-1])
    box = _without_rounding(box, limit)
    low, high = np.floor(box[:2] - reach).astype(int), np.ceil(box[2:] + reach).astype(int)
    low = np.where(box[:2] >= 0, np.maximum(low, 0), low)
    high = np.where(box[2:] <= limit, np.minimum(high, limit), high)
    part = _part(image, low, high)
    size = np.array(part.shape[1::-1], dtype=np.float64)
    x1, y1 = np.clip(box[:2] - low, 0, size).tolist()
    x2, y2 = np.clip(box[2:] - low, 0, size).tolist()
    source = Image.fromarray(np.ascontiguousarray(part))
    return np.asarray(source.resize((width, height), Image.Resampling.BILINEAR, (x1, y1, x2, y2)))


def _without_rounding(box: Floats, limit: Indices) -> Floats:
    """The box, clipped to the image where it is outside only by rounding."""
    inside = np.clip(box, 0, np.tile(limit, 2))
    return np.where(abs(inside - box) < ROUNDING, inside, box)


def _part(image: Pixels, low: Indices, high: Indices) -> Pixels:
    """Pixels of an image from x, y to x, y; edge pixels repeat outside."""
    slices, pads = [], []
    for first, last, side in zip(low[::-1].tolist(), high[::-1].tolist(), image.shape[:2], strict=True):
        start = min(max(first, 0), side - 1)
        stop = max(min(last, side), start + 1)
        before = min(max(start - first, 0), last - first - 1)
        slices.append(slice(start, stop))
        pads.append((before, last - first - before - (stop - start)))
    part = image[tuple(slices)]
    return np.pad(part, [*pads, (0, 0)][: image.ndim], mode="edge") if np.any(pads) else part
