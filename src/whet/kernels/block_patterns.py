"""Local binary patterns of 3 x 3 blocks, from integral images."""

import numpy as np
from numpy.typing import NDArray

from whet.kernels.jit import kernel

# Places of the eight outer blocks in the 3 x 3 grid, clockwise from the top left: highest bit first, as in
# OpenCV's `LBPEvaluator::OptFeature::calc` (modules/objdetect/src/cascadedetect.hpp).
CLOCKWISE = ((0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0))


@kernel
def block_codes(sums: NDArray[np.uint32], corners: NDArray[np.int32], codes: NDArray[np.uint8]) -> None:
    """Fill `codes` (features, samples): a bit for each outer block that is at least as bright as the centre.

    `sums` is (pixels, samples), `corners` (features, 4, 4) the pixels at the corners of the nine blocks.
    """
    n = sums.shape[1]
    centre = np.empty(n, dtype=np.int32)
    outer = np.empty(n, dtype=np.int32)
    for f in range(corners.shape[0]):
        grid, row = corners[f], codes[f]
        _block_sum(sums, grid, 1, 1, centre)
        row[:] = np.uint8(0)
        for y, x in CLOCKWISE:
            _block_sum(sums, grid, y, x, outer)
            for s in range(n):
                row[s] = np.uint8((row[s] << np.uint8(1)) | np.uint8(outer[s] >= centre[s]))


@kernel
def _block_sum(sums: NDArray[np.uint32], grid: NDArray[np.int32], y: int, x: int, total: NDArray[np.int32]) -> None:
    a, b = sums[grid[y, x]], sums[grid[y, x + 1]]
    c, d = sums[grid[y + 1, x]], sums[grid[y + 1, x + 1]]
    for s in range(total.size):
        total[s] = np.int32(a[s] - b[s] - c[s] + d[s])
