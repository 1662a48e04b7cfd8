"""Whether counts of responses in {0, 1} contradict themselves."""

import numpy as np
from numpy.typing import NDArray

from whet.kernels.jit import kernel

Counts = NDArray[np.int64]


@kernel
def in_order(n: int, s: Counts, C: Counts) -> bool:
    """Tell whether 0 <= C_jk <= min(s_j, s_k) <= n holds for a count n, sums s (P,) and co-occurrences C (P, P)."""
    fine = n >= 0
    for i in range(s.shape[0]):
        if not fine or s[i] > n:
            return False
        for j in range(s.shape[0]):  # without a way out, eight at a time
            fine &= (C[i, j] >= 0) & (C[i, j] <= s[i]) & (C[i, j] <= s[j])
    return fine
