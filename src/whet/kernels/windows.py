"""The windows of a picture: where they lie in its integral images, and which have the contrast to be looked at."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet.kernels.jit import kernel
from whet.kernels.normalisation import window_factor

Int32s = NDArray[np.int32]
UInt32s = NDArray[np.uint32]
Float32s = NDArray[np.float32]
Flags = NDArray[np.uint8]


class Windows(NamedTuple):
    """Where the windows of a picture lie in its integral images."""

    rows: int
    columns: int
    row_step: int  # integrals between a row of windows and the next; windows of a row are neighbours
    inner: Int32s  # (4,): corners of the inner rectangle, top left, top right, bottom left, bottom right
    area: int  # of the inner rectangle
    min_sigma: float


@kernel
def normalise_row(
    sums: UInt32s, squares: UInt32s, start: int, windows: Windows, factors: Float32s, alive: Flags
) -> int:
    """Factors and verdicts of a row of windows; returns how many of them are looked at."""
    n, inner = factors.size, windows.inner
    area, min_sigma = windows.area, windows.min_sigma
    a, b, c, d = start + inner[0], start + inner[1], start + inner[2], start + inner[3]
    sum_a, sum_b, sum_c, sum_d = sums[a : a + n], sums[b : b + n], sums[c : c + n], sums[d : d + n]
    square_a, square_b = squares[a : a + n], squares[b : b + n]
    square_c, square_d = squares[c : c + n], squares[d : d + n]
    for k in range(n):
        total = np.uint32(sum_a[k] + sum_d[k] - sum_b[k] - sum_c[k])
        square = np.uint32(square_a[k] + square_d[k] - square_b[k] - square_c[k])
        factors[k], verdict = window_factor(np.int64(total), np.int64(square), area, min_sigma)
        alive[k] = np.uint8(verdict)
    return count(alive)


@kernel
def count(flags: Flags) -> int:
    """How many flags are 1."""
    total = np.int32(0)
    for k in range(flags.size):
        total += np.int32(flags[k])
    return int(total)
