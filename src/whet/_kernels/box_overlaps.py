"""Overlaps between many boxes: grouping, suppression, and OpenCV's similarity of rectangles."""

import numpy as np

from whet._kernels.jit import inlined, kernel, part
from whet.arrays import Boxes, Indices, Int64s


@kernel
def root(parent: Indices, i: int) -> int:
    """The lowest index of the set that i is in; the way there is halved for the next time."""
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@kernel
def unite(parent: Indices, i: int, j: int) -> None:
    """Make one set of those of i and j."""
    a, b = root(parent, i), root(parent, j)
    parent[max(a, b)] = min(a, b)


@part
def intersection_over_union(a: Boxes, b: Boxes) -> np.float64:
    """The shared area of two boxes (4,) over that of both together.

    >>> intersection_over_union(np.array([0.0, 0.0, 2.0, 2.0]), np.array([1.0, 0.0, 3.0, 2.0]))
    0.333...
    """
    shared = _intersection(a, b)
    if shared == 0.0:
        return np.float64(0.0)
    return np.float64(shared / (_area(a) + _area(b) - shared))


@kernel
def suppress(boxes: Boxes, ends: Indices, reach: int, order: Indices, least: float, winner: Indices) -> None:
    """Greedy non-maximum suppression of boxes (n, 4) in this `order` from best to worst.

    Boxes come in classes of size, class c from `ends[c]` to `ends[c + 1]`, each sorted by x1. Only boxes of classes at
    most `reach` apart can overlap by `least`: where a cascade accepts a million windows, that saves most of the work.
    `winner` (n,) becomes, for each box, the index of the best box that suppresses it, or its own.
    """
    n_classes = len(ends) - 1
    class_of, widest = np.empty(len(boxes), np.intp), np.zeros(n_classes)
    for c in range(n_classes):
        for i in range(ends[c], ends[c + 1]):
            class_of[i] = c
            widest[c] = max(widest[c], boxes[i, 2] - boxes[i, 0])
    winner[:] = -1
    for i in order:
        if winner[i] >= 0:
            continue
        winner[i] = i
        for c in range(max(class_of[i] - reach, 0), min(class_of[i] + reach + 1, n_classes)):
            first = _first_from(boxes, ends[c], ends[c + 1], boxes[i, 0] - widest[c])
            for j in range(first, ends[c + 1]):
                if boxes[j, 0] >= boxes[i, 2]:
                    break
                if winner[j] < 0 and intersection_over_union(boxes[i], boxes[j]) >= least:
                    winner[j] = i


@inlined
def _first_from(boxes: Boxes, low: int, high: int, left: float) -> int:
    """The first of the boxes from `low` to `high`, sorted by x1, whose x1 is at least `left`; else `high`."""
    while low < high:
        middle = (low + high) // 2
        if boxes[middle, 0] < left:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def absorb(boxes: Boxes, least: float, winner: Indices) -> None:
    """Which of the boxes (n, 4), best first, a better one holds or lies in: `winner` (n,) becomes that one, or its own.

    A box is held if at least the share `least` of the smaller of the two is common to both. Only boxes that are not
    held themselves hold others.
    """
    for i in range(len(boxes)):
        winner[i] = i
        for j in range(i):
            smaller = min(_area(boxes[i]), _area(boxes[j]))
            if winner[j] == j and _intersection(boxes[i], boxes[j]) >= least * smaller:
                winner[i] = j
                break


@inlined
def _intersection(a: Boxes, b: Boxes) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    return float(width * height) if width > 0.0 and height > 0.0 else 0.0


@inlined
def _area(a: Boxes) -> float:
    return float((a[2] - a[0]) * (a[3] - a[1]))


@kernel
def connect_similar(boxes: Int64s, eps: float, parent: Indices) -> None:
    """Write to `parent` (n,) the first of each box's class; `boxes` (n, 4) are x, y, width, height, sorted by x.

    Two boxes are similar if all four sides differ by at most `eps` times the mean of the lesser width and height.
    """
    n = boxes.shape[0]
    for i in range(n):
        parent[i] = i
    for i in range(n):
        reach = eps * (boxes[i, 2] + boxes[i, 3]) * 0.5
        j = i + 1
        while j < n and boxes[j, 0] - boxes[i, 0] <= reach:
            if _similar(boxes[i], boxes[j], eps):
                unite(parent, i, j)
            j += 1
    for i in range(n):
        parent[i] = root(parent, i)


@kernel
def _similar(a: Int64s, b: Int64s, eps: float) -> bool:
    delta = eps * (min(a[2], b[2]) + min(a[3], b[3])) * 0.5
    starts = abs(a[0] - b[0]) <= delta and abs(a[1] - b[1]) <= delta
    ends = abs(a[0] + a[2] - b[0] - b[2]) <= delta and abs(a[1] + a[3] - b[1] - b[3]) <= delta
    return bool(starts and ends)
