"""Trees of depth two on the cells of windows: scan of a level, single windows, and histograms for growing trees."""

import numpy as np
from numpy.typing import NDArray

from whet._kernels.jit import inlined, kernel

Bytes = NDArray[np.uint8]
Int32s = NDArray[np.int32]
Floats = NDArray[np.float64]


@inlined
def leaf(cells: Bytes, at: int, tree: Int32s, threshold: Bytes) -> int:
    """The leaf, 0 to 3, of a tree (3,) for the window that begins at a cell."""
    root = 1 if cells[at + tree[0]] > threshold[0] else 0
    return 2 * root + (1 if cells[at + tree[1 + root]] > threshold[1 + root] else 0)


@kernel
def scan_cells(
    cells: Bytes,
    columns: int,
    rows: NDArray[np.intp],
    places: NDArray[np.intp],
    trees: Int32s,
    threshold: Bytes,
    votes: Floats,
    rejection: Floats,
    least: float,
    found: Int32s,
    sums: Floats,
) -> tuple[int, int]:
    """Windows that begin in these rows and columns (`places`) of flat cells and are not rejected.

    After each tree a window is rejected if its sum of votes is not above `rejection` (trees,), and at last if it is
    not above `least`. Writes row and column to `found` (n, 2) and the sum to `sums` (n,), as long as there is room;
    returns how many windows were accepted, and how many trees were evaluated.
    """
    n, evaluated = 0, 0
    for y in rows:
        for x in places:
            at, total, t = y * columns + x, 0.0, 0
            while t < len(trees):
                total += votes[t, leaf(cells, at, trees[t], threshold[t])]
                t += 1
                if not total > rejection[t - 1]:
                    break
            else:
                if total > least:
                    if n < len(sums):
                        found[n, 0], found[n, 1], sums[n] = y, x, total
                    n += 1
            evaluated += t
    return n, evaluated


@kernel
def best_threshold(positive: Floats, negative: Floats) -> tuple[float, int]:
    """The lowest error of two leaves and its threshold, from weights (256,) by value; 255 leaves one of them empty."""
    all_positive, all_negative = 0.0, 0.0
    for value in range(256):
        all_positive += positive[value]
        all_negative += negative[value]
    best, at = min(all_positive, all_negative), 255
    low_positive, low_negative = 0.0, 0.0
    for value in range(255):
        low_positive += positive[value]
        low_negative += negative[value]
        error = min(low_positive, low_negative) + min(all_positive - low_positive, all_negative - low_negative)
        if error < best:
            best, at = error, value
    return best, at


@inlined
def _add_weights(
    first: Bytes, second: Bytes, order: Int32s, weights: Floats, side: Bytes, begin: int, end: int, histograms: Floats
) -> None:
    """Add the weights of some samples to histograms (2, 512) of two features, by side and value.

    Unsigned places need no test for negative ones, and two features at once take half the time.
    """
    one, other = histograms[0], histograms[1]
    for i in range(begin, end):
        sample, base, weight = np.uint64(order[i]), np.uint64(side[i]) << np.uint64(8), weights[i]
        one[base + np.uint64(first[sample])] += weight
        other[base + np.uint64(second[sample])] += weight


@kernel
def best_nodes(
    samples: Bytes,
    order: Int32s,
    n_positives: int,
    weights: Floats,
    side: Bytes,
    features: Int32s,
    errors: Floats,
    chosen: Int32s,
) -> None:
    """The best node for each side of some samples among some of the features, by weighted error.

    `samples` are (features, samples); `order` (n,) are those to look at, positives first, with `weights` (n,) and
    `side` (n,), 0 or 1. Writes the error of each side (2,) and its feature and threshold (2, 2). The first of several
    features with equal errors is taken.
    """
    positive, negative = np.empty((2, 512)), np.empty((2, 512))
    errors[:] = np.inf
    for k in range(0, len(features), 2):
        first, second = samples[features[k]], samples[features[min(k + 1, len(features) - 1)]]
        positive[:], negative[:] = 0.0, 0.0
        _add_weights(first, second, order, weights, side, 0, n_positives, positive)
        _add_weights(first, second, order, weights, side, n_positives, len(order), negative)
        for j in range(min(2, len(features) - k)):
            for s in range(2):
                values = slice(256 * s, 256 * s + 256)
                error, threshold = best_threshold(positive[j, values], negative[j, values])
                if error < errors[s]:
                    errors[s], chosen[s, 0], chosen[s, 1] = error, features[k + j], threshold


@kernel
def leaves_by_feature(samples: Bytes, tree: Int32s, threshold: Bytes, leaves: Bytes) -> None:
    """The leaf (samples,) of one tree (3,) for samples (features, samples)."""
    root, low, high = samples[tree[0]], samples[tree[1]], samples[tree[2]]
    for i in range(samples.shape[1]):
        if root[i] > threshold[0]:
            leaves[i] = 2 + (high[i] > threshold[2])
        else:
            leaves[i] = 0 + (low[i] > threshold[1])
