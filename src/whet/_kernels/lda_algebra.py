"""Kernels of linear discriminant analysis: class statistics, Cholesky factors, one round of greedy selection.

Operations have a fixed order, so that every machine has the same bits. An update by one sample takes O(T^2).
"""

import math

import numpy as np

from whet._kernels.jit import as_float, kernel, part
from whet.arrays import Bytes, Floats, Int64s


@part
def factorise(A: Floats) -> tuple[Floats, int]:
    """Upper factor U with U^T U = A, and the first row whose pivot is zero up to rounding (-1 if none)."""
    T = A.shape[0]
    U = np.zeros((T, T))
    for i in range(T):  # np.triu would take two seconds to compile
        for j in range(i, T):
            U[i, j] = A[i, j]
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


@part
def solve(U: Floats, b: Floats) -> Floats:
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
def invert(U: Floats) -> Floats:
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


@kernel
def binary_scatter(n: int, s: Int64s, C: Int64s) -> Floats:
    """S = C - s s^T / n (P, P), of a count n, a sum s (P,) and co-occurrences C (P, P); in one pass."""
    P = s.shape[0]
    sums = s.astype(np.float64)  # the square of an integer sum overflows at 3e9 samples
    S = np.empty((P, P))
    for i in range(P):
        for j in range(P):
            S[i, j] = float(C[i, j]) - sums[i] * sums[j] / n
    return S


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


# What a step returns: the denominator of Sherman-Morrison, the largest residual of A v = m_1 - m_2 relative to
# the right-hand side, then mean and variance of v^T x for the positives and for the negatives.
Step = tuple[float, float, float, float, float, float]


@part
def add_symmetric_product(A: Floats | Int64s, v: Floats, out: Floats) -> None:
    """Add A v to `out`, for symmetric A; row by row, four at a time to spare loads of `out`."""
    T = v.shape[0]
    whole = T - T % 4
    for i in range(0, whole, 4):
        a, b, c, d = v[i], v[i + 1], v[i + 2], v[i + 3]
        for j in range(T):
            upper = as_float(A[i, j]) * a + as_float(A[i + 1, j]) * b
            lower = as_float(A[i + 2, j]) * c + as_float(A[i + 3, j]) * d
            out[j] += upper + lower
    for i in range(whole, T):
        for j in range(T):
            out[j] += as_float(A[i, j]) * v[i]


@kernel
def sherman_morrison(inverse: Floats, d: Floats, c: float, u: Floats, tolerance: float) -> float:
    """Turn A^-1 into (A + c d d^T)^-1 in place and leave A^-1 d (of the old A) in `u`.

    Returns the denominator 1 + c d^T A^-1 d; below `tolerance` the inverse is left as it was.
    """
    T = d.shape[0]
    u[:] = 0.0
    add_symmetric_product(inverse, d, u)
    product = 0.0
    for i in range(T):
        product += d[i] * u[i]
    denominator = 1.0 + c * product
    if denominator >= tolerance and c != 0.0:
        for i in range(T):
            factor = c / denominator * u[i]
            for j in range(T):
                inverse[i, j] -= factor * u[j]
    return denominator


@kernel
def follow_direction(v: Floats, u: Floats, d: Floats, gap: Floats, c: float, denominator: float, h: float) -> None:
    """Turn v = A^-1 gap into (A + c d d^T)^-1 (gap + h d), and gap into gap + h d; O(T), with u = A^-1 d."""
    T = v.shape[0]
    along_gap = 0.0
    along_d = 0.0
    for i in range(T):
        along_gap += u[i] * gap[i]
        along_d += u[i] * d[i]
    beta = h - c / denominator * (along_gap + h * along_d)
    for i in range(T):
        v[i] += beta * u[i]
        gap[i] += h * d[i]


@kernel
def insert_binary(x: Bytes, k: int, s: Int64s, C: Int64s) -> None:
    """Add k x to s and k x x^T to C, for a response x of zeros and ones."""
    P = x.shape[0]
    kx = x.astype(np.int64) * k
    for i in range(P):
        s[i] += kx[i]
        if x[i]:
            for j in range(P):
                C[i, j] += kx[j]


@kernel
def project_binary(n: int, s: Int64s, C: Int64s, v: Floats, product: Floats) -> tuple[float, float]:
    """Mean and variance of v^T x over a class; adds S v, with S = C - s s^T / n, to `product`."""
    T = v.shape[0]
    Cv = np.zeros(T)
    add_symmetric_product(C, v, Cv)
    total = 0.0
    square = 0.0
    for i in range(T):
        total += s[i] * v[i]
        square += v[i] * Cv[i]
    mean = total / n
    for i in range(T):
        product[i] += Cv[i] - s[i] * mean
    return mean, max(square - total * mean, 0.0) / n


@part
def project_centred(n: float, m: Floats, S: Floats, v: Floats, product: Floats) -> tuple[float, float]:
    """Mean and variance of v^T x over a class; adds S v to `product`."""
    T = v.shape[0]
    Sv = np.zeros(T)
    add_symmetric_product(S, v, Sv)
    mean = 0.0
    square = 0.0
    for i in range(T):
        mean += m[i] * v[i]
        square += v[i] * Sv[i]
        product[i] += Sv[i]
    return mean, max(square, 0.0) / n


@kernel
def direction_and_moments(
    A: Floats, n1: float, m1: Floats, S1: Floats, n2: float, m2: Floats, S2: Floats
) -> tuple[Floats, int, Floats, Floats]:
    """Cholesky factor U of A (T, T), v = A^-1 (m_1 - m_2), and mean and variance of v^T x for both classes (4,).

    The number after U is the first row whose pivot is zero up to rounding, and -1 if there is none. One kernel rather
    than four: a process that loads a detector reads each from the cache on disk, 7 ms.
    """
    U, failed = factorise(A)
    v, moments = np.zeros(len(A)), np.zeros(4)
    if failed < 0:
        for i in range(len(A)):
            v[i] = m1[i] - m2[i]
        v = solve(U, v)
        ignored = np.zeros(len(A))
        for k in range(2):  # a loop, so that the part is compiled once
            n, m, S = (n1, m1, S1) if k == 0 else (n2, m2, S2)
            moments[2 * k], moments[2 * k + 1] = project_centred(n, m, S, v, ignored)
    return U, failed, v, moments


@kernel
def insert_centred(x: Floats, k: float, n: float, m: Floats, S: Floats) -> None:
    """With d = x - m, add k d / (n + k) to m and n k / (n + k) d d^T to S."""
    P = x.shape[0]
    d = x - m
    c = n * k / (n + k)
    for i in range(P):
        m[i] += k * d[i] / (n + k)
        factor = c * d[i]
        for j in range(P):
            S[i, j] += factor * d[j]


@kernel
def largest_residual(product: Floats, gap: Floats, rounding: float) -> float:
    """Largest deviation of A v from the gap of the means, relative to the largest entry of the gap.

    `rounding` is what the means themselves may be off by, which no better inverse can mend.
    """
    worst = 0.0
    largest = 0.0
    for i in range(gap.shape[0]):
        worst = max(worst, abs(product[i] - gap[i]))
        largest = max(largest, abs(gap[i]))
    worst = max(worst - rounding, 0.0)
    return worst / largest if largest > 0.0 else worst


@kernel
def binary_step(
    x: Bytes,
    k: int,
    is_positive: bool,
    n1: int,
    s1: Int64s,
    C1: Int64s,
    n2: int,
    s2: Int64s,
    C2: Int64s,
    ridge: float,
    lac: bool,
    inverse: Floats,
    v: Floats,
    tolerance: float,
) -> Step:
    """Insert or remove one binary response; n1 and n2 are the counts before. See `Step`."""
    T = v.shape[0]
    d = np.empty(T)
    gap = np.empty(T)
    u = np.empty(T)
    for i in range(T):
        m1 = s1[i] / n1
        m2 = s2[i] / n2
        gap[i] = m1 - m2
        d[i] = x[i] - (m1 if is_positive else m2)
    n = n1 if is_positive else n2
    c = 0.0 if lac and not is_positive else n * float(k) / (n + k)
    h = k / (n + k) if is_positive else -k / (n + k)
    denominator = sherman_morrison(inverse, d, c, u, tolerance)
    follow_direction(v, u, d, gap, c, denominator, h)
    if is_positive:
        insert_binary(x, k, s1, C1)
        n1 += k
    else:
        insert_binary(x, k, s2, C2)
        n2 += k
    product = ridge * v
    mean1, variance1 = project_binary(n1, s1, C1, v, product)
    ignored = np.zeros(T)
    mean2, variance2 = project_binary(n2, s2, C2, v, ignored if lac else product)
    return denominator, largest_residual(product, gap, 0.0), mean1, variance1, mean2, variance2


@kernel
def centred_step(
    x: Floats,
    k: int,
    is_positive: bool,
    n1: float,
    m1: Floats,
    S1: Floats,
    n2: float,
    m2: Floats,
    S2: Floats,
    ridge: float,
    lac: bool,
    inverse: Floats,
    v: Floats,
    tolerance: float,
) -> Step:
    """Insert or remove one real response; n1 and n2 are the counts before. See `Step`."""
    T = v.shape[0]
    d = x[:T] - (m1[:T] if is_positive else m2[:T])
    gap = m1[:T] - m2[:T]
    u = np.empty(T)
    n = n1 if is_positive else n2
    c = 0.0 if lac and not is_positive else n * k / (n + k)
    h = k / (n + k) if is_positive else -k / (n + k)
    denominator = sherman_morrison(inverse, d, c, u, tolerance)
    follow_direction(v, u, d, gap, c, denominator, h)
    if is_positive:
        insert_centred(x, k, n1, m1, S1)
        n1 += k
    else:
        insert_centred(x, k, n2, m2, S2)
        n2 += k
    product = ridge * v
    mean1, variance1 = project_centred(n1, m1, S1, v, product)
    ignored = np.zeros(T)
    mean2, variance2 = project_centred(n2, m2, S2, v, ignored if lac else product)
    rounding = 1e-14 * max(np.abs(m1[:T]).max(), np.abs(m2[:T]).max())
    return denominator, largest_residual(product, gap, rounding), mean1, variance1, mean2, variance2
