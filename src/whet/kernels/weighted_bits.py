"""Sums of weights over the ones of bit rows, eight bits to a table look-up."""

import numpy as np
from numpy.typing import NDArray

from whet.kernels.jit import kernel

Floats = NDArray[np.float64]

# The tables of one word are 8 x 256 sums, 16 KB: half of a first-level cache.
TABLES = 8


@kernel
def weigh_rows(bits: NDArray[np.uint64], weights: Floats, sums: Floats) -> None:
    """Add to `sums` (rows,) the weights (64 words,) of the ones in every row of `bits` (rows, words).

    Word by word down the rows, so that one word's tables serve them all; every row adds its words from first
    to last, whatever rows it shares a call with.
    """
    tables = np.empty((TABLES, 256))
    for w in range(bits.shape[1]):
        for k in range(TABLES):
            _fill_table(weights[64 * w + 8 * k :][:8], tables[k])
        for i in range(bits.shape[0]):
            sums[i] += _weigh_word(bits[i, w], tables)


@kernel
def _fill_table(weights: Floats, table: Floats) -> None:
    """table[byte] is the sum of the eight weights at the ones of that byte."""
    table[0] = 0.0
    for k in range(8):
        for low in range(1 << k):
            table[(1 << k) + low] = table[low] + weights[k]


@kernel
def _weigh_word(word: np.uint64, tables: Floats) -> float:
    total = 0.0
    for k in range(TABLES):
        total += tables[k, np.int64((word >> np.uint64(8 * k)) & np.uint64(255))]
    return total
