"""One round of greedy selection over all candidates: a row of a Cholesky factor, and what is left to gain."""

import numpy as np
from numpy.typing import NDArray

from whet.kernels.jit import kernel

Floats = NDArray[np.float64]

# Candidates whose new entries stay in the first-level cache while all earlier rows pass over them.
AT_ONCE = 1024


@kernel
def project_out(
    row: Floats, factor: Floats, t: int, chosen: Floats, pivot: float, gap: float, r: Floats, v: Floats
) -> None:
    """Write row t of `factor` (rounds, candidates), and take it out of the gaps r and scatters v (candidates,).

    `row` is the scatter of the chosen candidate with all, `chosen` (t,) its own entries in the rows before;
    `pivot` and `gap` are what was left of its scatter and gap. The order of the additions is fixed.
    """
    root = np.sqrt(pivot)
    for start in range(0, row.size, AT_ONCE):
        stop = min(start + AT_ONCE, row.size)
        new = row[start:stop].copy()
        for s in range(t):
            weight = chosen[s]
            earlier = factor[s, start:stop]
            for i in range(new.size):
                new[i] -= weight * earlier[i]
        for i in range(new.size):
            new[i] /= root
            r[start + i] -= new[i] * (gap / root)
            v[start + i] -= new[i] * new[i]
        factor[t, start:stop] = new


@kernel
def best_gain(r: Floats, v: Floats, smallest: Floats) -> tuple[int, float]:
    """The candidate with the largest r^2 / v among those with v above `smallest`, the first of equals; or (-1, 0)."""
    best = -1
    most = 0.0
    for i in range(r.size):
        if v[i] > smallest[i]:
            gain = r[i] * r[i] / v[i]
            if gain > most:
                best, most = i, gain
    return best, most
