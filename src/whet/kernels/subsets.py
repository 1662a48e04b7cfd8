"""Weak learners on categorical codes: the set of codes that speak for the positive class."""

import numpy as np
from numpy.typing import NDArray

from whet.kernels.bit_rows import table_row
from whet.kernels.bits import BITS, pack
from whet.kernels.histogram import BINS, class_histograms
from whet.kernels.jit import kernel


@kernel
def train_subsets(
    codes: NDArray[np.uint8],
    n_positive: int,
    weights: NDArray[np.float64],
    subset: NDArray[np.uint64],
    error: NDArray[np.float64],
    bits: NDArray[np.uint64],
) -> None:
    """Choose, for each row of `codes` (features, samples), the codes that more positives than negatives have.

    Fills `subset` (features, 4), a bit for each of 256 codes, the error (features,) and the responses `bits`
    (features, words). Weights as in `class_histograms`; codes without a majority, or never seen, stay out.
    """
    positive, negative = np.empty(BINS), np.empty(BINS)
    table = np.empty(BINS, dtype=np.uint8)
    flags = np.zeros(BITS * bits.shape[1], dtype=np.uint8)
    for f in range(codes.shape[0]):
        class_histograms(codes[f], n_positive, weights, positive, negative)
        error[f] = 0.0
        for code in range(BINS):
            table[code] = positive[code] > negative[code]
            error[f] += min(positive[code], negative[code])
        pack(table, subset[f])
        table_row(codes[f], table, n_positive, flags, bits[f])
