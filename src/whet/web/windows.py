"""The windows of images that the cache of the studio keeps, with their distances to corrections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from whet._kernels.responses import find_nearest
from whet.cascade.cascade import Cascade
from whet.cascade.detections import Detections, FiredWindows
from whet.cascade.stage import Stage
from whet.detector.derive import Roles
from whet.detector.reference import Judgement

Floats = NDArray[np.float64]
Bits = NDArray[np.uint8]
Words = NDArray[np.uint64]
Indices = NDArray[np.intp]
Distances = NDArray[np.uint16]
# The thresholds of all stages, after each weak learner.
Cover = tuple[Floats, ...]

# Windows of an image; beyond, those that are not live give way to new ones.
MOST_MERGED = 40_000


@dataclass(eq=False)
class LiveWindows:
    """Windows (n, words) with stage scores (n,), distances to guards (n,), and a row (n,) for each correction."""

    words: Words
    scores: Floats
    objects: Distances
    others: Distances
    table: Distances
    n_rows: int = 0

    @classmethod
    def from_words(cls, words: Words, scores: Floats, guards: tuple[Words, Words]) -> LiveWindows:
        """Windows without any correction yet."""
        objects, others = (nearest(words, side) for side in guards)
        return cls(words, scores, objects, others, np.empty((0, len(words)), np.uint16))

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """All that takes memory."""
        return self.words, self.scores, self.objects, self.others, self.table

    def fill(self, known: Sequence[Words]) -> None:
        """Add the rows of corrections that have none yet."""
        self._grow(len(known))
        for row in range(self.n_rows, len(known)):
            self.table[row] = nearest(self.words, known[row])
        self.n_rows = len(known)

    def _grow(self, n_rows: int) -> None:
        if n_rows > len(self.table):
            grown = np.empty((max(2 * len(self.table), n_rows, 8), len(self.words)), np.uint16)
            grown[: self.n_rows] = self.table[: self.n_rows]
            self.table = grown

    @classmethod
    def joined(cls, parts: Sequence[LiveWindows], n_words: int) -> LiveWindows:
        """The windows of several images as one."""
        words = np.concatenate([np.empty((0, n_words), np.uint64), *(part.words for part in parts)])
        scores, objects, others = (
            np.concatenate([np.empty(0, dtype), *(getattr(part, name) for part in parts)])
            for name, dtype in (("scores", np.float64), ("objects", np.uint16), ("others", np.uint16))
        )
        found = cls(words, scores, objects, others, np.empty((0, len(words)), np.uint16))
        found.take_rows(parts)
        return found

    def take_rows(self, parts: Sequence[LiveWindows]) -> None:
        """Add the rows that the parts have more."""
        n_rows = min((part.n_rows for part in parts), default=0)
        self._grow(n_rows)
        if n_rows > self.n_rows:
            new = [part.table[self.n_rows : n_rows] for part in parts]
            np.concatenate(new, axis=1, out=self.table[self.n_rows : n_rows])
            self.n_rows = n_rows

    def least(self, rows: Indices, at_least: Distances | int) -> NDArray[np.int64]:
        """The least distance (n,) to some corrections, and to others whose distances are known."""
        found = self.table[rows].min(axis=0, initial=np.iinfo(np.uint16).max)
        return np.asarray(np.minimum(found, at_least), np.int64)


@dataclass(eq=False)
class CachedImage:
    """Windows of an image: all that pass the thresholds of any of `covers`, and maybe some more.

    Images with the same `number` have the same live windows.
    """

    windows: FiredWindows
    words: Words
    covers: tuple[Cover, ...]
    live_rows: Indices
    live: LiveWindows
    n_promoted: int = 0
    number: int = field(default_factory=count().__next__)

    def has_all(self, lowest: Sequence[Floats] | None) -> bool:
        """Whether no window is missing that passes thresholds as low as these."""
        return lowest is None or any(is_lower(cover, lowest) for cover in self.covers)

    def only_live(self, cover: Cover | None) -> CachedImage:
        """Without the windows that no known correction can accept.

        `cover` are the thresholds of the stages alone; None if a coarse pass leaves out windows that pass them.
        """
        rows = self.live_rows
        windows, every = self.windows.take(rows), np.arange(len(rows))
        covers = () if cover is None else (cover,)
        return replace(self, windows=windows, words=self.live.words, covers=covers, live_rows=every)

    @property
    def n_bytes(self) -> int:
        """The memory of all arrays; what the live windows share with the others counts once."""
        index = self.windows.index
        own = (index.scale, index.y, index.x, self.windows.boxes, self.windows.scores, self.words, self.live_rows)
        return sum({id(part): part.nbytes for part in (*own, *self.live.arrays)}.values())


@dataclass(eq=False)
class ScoredState:
    """A set of corrections: the rows of each kind, how far they reach, and what is found in images with them."""

    roles: Roles
    rows: tuple[Indices, Indices, Indices, Indices]
    reach: float
    lowered: Cascade | None
    lowest: Cover | None
    targets: Floats
    found: dict[str, tuple[int, int, Detections]] = field(default_factory=dict)
    everywhere: tuple[Everywhere, Floats] | None = None
    judgement: Judgement | None = None


@dataclass(eq=False)
class Everywhere:
    """The live windows of all images, one image after the other: number i begins at `starts[i]`."""

    images: dict[str, LiveWindows]
    starts: Indices
    live: LiveWindows


def nearest(words: Words, known: Words) -> Distances:
    """The least distance (n,) of windows to known ones; the largest number without any."""
    most = np.iinfo(np.uint16).max
    distance = np.full(len(words), most, np.int64)
    find_nearest(words, known, distance, np.zeros(len(words), np.intp))
    return distance.astype(np.uint16)


def thresholds_of(stage: Stage) -> Floats:
    """The thresholds (T,) of a stage after each weak learner; the last is that of the stage, if it is higher."""
    rejection = stage.rejection_thresholds
    found = np.full(len(stage), -np.inf) if rejection is None else rejection.copy()
    found[-1] = max(found[-1], stage.threshold)
    return np.asarray(found)


def is_lower(one: Sequence[Floats], other: Sequence[Floats]) -> bool:
    """Whether thresholds are nowhere above others."""
    return all(bool((low <= high).all()) for low, high in zip(one, other, strict=True))


def is_same(found: Detections, windows: FiredWindows) -> bool:
    """Whether detections are made of the same windows with the same scores."""
    before = found.windows
    return (
        len(before) == len(windows)
        and bool((before.scores == windows.scores).all())
        and bool((before.boxes == windows.boxes).all())
    )


def merged(
    before: CachedImage | None,
    windows: FiredWindows,
    words: Words,
    cover: Cover | None,
    own_cover: Cover | None,
    guards: tuple[Words, Words],
) -> CachedImage:
    """The windows that an image has and others, in the order of a scan, each once; what is live always stays.

    `own_cover` is that of `only_live`.
    """
    if before is not None and cover is not None and len(before.windows) + len(windows) > MOST_MERGED:
        before = before.only_live(own_cover)
    covers: tuple[Cover, ...] = () if cover is None else (cover,)
    if before is not None:
        covers += tuple(own for own in before.covers if cover is None or not is_lower(cover, own))
        windows = FiredWindows.concatenate([before.windows, windows])
        words = np.concatenate([before.words, words])
    index = windows.index
    order = np.lexsort((index.x, index.y, index.scale))
    places = np.stack([index.scale, index.y, index.x])[:, order]
    is_new = np.append(True, (places[:, 1:] != places[:, :-1]).any(axis=0))[: len(order)]
    windows, words = windows.take(order[is_new]), words[order[is_new]]
    fires = np.flatnonzero(windows.scores > -np.inf)
    live = LiveWindows.from_words(words[fires], windows.scores[fires], guards)
    return CachedImage(windows, words, covers, fires, live)
