"""Cholesky factor, solve and inverse in a fixed order of operations.

LAPACK's results differ in the last bits with the number of BLAS threads. These do not: equal matrices give
equal bits, which is what lets a model file hold nothing but integers and derive its coefficients on load.
All inner loops run along rows and are sums of scaled rows, so that they vectorise without re-ordering.
"""

import math

import numpy as np
from numpy.typing import NDArray

from whet.kernels.jit import kernel


@kernel
def factorise(A: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """Upper factor U with U^T U = A, and the first row whose pivot is zero up to rounding (-1 if none).

    Rows are finished four at a time and then taken off all below them at once, in the order of one after the other: the
    bits are the same, and a matrix that is larger than the cache is read and written a quarter as often.
    """
    T = A.shape[0]
    U = np.triu(A)
    for first in range(0, T, 4):
        stop = min(first + 4, T)
        for k in range(first, stop):
            if not U[k, k] > 1e-14 * A[k, k]:
                return U, k
            pivot = math.sqrt(U[k, k])
            for j in range(k, T):
                U[k, j] /= pivot
            for i in range(k + 1, stop):
                factor = U[k, i]
                for j in range(i, T):
                    U[i, j] -= factor * U[k, j]
        if stop < T:
            a, b, c, d = U[first], U[first + 1], U[first + 2], U[first + 3]
            for i in range(stop, T):
                row, of_a, of_b, of_c, of_d = U[i], a[i], b[i], c[i], d[i]
                for j in range(i, T):
                    row[j] = row[j] - of_a * a[j] - of_b * b[j] - of_c * c[j] - of_d * d[j]
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
