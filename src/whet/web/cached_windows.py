"""The windows of images that the cache of the studio keeps, with their distances to corrections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from whet.arrays import Floats, Indices
from whet.corrections.effects import Distances, Effects
from whet.corrections.reference import HeldOutScores
from whet.images.detections import Detections, FiredWindows
from whet.models.responses import Responses, Votes

Row = NDArray[np.uint16]

# Windows of an image; beyond, those that are not live give way to new ones.
MOST_MERGED = 40_000


@dataclass(eq=False)
class LiveWindows:
    """Windows (n,) with scores by the votes (n,), distances to guards (n,), and a row (n,) for each correction."""

    responses: Responses
    scores: Floats
    objects: Row
    others: Row
    table: Row
    n_rows: int = 0

    @classmethod
    def from_responses(cls, responses: Responses, scores: Floats, guards: tuple[Responses, Responses]) -> LiveWindows:
        """Windows without any correction yet."""
        objects, others = (nearest(responses, side) for side in guards)
        return cls(responses, scores, objects, others, np.empty((0, len(responses)), np.uint16))

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """All that takes memory."""
        return self.responses.words, self.scores, self.objects, self.others, self.table

    def fill(self, known: Sequence[Responses]) -> None:
        """Add the rows of corrections that have none yet."""
        self._grow(len(known))
        for row in range(self.n_rows, len(known)):
            self.table[row] = nearest(self.responses, known[row])
        self.n_rows = len(known)

    def _grow(self, n_rows: int) -> None:
        if n_rows > len(self.table):
            grown = np.empty((max(2 * len(self.table), n_rows, 8), len(self.responses)), np.uint16)
            grown[: self.n_rows] = self.table[: self.n_rows]
            self.table = grown

    @classmethod
    def joined(cls, parts: Sequence[LiveWindows], n_weak: int) -> LiveWindows:
        """The windows of several images as one."""
        responses = Responses.concatenate([part.responses for part in parts], n_weak)
        scores, objects, others = (
            np.concatenate([np.empty(0, dtype), *(getattr(part, name) for part in parts)])
            for name, dtype in (("scores", np.float64), ("objects", np.uint16), ("others", np.uint16))
        )
        joined = cls(responses, scores, objects, others, np.empty((0, len(responses)), np.uint16))
        joined.take_rows(parts)
        return joined

    def take_rows(self, parts: Sequence[LiveWindows]) -> None:
        """Add the rows that the parts have more."""
        n_rows = min((part.n_rows for part in parts), default=0)
        self._grow(n_rows)
        if n_rows > self.n_rows:
            new = [part.table[self.n_rows : n_rows] for part in parts]
            np.concatenate(new, axis=1, out=self.table[self.n_rows : n_rows])
            self.n_rows = n_rows

    def distances(self, rows: tuple[Indices, Indices, Indices, Indices]) -> Distances:
        """The least distances (n,) to corrections of each kind, and to guards."""
        rejected, accepted, objects, others = rows
        far = self.responses.far
        return Distances(
            self._least(rejected, far),
            self._least(accepted, far),
            self._least(objects, self.objects),
            self._least(others, self.others),
        )

    def _least(self, rows: Indices, at_most: Row | int) -> NDArray[np.int64]:
        least = self.table[rows].min(axis=0, initial=np.iinfo(np.uint16).max)
        return np.asarray(np.minimum(least, at_most), np.int64)


@dataclass(eq=False)
class CachedImage:
    """Windows of an image: all that pass any of the limits (n_weak,) of `covers`, and maybe some more.

    Images with the same `number` have the same live windows.
    """

    windows: FiredWindows
    responses: Responses
    covers: tuple[Floats, ...]
    live_rows: Indices
    live: LiveWindows
    n_promoted: int = 0
    number: int = field(default_factory=count().__next__)

    def has_all(self, lowered: Votes | None) -> bool:
        """Whether no window is missing that passes these limits; None stands for those of the model."""
        return lowered is None or any((cover <= lowered.limits).all() for cover in self.covers)

    def only_live(self, votes: Votes) -> CachedImage:
        """Without the windows that no known correction can accept.

        All that pass the model's own `votes` are live, and stay covered, unless a coarse pass leaves some of them out.
        """
        rows = self.live_rows
        is_left_out = votes.scores(self.responses) > -np.inf
        is_left_out[rows] = False
        covers = (votes.limits,) if self.has_all(votes) and not is_left_out.any() else ()
        windows, every = self.windows.take(rows), np.arange(len(rows))
        return replace(self, windows=windows, responses=self.live.responses, covers=covers, live_rows=every)

    @property
    def n_bytes(self) -> int:
        """The memory of all arrays; what the live windows share with the others counts once."""
        index = self.windows.index
        own = index.scale, index.y, index.x, self.windows.boxes, self.windows.scores, self.live_rows
        arrays = (*own, self.responses.words, *self.live.arrays)
        return sum({id(array): array.nbytes for array in arrays}.values())


@dataclass(eq=False)
class ScoredState:
    """A set of corrections: the rows of each kind, how far they reach, and what is found in images with them."""

    effects: Effects
    rows: tuple[Indices, Indices, Indices, Indices]
    reach: float
    lowered: Votes | None
    targets: Floats
    found: dict[str, tuple[int, int, Detections]] = field(default_factory=dict)
    everywhere: tuple[Everywhere, Floats] | None = None
    held_out: HeldOutScores | None = None


@dataclass(eq=False)
class Everywhere:
    """The live windows of all images, one image after the other: number i begins at `starts[i]`."""

    images: dict[str, LiveWindows]
    starts: Indices
    live: LiveWindows


def nearest(responses: Responses, known: Responses) -> Row:
    """The least distance (n,) of windows to known ones; the largest number without any."""
    most = np.iinfo(np.uint16).max
    return (
        responses.distances(known).clip(max=most).astype(np.uint16)
        if len(known)
        else np.full(len(responses), most, np.uint16)
    )


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
    responses: Responses,
    cover: Floats | None,
    guards: tuple[Responses, Responses],
    votes: Votes,
) -> CachedImage:
    """The windows that an image has and others, in the order of a scan, each once; what is live always stays.

    `votes` are those of the model itself.
    """
    if before is not None and cover is not None and len(before.windows) + len(windows) > MOST_MERGED:
        before = before.only_live(votes)
    covers: tuple[Floats, ...] = () if cover is None else (cover,)
    if before is not None:
        covers += tuple(own for own in before.covers if cover is None or not (cover <= own).all())
        windows = FiredWindows.concatenate([before.windows, windows])
        responses = Responses.concatenate([before.responses, responses], responses.n_weak)
    index = windows.index
    order = np.lexsort((index.x, index.y, index.scale))
    places = np.stack([index.scale, index.y, index.x])[:, order]
    is_new = np.append(True, (places[:, 1:] != places[:, :-1]).any(axis=0))[: len(order)]
    windows, responses = windows.take(order[is_new]), responses.take(order[is_new])
    fires = np.flatnonzero(windows.scores > -np.inf)
    live = LiveWindows.from_responses(responses.take(fires), windows.scores[fires], guards)
    return CachedImage(windows, responses, covers, fires, live)
