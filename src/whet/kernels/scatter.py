"""How a class scatters about its mean, from whole counts."""

import numpy as np
from numpy.typing import NDArray

from whet.kernels.jit import kernel


@kernel
def binary_scatter(n: int, s: NDArray[np.int64], C: NDArray[np.int64]) -> NDArray[np.float64]:
    """S = C - s s^T / n (P, P), of a count n, a sum s (P,) and co-occurrences C (P, P); in one pass."""
    P = s.shape[0]
    sums = s.astype(np.float64)  # the square of an integer sum overflows at 3e9 samples
    S = np.empty((P, P))
    for i in range(P):
        for j in range(P):
            S[i, j] = float(C[i, j]) - sums[i] * sums[j] / n
    return S
