"""Decision stumps on plain feature values: the best threshold of every feature, and responses."""

import numpy as np
from numpy.typing import NDArray

from whet.kernels.jit import kernel

Floats = NDArray[np.float64]


@kernel
def best_splits(
    values: Floats, order: NDArray[np.intp], weight_pos: Floats, weight_neg: Floats
) -> tuple[Floats, NDArray[np.int8], Floats]:
    """Threshold, polarity and weighted error of the best stump on each feature.

    `values` and `order` are (features, samples), `order` sorting each row; the weights are those of the
    positives (zero at negatives) and of the negatives. A stump responds 1 to value > threshold, or, with
    polarity -1, to value <= threshold. Ties go to the lowest threshold, and there to polarity 1.
    """
    M, N = values.shape
    threshold = np.empty(M)
    polarity = np.ones(M, dtype=np.int8)
    error = np.empty(M)
    total_pos = weight_pos.sum()
    total_neg = weight_neg.sum()
    for f in range(M):
        below_pos = 0.0
        below_neg = 0.0
        error[f] = np.inf
        for r in range(N - 1):
            i = order[f, r]
            below_pos += weight_pos[i]
            below_neg += weight_neg[i]
            low = values[f, i]
            high = values[f, order[f, r + 1]]
            if not low < high:
                continue
            as_is = below_pos + (total_neg - below_neg)
            flipped = below_neg + (total_pos - below_pos)
            if min(as_is, flipped) < error[f]:
                error[f] = min(as_is, flipped)
                polarity[f] = 1 if as_is <= flipped else -1
                middle = low / 2 + high / 2
                threshold[f] = middle if low <= middle < high else low
        if error[f] == np.inf:  # a constant feature: the stump never responds
            threshold[f] = values[f, order[f, N - 1]]
            error[f] = total_pos
    return threshold, polarity, error


@kernel
def respond_one(
    x: Floats, feature: NDArray[np.intp], threshold: Floats, polarity: NDArray[np.int8]
) -> NDArray[np.uint8]:
    """Responses (P,) of stumps to one sample x (features,)."""
    P = feature.shape[0]
    out = np.empty(P, dtype=np.uint8)
    for j in range(P):
        out[j] = (x[feature[j]] > threshold[j]) == (polarity[j] > 0)
    return out
