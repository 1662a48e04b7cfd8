"""Boxes (x1, y1, x2, y2), half-open, so that a width is x2 - x1: overlaps, offsets from windows, and cutting."""

from __future__ import annotations

from math import isfinite
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from whet.arrays import Boxes as Boxes
from whet.arrays import Floats as Floats
from whet.arrays import Indices, Pixels

# A reported box may reach beyond its window, but not be a different thing altogether.
FARTHEST = (-2.0, 3.0)


def checked_boxes(boxes: ArrayLike, name: str = "boxes") -> Floats:
    """Boxes as (N, 4) float64, or a `ValueError` that says what is wrong with them; nothing becomes (0, 4).

    >>> checked_boxes([[0, 0, 2, 1]])
    array([[0., 0., 2., 1.]])
    >>> checked_boxes([]).shape
    (0, 4)
    """
    array = np.asarray(boxes, dtype=np.float64)
    if array.ndim <= 2 and array.size == 0:
        return np.empty((0, 4))
    if array.ndim != 2 or array.shape[1] != 4:
        raise ValueError(f"{name} have shape {array.shape}; expected (N, 4): x1, y1, x2, y2")
    wrong = ~np.isfinite(array).all(axis=1) | (array[:, 2:] < array[:, :2]).any(axis=1)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ValueError(
            f"{name}[{at}] is {array[at].tolist()}; expected finite x1 <= x2 and y1 <= y2"
            " (x, y, width, height has to be converted first)"
        )
    return array


def areas(boxes: Floats) -> Floats:
    """Areas (N,) of boxes (N, 4).

    >>> areas(np.array([[0.0, 0.0, 2.0, 3.0]]))
    array([6.])
    """
    return np.asarray((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))


def intersections(first: Floats, second: Floats) -> Floats:
    """Area (N, M) that each box of `first` (N, 4) has in common with each of `second` (M, 4).

    >>> intersections(np.array([[0.0, 0.0, 2.0, 2.0]]), np.array([[1.0, 0.0, 3.0, 2.0], [2.0, 0.0, 3.0, 1.0]]))
    array([[2., 0.]])
    """
    lower = np.maximum(first[:, None, :2], second[None, :, :2])
    upper = np.minimum(first[:, None, 2:], second[None, :, 2:])
    return np.asarray(np.clip(upper - lower, 0, None).prod(axis=2))


def box_iou(first: Floats, second: Floats) -> Floats:
    """PASCAL's overlap (N, M) of boxes (N, 4) and (M, 4), from 0 to 1; a box without area overlaps nothing.

    >>> box_iou(np.array([[0.0, 0.0, 2.0, 1.0]]), np.array([[1.0, 0.0, 3.0, 1.0]])).round(3)
    array([[0.333]])
    """
    common = intersections(first, second)
    return _share(common, areas(first)[:, None] + areas(second)[None, :] - common)


def intersection_over_first(first: Floats, second: Floats) -> Floats:
    """Share (N, M) of each box of `first` (N, 4) that lies in each of `second` (M, 4).

    Finds boxes in a region to be ignored: a face is small in a crowd, and its intersection over *union* with
    the crowd is near 0.

    >>> crowd = np.array([[0.0, 0.0, 100.0, 100.0]])
    >>> intersection_over_first(np.array([[10.0, 10.0, 20.0, 20.0], [95.0, 0.0, 105.0, 10.0]]), crowd)
    array([[1. ],
           [0.5]])
    """
    common = intersections(first, second)
    return _share(common, np.broadcast_to(areas(first)[:, None], common.shape))


def _share(part: Floats, whole: Floats) -> Floats:
    # Boxes without area have 0/0 in common with one another; that is no overlap, and must not be NaN.
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


class BoxOffset(NamedTuple):
    """The box that is reported for a window, as fractions of the window from its left and top.

    A window may show less than what people call the object: a face detector sees from eyebrows to mouth, and its
    boxes are expected to hold the whole head.

    >>> wider = BoxOffset(-0.25, 0.0, 1.25, 1.0)
    >>> wider.boxes(np.array([[10.0, 10.0, 30.0, 30.0]]))
    array([[ 5., 10., 35., 30.]])
    >>> wider.windows(wider.boxes(np.array([[10.0, 10.0, 30.0, 30.0]])))
    array([[10., 10., 30., 30.]])
    """

    left: float = 0.0
    top: float = 0.0
    right: float = 1.0
    bottom: float = 1.0

    def check(self) -> None:
        """Raise ValueError unless this is a box, and near its window."""
        lowest, highest = FARTHEST
        inside = all(isfinite(side) and lowest <= side <= highest for side in self)
        if not (inside and self.left < self.right and self.top < self.bottom):
            raise ValueError(
                f"got the box offset {tuple(self)}; expected left < right and top < bottom, as fractions of the window "
                f"from {lowest:g} to {highest:g}: (0, 0, 1, 1) is the window itself"
            )

    @property
    def size(self) -> tuple[float, float]:
        """Height and width of the box, in windows."""
        return self.bottom - self.top, self.right - self.left

    def boxes(self, windows: Boxes) -> Boxes:
        """Boxes (n, 4) for windows (n, 4); the mean of boxes is the box of the mean."""
        if self == BoxOffset():
            return windows
        corner, extent = windows[:, [0, 1, 0, 1]], (windows[:, 2:] - windows[:, :2])[:, [0, 1, 0, 1]]
        return np.asarray(corner + extent * np.array(self))

    def windows(self, boxes: Boxes) -> Boxes:
        """Windows (n, 4) whose boxes these are (n, 4)."""
        if self == BoxOffset():
            return boxes
        extent = (boxes[:, 2:] - boxes[:, :2]) / self.size[::-1]
        corner = boxes[:, :2] - extent * (self.left, self.top)
        return np.concatenate([corner, corner + extent], axis=1)


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
    return np.where(abs(inside - box) < 1e-6, inside, box)


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
