"""Training of one weak learner on every feature of a pool, at full scale."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whet._kernels.threads import DEFAULT_MAX_MEMORY, for_each_block, within_budget
from whet.features.integral import FeatureFamily, IntegralStack
from whet.features.responses import BitResponses, SampleLayout
from whet.features.weak_learners import (
    Method,
    StumpTrainer,
    SubsetTrainer,
    TrainedStumps,
    TrainedSubsets,
    class_weights,
)

# Features a task: their values on 20,000 samples are 5 MB, which stay in the cache until they are binned.
TRAINED_AT_ONCE = 64

TrainedWeak = TrainedStumps | TrainedSubsets


def train_weak_learners(
    family: FeatureFamily,
    patches: NDArray[np.uint8],
    is_positive: NDArray[np.bool_],
    *,
    weights: NDArray[np.float64] | None = None,
    balanced: bool = True,
    method: Method = "histogram",
    max_memory: int = DEFAULT_MAX_MEMORY,
    threads: int | None = None,
    seed: int = 0,
) -> tuple[TrainedWeak, BitResponses]:
    """Train one weak learner on each feature, and keep its responses to the patches it was trained on.

    `patches` are (samples, height, width), labels and weights (samples,). Features with ordered values get
    stumps, by `histogram` (256 bins) or by exact `sorting`; categorical ones get sets of codes. If the bits
    of the responses would take more than `max_memory` bytes, features are drawn with `seed` and a
    `MemoryBudgetWarning` says so. The result does not depend on `threads`.

    >>> from whet.features.haar import HaarPool
    >>> rng = np.random.default_rng(0)
    >>> patches = rng.integers(0, 200, (40, 6, 6), dtype=np.uint8)
    >>> patches[:20, :, 3:] += 50  # positives are brighter on the right
    >>> is_positive = np.arange(40) < 20
    >>> pool = HaarPool.from_window((6, 6))
    >>> stumps, responses = train_weak_learners(pool, patches, is_positive)
    >>> best = int(np.argmin(stumps.error))
    >>> pool.describe(stumps.feature[best])
    HaarFeature(kind='x2', x=0, y=0, width=6, height=5)
    """
    layout = SampleLayout.from_labels(is_positive)
    chosen = within_budget(len(family), layout.words, max_memory, np.random.default_rng(seed))
    pool = family.take(chosen)
    stack = IntegralStack.from_patches(patches[layout.order])
    shares = class_weights(layout, weights, balanced)
    trainer = (
        StumpTrainer(len(pool), layout, shares, method)
        if pool.categories is None
        else SubsetTrainer(len(pool), layout, shares)
    )
    bits = np.empty((len(pool), layout.words), dtype=np.uint64)

    def train(rows: slice) -> None:
        trainer.train_block(pool.take(rows).evaluate(stack), rows, bits)

    for_each_block(train, len(pool), TRAINED_AT_ONCE, threads)
    return trainer.learners(np.arange(len(family))[chosen]), BitResponses(bits, layout, threads)
