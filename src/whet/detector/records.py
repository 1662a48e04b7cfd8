"""Counting samples in a detector's stages: patches routed by the base, and records that can be counted again.

A record keeps the responses of the weak learners to one window, in so few bits that the window can be unlearned
without its image.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whet._kernels.threads import for_each_block
from whet.cascade.cascade import AT_ONCE, ClassPair
from whet.cascade.pyramid import WindowIndex
from whet.detector.base import Delta, DetectorBase
from whet.errors import JournalError
from whet.features.integral import IntegralStack
from whet.lda.statistics import MOST_SAMPLES, BinaryStatistics

Patches = NDArray[np.uint8]
Labels = NDArray[np.bool_]
Counts = NDArray[np.int64]
Bits = NDArray[np.uint8]

# One click against thousands of training samples would move nothing: it counts as this share of them. Learned once,
# it removes 83 of 100 false positives, and twice as much removes 91 (benchmarks/correction_weight.py, seed 0).
CORRECTION_SHARE = 0.04


def default_weight(base: DetectorBase, is_positive: bool) -> int:
    """How often a correction counts: 4 % of its class in the base, where that is smallest, and at least once.

    It depends on the base alone. If it depended on the current counts, what was learned could not be unlearned in
    another order.
    """
    counts = [stage.statistics[0 if is_positive else 1].n for stage in base.stages if stage.learns]
    return max(1, round(CORRECTION_SHARE * min(counts, default=0)))


def count_patches(
    base: DetectorBase,
    patches: Patches,
    is_positive: ArrayLike,
    weights: ArrayLike | None = None,
    threads: int | None = None,
) -> Delta:
    """What each stage counts of patches (samples, height, width) with labels (samples,), each `weights` times.

    A positive counts in all stages; a negative in those that it reaches in the base, by the base's weights and stage
    thresholds. A negative with too little contrast counts in none. `weights` are whole numbers, one or (samples,);
    without any, each patch counts `default_weight` times. The result depends neither on the order of the patches nor
    on the number of threads.
    """
    labels = _labels(patches, is_positive, base.window)
    counts = _counts(weights, labels, base)
    lock = Lock()
    total = Delta.empty(base.sizes)

    def work(rows: slice) -> None:
        nonlocal total
        part = _count_block(base, patches[rows], labels[rows], counts[rows])
        with lock:
            total = total + part

    for_each_block(work, len(patches), AT_ONCE, threads)
    return total


def _count_block(base: DetectorBase, patches: Patches, is_positive: Labels, counts: Counts) -> Delta:
    routed = zip(base.stages, route(base, patches, is_positive), strict=True)
    return Delta(
        tuple(
            _class_pair(responses, is_positive[rows], counts[rows]) if stage.learns else stage.statistics
            for stage, (rows, responses) in routed
        )
    )


def _class_pair(responses: Bits, is_positive: Labels, counts: Counts) -> ClassPair:
    positive, negative = (
        BinaryStatistics.from_samples(responses[side], counts[side]) for side in (is_positive, ~is_positive)
    )
    return positive, negative


def route(base: DetectorBase, patches: Patches, is_positive: Labels) -> Iterator[tuple[NDArray[np.intp], Bits]]:
    """For each stage of a base: which patches reach it (n,), and their responses (n, T)."""
    stack = IntegralStack.from_patches(patches, base.min_sigma)
    rows = np.arange(len(patches))
    reaches = is_positive | stack.has_contrast
    for stage in base.cascade.stages:
        stack, rows = stack.take(reaches), rows[reaches]
        responses = stage.respond(stack)
        yield rows, responses.view(np.uint8).T
        # Rejection thresholds are left out: a soft stage learns what its stage threshold lets through.
        reaches = is_positive[rows] | (stage.weigh(responses)[-1] > stage.threshold)


def _labels(patches: Patches, is_positive: ArrayLike, window: tuple[int, int]) -> Labels:
    labels = np.asarray(is_positive)
    if patches.dtype != np.uint8 or patches.shape[1:] != window:
        raise ValueError(
            f"got patches {patches.dtype} of shape {patches.shape}; expected uint8, (samples, {window[0]}, {window[1]})"
        )
    if labels.shape != patches.shape[:1]:
        raise ValueError(f"got labels of shape {labels.shape} for {len(patches)} patches; expected one per patch")
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


@dataclass(frozen=True)
class Record:
    """One learned window: its image, its place, its label, its weight, the base, and its responses.

    `image` is the hash of the grey pixels and their size; `scale`, `y` and `x` are those of a `WindowIndex`. `stages`
    is the number of stages that counted it, from the first; `responses` are those of their weak learners, packed
    eight to a byte.
    """

    image: str
    scale: float
    y: int
    x: int
    is_object: bool
    weight: int
    base_id: str
    stages: int
    responses: bytes


def image_hash(grey: NDArray[np.uint8]) -> str:
    """SHA-256 of a grey image (height, width): its size and its pixels.

    >>> image_hash(np.zeros((2, 3), np.uint8)) == image_hash(np.zeros((3, 2), np.uint8))
    False
    """
    digest = hashlib.sha256(f"{grey.shape[0]} {grey.shape[1]} ".encode())
    digest.update(grey.tobytes())
    return digest.hexdigest()


def record_windows(
    base: DetectorBase, image: str, index: WindowIndex, patches: Patches, is_object: Labels, weights: Counts
) -> list[Record]:
    """A record for each window of one image, with its patch (n, height, width), label (n,) and weight (n,)."""
    bits: list[list[Bits]] = [[] for _ in patches]
    for rows, responses in route(base, patches, is_object):
        for row, response in zip(rows.tolist(), responses, strict=True):
            bits[row].append(response)
    labels = zip(is_object.tolist(), weights.tolist(), strict=True)
    return [
        Record(image, *window, *label, base.base_id, len(seen), _packed(seen))
        for window, label, seen in zip(index, labels, bits, strict=True)
    ]


def count_records(base: DetectorBase, records: Sequence[Record]) -> Delta:
    """What each stage counts of records, as `count_patches` counts their patches; no image is needed.

    Raises `JournalError` for records of another base, and for those that no window could have left.
    """
    sizes = [len(stage) for stage in base.stages]
    bits = [_unpacked(record, base, sizes) for record in records]
    if sum(record.weight for record in records) >= MOST_SAMPLES:
        raise JournalError("the weights of the records sum to 2^52 or more; counts stay exact below")
    is_object = np.array([record.is_object for record in records], np.bool_)
    weights = np.array([record.weight for record in records], np.int64)
    reached = np.array([record.stages for record in records], np.intp)
    counted: list[ClassPair] = []
    start = 0
    for number, (size, stage) in enumerate(zip(sizes, base.cascade.stages, strict=True)):
        rows = np.flatnonzero(reached > number)
        seen = np.array([bits[row][start : start + size] for row in rows], np.uint8).reshape(-1, size)
        passed = stage.weigh(seen.T.astype(np.bool_))[-1] > stage.threshold
        goes_on = reached[rows] > number + 1
        if number + 1 < len(sizes) and ((passed | is_object[rows]) != goes_on).any():
            raise JournalError(
                f"the responses of a record do not lead through the {len(sizes)} stages as it says: it was altered"
            )
        start += size
        base_stage = base.stages[number]
        counted.append(
            _class_pair(seen, is_object[rows], weights[rows]) if base_stage.learns else base_stage.statistics
        )
    return Delta(tuple(counted))


def _packed(responses: list[Bits]) -> bytes:
    return np.packbits(np.concatenate(responses)).tobytes() if responses else b""


def _unpacked(record: Record, base: DetectorBase, sizes: list[int]) -> Bits:
    if not isinstance(record, Record):
        raise JournalError(f"got a {type(record).__name__}; expected the records that Detector.learn has returned")
    if record.base_id != base.base_id:
        raise JournalError(
            f"a record belongs to the base {record.base_id[:12]}, this detector has {base.base_id[:12]}: use a "
            "detector of that base"
        )
    fewest = len(sizes) if record.is_object else 0
    if not fewest <= record.stages <= len(sizes) or not 1 <= record.weight < MOST_SAMPLES:
        raise JournalError(
            f"a record says that {record.stages} of {len(sizes)} stages counted it {record.weight} times: it was "
            "altered"
        )
    n = sum(sizes[: record.stages])
    packed = np.frombuffer(record.responses, np.uint8)
    bits = np.unpackbits(packed)
    if len(packed) != -(-n // 8) or bits[n:].any():
        raise JournalError(f"a record has {len(bits)} responses; the stages that counted it have {n} weak learners")
    return bits
