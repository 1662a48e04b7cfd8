"""Hard negatives of the experiments: windows that a cascade accepts in images without the object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet.errors import UnreadableImageError
from whet.images.pyramid import Pyramid, WindowIndex
from whet.io.image_files import read_grey
from whet.models.gslda.cascade import Cascade
from whet.models.gslda.cascade_scan import scan_images
from whet.parallel.workers import ALL_THREADS, Workers, lost_image
from whet.training.backgrounds import mixed

Patches = NDArray[np.uint8]
Places = NDArray[np.int32]  # rows of level, y and x of windows in an image

# Images of a round: mining ends after the first round with enough windows.
IMAGES_PER_ROUND = 32


class Mined(NamedTuple):
    """Accepted windows (n, height, width), and the numbers of windows that were accepted and that had contrast."""

    patches: Patches
    n_accepted: int
    n_tested: int
    is_exhausted: bool

    @property
    def acceptance_rate(self) -> float:
        """Share of the evaluated windows that the cascade accepted."""
        return self.n_accepted / max(self.n_tested, 1)


class _Haul(NamedTuple):
    places: Places
    rank: NDArray[np.uint64]
    patches: Patches
    n_accepted: int
    n_tested: int


def _scanned(
    path: Path, number: int, used: Places | None, miner: tuple[tuple[int, int], int, int, int], cascade: Cascade
) -> _Haul | UnreadableImageError:
    """Windows of an image with the lowest random numbers, which are hashes of seed, image and place."""
    window, seed, step, most = miner
    try:
        pyramid = Pyramid.from_image(read_grey(path), window, step=step, threads=1)
    except UnreadableImageError as error:
        return error
    scans = scan_images(cascade, [level.image for level in pyramid.levels], step=step, threads=1)
    columns = (np.column_stack([np.full(len(scan), level), scan.y, scan.x]) for level, scan in enumerate(scans))
    places = np.concatenate([np.empty((0, 3), np.int32), *columns]).astype(np.int32)
    rank = mixed(seed, number, *places.T)[: len(places)]
    if used is not None and len(used):
        is_new = ~np.isin(rank, mixed(seed, number, *used.T))
        places, rank = places[is_new], rank[is_new]
    lowest = np.argsort(rank, kind="stable")[:most]
    level, y, x = places[lowest].T.astype(np.intp)
    patches = pyramid.patches(WindowIndex(np.array(pyramid.scales)[level], y, x))
    return _Haul(places[lowest], rank[lowest], patches, sum(map(len, scans)), sum(scan.n_tested for scan in scans))


@dataclass(eq=False)
class Miner:
    """Scans images in random order and returns each window at most once; results do not depend on `workers`."""

    images: Sequence[Path]
    window: tuple[int, int]
    seed: int = 0
    step: int = 1
    max_per_image: int = 30
    workers: Workers = field(default=ALL_THREADS, repr=False)
    _used: dict[int, Places] = field(default_factory=dict, init=False, repr=False)

    def mine(self, cascade: Cascade, n: int, turn: int) -> Mined:
        """Up to `n` windows that the cascade accepts; fewer if all images are scanned. `turn` numbers the calls."""
        numbers = np.argsort(mixed(self.seed, turn, np.arange(len(self.images))), kind="stable").tolist()
        results = self.workers.map(
            _scanned,
            [self.images[i] for i in numbers],
            numbers,
            map(self._used.get, numbers),
            repeat((self.window, self.seed, self.step, self.max_per_image)),
            repeat(self.workers.share(cascade)),
            lost=lost_image,
        )
        hauls: dict[int, _Haul] = {}
        n_found = 0
        for done, (i, result) in enumerate(zip(numbers, results, strict=False), start=1):
            if not isinstance(result, UnreadableImageError):
                hauls[i] = result
                n_found += len(result.places)
            if done % IMAGES_PER_ROUND == 0 and n_found >= n:
                break
        n_accepted, n_tested = (
            sum(getattr(haul, name) for haul in hauls.values()) for name in ("n_accepted", "n_tested")
        )
        return Mined(self._lowest(hauls, n), n_accepted, n_tested, n_found < n)

    def _lowest(self, hauls: Mapping[int, _Haul], n: int) -> Patches:
        """The `n` windows with the lowest random numbers, which are used from now on."""
        image = np.repeat(np.array(list(hauls), np.intp), [len(haul.places) for haul in hauls.values()])
        rank = np.concatenate([np.empty(0, np.uint64), *(haul.rank for haul in hauls.values())])
        places = np.concatenate([np.empty((0, 3), np.int32), *(haul.places for haul in hauls.values())])
        patches = np.concatenate([np.empty((0, *self.window), np.uint8), *(h.patches for h in hauls.values())])
        lowest = np.lexsort((image, rank))[:n]
        for i in np.unique(image[lowest]).tolist():
            new = places[lowest[image[lowest] == i]]
            self._used[i] = np.concatenate([self._used.get(i, new[:0]), new])
        return patches[lowest]
