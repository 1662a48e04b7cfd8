"""Responses of all weak learners to windows: margins in a stage, and distances to windows that are known."""

import numpy as np
from numpy.typing import NDArray

from whet._kernels.jit import kernel
from whet._kernels.simd import popcount

Floats = NDArray[np.float64]
Bits = NDArray[np.uint8]
Words = NDArray[np.uint64]


@kernel
def judge_bits(
    X: Bits, coef: Floats, threshold: float, rejection: Floats, margin: Floats, passed: NDArray[np.bool_]
) -> None:
    """Margins (n,) of responses X (n, T) that `passed` so far, summed as a scan sums them; unsets those that fail."""
    for i in range(X.shape[0]):
        total = 0.0
        stays = passed[i]
        if stays:
            for t in range(X.shape[1]):
                if X[i, t]:
                    total += coef[t]
                if not total > rejection[t]:
                    stays = False
                    break
        margin[i] = total - threshold
        passed[i] = stays and total > threshold


@kernel
def sum_bits(X: Bits, coef: Floats, threshold: float, margin: Floats) -> None:
    """Margins (n,) of responses X (n, T), summed as a scan sums them."""
    for i in range(X.shape[0]):
        total = 0.0
        for t in range(X.shape[1]):
            if X[i, t]:
                total += coef[t]
        margin[i] = total - threshold


@kernel
def find_nearest(windows: Words, known: Words, distance: NDArray[np.int64], which: NDArray[np.intp]) -> None:
    """The row of `known` (m, words) at the least Hamming distance to each of `windows` (n, words), the first of equals.

    `distance` (n,) holds the distances that have to be undercut; where none does, `distance` and `which` (n,) stay.
    """
    for i in range(windows.shape[0]):
        least, best = distance[i], which[i]
        for j in range(known.shape[0]):
            total = np.uint64(0)
            for w in range(windows.shape[1]):
                total += popcount(windows[i, w] ^ known[j, w])
            if np.int64(total) < least:
                least, best = np.int64(total), j
        distance[i], which[i] = least, best


@kernel
def have_within(
    windows: Words, known: Words, distance: NDArray[np.int64], factor: float, found: NDArray[np.bool_]
) -> None:
    """Set `found` (n,) where a row of `known` (m, words) times `factor` is not farther than `distance` (n,)."""
    for i in range(windows.shape[0]):
        j = 0
        while not found[i] and j < known.shape[0]:
            total = np.uint64(0)
            for w in range(windows.shape[1]):
                total += popcount(windows[i, w] ^ known[j, w])
            found[i] = factor * np.int64(total) <= distance[i]
            j += 1
