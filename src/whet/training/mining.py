"""Mining of hard negatives: windows without the object that a cascade accepts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet._kernels.threads import available_threads, map_in_order
from whet.cascade.cascade import Cascade
from whet.cascade.pyramid import SCALE_FACTOR, Pyramid, WindowIndex
from whet.cascade.scan import Scan, scan_images
from whet.errors import UnreadableImageError
from whet.io.images import read_grey
from whet.training.negatives import ExcludedBoxes, SkippedImagesWarning, without_excluded

Patches = NDArray[np.uint8]
Counts = NDArray[np.int64]
Places = NDArray[np.int32]  # rows of level, y and x of windows in an image

# Prevents one image, such as a brick wall, from filling the training set.
MAX_PER_IMAGE = 30


@dataclass(frozen=True, eq=False)
class Mined:
    """Accepted windows (n, height, width); per image, the numbers of accepted and of evaluated windows."""

    patches: Patches
    accepted: Counts
    looked_at: Counts
    is_exhausted: bool

    @property
    def n_accepted(self) -> int:
        """Accepted windows of all images, including those beyond `max_per_image`."""
        return int(self.accepted.sum())

    @property
    def n_looked_at(self) -> int:
        """Windows with enough contrast, which the cascade evaluated, of all images."""
        return int(self.looked_at.sum())

    @property
    def n_images(self) -> int:
        """Number of scanned images."""
        return len(self.accepted)

    @property
    def acceptance_rate(self) -> float:
        """Share of the evaluated windows that the cascade accepted."""
        return self.n_accepted / max(self.n_looked_at, 1)


@dataclass(frozen=True, eq=False)
class _Haul:
    """Result of one image: new windows in random order, and counts."""

    image: int
    places: Places
    patches: Patches
    n_accepted: int
    n_looked_at: int


@dataclass(eq=False)
class Miner:
    """Scans images in random order at all scales, with windows `step` pixels apart; returns each window at most once.

    `max_per_image` limits the windows per image and call. Unreadable images are skipped in all later calls, with a
    `SkippedImagesWarning`. Each thread reads and scans its own image; the result does not depend on the number of
    threads. Windows that overlap the `excluded_boxes` (n, 4) of their image are neither returned nor counted.
    """

    images: Sequence[Path]
    window: tuple[int, int]
    seed: int = 0
    scale_factor: float = SCALE_FACTOR
    step: int = 1
    max_per_image: int = MAX_PER_IMAGE
    threads: int | None = None
    excluded_boxes: ExcludedBoxes = field(default_factory=dict, repr=False)
    _used: dict[int, Places] = field(default_factory=dict, init=False, repr=False)
    _unreadable: set[int] = field(default_factory=set, init=False, repr=False)

    def mine(
        self, cascade: Cascade, n: int, turn: int, progress: Callable[[int, int, int], None] = lambda *_: None
    ) -> Mined:
        """Up to `n` windows that the cascade accepts; fewer if all images are scanned.

        `turn` numbers the calls: the seed and the turn fix the order of the images. `progress` receives the numbers of
        windows found, windows evaluated and images scanned.
        """
        order = np.random.default_rng([self.seed, turn]).permutation(len(self.images)).tolist()
        readable = [i for i in order if i not in self._unreadable]
        # With fewer images than threads, several scan one image.
        inner = max(1, (self.threads or available_threads()) // max(len(readable), 1))
        hauls = map_in_order(lambda i: self._scan(cascade, i, turn, inner), readable, self.threads)
        found = [np.empty((0, *self.window), dtype=np.uint8)]
        counts: list[tuple[int, int]] = []
        n_found = n_looked_at = 0
        for haul in hauls:
            if isinstance(haul, _Unreadable):
                self._skip(haul)
                continue
            taken = slice(n - n_found)
            found.append(haul.patches[taken])
            self._mark(haul.image, haul.places[taken])
            counts.append((haul.n_accepted, haul.n_looked_at))
            n_found, n_looked_at = n_found + len(found[-1]), n_looked_at + haul.n_looked_at
            progress(n_found, n_looked_at, len(counts))
            if n_found >= n:
                break
        accepted, looked_at = np.array(counts, dtype=np.int64).reshape(-1, 2).T
        return Mined(np.concatenate(found), accepted, looked_at, n_found < n)

    def state(self) -> dict[str, NDArray[np.int32]]:
        """The windows returned so far, as rows of image, level, y and x, and the unreadable images."""
        rows = [np.insert(places, 0, i, axis=1) for i, places in sorted(self._used.items())]
        used = np.concatenate([np.empty((0, 4), dtype=np.int32), *rows])
        return {"used": used, "unreadable": np.array(sorted(self._unreadable), dtype=np.int32)}

    def restore(self, state: Mapping[str, NDArray[np.int32]]) -> None:
        """Continue from the state of another miner on the same images."""
        used = state["used"]
        self._used = {int(i): used[used[:, 0] == i, 1:] for i in np.unique(used[:, 0])}
        self._unreadable = set(state["unreadable"].tolist())

    def _scan(self, cascade: Cascade, i: int, turn: int, threads: int) -> _Haul | _Unreadable:
        try:
            image = read_grey(self.images[i])
        except UnreadableImageError as error:
            return _Unreadable(i, error)
        pyramid = Pyramid.from_image(
            image, self.window, scale_factor=self.scale_factor, step=self.step, threads=threads
        )
        scans = scan_images(cascade, [level.image for level in pyramid.levels], step=self.step, threads=threads)
        boxes = self.excluded_boxes.get(self.images[i])
        if boxes is not None:
            scans = without_excluded(scans, pyramid.levels, self.window, boxes, self.step)
        places = self._fresh(i, scans, np.random.default_rng([self.seed, turn, i]))
        n_accepted, n_looked_at = sum(map(len, scans)), sum(scan.n_looked_at for scan in scans)
        return _Haul(i, places, self._cut(pyramid, places), n_accepted, n_looked_at)

    def _fresh(self, i: int, scans: Sequence[Scan], rng: np.random.Generator) -> Places:
        """Up to `max_per_image` random places of image i that were not returned before."""
        used = {tuple(place) for place in self._used.get(i, np.empty((0, 3))).tolist()}
        ends = np.cumsum([len(scan) for scan in scans], dtype=np.int64)
        n = int(ends[-1]) if len(ends) else 0
        # Enough even if all used places are among them, and few: a first stage accepts 100,000 windows of an image.
        drawn = rng.choice(n, min(n, self.max_per_image + len(used)), replace=False)
        level = np.searchsorted(ends, drawn, side="right")
        places = [
            (int(k), int(scans[k].y[j]), int(scans[k].x[j]))
            for k, j in zip(level, drawn - (ends - np.diff(ends, prepend=0))[level], strict=True)
        ]
        fresh = [place for place in places if place not in used][: self.max_per_image]
        return np.array(fresh, dtype=np.int32).reshape(-1, 3)

    def _cut(self, pyramid: Pyramid, places: Places) -> Patches:
        """The windows (n, height, width) at these places."""
        level, y, x = places.T.astype(np.intp)
        return pyramid.patches(WindowIndex(np.array(pyramid.scales)[level], y, x))

    def _mark(self, i: int, places: Places) -> None:
        if len(places):
            self._used[i] = np.concatenate([self._used.get(i, places[:0]), places])

    def _skip(self, unreadable: _Unreadable) -> None:
        self._unreadable.add(unreadable.image)
        warnings.warn(f"skipped an image: {unreadable.error}", SkippedImagesWarning, stacklevel=3)


@dataclass(frozen=True, eq=False)
class _Unreadable:
    """An image that could not be read, and why."""

    image: int
    error: UnreadableImageError
