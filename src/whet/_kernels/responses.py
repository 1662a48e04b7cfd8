"""Responses of weak learners as bits: packing, counting, weighted sums, margins in a stage, and distances.

In a row of words, bit i of word i // 64 is sample i; a row is padded with zeros to a whole word.
"""

import numpy as np
from numpy.typing import NDArray

from whet._kernels.jit import kernel, popcount

Bits = NDArray[np.uint8]
Counts = NDArray[np.int64]
Flags = NDArray[np.uint8]
Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

# --- Packing and counting ---------------------------------------------------------------------------------------------

BITS = 64
# Times eight bytes of 0 or 1, this gathers their bits in the highest byte, first byte lowest.
GATHER = np.uint64(0x0102040810204080)


@kernel
def pack(flags: NDArray[np.uint8], words: Words) -> None:
    """Pack `flags` of 0 or 1 (a multiple of 64) into `words`. Eight at a time, in little-endian order."""
    eights = flags.view(np.uint64)
    for w in range(words.size):
        word = np.uint64(0)
        for k in range(8):
            byte = (eights[8 * w + k] * GATHER) >> np.uint64(56)
            word |= byte << np.uint64(8 * k)
        words[w] = word


@kernel
def unpack(words: Words, flags: NDArray[np.uint8]) -> None:
    """Spread the first bits of `words` over `flags`, the inverse of `pack` for any number of flags."""
    for i in range(flags.size):
        flags[i] = (words[i // BITS] >> np.uint64(i % BITS)) & np.uint64(1)


@kernel
def count_common(left: Words, right: Words) -> np.int64:
    """The number of ones that two rows share."""
    total = np.uint64(0)
    for w in range(left.size):
        total += popcount(left[w] & right[w])
    return np.int64(total)


@kernel
def count_rows(bits: Words, split: int, before: Counts, after: Counts) -> None:
    """Count the ones of every row of `bits` (rows, words): before word `split`, and from there on."""
    for i in range(bits.shape[0]):
        row = bits[i]
        before[i] = count_common(row[:split], row[:split])
        after[i] = count_common(row[split:], row[split:])


@kernel
def count_common_rows(bits: Words, row: Words, split: int, before: Counts, after: Counts) -> None:
    """Count, as `count_rows` does, the ones that every row of `bits` shares with `row`."""
    first, second = row[:split], row[split:]
    for i in range(bits.shape[0]):
        other = bits[i]
        before[i] = count_common(other[:split], first)
        after[i] = count_common(other[split:], second)


@kernel
def add_co_occurrences(rows: Words, times: int, C: Counts) -> None:
    """Add `times` the ones that every two bit rows (P, words) share to C (P, P)."""
    for i in range(rows.shape[0]):
        for j in range(i + 1):
            common = times * count_common(rows[i], rows[j])
            C[i, j] += common
            if j < i:
                C[j, i] += common


# --- Rows of bits from the values of features -------------------------------------------------------------------------


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


# --- Weighted sums of rows --------------------------------------------------------------------------------------------

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


# --- Margins of windows in a stage ------------------------------------------------------------------------------------


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


# --- Distances to windows that are known ------------------------------------------------------------------------------


@kernel
def find_nearest(windows: Words, known: Words, distance: NDArray[np.int64], which: NDArray[np.intp]) -> None:
    """The row of `known` (m, words) at the least Hamming distance to each of `windows` (n, words), the first of equals.

    `distance` (n,) holds the distances that have to be undercut; where none does, `distance` and `which` (n,) stay.
    """
    for i in range(windows.shape[0]):
        least, best = distance[i], which[i]
        for j in range(known.shape[0]):
            total = np.uint64(0)
            for w in range(windows.shape[1]):
                total += popcount(windows[i, w] ^ known[j, w])
            if np.int64(total) < least:
                least, best = np.int64(total), j
        distance[i], which[i] = least, best


@kernel
def have_within(
    windows: Words, known: Words, distance: NDArray[np.int64], factor: float, found: NDArray[np.bool_]
) -> None:
    """Set `found` (n,) where a row of `known` (m, words) times `factor` is not farther than `distance` (n,)."""
    for i in range(windows.shape[0]):
        j = 0
        while not found[i] and j < known.shape[0]:
            total = np.uint64(0)
            for w in range(windows.shape[1]):
                total += popcount(windows[i, w] ^ known[j, w])
            found[i] = factor * np.int64(total) <= distance[i]
            j += 1
