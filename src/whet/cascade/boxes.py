"""How much boxes overlap; a box is (xmin, ymin, xmax, ymax), half-open, so its width is xmax - xmin."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


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
        raise ValueError(f"{name} have shape {array.shape}; expected (N, 4): xmin, ymin, xmax, ymax")
    wrong = ~np.isfinite(array).all(axis=1) | (array[:, 2:] < array[:, :2]).any(axis=1)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ValueError(
            f"{name}[{at}] is {array[at].tolist()}; expected finite xmin <= xmax and ymin <= ymax"
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

    Tells what lies in a region to be ignored: a face is small in a crowd, and its intersection over *union* with
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
