"""Cascades that tests make for themselves: random learners, thresholds in the middle of what they see."""

import numpy as np

from whet.features.haar import HaarPool
from whet.features.integral import IntegralStack
from whet.features.lbp import BlockPatternPool
from whet.features.stump_training import TrainedStumps
from whet.features.subset_training import TrainedSubsets
from whet.model.cascade import Cascade
from whet.model.stage import Stage


def windows_of(picture, window, step=1):
    """All windows (n, height, width) of a picture, row by row, and their (y, x)."""
    views = np.lib.stride_tricks.sliding_window_view(picture, window)[::step, ::step]
    places = np.stack(np.indices(views.shape[:2]), -1).reshape(-1, 2) * step
    return views.reshape(-1, *window), places


def random_stage(kind, window, T, rng, *, soft=False, passing=0.5, like=None):
    """A stage that `passing` of the patches `like` pass."""
    like = rng.integers(0, 256, (500, *window), dtype=np.uint8) if like is None else like
    pool = (HaarPool if kind == "haar" else BlockPatternPool).of_window(window)
    feature = rng.choice(len(pool), T)
    stack, chosen = IntegralStack.of(like), pool.take(feature)
    if kind == "haar":
        threshold = np.quantile(chosen.evaluate(stack), rng.uniform(0.3, 0.7), axis=1).astype(np.float32)
        weak = TrainedStumps(feature, threshold, rng.choice(np.array([-1, 1], dtype=np.int8), T), np.zeros(T))
    else:
        subset = rng.integers(0, 2**64, (T, 4), dtype=np.uint64)
        weak = TrainedSubsets(feature, subset, np.zeros(T))
    coef = rng.normal(1, 0.7, T)
    sums = Stage(chosen, weak, coef, 0.0).partial_sums(stack)
    exits = np.where(rng.random(T) < 0.7, np.quantile(sums, 0.07, axis=1), -np.inf) if soft else None
    return Stage(chosen, weak, coef, float(np.quantile(sums[-1], 1 - passing)), exits)


def random_cascade(kinds, window, sizes, rng, min_sigma=10.0, **options):
    stages = [random_stage(kind, window, T, rng, **options) for kind, T in zip(kinds, sizes, strict=True)]
    return Cascade(window, tuple(stages), min_sigma)


def textured(shape, rng):
    """A picture with structure at several scales, flat parts and full contrast."""
    picture = np.zeros(shape)
    for size in (1, 3, 8):
        coarse = rng.normal(size=(shape[0] // size + 2, shape[1] // size + 2))
        picture += np.kron(coarse, np.ones((size, size)))[: shape[0], : shape[1]]
    picture = np.clip(128 + 45 * picture, 0, 255).astype(np.uint8)
    picture[: shape[0] // 3, shape[1] // 2 :] = 90
    return picture
