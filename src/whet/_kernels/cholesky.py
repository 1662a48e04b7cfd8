"""Cholesky factor, solve and inverse in a fixed order of operations, and one round of greedy selection."""

import math

import numpy as np
from numpy.typing import NDArray

from whet._kernels.jit import kernel


@kernel
def factorise(A: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """Upper factor U with U^T U = A, and the first row whose pivot is zero up to rounding (-1 if none)."""
    T = A.shape[0]
    U = np.triu(A)
    for i in range(T):
        whole = i - i % 4
        for k in range(0, whole, 4):  # four rows at a time, in their order, to spare loads of row i
            a, b, c, d = U[k, i], U[k + 1, i], U[k + 2, i], U[k + 3, i]
            for j in range(i, T):
                U[i, j] = U[i, j] - a * U[k, j] - b * U[k + 1, j] - c * U[k + 2, j] - d * U[k + 3, j]
        for k in range(whole, i):
            factor = U[k, i]
            for j in range(i, T):
                U[i, j] -= factor * U[k, j]
        if not U[i, i] > 1e-14 * A[i, i]:
            return U, i
        pivot = math.sqrt(U[i, i])
        for j in range(i, T):
            U[i, j] /= pivot
    return U, -1


@kernel
def solve(U: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solve U^T U x = b."""
    T = U.shape[0]
    x = b.copy()
    for k in range(T):
        x[k] /= U[k, k]
        for j in range(k + 1, T):
            x[j] -= U[k, j] * x[k]
    for k in range(T - 1, -1, -1):
        rest = 0.0
        for j in range(k + 1, T):
            rest += U[k, j] * x[j]
        x[k] = (x[k] - rest) / U[k, k]
    return x


@kernel
def invert(U: NDArray[np.float64]) -> NDArray[np.float64]:
    """Symmetric inverse of U^T U."""
    T = U.shape[0]
    W = np.eye(T)
    for k in range(T):
        for j in range(k + 1):
            W[k, j] /= U[k, k]
        for i in range(k + 1, T):
            factor = U[k, i]
            for j in range(k + 1):
                W[i, j] -= factor * W[k, j]
    for k in range(T - 1, -1, -1):
        for i in range(k + 1, T):
            factor = U[k, i]
            for j in range(T):
                W[k, j] -= factor * W[i, j]
        for j in range(T):
            W[k, j] /= U[k, k]
    for i in range(T):
        for j in range(i):
            W[i, j] = W[j, i]
    return W


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
