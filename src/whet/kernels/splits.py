"""Decision stumps on plain feature values: the best threshold of every feature, and responses."""

import numpy as np
from numpy.typing import NDArray

from whet.kernels.jit import kernel

Floats = NDArray[np.float64]


@kernel
def best_splits(
    values: Floats,
    order: NDArray[np.int32],
    signed: Floats,
    total_pos: float,
    total_neg: float,
    threshold: Floats,
    polarity: NDArray[np.int8],
    error: Floats,
) -> None:
    """Write threshold, polarity and weighted error (features,) of the best stump on each feature.

    `values` (features, samples) are sorted, `order` tells which sample each was; `signed` (samples,) are the
    weights, those of negatives with a minus. A stump responds 1 to value > threshold, or, with polarity -1, to
    value <= threshold. Ties go to the lowest threshold, and there to polarity 1.
    """
    M, N = values.shape
    rounding = 1e-13 * (total_pos + total_neg)  # sums of fractions in another order are still ties
    for f in range(M):
        below = 0.0  # weight of the positives, less that of the negatives, below the cut
        least = np.inf
        cut = N - 1  # a constant feature: the stump never responds
        side = 1
        for r in range(N - 1):
            below += signed[order[f, r]]
            if values[f, r] < values[f, r + 1]:
                as_is = total_neg + below
                flipped = total_pos - below
                if min(as_is, flipped) < least - rounding:
                    least = min(as_is, flipped)
                    cut = r
                    side = 1 if as_is <= flipped else -1
        low = values[f, cut]
        high = values[f, min(cut + 1, N - 1)]
        middle = low / 2 + high / 2
        threshold[f] = middle if low <= middle < high else low
        polarity[f] = side
        error[f] = least if cut < N - 1 else total_pos


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
