"""From the values of a feature to a bit row: the positives first, the negatives from a whole word on."""

import numpy as np
from numpy.typing import NDArray

from whet.kernels.bits import BITS, pack
from whet.kernels.jit import kernel

Flags = NDArray[np.uint8]
Words = NDArray[np.uint64]


@kernel
def threshold_row(
    values: NDArray[np.float32],
    threshold: np.float32,
    flip: bool,
    n_positive: int,
    flags: Flags,
    words: Words,
) -> None:
    """Set the bits of the samples above the threshold, or, with `flip`, of all others.

    `flags` (64 words,) is scratch space, zero where no sample lies.
    """
    start = first_negative(n_positive)
    _threshold(values[:n_positive], threshold, flip, flags[:n_positive])
    _threshold(values[n_positive:], threshold, flip, flags[start : start + values.size - n_positive])
    pack(flags, words)


@kernel
def table_row(codes: NDArray[np.uint8], table: Flags, n_positive: int, flags: Flags, words: Words) -> None:
    """Set the bits of the samples whose code has a 1 in `table` (256,); `flags` as in `threshold_row`."""
    start = first_negative(n_positive)
    for i in range(n_positive):
        flags[i] = table[codes[i]]
    for i in range(n_positive, codes.size):
        flags[start - n_positive + i] = table[codes[i]]
    pack(flags, words)


@kernel
def first_negative(n_positive: int) -> int:
    """The bit at which the negatives start.

    >>> first_negative(64), first_negative(65)
    (64, 128)
    """
    return (n_positive + BITS - 1) // BITS * BITS


@kernel
def _threshold(values: NDArray[np.float32], threshold: np.float32, flip: bool, flags: Flags) -> None:
    turned = np.uint8(flip)
    for i in range(values.size):
        flags[i] = np.uint8(values[i] > threshold) ^ turned
