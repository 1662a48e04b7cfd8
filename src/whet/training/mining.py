"""Mining of negatives: the windows of pictures without the object that a cascade still takes for it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.detect.pyramid import FACTOR, Level, pyramid
from whet.detect.scan import Scan, scan_pictures
from whet.errors import UnreadableImageError
from whet.io.images import read_grey
from whet.model.cascade import Cascade
from whet.training.windows import SkippedPicturesWarning

Patches = NDArray[np.uint8]
Place = tuple[int, int, int]  # level, y and x of a window in a picture

# So that one brick wall does not become the training set.
MOST_OF_A_PICTURE = 30


@dataclass(frozen=True, eq=False)
class Mined:
    """Windows (n, height, width) that were accepted, of how many that were looked at."""

    patches: Patches
    n_accepted: int
    n_looked_at: int
    n_pictures: int
    is_exhausted: bool

    @property
    def acceptance_rate(self) -> float:
        """Share of the windows looked at that the cascade accepted."""
        return self.n_accepted / max(self.n_looked_at, 1)


@dataclass(eq=False)
class Miner:
    """Scans pictures in a random order, all scales, step 1; gives each window at most once.

    `most_of_a_picture` bounds what one picture gives at a time. Pictures that cannot be read are skipped, once and
    for all, and a `SkippedPicturesWarning` says so.
    """

    pictures: Sequence[Path]
    window: tuple[int, int]
    seed: int = 0
    factor: float = FACTOR
    most_of_a_picture: int = MOST_OF_A_PICTURE
    threads: int | None = None
    _used: set[tuple[int, int, int, int]] = field(default_factory=set, init=False, repr=False)
    _unreadable: set[int] = field(default_factory=set, init=False, repr=False)

    def mine(self, cascade: Cascade, n: int, turn: int, progress: Callable[[float], None] = lambda _: None) -> Mined:
        """Up to `n` windows that the cascade accepts; fewer when all pictures have been scanned.

        `turn` numbers the calls: each goes through the pictures in an order of its own, which the seed fixes.
        """
        rng = np.random.default_rng([self.seed, turn])
        found = [np.empty((0, *self.window), dtype=np.uint8)]
        n_found = n_accepted = n_looked_at = n_pictures = 0
        for i, picture in self._readable(rng.permutation(len(self.pictures))):
            levels = pyramid(picture, self.window, factor=self.factor, threads=self.threads)
            scans = scan_pictures(cascade, [level.picture for level in levels], threads=self.threads)
            fresh = self._fresh(i, scans, min(n - n_found, self.most_of_a_picture), rng)
            found.append(self._cut(levels, fresh))
            n_found += len(fresh)
            n_accepted += sum(map(len, scans))
            n_looked_at += sum(scan.n_looked_at for scan in scans)
            n_pictures += 1
            progress(n_found / n)
            if n_found >= n:
                break
        return Mined(np.concatenate(found), n_accepted, n_looked_at, n_pictures, n_found < n)

    def _fresh(self, i: int, scans: Sequence[Scan], most: int, rng: np.random.Generator) -> list[Place]:
        """At most so many random places of picture i that were not given before."""
        level = np.repeat(np.arange(len(scans)), [len(scan) for scan in scans])
        y, x = (np.concatenate([getattr(scan, name) for scan in scans]) for name in ("y", "x")) if scans else ((), ())
        chosen: list[Place] = []
        for k in rng.permutation(len(level)).tolist():
            if len(chosen) == most:
                break
            place = (int(level[k]), int(y[k]), int(x[k]))
            if (i, *place) not in self._used:
                self._used.add((i, *place))
                chosen.append(place)
        return chosen

    def _cut(self, levels: Sequence[Level], places: list[Place]) -> Patches:
        """The windows (n, height, width) at these places."""
        height, width = self.window
        cut = [levels[k].picture[y : y + height, x : x + width] for k, y, x in places]
        return np.array(cut, dtype=np.uint8).reshape(-1, height, width)

    def _readable(self, order: NDArray[np.intp]) -> Iterator[tuple[int, Patches]]:
        for i in order.tolist():
            if i in self._unreadable:
                continue
            try:
                picture = read_grey(self.pictures[i])
            except UnreadableImageError as error:
                self._unreadable.add(i)
                warnings.warn(f"skipped a picture: {error}", SkippedPicturesWarning, stacklevel=4)
                continue
            yield i, picture
