"""The smallest change of a linear classifier that satisfies constraints on single samples, and its votes on bits."""

import numpy as np
from numpy.typing import NDArray

from whet._kernels.jit import inlined, kernel

Floats = NDArray[np.float64]
Bits = NDArray[np.uint8]

# Constraints without a multiplier are looked at in every eighth sweep: most of them stay satisfied.
EVERY = 8


@inlined
def vote(w: Floats, x: Bits) -> float:
    """w[:T] . x + w[T], summed in four columns: the order is fixed, and no addition waits for the one before."""
    T = x.shape[0]
    whole = T - T % 4
    a = b = c = d = 0.0
    for j in range(0, whole, 4):
        a += w[j] * x[j]
        b += w[j + 1] * x[j + 1]
        c += w[j + 2] * x[j + 2]
        d += w[j + 3] * x[j + 3]
    for j in range(whole, T):
        a += w[j] * x[j]
    return float((a + b) + (c + d) + w[T])


@inlined
def spread(inverse: Floats, x: Bits, row: Floats) -> float:
    """Write inverse . (x, 1) to `row` (T + 1,), and return (x, 1) . inverse . (x, 1)."""
    T = x.shape[0]
    row[:] = inverse[T]
    for j in range(T):
        if x[j]:
            for k in range(T + 1):
                row[k] += inverse[j, k]
    gain = row[T]
    for j in range(T):
        if x[j]:
            gain += row[j]
    return float(gain)


@kernel
def leverages(inverse: Floats, X: Bits, result: Floats) -> None:
    """(x, 1) . inverse . (x, 1) for each row x of X (n, T)."""
    row = np.empty(inverse.shape[0])
    for i in range(X.shape[0]):
        result[i] = spread(inverse, X[i], row)


@kernel
def satisfy(
    w: Floats,
    X: Bits,
    inverse: Floats,
    side: Floats,
    margin: Floats,
    most: Floats,
    tolerance: float,
    max_sweeps: int,
) -> int:
    """Change w (T + 1,) in place so that side_i (w . (x_i, 1)) >= margin_i, and as little as possible in the metric.

    `inverse` is that of the metric. Cyclic coordinate ascent of the dual, in the order of the rows of X (n, T), until
    no margin moves by more than `tolerance` in a sweep; returns the number of sweeps. A multiplier moves the margin of
    its own sample by at most `most_i`, so that contradictory constraints end too.
    """
    n, T = X.shape
    multiplier, gain, rows = np.zeros(n), np.zeros(n), np.empty((n, T + 1))
    all_next = True
    for sweep in range(max_sweeps):
        is_all = all_next or sweep % EVERY == 0
        worst = 0.0
        for i in range(n):
            if multiplier[i] == 0.0 and not is_all:
                continue
            missing = margin[i] - side[i] * vote(w, X[i])
            # Within the tolerance: a guard at its own margin differs by the rounding of another order of sums.
            if multiplier[i] == 0.0 and missing <= tolerance:
                continue
            if gain[i] == 0.0:
                gain[i] = spread(inverse, X[i], rows[i])
            new = min(max(multiplier[i] + missing / gain[i], 0.0), most[i] / gain[i])
            step = new - multiplier[i]
            if step != 0.0:
                multiplier[i] = new
                row = rows[i]
                signed = step * side[i]
                for k in range(T + 1):
                    w[k] += signed * row[k]
                worst = max(worst, abs(step) * gain[i])
        if worst <= tolerance:
            if is_all:
                return sweep + 1
            all_next = True
        else:
            all_next = False
    return max_sweeps


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
