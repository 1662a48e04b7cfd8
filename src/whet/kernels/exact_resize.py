"""OpenCV's bit-exact bilinear resize, in whole numbers."""

import numpy as np
from numpy.typing import NDArray

from whet.kernels.jit import kernel

Int32s = NDArray[np.int32]

# Weights are multiples of 1/256 along each side.
ONE = 256
HALF = 1 << 15


@kernel
def resize_rows(
    picture: NDArray[np.uint8],
    y: Int32s,
    y_weight: Int32s,
    x: Int32s,
    x_weight: Int32s,
    out: NDArray[np.uint8],
) -> None:
    """Fill `out` (rows, columns): pixels `y` and `y` + 1, `x` and `x` + 1, the second with its weight of 256.

    A weight of 0 means that there is no second pixel. Products are below 2^24 and sums exact, so rounding once at the
    end does not depend on which side goes first: columns are contiguous, so rows are mixed first.
    """
    height, width = picture.shape
    mixed = np.empty(width + 1, np.int32)
    for i in range(out.shape[0]):
        below = np.int32(y_weight[i])
        above = np.int32(ONE - below)
        upper, lower = picture[y[i]], picture[min(y[i] + 1, height - 1)]
        for k in range(width):
            mixed[k] = np.int32(above * np.int32(upper[k]) + below * np.int32(lower[k]))
        mixed[width] = 0
        line = out[i]
        for k in range(line.size):
            at, right = x[k], x_weight[k]
            total = (ONE - right) * mixed[at] + right * mixed[at + 1]
            line[k] = np.uint8((total + HALF) >> 16)
