"""Teaching a whole detector: patches are routed by the base, and counted in the stages that they reach."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import Lock

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whet._kernels.threads import for_each_block
from whet.cascade.stage import Stage
from whet.detector.base import Delta, DetectorBase, StageBase
from whet.detector.taught import TaughtDetector
from whet.features.integral import IntegralStack
from whet.lda.statistics import MOST_SAMPLES, BinaryStatistics

Patches = NDArray[np.uint8]
Labels = NDArray[np.bool_]
Counts = NDArray[np.int64]

# Patches a task: their integrals are 10 MB, and 200 feature values of each another 3.
AT_ONCE = 4096

# One click against thousands of old samples would move nothing: it counts as this share of them. Taught once, it
# removes 83 of 100 false positives, and twice as much removes 91 (benchmarks/correction_weight.py, seed 0).
CORRECTION_SHARE = 0.04


def default_weight(base: DetectorBase, is_positive: bool) -> int:
    """How often a correction counts: 4 % of its class in the base, where that is smallest, and at least once.

    A whole number of the base alone. Were it one of the current counts, it would depend on what was learned
    before, and what was learned could not be taken out in another order.
    """
    return weight_in(base.stages, is_positive)


def weight_in(stages: Iterable[StageBase | Stage], is_positive: bool) -> int:
    """The default weight in these stages; those that keep votes, having seen too few negatives, have no say."""
    learning = [stage for stage in stages if isinstance(stage, StageBase) and stage.votes is None]
    counts = [(stage.positive if is_positive else stage.negative).n for stage in learning]
    return max(1, round(CORRECTION_SHARE * min(counts, default=0)))


def learn(
    detector: TaughtDetector,
    patches: Patches,
    is_positive: ArrayLike,
    weights: ArrayLike | None = None,
    threads: int | None = None,
) -> None:
    """Count patches (samples, height, width) with labels (samples,), each `weights` times.

    `weights` are whole numbers, one or (samples,); without any, each patch is a correction and counts
    `default_weight` times. Weights and thresholds of the stages follow. The result depends neither on the order
    of the patches, nor on how they were divided into calls, nor on the number of threads.

    >>> from whet.features.haar import HaarPool
    >>> from whet.training.stage import train_node
    >>> from whet.training.stage import NodeGoal
    >>> rng = np.random.default_rng(0)
    >>> patches = rng.integers(0, 200, (60, 6, 6), dtype=np.uint8)
    >>> patches[:30, :, 3:] += 50  # positives are brighter on the right
    >>> samples = patches, np.arange(60) < 30
    >>> node = train_node(HaarPool.from_window((6, 6)), *samples, 3, goal=NodeGoal(), validation=samples)
    >>> detector = TaughtDetector(DetectorBase((6, 6), (node.base(),)))
    >>> learn(detector, patches[:2], [True, False], weights=5)
    >>> detector.learned.counts
    ((5, 5),)
    >>> unlearn(detector, patches[:2], [True, False], weights=5)
    >>> detector.learned.is_empty
    True
    """
    detector.check_can_learn()
    detector.insert_all(lesson(detector.base, patches, is_positive, weights, threads))


def unlearn(
    detector: TaughtDetector,
    patches: Patches,
    is_positive: ArrayLike,
    weights: ArrayLike | None = None,
    threads: int | None = None,
) -> None:
    """Take patches out again that came through `learn` with these labels and weights, as if never shown.

    What the base was trained on cannot be taken out: it chose the weak learners. Raises `CannotUnlearnError`, and
    changes nothing, where counts show that the patches were not learned; counts cannot show all such mistakes.
    """
    detector.check_can_learn()
    detector.remove_all(lesson(detector.base, patches, is_positive, weights, threads))


def lesson(
    base: DetectorBase,
    patches: Patches,
    is_positive: ArrayLike,
    weights: ArrayLike | None = None,
    threads: int | None = None,
) -> Delta:
    """What these patches teach each stage of a base.

    A positive teaches all stages; a negative those that it reaches in the base, by the base's weights and stage
    thresholds. A negative with too little contrast to be looked at teaches none.
    """
    labels = _labels(patches, is_positive, base.window)
    counts = _counts(weights, labels, base)
    lock = Lock()
    total = Delta.empty([len(stage) if isinstance(stage, StageBase) else 0 for stage in base.stages])

    def work(rows: slice) -> None:
        nonlocal total
        part = _lesson_of_block(base, patches[rows], labels[rows], counts[rows])
        with lock:
            total = total + part

    for_each_block(work, len(patches), AT_ONCE, threads)
    return total


def _lesson_of_block(base: DetectorBase, patches: Patches, is_positive: Labels, counts: Counts) -> Delta:
    taught: list[tuple[BinaryStatistics, BinaryStatistics]] = []
    for stage, (rows, responses) in zip(base.stages, routed(base, patches, is_positive), strict=True):
        if isinstance(stage, Stage):  # fixed: it counts nothing, not even samples
            taught.append((BinaryStatistics.empty(0), BinaryStatistics.empty(0)))
            continue
        sides = is_positive[rows], ~is_positive[rows]
        positive, negative = (BinaryStatistics.from_samples(responses[side], counts[rows][side]) for side in sides)
        taught.append((positive, negative))
    return Delta(tuple(taught))


def routed(
    base: DetectorBase, patches: Patches, is_positive: Labels
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.uint8]]]:
    """For each stage of a base: which patches reach it (n,), and their responses (n, T)."""
    stack = IntegralStack.from_patches(patches, base.min_sigma)
    rows = np.arange(len(patches))
    reaches = is_positive | stack.has_contrast
    for stage in base.cascade.stages:
        stack, rows = stack.take(reaches), rows[reaches]
        responses = stage.respond(stack)
        yield rows, responses.view(np.uint8).T
        # Exits are left out: a soft stage learns what its hard threshold lets through.
        reaches = is_positive[rows] | (stage.weigh(responses)[-1] > stage.threshold)


def _labels(patches: Patches, is_positive: ArrayLike, window: tuple[int, int]) -> Labels:
    labels = np.asarray(is_positive)
    if patches.dtype != np.uint8 or patches.shape[1:] != window:
        raise ValueError(
            f"got patches {patches.dtype} of shape {patches.shape}; expected uint8, (samples, {window[0]}, {window[1]})"
        )
    if labels.shape != patches.shape[:1]:
        raise ValueError(f"got labels of shape {labels.shape} for {len(patches)} patches: one label a patch")
    if not np.isin(labels, (0, 1)).all():
        raise ValueError("a label is True (the object) or False (not the object)")
    return labels.astype(np.bool_)


def _counts(weights: ArrayLike | None, is_positive: Labels, base: DetectorBase) -> Counts:
    if weights is None:
        return np.where(is_positive, default_weight(base, True), default_weight(base, False)).astype(np.int64)
    given = np.asarray(weights)
    if given.dtype.kind not in "iu" or given.shape not in ((), is_positive.shape) or (given < 0).any():
        raise ValueError("weights are whole numbers from 0: one for all patches, or one for each")
    if sum(np.broadcast_to(given, is_positive.shape).tolist()) >= MOST_SAMPLES:
        raise ValueError("the weights sum to 2^52 or more; counts stay exact below: use smaller weights")
    return np.broadcast_to(given, is_positive.shape).astype(np.int64)
