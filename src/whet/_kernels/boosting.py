"""Online boosting of univariate normals, one sample at a time (Oza and Russell)."""

import math

import numpy as np
from numpy.typing import NDArray

from whet._kernels.jit import kernel

Floats = NDArray[np.float64]


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
    """Show one sample x (T,), a value a weak learner, to the T learners in turn.

    n, m, S are (T, 2): each learner's weighted count, mean and scatter of the two classes, updated by
    d = x - m; n += w; m += w d / n; S += w d (x - m). `right` and `wrong` (T,) sum the weights of the samples that
    each learner got right and wrong. A sample's weight falls where a learner is right and grows where it is wrong,
    so that both halves of what a learner was shown weigh the same for the next one.
    """
    w = weight
    for t in range(x.shape[0]):
        d = x[t] - m[t, label]
        n[t, label] += w
        m[t, label] += w * d / n[t, label]
        S[t, label] += w * d * (x[t] - m[t, label])
        is_right = (log_ratio(x[t], n[t], m[t], S[t], smallest[t]) > 0.0) == (label == 1)
        if is_right:
            right[t] += w
        else:
            wrong[t] += w
        shown = right[t] + wrong[t]
        w *= shown / (2.0 * (right[t] if is_right else wrong[t]))


@kernel
def log_ratios(X: Floats, n: Floats, m: Floats, S: Floats, smallest: Floats) -> Floats:
    """`log_ratio` of every sample under every weak learner, (N, T)."""
    out = np.empty(X.shape)
    for i in range(X.shape[0]):
        for t in range(X.shape[1]):
            out[i, t] = log_ratio(X[i, t], n[t], m[t], S[t], smallest[t])
    return out
