"""Boosted trees on channels."""

import numpy as np

from whet.models.channels.fitting import boost, draw_features


def test_samples_that_every_tree_tells_apart_keep_weights_that_are_numbers():
    samples = np.repeat(np.uint8([[1, 1, 1, 200, 200, 200]]), 8, axis=0)
    trees = boost(samples, 3, draw_features(8, 1000, np.random.default_rng(0)), threads=1)
    assert np.isfinite(trees.votes).all()
    assert (np.sign(trees.running_scores(samples)[-1]) == [1, 1, 1, -1, -1, -1]).all()
