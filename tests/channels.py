"""Channel detectors that tests make for themselves: random trees, and colourful images."""

import numpy as np

from tests.cascades import textured
from whet.cascade.boxes import BoxOffset
from whet.cascade.cascade import Cascade
from whet.cascade.stage import Stage
from whet.detector.base import DetectorBase, Reporting
from whet.detector.detector import Detector
from whet.features.channels import ChannelTrees
from whet.features.weak_learners import Trees

WINDOW = (24, 20)


def colourful(shape, rng):
    """An RGB image with structure of all sizes."""
    return np.stack([textured(shape, rng) for _ in range(3)], axis=-1)


def random_trees(n=30, seed=0, window=WINDOW):
    """A cascade of random trees, about a tenth of whose windows pass."""
    rng = np.random.default_rng(seed)
    features = ChannelTrees.from_indices(window, rng.integers(0, 40 * window[0] * window[1] // 16, (n, 3)))
    plain, difference = (rng.integers(*limits, (n, 3), dtype=np.uint8) for limits in ((20, 140), (118, 139)))
    weak = Trees(np.where(features.channel < 20, plain, difference))
    votes = rng.normal(size=(n, 4))
    rejection = np.full(4 * n, -np.inf)
    rejection[3::4] = -1.2 * np.sqrt(np.arange(1, n + 1))
    return Cascade(window, (Stage(features, weak, votes.ravel(), 0.5, rejection),))


def random_detector(seed=0, window=WINDOW):
    """A detector of random trees, whose object fills most of the window."""
    offset = BoxOffset(0.2, 0.2, 0.8, 0.8)
    stages = random_trees(seed=seed, window=window).stages
    return Detector(DetectorBase(window, stages), reporting=Reporting(offset, min_size=12.0))
