"""Responses of weak learners as bits: packing, counting, weighted sums, margins in a stage, and distances.

In a row of words, bit i of word i // 64 is sample i; a row is padded with zeros to a whole word.
"""

import numpy as np

from whet._kernels.jit import kernel, popcount
from whet.arrays import Bytes, Float32s, Floats, Indices, Int64s, Words

# --- Packing and counting ---------------------------------------------------------------------------------------------

BITS = 64
# Times eight bytes of 0 or 1, this gathers their bits in the highest byte, first byte lowest.
GATHER = np.uint64(0x0102040810204080)


@kernel
def pack(flags: Bytes, words: Words) -> None:
    """Pack `flags` of 0 or 1 (a multiple of 64) into `words`. Eight at a time, in little-endian order."""
    eights = flags.view(np.uint64)
    for w in range(words.size):
        word = np.uint64(0)
        for k in range(8):
            byte = (eights[8 * w + k] * GATHER) >> np.uint64(56)
            word |= byte << np.uint64(8 * k)
        words[w] = word


@kernel
def unpack(words: Words, flags: Bytes) -> None:
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
def count_rows(bits: Words, split: int, before: Int64s, after: Int64s) -> None:
    """Count the ones of every row of `bits` (rows, words): before word `split`, and from there on."""
    for i in range(bits.shape[0]):
        row = bits[i]
        before[i] = count_common(row[:split], row[:split])
        after[i] = count_common(row[split:], row[split:])


@kernel
def count_common_rows(bits: Words, row: Words, split: int, before: Int64s, after: Int64s) -> None:
    """Count, as `count_rows` does, the ones that every row of `bits` shares with `row`."""
    first, second = row[:split], row[split:]
    for i in range(bits.shape[0]):
        other = bits[i]
        before[i] = count_common(other[:split], first)
        after[i] = count_common(other[split:], second)


@kernel
def add_co_occurrences(rows: Words, times: int, C: Int64s) -> None:
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
    values: Float32s, threshold: np.float32, flip: bool, n_positive: int, flags: Bytes, words: Words
) -> None:
    """Set the bits of the samples above the threshold, or, with `flip`, of all others.

    `flags` (64 words,) is scratch space, zero where no sample lies.
    """
    start = first_negative(n_positive)
    _threshold(values[:n_positive], threshold, flip, flags[:n_positive])
    _threshold(values[n_positive:], threshold, flip, flags[start : start + values.size - n_positive])
    pack(flags, words)


@kernel
def table_row(codes: Bytes, table: Bytes, n_positive: int, flags: Bytes, words: Words) -> None:
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
def _threshold(values: Float32s, threshold: np.float32, flip: bool, flags: Bytes) -> None:
    turned = np.uint8(flip)
    for i in range(values.size):
        flags[i] = np.uint8(values[i] > threshold) ^ turned


# --- Weighted sums of rows --------------------------------------------------------------------------------------------

# The tables of one word are 8 x 256 sums, 16 KB: half of a first-level cache.
TABLES = 8


@kernel
def weigh_rows(bits: Words, weights: Floats, sums: Floats) -> None:
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


# --- Votes of weak learners on packed responses -----------------------------------------------------------------------


@kernel
def _response(words: Words, t: int) -> bool:
    """Response t of a row of words as `whet.models.responses` packs them: the highest bit of a byte first."""
    shift = (t & 56) + 7 - (t & 7)
    return bool((words[t >> 6] >> np.uint64(shift)) & np.uint64(1))


@kernel
def vote(
    windows: Words, coef: Floats, ends: Indices, threshold: Floats, limits: Floats, first_scoring: int, scores: Floats
) -> None:
    """Scores (n,) of windows (n, words), summed as a scan sums them; -inf for those that do not exceed all limits."""
    for i in range(windows.shape[0]):
        row, score, t, is_rejected = windows[i], 0.0, 0, False
        for s in range(ends.size):
            total = 0.0
            while t < ends[s] and not is_rejected:
                if _response(row, t):
                    total += coef[t]
                is_rejected = not total > limits[t]
                t += 1
            if is_rejected:
                break
            if s >= first_scoring:
                score += total - threshold[s]
        scores[i] = -np.inf if is_rejected else score


@kernel
def stage_margins(windows: Words, coef: Floats, ends: Indices, threshold: Floats, margins: Floats) -> None:
    """Margins (n, stages) of windows (n, words), summed as a scan sums them."""
    for i in range(windows.shape[0]):
        row, t = windows[i], 0
        for s in range(ends.size):
            total = 0.0
            while t < ends[s]:
                if _response(row, t):
                    total += coef[t]
                t += 1
            margins[i, s] = total - threshold[s]


@kernel
def lowest_sums(windows: Words, coef: Floats, ends: Indices, lowest: Floats) -> None:
    """Lower `lowest` (n_weak,) to the least sum after each weak learner, from the start of its stage on."""
    for i in range(windows.shape[0]):
        row, t = windows[i], 0
        for s in range(ends.size):
            total = 0.0
            while t < ends[s]:
                if _response(row, t):
                    total += coef[t]
                lowest[t] = min(lowest[t], total)
                t += 1


# --- Distances to windows that are known ------------------------------------------------------------------------------


@kernel
def find_nearest(windows: Words, known: Words, distance: Int64s, which: Indices) -> None:
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
def lower_until(windows: Words, known: Words, distance: Int64s, factor: float, enough: Int64s) -> None:
    """Lower `distance` (n,) to those of `known` (m, words), until `factor` times it is not above `enough` (n,).

    What is nearer does not matter then: most windows need a few of the known ones only.
    """
    # The condition is `is_nearer` of `whet.corrections.effects`: test_lowering_stops_where_the_rule_is_decided compares
    for i in range(windows.shape[0]):
        j = 0
        while j < known.shape[0] and not factor * distance[i] <= enough[i]:
            total = np.uint64(0)
            for w in range(windows.shape[1]):
                total += popcount(windows[i, w] ^ known[j, w])
            distance[i] = min(distance[i], np.int64(total))
            j += 1
