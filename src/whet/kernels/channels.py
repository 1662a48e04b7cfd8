"""Integral images of a picture side by side, row by row, with the columns apart that a step of 2 does not visit.

The channels are sums, sums of squares and sums turned by 45 degrees. One set of offsets then fits all of them, and
windows that are neighbours at their step read integrals that are neighbours in memory.
"""

import numpy as np
from numpy.typing import NDArray

from whet.kernels.jit import kernel

UInt32s = NDArray[np.uint32]


@kernel
def integrate_channels(picture: NDArray[np.uint8], step: int, channels: UInt32s) -> None:
    """Fill `channels` (height + 1, 1 to 3, line), modulo 2^32, from a picture (height, width).

    Entry x of a row is at x % step * (line / step) + x / step. Sums and squares at (Y, X) are over the pixels with
    y < Y and x < X; the third channel is over y < Y and |x - X + 1| <= Y - y - 1, as OpenCV's `integral` has it.
    """
    height, width = picture.shape
    count = channels.shape[1]
    channels[0] = 0
    sums, squares = np.zeros(width + 1, np.uint32), np.zeros(width + 1, np.uint32)
    tilted = np.zeros((3, width + 2), np.uint32)
    for y in range(height):
        row = picture[y]
        total = square = np.uint32(0)
        for x in range(width):
            pixel = np.uint32(row[x])
            total = np.uint32(total + pixel)
            square = np.uint32(square + pixel * pixel)
            sums[x + 1], squares[x + 1] = total, square
        _add_row(channels[y, 0], sums, step, channels[y + 1, 0])
        if count > 1:
            _add_row(channels[y, 1], squares, step, channels[y + 1, 1])
        if count > 2:
            _tilted_growth(row, tilted)
            _add_row(channels[y, 2], tilted[2, : width + 1], step, channels[y + 1, 2])


@kernel
def _add_row(above: UInt32s, growth: UInt32s, step: int, here: UInt32s) -> None:
    part = here.size // step
    for phase in range(step):
        n = (growth.size - phase + step - 1) // step
        source, old, new = growth[phase:], above[phase * part :], here[phase * part :]
        if step == 1:
            for j in range(n):
                new[j] = old[j] + source[j]
        else:
            for j in range(n):
                new[j] = old[j] + source[j * step]


@kernel
def _tilted_growth(row: NDArray[np.uint8], tilted: UInt32s) -> None:
    """What a triangle that opens upwards gains with a row: the two diagonals that end in its lowest pixel.

    Rows of `tilted`: diagonals that end in column x of this row, for x from -1, coming from the left and from the
    right; and the growth, both less the pixel in which they meet.
    """
    from_left, from_right, growth = tilted[0], tilted[1], tilted[2]
    width = row.size
    for x in range(width - 1, -1, -1):
        from_left[x + 1] = from_left[x] + np.uint32(row[x])
    from_left[0] = 0
    from_right[0] = from_right[1]
    for x in range(width):
        from_right[x + 1] = from_right[x + 2] + np.uint32(row[x]) if x + 2 <= width else np.uint32(row[x])
    growth[0] = from_right[0]
    for x in range(width):
        growth[x + 1] = from_left[x + 1] + from_right[x + 1] - np.uint32(row[x])
