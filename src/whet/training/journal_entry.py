"""What a detector was taught by one window, in so few bits that it can be taken out again without the picture.

Weak learners and routing are frozen in the base: the weak responses of the stages that a window taught, its label
and its weight are all that was counted. The responses are the outcomes of some hundred comparisons of brightness
within one window, most of them between coarse areas; no pixel is kept. They are not nothing, though: they tell
whether a window that somebody holds is the one that was taught, and roughly where it was bright and dark.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from whet.errors import JournalError
from whet.lda.class_statistics import MOST_SAMPLES, BinaryStatistics
from whet.model.delta import Delta
from whet.model.detector_base import DetectorBase
from whet.model.stage import Stage
from whet.training.node import Labels, Patches
from whet.training.online import routed

Counts = NDArray[np.int64]
Bits = NDArray[np.uint8]


@dataclass(frozen=True)
class Entry:
    """A window that was taught: of which picture, where, as what, how often, to which base, and its responses.

    `picture` is the hash of the grey pixels and their size; `scale`, `y` and `x` are those of
    `whet.detect.detections.FiredWindows`. `stages` counts the stages that it taught, from the first; `responses` are
    those of their weak learners, one bit each, in hexadecimal.
    """

    picture: str
    scale: float
    y: int
    x: int
    is_object: bool
    weight: int
    base_id: str
    stages: int
    responses: str


@dataclass(frozen=True, eq=False)
class Places:
    """Where windows lie: scales (n,) of their levels, and pixels y (n,) and x (n,) of the level."""

    scale: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    y: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))
    x: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))

    def take(self, rows: NDArray[np.intp]) -> Places:
        """Those at these indices, in this order."""
        return Places(self.scale[rows], self.y[rows], self.x[rows])


def picture_hash(grey: NDArray[np.uint8]) -> str:
    """SHA-256 of a grey picture (height, width): its size and its pixels.

    >>> picture_hash(np.zeros((2, 3), np.uint8)) == picture_hash(np.zeros((3, 2), np.uint8))
    False
    """
    digest = hashlib.sha256(f"{grey.shape[0]} {grey.shape[1]} ".encode())
    digest.update(grey.tobytes())
    return digest.hexdigest()


def entries_of(
    base: DetectorBase, picture: str, places: Places, patches: Patches, is_object: Labels, weights: Counts
) -> list[Entry]:
    """An entry for each patch (n, height, width), all from one picture, with labels (n,) and weights (n,)."""
    bits: list[list[Bits]] = [[] for _ in patches]
    for rows, responses in routed(base, patches, is_object):
        for row, response in zip(rows.tolist(), responses, strict=True):
            bits[row].append(response)
    where = zip(places.scale.tolist(), places.y.tolist(), places.x.tolist(), strict=True)
    how = zip(is_object.tolist(), weights.tolist(), strict=True)
    return [
        Entry(picture, *place, *kind, base.base_id, len(seen), _packed(seen))
        for place, kind, seen in zip(where, how, bits, strict=True)
    ]


def lesson_of(base: DetectorBase, entries: Sequence[Entry]) -> Delta:
    """What these entries have taught a base, as `whet.training.online.lesson` counts it; without any picture.

    Raises `JournalError` for entries of another base, and for those that no window could have left.
    """
    sizes = [len(stage) for stage in base.stages]
    bits = [_unpacked(entry, base, sizes) for entry in entries]
    if sum(entry.weight for entry in entries) >= MOST_SAMPLES:
        raise JournalError("the weights of the entries sum to 2^52 or more; counts stay exact below")
    is_object = np.array([entry.is_object for entry in entries], np.bool_)
    weights = np.array([entry.weight for entry in entries], np.int64)
    reached = np.array([entry.stages for entry in entries], np.intp)
    taught = []
    start = 0
    for number, (size, stage) in enumerate(zip(sizes, base.cascade.stages, strict=True)):
        rows = np.flatnonzero(reached > number)
        seen = np.array([bits[row][start : start + size] for row in rows], np.uint8).reshape(-1, size)
        passed = stage.weigh(seen.T.astype(np.bool_))[-1] > stage.threshold
        goes_on = reached[rows] > number + 1
        if number + 1 < len(sizes) and ((passed | is_object[rows]) != goes_on).any():
            raise JournalError(
                f"an entry's responses do not lead it through the {len(sizes)} stages as it says: it was altered"
            )
        start += size
        if isinstance(base.stages[number], Stage):  # fixed: its responses lead the way, and are not counted
            taught.append((BinaryStatistics.empty(0), BinaryStatistics.empty(0)))
            continue
        sides = is_object[rows], ~is_object[rows]
        positive, negative = (BinaryStatistics.of(seen[side], weights[rows][side]) for side in sides)
        taught.append((positive, negative))
    return Delta(tuple(taught))


def _packed(responses: list[Bits]) -> str:
    return np.packbits(np.concatenate(responses)).tobytes().hex() if responses else ""


def _unpacked(entry: Entry, base: DetectorBase, sizes: list[int]) -> Bits:
    if not isinstance(entry, Entry):
        raise JournalError(f"got a {type(entry).__name__}; expected the entries that learn has returned")
    if entry.base_id != base.base_id:
        raise JournalError(
            f"an entry was taught to the base {entry.base_id[:12]}, this detector is of {base.base_id[:12]}: "
            "take a detector of that base"
        )
    fewest = len(sizes) if entry.is_object else 0
    if not fewest <= entry.stages <= len(sizes) or not 1 <= entry.weight < MOST_SAMPLES:
        raise JournalError(
            f"an entry says that it taught {entry.stages} of {len(sizes)} stages, {entry.weight} times: it was altered"
        )
    n = sum(sizes[: entry.stages])
    try:
        packed = np.frombuffer(bytes.fromhex(entry.responses), np.uint8)
    except ValueError as error:
        raise JournalError(f"an entry's responses are no hexadecimal number: {entry.responses[:40]!r}") from error
    bits = np.unpackbits(packed)
    if len(packed) != -(-n // 8) or bits[n:].any():
        raise JournalError(f"an entry has {len(bits)} responses; the stages that it taught have {n} weak learners")
    return bits
