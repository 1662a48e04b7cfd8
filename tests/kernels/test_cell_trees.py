"""Trees against plain loops: the search for nodes, and the scan of a level."""

import numpy as np
import pytest

from whet._kernels.cell_trees import FIRST_TREES, best_nodes, scan_cells


def plain_nodes(samples, order, n_positives, weights, side, features):
    """Error, feature and threshold of the best node of each side: the first with the lowest error."""
    is_positive, found = np.arange(len(order)) < n_positives, []
    for s in range(2):
        inside = side == s
        tried = []
        for feature in features:
            values = samples[feature, order]
            # 255 leaves one leaf empty: it is taken only if no other threshold is better, and so comes first.
            for threshold in (255, *range(255)):
                leaves = [inside & (values <= threshold), inside & (values > threshold)]
                parts = [[weights[leaf & which].sum() for which in (is_positive, ~is_positive)] for leaf in leaves]
                tried.append((sum(map(min, parts)), feature, threshold))
        found.append(min(tried, key=lambda one: one[0]))
    return found


@pytest.mark.parametrize("n_features", [1, 2, 5])
def test_nodes_are_those_of_a_plain_search(n_features):
    rng = np.random.default_rng(n_features)
    samples = rng.integers(0, 30, (8, 60), dtype=np.uint8)
    order = np.sort(rng.choice(60, 40, replace=False)).astype(np.int32)
    weights, side = rng.integers(1, 100, 40).astype(float), rng.integers(0, 2, 40, dtype=np.uint8)
    features = np.sort(rng.choice(8, n_features, replace=False)).astype(np.int32)
    errors, chosen = np.empty(2), np.zeros((2, 2), np.int32)
    best_nodes(samples, order, 15, weights, side, features, errors, chosen)
    expected = plain_nodes(samples, order, 15, weights, side, features)
    assert [(error, *node) for error, node in zip(errors, chosen.tolist(), strict=True)] == expected


def plain_scan(cells, columns, rows, places, trees, threshold, votes, rejection, least):
    """Row, column and sum of each accepted window, one window and one tree after the other."""
    found = []
    for y, x in ((y, x) for y in rows for x in places):
        total = 0.0
        for t in range(len(trees)):
            root, low, high = cells[y * columns + x + trees[t]] > threshold[t]
            total += votes[t, 2 * root + (high if root else low)]
            if not total > rejection[t]:
                break
        else:
            if total > least:
                found.append((y, x, total))
    return found


@pytest.mark.parametrize("n_trees", [5, FIRST_TREES, 50])
@pytest.mark.parametrize("step", [1, 2])
def test_a_scan_is_that_of_single_windows(n_trees, step):
    rng = np.random.default_rng(n_trees)
    cells = rng.integers(0, 256, 40 * 12 * 15, dtype=np.uint8)
    trees = (12 * 15 * rng.integers(0, 40, (n_trees, 3)) + rng.integers(0, 5, (n_trees, 3))).astype(np.int32)
    threshold = rng.integers(60, 200, (n_trees, 3), dtype=np.uint8)
    votes = rng.integers(-8, 9, (n_trees, 4)) / 8
    rejection = -0.4 * np.sqrt(np.arange(1, n_trees + 1)) - 0.6
    rows, places = np.arange(0, 8, step), np.arange(1, 10, step)
    where, sums = np.empty((200, 2), np.int32), np.empty(200)
    n = scan_cells(cells, 15, rows, places, trees, threshold, votes, rejection, -0.5, where, sums)
    expected = plain_scan(cells, 15, rows, places, trees, threshold, votes, rejection, -0.5)
    assert 0 < n < len(rows) * len(places)
    assert [(*place, total) for place, total in zip(where[:n].tolist(), sums[:n].tolist(), strict=True)] == expected
