"""Integral images: sums over all pixels above and to the left, so that a rectangle's sum is four look-ups."""

import numpy as np
from numpy.typing import NDArray

from whet.kernels.jit import kernel

UInt32s = NDArray[np.uint32]

# Patches of 24 x 24 pixels: 64 of them are 36 KB and stay in the cache while their pixels are regrouped.
SAMPLES_AT_ONCE = 64


@kernel
def integrate_stack(patches: NDArray[np.uint8], sums: UInt32s, squares: UInt32s) -> None:
    """Fill `sums` and `squares` ((height + 1)(width + 1), samples) from `patches` (samples, height, width).

    Both outputs are zero on entry: their first row and column of pixels stay as they are.
    """
    n = patches.shape[0]
    for start in range(0, n, SAMPLES_AT_ONCE):
        stop = min(start + SAMPLES_AT_ONCE, n)
        _integrate_some(patches[start:stop], start, stop, sums, squares)


@kernel
def _integrate_some(patches: NDArray[np.uint8], start: int, stop: int, sums: UInt32s, squares: UInt32s) -> None:
    n, height, width = patches.shape
    for y in range(height):
        line_sum = np.zeros(n, dtype=np.uint32)
        line_square = np.zeros(n, dtype=np.uint32)
        for x in range(width):
            above = y * (width + 1) + x + 1
            sum_above, sum_here = sums[above][start:stop], sums[above + width + 1][start:stop]
            square_above, square_here = squares[above][start:stop], squares[above + width + 1][start:stop]
            for s in range(n):
                pixel = np.uint32(patches[s, y, x])
                line_sum[s] += pixel
                line_square[s] += pixel * pixel
                sum_here[s] = sum_above[s] + line_sum[s]
                square_here[s] = square_above[s] + line_square[s]
