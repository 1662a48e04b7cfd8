"""The search for nodes of trees against a plain one over all features and thresholds."""

import numpy as np
import pytest

from whet._kernels.cell_trees import best_nodes


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
