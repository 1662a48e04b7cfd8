"""The one normalisation of a window; training, learning and scanning all call it.

It is the arithmetic of OpenCV's `HaarEvaluator::setWindow` (modules/objdetect/src/cascadedetect.cpp, branch
4.x), down to the rounding to float32: a stump that whet trained answers alike in OpenCV.
"""

import numpy as np
from numpy.typing import NDArray

from whet.kernels.jit import kernel

# OpenCV looks at a window only if area * factor < 0.1, which says sigma > 10.
OPENCV_MIN_SIGMA = 10.0


@kernel
def window_factor(
    total: np.int64, squares: np.int64, area: int, min_sigma: float = OPENCV_MIN_SIGMA
) -> tuple[np.float32, np.bool_]:
    """The factor 1 / (area sigma) of a window, and whether the window has enough contrast to be looked at.

    `total` and `squares` are the sums of the `area` pixels of the inner rectangle (x = 1, y = 1, width - 2,
    height - 2) and of their squares. A feature's value is its weighted sum of pixels times the factor. Flat
    windows have the factor 1 and are never looked at.

    >>> window_factor(20, 400, 4)  # pixels 0, 0, 0 and 20: area * sigma = sqrt(4 * 400 - 20 * 20)
    (0.0288..., False)
    >>> window_factor(40, 400, 4)  # four pixels of 10
    (1.0, False)
    """
    # In float64: area * squares reaches 2e10 in a window of 24 x 24, too much for 32 bits.
    wide = np.float64(total)
    spread = np.float64(area) * np.float64(squares) - wide * wide
    # Without a branch, so that the compiler normalises four windows at once.
    has_spread = spread > 0.0
    factor = np.float32(1.0 / np.sqrt(spread if has_spread else 1.0))
    has_contrast = np.float64(area) * np.float64(factor) < 1.0 / np.float64(min_sigma)
    return factor, has_spread & has_contrast


@kernel
def stack_factors(
    sums: NDArray[np.uint32],
    squares: NDArray[np.uint32],
    corners: NDArray[np.int64],
    area: int,
    min_sigma: float,
    factors: NDArray[np.float32],
    looked_at: NDArray[np.bool_],
) -> None:
    """Normalise a stack of patches: the factor and the verdict of `window_factor` for each sample.

    `sums` and `squares` are (pixels, samples); `corners` are the pixels at the top left, top right, bottom
    left and bottom right of the inner rectangle.
    """
    for s in range(factors.size):
        total = np.int64(_difference(sums, corners, s))
        square_total = np.int64(_difference(squares, corners, s))
        factors[s], looked_at[s] = window_factor(total, square_total, area, min_sigma)


@kernel
def _difference(integral: NDArray[np.uint32], corners: NDArray[np.int64], s: int) -> np.uint32:
    gained = integral[corners[0], s] + integral[corners[3], s]
    lost = integral[corners[1], s] + integral[corners[2], s]
    return np.uint32(gained - lost)
