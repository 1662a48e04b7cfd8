"""Channel detectors that tests make for themselves: random trees, and colourful images."""

import numpy as np

from tests.cascades import textured
from whet.detector.base import DetectorBase, Reporting
from whet.detector.detector import Detector
from whet.images.boxes import BoxOffset
from whet.models.channels.tree_model import TreeModel, tree_votes

WINDOW = (24, 20)


def colourful(shape, rng):
    """An RGB image with structure of all sizes."""
    return np.stack([textured(shape, rng) for _ in range(3)], axis=-1)


def random_trees(n=30, seed=0, window=WINDOW):
    """A model of random trees, about a tenth of whose windows pass."""
    rng = np.random.default_rng(seed)
    indices = rng.integers(0, 40 * window[0] * window[1] // 16, (n, 3))
    plain, difference = (rng.integers(*limits, (n, 3), dtype=np.uint8) for limits in ((20, 140), (118, 139)))
    threshold = np.where(indices < 20 * window[0] * window[1] // 16, plain, difference)
    votes = tree_votes(rng.normal(size=(n, 4)), -1.2 * np.sqrt(np.arange(1, n + 1)), 0.5)
    return TreeModel.from_indices(window, indices, threshold, votes)


def random_detector(seed=0, window=WINDOW):
    """A detector of random trees, whose object fills most of the window."""
    reporting = Reporting(BoxOffset(0.2, 0.2, 0.8, 0.8), min_size=12.0)
    return Detector.from_base(DetectorBase(random_trees(seed=seed, window=window)), reporting=reporting)
