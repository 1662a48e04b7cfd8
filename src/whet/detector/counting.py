"""Counting samples in a detector's stages: each counts in the stages that it reaches in the frozen base."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whet._kernels.threads import for_each_block
from whet.cascade.stage import AT_ONCE
from whet.detector.base import Delta, DetectorBase
from whet.detector.records import Record
from whet.errors import RecordError
from whet.lda.statistics import MOST_SAMPLES, BinaryStatistics

Patches = NDArray[np.uint8]
Labels = NDArray[np.bool_]
Counts = NDArray[np.int64]
Bits = NDArray[np.uint8]


def count_patches(
    base: DetectorBase, patches: Patches, is_positive: ArrayLike, weights: ArrayLike = 1, threads: int | None = None
) -> Delta:
    """What each stage counts of patches (samples, height, width) with labels (samples,), each `weights` times.

    A positive counts in all stages; a negative in those that it reaches in the base, by the base's weights and stage
    thresholds. A negative with too little contrast counts in none. `weights` are whole numbers, one or (samples,). The
    result depends neither on the order of the patches nor on the number of threads.
    """
    labels = _labels(patches, is_positive, base.window)
    counts = _counts(weights, labels)
    lock = Lock()
    total = Delta.empty(base.sizes)

    def work(rows: slice) -> None:
        nonlocal total
        responses, has_contrast = base.cascade.respond(patches[rows])
        counted = labels[rows] | has_contrast
        part = count_responses(base, responses[counted], labels[rows][counted], counts[rows][counted])
        with lock:
            total = total + part

    for_each_block(work, len(patches), AT_ONCE, threads)
    return total


def count_responses(base: DetectorBase, responses: Bits, is_positive: Labels, weights: Counts) -> Delta:
    """What each stage counts of responses (samples, weak learners) with labels (samples,), each `weights` times."""
    reaches = np.ones(len(responses), np.bool_)
    pairs = []
    for stage, run, columns in zip(base.stages, base.cascade.stages, base.cascade.columns, strict=True):
        seen = responses[:, columns]
        if stage.learns:
            positive, negative = (
                BinaryStatistics.from_samples(seen[side], weights[side])
                for side in (reaches & is_positive, reaches & ~is_positive)
            )
            pairs.append((positive, negative))
        else:
            pairs.append((BinaryStatistics.empty(0), BinaryStatistics.empty(0)))
        # Rejection thresholds are left out: a soft stage learns what its stage threshold lets through.
        reaches &= is_positive | (run.weigh(seen.T.astype(np.bool_))[-1] > run.threshold)
    return Delta(tuple(pairs))


def count_records(base: DetectorBase, records: Iterable[Record]) -> Delta:
    """What each stage counts of the windows of examples; no image is needed. Corrections are not counted."""
    examples = [record for record in records if record.kind == "example" and len(record)]
    if not examples:
        return Delta.empty(base.sizes)
    if sum(record.weight * len(record) for record in examples) >= MOST_SAMPLES:
        raise RecordError("the weights of the examples sum to 2^52 or more; counts stay exact below")
    sizes = [len(record) for record in examples]
    responses = np.concatenate([record.unpacked(base.cascade.n_weak) for record in examples])
    is_object = np.repeat([record.is_object for record in examples], sizes)
    weights = np.repeat(np.array([record.weight for record in examples], np.int64), sizes)
    return count_responses(base, responses, is_object, weights)


def _labels(patches: Patches, is_positive: ArrayLike, window: tuple[int, int]) -> Labels:
    labels = np.asarray(is_positive)
    labels = np.full(len(patches), labels) if labels.shape == () else labels
    if patches.dtype != np.uint8 or patches.shape[1:] != window:
        raise ValueError(
            f"got patches {patches.dtype} of shape {patches.shape}; expected uint8, (samples, {window[0]}, {window[1]})"
        )
    if labels.shape != patches.shape[:1]:
        raise ValueError(f"got labels of shape {labels.shape} for {len(patches)} patches; expected one per patch")
    if not np.isin(labels, (0, 1)).all():
        raise ValueError("a label is True (the object) or False (not the object)")
    return labels.astype(np.bool_)


def _counts(weights: ArrayLike, is_positive: Labels) -> Counts:
    given = np.asarray(weights)
    if given.dtype.kind not in "iu" or given.shape not in ((), is_positive.shape) or (given < 0).any():
        raise ValueError("weights are whole numbers from 0: one for all patches, or one for each")
    if sum(np.broadcast_to(given, is_positive.shape).tolist()) >= MOST_SAMPLES:
        raise ValueError("the weights sum to 2^52 or more; counts stay exact below: use smaller weights")
    return np.broadcast_to(given, is_positive.shape).astype(np.int64)
