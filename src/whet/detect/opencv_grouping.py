"""Many windows around one object become one box: OpenCV's `groupRectangles`, with its roundings."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet.kernels.similar_rectangles import connect_similar

Boxes = NDArray[np.int32]

EPS = 0.2


class Grouped(NamedTuple):
    """Boxes (n, 4) as x, y, width, height; how many windows each stands for; the greatest of their scores."""

    boxes: Boxes
    counts: NDArray[np.int32]
    score: NDArray[np.float64]


def group_rectangles(boxes: Boxes, scores: NDArray[np.float64], neighbours: int) -> Grouped:
    """Merge boxes (n, 4), x, y, width and height, that are similar, and keep groups of more than `neighbours`.

    A group's box is the mean. A group inside one of more windows is dropped.

    >>> boxes = np.array([[10, 10, 24, 24], [12, 10, 24, 24], [80, 80, 24, 24]], dtype=np.int32)
    >>> group_rectangles(boxes, np.array([1.0, 3.0, 2.0]), 1)
    Grouped(boxes=array([[11, 10, 24, 24]], dtype=int32), counts=array([2], dtype=int32), score=array([3.]))
    """
    if neighbours <= 0 or not len(boxes):
        return Grouped(boxes, np.ones(len(boxes), dtype=np.int32), scores)
    group = _classes(boxes)
    count = np.bincount(group)
    sums = np.stack([np.bincount(group, column) for column in boxes.T.astype(np.float64)], axis=-1)
    share = (np.float32(1) / count.astype(np.float32))[:, None]
    means = np.rint(sums.astype(np.float32) * share).astype(np.int64)
    score = np.full(len(count), -np.inf)
    np.maximum.at(score, group, scores)
    kept = [i for i in range(len(count)) if count[i] > neighbours and not _inside(i, means, count, neighbours)]
    return Grouped(means[kept].astype(np.int32), count[kept].astype(np.int32), score[kept])


def _classes(boxes: Boxes) -> NDArray[np.intp]:
    """The class of each box (n,), numbered by their first members."""
    order = np.argsort(boxes[:, 0], kind="stable")
    parent = np.empty(len(boxes), dtype=np.intp)
    connect_similar(boxes[order].astype(np.int64), EPS, parent)
    root = np.empty(len(boxes), dtype=np.intp)
    root[order] = order[parent]
    _, first, inverse = np.unique(root, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def _inside(i: int, boxes: NDArray[np.int64], count: NDArray[np.intp], neighbours: int) -> bool:
    """Whether a group lies within another one that has more to say."""
    x, y, width, height = boxes.T
    dx, dy = np.rint(width * EPS), np.rint(height * EPS)
    around = (x[i] >= x - dx) & (y[i] >= y - dy)
    around &= (x[i] + width[i] <= x + width + dx) & (y[i] + height[i] <= y + height + dy)
    stronger = (count > neighbours) & ((count > max(3, int(count[i]))) | (count[i] < 3))
    stronger[i] = False
    return bool((around & stronger).any())
