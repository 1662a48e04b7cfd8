"""Training of weak learners: histograms, thresholds, subsets of codes, response bits, and online boosting."""

import math

import numpy as np
from numpy.typing import NDArray

from whet._kernels.jit import kernel
from whet._kernels.response_bits import BITS, pack, table_row, threshold_row
from whet.arrays import Bytes, Float32s, Floats, Int32s, Int64s, Words

BINS = 256
# Just below 256, so that the largest value falls into the last bin. float32 can represent the difference.
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
def extremes(values: Float32s) -> tuple[np.float32, np.float32]:
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
def gap(values: Float32s, bins: Bytes, cut: int) -> tuple[np.float32, np.float32]:
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
def bin_values(values: Float32s, low: np.float32, high: np.float32, bins: Bytes) -> None:
    """Fill `bins` with the bin of every value in the range from `low` to `high`."""
    scale = np.float32(SPAN / (high - low))
    for i in range(values.size):
        bins[i] = np.uint8(np.int32((values[i] - low) * scale))


@kernel
def count_bins(bins: Bytes, counts: Int64s) -> None:
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
def weigh_bins(bins: Bytes, weights: Floats, sums: Floats) -> None:
    """Fill `sums` (256,) with the weights of the values in each bin, added in the order of the samples."""
    sums[:] = 0.0
    for i in range(bins.size):
        sums[bins[i]] += weights[i]


@kernel
def class_histograms(bins: Bytes, n_positive: int, weights: Floats, positive: Floats, negative: Floats) -> None:
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


@kernel
def best_cut(positive: Floats, negative: Floats) -> tuple[int, int, float]:
    """The cut, the polarity and the error of the best stump on a histogram of two classes.

    `positive` and `negative` (bins,) are the weights of each class, in bins of ascending values. A stump
    responds 1 above the cut, or, with polarity -1, up to it. Ties go to the lowest cut, and there to polarity
    1. Whole weights below 2^53 add up without rounding, so that equal errors are seen as equal.

    >>> best_cut(np.array([0.0, 1.0, 3.0]), np.array([2.0, 1.0, 0.0]))
    (0, 1, 1.0)
    """
    total_positive, total_negative = positive.sum(), negative.sum()
    below_positive = below_negative = 0.0
    cut, polarity, error = 0, 1, np.inf
    for k in range(positive.size - 1):
        below_positive += positive[k]
        below_negative += negative[k]
        upright = below_positive + (total_negative - below_negative)
        flipped = below_negative + (total_positive - below_positive)
        if min(upright, flipped) < error:
            cut, polarity, error = k, 1 if upright <= flipped else -1, min(upright, flipped)
    return cut, polarity, error


@kernel
def middle(low: np.float32, high: np.float32) -> np.float32:
    """A number t halfway in low <= t < high, also where float32 has none in between.

    >>> middle(np.float32(1.0), np.float32(2.0))
    1.5
    """
    half = np.float32(low * np.float32(0.5) + high * np.float32(0.5))
    return half if low <= half < high else low


@kernel
def train_by_histogram(
    values: Float32s,
    n_positive: int,
    weights: Floats,
    threshold: Float32s,
    polarity: NDArray[np.int8],
    error: Floats,
    bits: Words,
) -> None:
    """Train a stump on each row of `values` (features, samples), the positives first.

    `weights` (samples,) are those of the samples; if there are only two, those of every positive and of every
    negative. Fills threshold, polarity and error (features,) and the responses `bits` (features, words).
    """
    bins = np.empty(values.shape[1], dtype=np.uint8)
    positive, negative = np.empty(BINS), np.empty(BINS)
    flags = np.zeros(BITS * bits.shape[1], dtype=np.uint8)
    for f in range(values.shape[0]):
        row = values[f]
        low, high = extremes(row)
        varies = high - low > NARROW
        bin_values(row, low, high if varies else np.float32(np.inf), bins)
        class_histograms(bins, n_positive, weights, positive, negative)
        if varies:
            cut, polarity[f], error[f] = best_cut(positive, negative)
            below, above = gap(row, bins, cut)
            threshold[f] = middle(below, above)
        else:
            threshold[f], polarity[f], error[f] = high, 1, positive.sum()
        threshold_row(row, threshold[f], polarity[f] < 0, n_positive, flags, bits[f])


@kernel
def train_subsets(codes: Bytes, n_positive: int, weights: Floats, subset: Words, error: Floats, bits: Words) -> None:
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


@kernel
def best_splits(
    values: Floats,
    order: Int32s,
    signed: Floats,
    total_pos: float,
    total_neg: float,
    threshold: Floats,
    polarity: NDArray[np.int8],
    error: Floats,
) -> None:
    """Write threshold, polarity and weighted error (features,) of the best stump on each feature.

    `values` (features, samples) are sorted, `order` has the sample of each; `signed` (samples,) are the
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


# --- Online boosting: weak learners on one feature each that every sample updates in turn -----------------------------


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
