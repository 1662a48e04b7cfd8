"""Trees of depth two on the cells of windows: scan of a level, single windows, and histograms for growing trees."""

import numpy as np

from whet._kernels.jit import inlined, kernel
from whet.arrays import Bytes, Floats, Indices, Int32s

# Trees that all windows of a row pass together, eight or more at a time: with 64, a scan takes as long.
FIRST_TREES = 32


@kernel
def _sum_first(
    cells: Bytes,
    start: int,
    n_trees: int,
    trees: Int32s,
    threshold: Bytes,
    votes: Floats,
    rejection: Floats,
    sums: Floats,
    passes: Bytes,
) -> None:
    """Sums of votes (n,) of the first trees for neighbouring windows from a cell on, and which were never rejected."""
    n = len(sums)
    sums[:], passes[:] = 0.0, 1
    for t in range(n_trees):
        root, low, high = trees[t, 0] + start, trees[t, 1] + start, trees[t, 2] + start
        roots, lows, highs = cells[root : root + n], cells[low : low + n], cells[high : high + n]
        at_root, at_low, at_high = threshold[t, 0], threshold[t, 1], threshold[t, 2]
        first, second, third, fourth = votes[t, 0], votes[t, 1], votes[t, 2], votes[t, 3]
        least = rejection[t]
        for i in range(n):
            of_low = second if lows[i] > at_low else first
            of_high = fourth if highs[i] > at_high else third
            total = sums[i] + (of_high if roots[i] > at_root else of_low)
            sums[i] = total
            passes[i] &= np.uint8(total > least)


@kernel
def scan_cells(
    cells: Bytes,
    columns: int,
    rows: Indices,
    places: Indices,
    trees: Int32s,
    threshold: Bytes,
    votes: Floats,
    rejection: Floats,
    least: float,
    accepted: Int32s,
    sums: Floats,
) -> int:
    """Windows that begin in these rows and columns (`places`) of flat cells and are not rejected.

    After each tree a window is rejected if its sum of votes is not above `rejection` (trees,), and at last if it is
    not above `least`. Writes row and column to `accepted` (n, 2) and the sum to `sums` (n,), as long as there is room;
    returns how many windows were accepted.
    """
    n, n_places = 0, len(places)
    if n_places == 0:
        return 0
    are_neighbours = places[n_places - 1] - places[0] == n_places - 1
    n_first = min(FIRST_TREES, len(trees)) if are_neighbours else 0
    first_sums, passes = np.zeros(n_places), np.ones(n_places, np.uint8)
    # Flat arrays with unsigned places need no test for negative ones: half the time.
    nodes, thresholds, leaves = trees.ravel(), threshold.ravel(), votes.ravel()
    one, two = np.uint64(1), np.uint64(2)
    for y in rows:
        if n_first > 0:
            start = y * columns + places[0]
            _sum_first(cells, start, n_first, trees, threshold, votes, rejection, first_sums, passes)
        for i in range(n_places):
            if not passes[i]:
                continue
            at, total, t = np.uint64(y * columns + places[i]), first_sums[i], np.uint64(n_first)
            while t < np.uint64(len(trees)):
                node = t + two * t
                root = np.uint64(cells[at + np.uint64(nodes[node])] > thresholds[node])
                node += one + root
                child = np.uint64(cells[at + np.uint64(nodes[node])] > thresholds[node])
                total += leaves[two * (two * t + root) + child]
                if not total > rejection[t]:
                    break
                t += one
            else:
                if total > least:
                    if n < len(sums):
                        accepted[n, 0], accepted[n, 1], sums[n] = y, places[i], total
                    n += 1
    return n


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
    of_first, of_second = histograms[0], histograms[1]
    for i in range(begin, end):
        sample, base, weight = np.uint64(order[i]), np.uint64(side[i]) << np.uint64(8), weights[i]
        of_first[base + np.uint64(first[sample])] += weight
        of_second[base + np.uint64(second[sample])] += weight


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
