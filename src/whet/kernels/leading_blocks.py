"""Quadratic forms of all leading blocks of a matrix, in one pass."""

import numpy as np
from numpy.typing import NDArray

from whet.kernels.jit import kernel

Floats = NDArray[np.float64]


@kernel
def leading_forms(S: Floats, w: Floats) -> Floats:
    """The sums over i, j <= t of S_ij w_i w_j, for every t (T,); S may have more rows and columns than w.

    Added up as two cumulative sums would, down the columns and then along the rows, but without matrices of them.
    """
    T = w.shape[0]
    columns = np.zeros(T)
    forms = np.empty(T)
    for t in range(T):
        for j in range(T):
            columns[j] += S[t, j] * (w[t] * w[j])
        total = 0.0
        for j in range(t + 1):
            total += columns[j]
        forms[t] = total
    return forms
