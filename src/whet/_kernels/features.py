"""Feature values of training patches: weighted rectangles and local binary patterns, from integral images."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet._kernels.jit import kernel

# Samples in a run: nine corner rows of one feature are 147 KB and stay in a second-level cache of 512 KB for
# its neighbours in the pool, which share most of them. Runs of 2,048 or 8,192 take 10 % longer.
RUN = 4096


@kernel
def corner_values(
    sums: NDArray[np.uint32],
    factors: NDArray[np.float32],
    corners: NDArray[np.int32],
    weights: NDArray[np.int32],
    values: NDArray[np.float32],
) -> None:
    """Fill `values` (features, samples) with weighted corner sums times the normalisation of each sample.

    `sums` is (pixels, samples), `factors` (samples,), `corners` and `weights` (features, a multiple of 3).
    Three corners whose weights are all zero are not read.
    """
    n = factors.size
    total = np.empty(min(RUN, n), dtype=np.int32)
    for start in range(0, n, RUN):
        stop = min(start + RUN, n)
        for f in range(corners.shape[0]):
            _weighted_sum(sums, start, stop, corners[f], weights[f], total)
            _scale(total, factors[start:stop], values[f][start:stop])


@kernel
def _weighted_sum(
    sums: NDArray[np.uint32],
    start: int,
    stop: int,
    corners: NDArray[np.int32],
    weights: NDArray[np.int32],
    total: NDArray[np.int32],
) -> None:
    for k in range(0, corners.size, 3):
        u, v, w = weights[k], weights[k + 1], weights[k + 2]
        if k > 0 and u == 0 and v == 0 and w == 0:
            continue
        a = sums[corners[k]][start:stop]
        b = sums[corners[k + 1]][start:stop]
        c = sums[corners[k + 2]][start:stop]
        add_three(a, b, c, u, v, w, k == 0, total)


@kernel
def add_three(
    a: NDArray[np.uint32],
    b: NDArray[np.uint32],
    c: NDArray[np.uint32],
    u: np.int32,
    v: np.int32,
    w: np.int32,
    first: bool,
    total: NDArray[np.int32],
) -> None:
    """Add three weighted rows of corners to `total`, or, if they are the `first`, write it. Exact modulo 2^32."""
    # numba widens to 64 bits; the cast back lets the compiler process eight 32-bit numbers at once.
    if first:
        for s in range(a.size):
            total[s] = np.int32(u * a[s] + v * b[s] + w * c[s])
    else:
        for s in range(a.size):
            total[s] = np.int32(total[s] + u * a[s] + v * b[s] + w * c[s])


@kernel
def _scale(total: NDArray[np.int32], factors: NDArray[np.float32], values: NDArray[np.float32]) -> None:
    for s in range(values.size):
        values[s] = np.float32(total[s]) * factors[s]


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


@kernel
def respond_one(
    x: NDArray[np.float64], feature: NDArray[np.intp], threshold: NDArray[np.floating[Any]], polarity: NDArray[np.int8]
) -> NDArray[np.uint8]:
    """Responses (P,) of stumps to one sample x (features,)."""
    P = feature.shape[0]
    out = np.empty(P, dtype=np.uint8)
    for j in range(P):
        out[j] = (x[feature[j]] > threshold[j]) == (polarity[j] > 0)
    return out
