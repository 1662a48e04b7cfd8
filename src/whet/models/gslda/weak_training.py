"""Training of weak learners: one stump or subset of codes on every feature of a pool, and weights of boosting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import repeat
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet._kernels.weak_fitting import best_splits, train_by_histogram, train_subsets
from whet.arrays import Floats, Words
from whet.models.gslda.candidates import BitResponses, Responses, SampleLayout
from whet.models.gslda.integral import FeatureFamily, IntegralStack
from whet.models.gslda.weak_learners import MOST_CODES, Stumps, Subsets
from whet.parallel.threads import DEFAULT_MAX_MEMORY, blocks, for_each_block, within_budget
from whet.parallel.workers import ALL_THREADS, Workers


class ClassWeights(NamedTuple):
    """Weights as kernels take them, and their sum.

    Two numbers, what a positive and what a negative weighs, or one for every sample, positives first. An
    error that a kernel counts, over `total`, is a share of 1.
    """

    weights: Floats
    total: float


def class_weights(layout: SampleLayout, weights: Floats | None, balanced: bool) -> ClassWeights:
    """Weights of samples (samples,), or equal ones; if balanced, each class weighs one half in all.

    A plain count of errors gives useless stumps, the same answer for nearly all, when negatives outnumber
    positives by ten to one. Equal weights are whole numbers, so that errors are exact and ties are seen.

    >>> class_weights(SampleLayout.from_labels(np.array([True, False, False])), None, balanced=True)
    ClassWeights(weights=array([2., 1.]), total=4.0)
    """
    if weights is None:
        ones, zeros = layout.n_positive, layout.n_negative
        of_classes = np.array([zeros, ones] if balanced else [1, 1], dtype=np.float64)
        return ClassWeights(of_classes, float(of_classes @ [ones, zeros]))
    ordered = _checked(weights, len(layout))[layout.order]
    if balanced:
        ordered[: layout.n_positive] /= 2 * ordered[: layout.n_positive].sum()
        ordered[layout.n_positive :] /= 2 * ordered[layout.n_positive :].sum()
    return ClassWeights(ordered, float(ordered.sum()))


def _checked(weights: Floats, n: int) -> Floats:
    weights = np.asarray(weights, dtype=np.float64)
    if weights.shape != (n,) or not np.all(np.isfinite(weights) & (weights >= 0)):
        raise ValueError(f"got weights of shape {weights.shape}; expected {n} finite numbers, none below zero")
    return weights


@dataclass(frozen=True, eq=False)
class SortedFeatures:
    """Feature values in order (features, samples): sort once, train stumps under many weightings."""

    values: NDArray[np.float64]
    order: NDArray[np.int32]

    @classmethod
    def from_values(cls, X: NDArray[np.float64]) -> SortedFeatures:
        """Sort the columns of X (samples, features)."""
        values = np.ascontiguousarray(X.T)
        order = np.argsort(values, axis=1, kind="stable")
        return cls(np.take_along_axis(values, order, axis=1), order.astype(np.int32))

    def best_stumps(self, is_positive: NDArray[np.bool_], weights: NDArray[np.float64]) -> Stumps:
        """The stump of least weighted error on every feature, with its error."""
        n_features = len(self.values)
        totals = float(weights[is_positive].sum()), float(weights[~is_positive].sum())
        signed = np.where(is_positive, weights, -weights)
        threshold, error = np.empty(n_features), np.empty(n_features)
        polarity = np.empty(n_features, dtype=np.int8)

        def train(rows: slice) -> None:
            values, order = self.values[rows], self.order[rows]
            best_splits(values, order, signed, *totals, threshold[rows], polarity[rows], error[rows])

        # Values a task of stump training: two milliseconds of work, far more than to hand it to a thread.
        at_once = max(1, 1_000_000 // self.values.shape[1])
        for_each_block(train, n_features, at_once)
        return Stumps(np.arange(n_features), threshold, polarity, error)


def train_stumps(
    X: NDArray[np.float64],
    is_positive: NDArray[np.bool_],
    weights: NDArray[np.int64] | None = None,
    *,
    balanced: bool = True,
) -> Stumps:
    """Train one stump a feature to the least error (line 1 of [ALG:GSLDA]).

    If `balanced`, each class weighs one half in all: a plain error count, the paper's, gives useless constant stumps
    when negatives outnumber positives by ten to one.

    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> train_stumps(X, np.array([False, False, True, True])).threshold
    array([1.5])
    >>> x, few = np.arange(6.0)[:, None], np.array([False, False, True, False, False, True])
    >>> [float(train_stumps(x, few, balanced=b).threshold[0]) for b in (True, False)]
    [1.5, 4.5]
    """
    counts = np.ones(len(X), dtype=np.int64) if weights is None else weights
    if not balanced:
        return SortedFeatures.from_values(X).best_stumps(is_positive, counts.astype(np.float64))
    n_pos, n_neg = int(counts[is_positive].sum()), int(counts[~is_positive].sum())
    # n_pos * n_neg times the balanced error: whole numbers, so a weight of 3 is three copies to the last bit.
    scaled = np.where(is_positive, float(n_neg), float(n_pos)) * counts.astype(np.float64)
    return SortedFeatures.from_values(X).best_stumps(is_positive, scaled)


@dataclass(frozen=True, eq=False)
class WeightedPatches:
    """Patches (samples, height, width), positives first, with their weights: what weak learners train on."""

    patches: NDArray[np.uint8]
    layout: SampleLayout
    weights: ClassWeights

    @cached_property
    def stack(self) -> IntegralStack:
        """Integral images of the patches; workers make their own."""
        return IntegralStack.from_patches(self.patches)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "stack"}

    def __sizeof__(self) -> int:  # by which Dask knows what a worker holds
        return self.patches.nbytes


@dataclass(frozen=True, eq=False)
class TrainedBlock(BitResponses):
    """The responses of weak learners of a block of features, and the learners themselves."""

    learners: Stumps | Subsets = field(kw_only=True)


# Features at once: their values on 20,000 samples are 5 MB, which stay in the cache until they are binned. No variable
# holds them below: it would keep them while the next are computed, in other memory. Two processes that share a cache
# then take 10 % longer.
TRAINED_AT_ONCE = 64


def train_block(pool: FeatureFamily, feature: NDArray[np.intp], samples: WeightedPatches) -> TrainedBlock:
    """Train a weak learner on each feature of a pool, whose numbers in the whole family are `feature`."""
    bits, error = np.empty((len(pool), samples.layout.words), dtype=np.uint64), np.empty(len(pool))
    train = _train_stumps if pool.categories is None else _train_subsets
    learners = train(pool, feature, samples, error, bits)
    error /= samples.weights.total
    return TrainedBlock(bits, samples.layout, threads=1, learners=learners)


def _train_stumps(
    pool: FeatureFamily, feature: NDArray[np.intp], samples: WeightedPatches, error: Floats, bits: Words
) -> Stumps:
    threshold, polarity = np.empty(len(pool), dtype=np.float32), np.empty(len(pool), dtype=np.int8)
    for rows in blocks(len(pool), TRAINED_AT_ONCE):
        columns = threshold[rows], polarity[rows], error[rows], bits[rows]
        train_by_histogram(
            pool.take(rows).evaluate(samples.stack), samples.layout.n_positive, samples.weights.weights, *columns
        )
    return Stumps(feature, threshold, polarity, error)


def _train_subsets(
    pool: FeatureFamily, feature: NDArray[np.intp], samples: WeightedPatches, error: Floats, bits: Words
) -> Subsets:
    subset = np.empty((len(pool), MOST_CODES // 64), dtype=np.uint64)
    for rows in blocks(len(pool), TRAINED_AT_ONCE):
        columns = subset[rows], error[rows], bits[rows]
        train_subsets(
            pool.take(rows).evaluate(samples.stack), samples.layout.n_positive, samples.weights.weights, *columns
        )
    return Subsets(feature, subset, error)


def train_weak_learners(
    family: FeatureFamily,
    patches: NDArray[np.uint8],
    is_positive: NDArray[np.bool_],
    *,
    weights: NDArray[np.float64] | None = None,
    balanced: bool = True,
    max_memory: int = DEFAULT_MAX_MEMORY,
    workers: Workers = ALL_THREADS,
    seed: int = 0,
) -> tuple[Stumps | Subsets, Responses]:
    """Train one weak learner on each feature, and keep its responses to the patches it was trained on.

    `patches` are (samples, height, width), labels and weights (samples,). Features with ordered values get
    stumps, by histograms of 256 bins; categorical ones get sets of codes. If the bits
    of the responses would take more than `max_memory` bytes, features are drawn with `seed` and a
    `MemoryBudgetWarning` is issued. Each of the `workers` trains and holds a block of features; the result does not
    depend on how many there are.

    >>> from whet.models.gslda.haar import HaarPool
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
    chosen = np.arange(len(family))[within_budget(len(family), layout.words, max_memory, np.random.default_rng(seed))]
    if family.categories is not None and family.categories > MOST_CODES:
        raise ValueError(f"got a family of {family.categories} codes; expected at most {MOST_CODES}")
    samples = WeightedPatches(patches[layout.order], layout, class_weights(layout, weights, balanced))
    held = workers.share(samples)
    if held is samples:
        _ = samples.stack  # once, before threads ask for it
    n_blocks = min(workers.slots, len(chosen))
    features = [chosen[k::n_blocks] for k in range(n_blocks)]
    pools = [family.take(each) for each in features]
    trained = workers.hold(train_block, pools, features, repeat(held), apart=True)
    learners = list(workers.map(attrgetter("learners"), trained))
    columns = ([getattr(each, one.name) for each in learners] for one in fields(learners[0]))
    return type(learners[0])(*map(_dealt, columns)), Responses(trained, len(chosen), layout, workers)


def _dealt(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """One array of parts that have its rows in turns.

    >>> _dealt([np.array([1, 3]), np.array([2])])
    array([1, 2, 3])
    """
    found = np.empty((sum(map(len, parts)), *parts[0].shape[1:]), parts[0].dtype)
    for k, part in enumerate(parts):
        found[k :: len(parts)] = part
    return found


# The smallest weighted error that a vote is computed from; a perfect stump would have an infinite one.
SMALLEST_ERROR = 1e-10


def reweighted(D: NDArray[np.float64], right: NDArray[np.bool_], error: float) -> NDArray[np.float64]:
    """Weights for the next round: samples that were right count e / (1 - e) of what they did."""
    return np.asarray(np.where(right, D * (error / (1 - error)), D))


def balanced(is_positive: NDArray[np.bool_], weights: NDArray[np.int64]) -> NDArray[np.float64]:
    """Weights that sum to one half over each class (N,).

    >>> balanced(np.array([True, False, False]), np.array([1, 1, 1]))
    array([0.5 , 0.25, 0.25])
    """
    of_class = np.where(is_positive, weights[is_positive].sum(), weights[~is_positive].sum())
    return np.asarray(weights / (2.0 * of_class))
