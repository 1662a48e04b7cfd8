"""Online boosting: weak learners on one feature each that every sample updates in turn."""

import math

import numpy as np
from numpy.typing import NDArray

from whet._kernels.jit import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


@kernel
def log_ratio(x: float, n: Floats, m: Floats, S: Floats, smallest_variance: float) -> float:
    """Log N(x; positives) - log N(x; negatives), from counts (2,), means (2,) and scatters (2,); 1 is positive."""
    ratio = 0.0
    for c in range(2):
        variance = max(S[c] / max(n[c], 1e-300), smallest_variance)
        term = -0.5 * (math.log(variance) + (x - m[c]) ** 2 / variance)
        ratio += term if c == 1 else -term
    return ratio


@kernel
def weight_for_next(w: float, is_right: bool, right: Floats, wrong: Floats, t: int) -> float:
    """Count a sample of weight w as right or wrong of learner t; its weight for the next learner.

    The weight falls where a learner is right and grows where it is wrong, so that right and wrong samples have the same
    total weight for the next learner.
    """
    if is_right:
        right[t] += w
    else:
        wrong[t] += w
    growth: float = (right[t] + wrong[t]) / (2.0 * (right[t] if is_right else wrong[t]))
    return w * growth


@kernel
def boost_one(
    x: Floats,
    label: int,
    weight: float,
    n: Floats,
    m: Floats,
    S: Floats,
    right: Floats,
    wrong: Floats,
    smallest: Floats,
) -> None:
    """Update T weak learners in turn with one sample x (T,), one value for each.

    n, m, S are (T, 2): each learner's weighted count, mean and scatter of the two classes, updated by
    d = x - m; n += w; m += w d / n; S += w d (x - m). `right` and `wrong` (T,) sum the weights of the samples that
    each learner got right and wrong; `weight_for_next` moves the weight of the sample.
    """
    w = weight
    for t in range(x.shape[0]):
        d = x[t] - m[t, label]
        n[t, label] += w
        m[t, label] += w * d / n[t, label]
        S[t, label] += w * d * (x[t] - m[t, label])
        is_right = (log_ratio(x[t], n[t], m[t], S[t], smallest[t]) > 0.0) == (label == 1)
        w = weight_for_next(w, is_right, right, wrong, t)


@kernel
def log_ratios(X: Floats, n: Floats, m: Floats, S: Floats, smallest: Floats) -> Floats:
    """`log_ratio` of every sample under every weak learner, (N, T)."""
    out = np.empty(X.shape)
    for i in range(X.shape[0]):
        for t in range(X.shape[1]):
            out[i, t] = log_ratio(X[i, t], n[t], m[t], S[t], smallest[t])
    return out


@kernel
def regression(sums: Floats) -> tuple[float, float]:
    """Slope and intercept of the weighted least squares line, from sums (5,) of w, w x, w x^2, w y and w x y.

    Without a spread of x, the line is the mean of y.
    """
    w, wx, wxx, wy, wxy = sums[0], sums[1], sums[2], sums[3], sums[4]
    spread = w * wxx - wx * wx
    if spread <= 1e-12 * w * wxx:
        return 0.0, wy / max(w, 1e-300)
    slope = (w * wxy - wx * wy) / spread
    return slope, (wy - slope * wx) / w


@kernel
def regress_one(x: Floats, label: int, weight: float, sums: Floats, right: Floats, wrong: Floats) -> None:
    """Update T regressions of labels -1 and 1 in turn with one sample x (T,); the weight moves as in `boost_one`."""
    w, y = weight, 2.0 * label - 1.0
    for t in range(x.shape[0]):
        sums[t, 0] += w
        sums[t, 1] += w * x[t]
        sums[t, 2] += w * x[t] * x[t]
        sums[t, 3] += w * y
        sums[t, 4] += w * x[t] * y
        slope, intercept = regression(sums[t])
        is_right = (slope * x[t] + intercept > 0.0) == (label == 1)
        w = weight_for_next(w, is_right, right, wrong, t)


@kernel
def select_one(
    x: Floats,
    label: int,
    weight: float,
    pools: Ints,
    n: Floats,
    m: Floats,
    S: Floats,
    right: Floats,
    wrong: Floats,
    selected: Ints,
    fresh: Ints,
    smallest: Floats,
) -> None:
    """Update all selectors in turn with one sample x (features,).

    Selector j has a pool of P features, `pools` (J, P), each with two normals n, m, S (J, P, 2) and the weights of the
    samples that it got right and wrong (J, P), as in `boost_one`. It selects the one of least error, `selected` (J,),
    whose answer decides the weight of the sample for the next selector. Its worst one is replaced by the feature
    `fresh[j]`, which starts without samples and with the error of the one it replaces: with an error of its own, one
    heavy sample would have it selected.
    """
    w = weight
    for j in range(pools.shape[0]):
        best, worst = 0, 0
        least, most = np.inf, -1.0
        is_right = False
        for p in range(pools.shape[1]):
            value = x[pools[j, p]]
            d = value - m[j, p, label]
            n[j, p, label] += w
            m[j, p, label] += w * d / n[j, p, label]
            S[j, p, label] += w * d * (value - m[j, p, label])
            hit = (log_ratio(value, n[j, p], m[j, p], S[j, p], smallest[pools[j, p]]) > 0.0) == (label == 1)
            if hit:
                right[j, p] += w
            else:
                wrong[j, p] += w
            error = wrong[j, p] / (right[j, p] + wrong[j, p])
            if error < least:
                least, best, is_right = error, p, hit
            if error > most:
                most, worst = error, p
        selected[j] = best
        error = min(max(least, 1e-3), 1.0 - 1e-3)
        w *= 1.0 / (2.0 * ((1.0 - error) if is_right else error))
        if worst != best:
            pools[j, worst] = fresh[j]
            n[j, worst], m[j, worst], S[j, worst] = 0.0, 0.0, 0.0
