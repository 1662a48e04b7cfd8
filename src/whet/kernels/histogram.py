"""Histograms of feature values, 256 equal bins between the smallest and the largest value."""

import numpy as np
from numpy.typing import NDArray

from whet.kernels.jit import kernel

Values = NDArray[np.float32]
Bins = NDArray[np.uint8]

BINS = 256
# Just below 256, so that the largest value falls into the last bin. Even float32 tells them apart.
SPAN = np.float32(255.999)
# Ranges below this would overflow the scale: such a feature counts as constant.
NARROW = np.float32(1e-30)


@kernel
def sortable(pattern: np.int32) -> np.int32:
    """The bits of a float32 as an integer of the same order, and back.

    Compilers take the minima of integers in vectors, but those of floats, which may be NaN, one by one.
    """
    return np.int32(pattern ^ ((pattern >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@kernel
def extremes(values: Values) -> tuple[np.float32, np.float32]:
    """The smallest and the largest of the values, none of them NaN.

    >>> extremes(np.array([2.0, -3.0, 0.5], dtype=np.float32))
    (-3.0, 2.0)
    """
    patterns = values.view(np.int32)
    least = most = sortable(patterns[0])
    for i in range(values.size):
        key = sortable(patterns[i])
        least = min(least, key)
        most = max(most, key)
    return _floats(least, most)


@kernel
def gap(values: Values, bins: Bins, cut: int) -> tuple[np.float32, np.float32]:
    """The largest value in bins up to `cut` and the smallest in the bins above it."""
    patterns = values.view(np.int32)
    below, above = np.int32(-0x80000000), np.int32(0x7FFFFFFF)
    last = np.uint8(cut)
    for i in range(values.size):
        key = sortable(patterns[i])
        low = bins[i] <= last
        below = max(below, key if low else np.int32(-0x80000000))
        above = min(above, np.int32(0x7FFFFFFF) if low else key)
    return _floats(below, above)


@kernel
def _floats(first: np.int32, second: np.int32) -> tuple[np.float32, np.float32]:
    pair = np.array([sortable(first), sortable(second)], dtype=np.int32).view(np.float32)
    return pair[0], pair[1]


@kernel
def bin_values(values: Values, low: np.float32, high: np.float32, bins: Bins) -> None:
    """Fill `bins` with the bin of every value in the range from `low` to `high`."""
    scale = np.float32(SPAN / (high - low))
    for i in range(values.size):
        bins[i] = np.uint8(np.int32((values[i] - low) * scale))


@kernel
def count_bins(bins: Bins, counts: NDArray[np.int64]) -> None:
    """Fill `counts` (256,) with the number of values in each bin.

    Four tallies take turns: neighbours often fall into the same bin, and one tally would wait for itself.
    """
    tallies = np.zeros((4, BINS), dtype=np.uint32)
    a, b, c, d = tallies[0], tallies[1], tallies[2], tallies[3]
    whole = bins.size // 4 * 4
    for i in range(0, whole, 4):
        a[bins[i]] += np.uint32(1)
        b[bins[i + 1]] += np.uint32(1)
        c[bins[i + 2]] += np.uint32(1)
        d[bins[i + 3]] += np.uint32(1)
    for i in range(whole, bins.size):
        a[bins[i]] += np.uint32(1)
    for k in range(BINS):
        counts[k] = np.int64(a[k]) + np.int64(b[k]) + np.int64(c[k]) + np.int64(d[k])


@kernel
def weigh_bins(bins: Bins, weights: NDArray[np.float64], sums: NDArray[np.float64]) -> None:
    """Fill `sums` (256,) with the weights of the values in each bin, added in the order of the samples."""
    sums[:] = 0.0
    for i in range(bins.size):
        sums[bins[i]] += weights[i]


@kernel
def class_histograms(
    bins: Bins,
    n_positive: int,
    weights: NDArray[np.float64],
    positive: NDArray[np.float64],
    negative: NDArray[np.float64],
) -> None:
    """Fill `positive` and `negative` (256,) with the weight of each class in every bin, the positives first.

    `weights` (samples,) are those of the samples; if there are only two, those of every positive and of every
    negative, and counting does.
    """
    ones, zeros = bins[:n_positive], bins[n_positive:]
    if weights.size == bins.size:
        weigh_bins(ones, weights[:n_positive], positive)
        weigh_bins(zeros, weights[n_positive:], negative)
        return
    counts = np.empty((2, BINS), dtype=np.int64)
    count_bins(ones, counts[0])
    count_bins(zeros, counts[1])
    for k in range(BINS):
        positive[k] = weights[0] * counts[0, k]
        negative[k] = weights[1] * counts[1, k]
