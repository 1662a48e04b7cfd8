"""Enumeration of the intervals that a feature can cover along one side of a window."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int16]


def spans(length: int, parts: int) -> tuple[Ints, Ints]:
    """Sizes and starts of all intervals within `length` that divide into equal `parts`, shortest first.

    >>> spans(3, 1)
    (array([1, 1, 1, 2, 2, 3], dtype=int16), array([0, 1, 2, 0, 1, 0], dtype=int16))
    """
    sizes = np.arange(parts, length + 1, parts)
    places = length - sizes + 1
    starts = [np.arange(n) for n in places]
    empty = np.empty(0, dtype=np.int64)
    return np.repeat(sizes, places).astype(np.int16), np.concatenate([empty, *starts]).astype(np.int16)


def boxes(window: tuple[int, int], parts: tuple[int, int]) -> tuple[Ints, Ints, Ints, Ints]:
    """x, y, width and height of all boxes in a window (height, width) that divide into parts (down, across).

    Ordered by height, y, width and x, x fastest: neighbours share rows of corners, and so the cache.

    >>> x, y, width, height = boxes((1, 2), (1, 1))
    >>> list(zip(x.tolist(), width.tolist()))
    [(0, 1), (1, 1), (0, 2)]
    """
    heights, ys = spans(window[0], parts[0])
    widths, xs = spans(window[1], parts[1])
    down, across = len(heights), len(widths)
    return np.tile(xs, down), np.repeat(ys, across), np.tile(widths, down), np.repeat(heights, across)
