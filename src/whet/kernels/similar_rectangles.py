"""Which rectangles are nearly the same: the relation of OpenCV's `groupRectangles`, closed under chains."""

import numpy as np
from numpy.typing import NDArray

from whet.kernels.disjoint_sets import root, unite
from whet.kernels.jit import kernel

Indices = NDArray[np.intp]


@kernel
def connect_similar(boxes: NDArray[np.int64], eps: float, parent: Indices) -> None:
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
def _similar(a: NDArray[np.int64], b: NDArray[np.int64], eps: float) -> bool:
    delta = eps * (min(a[2], b[2]) + min(a[3], b[3])) * 0.5
    starts = abs(a[0] - b[0]) <= delta and abs(a[1] - b[1]) <= delta
    ends = abs(a[0] + a[2] - b[0] - b[2]) <= delta and abs(a[1] + a[3] - b[1] - b[3]) <= delta
    return bool(starts and ends)
