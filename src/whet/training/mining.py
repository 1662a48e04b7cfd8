"""Mining of hard negatives, windows without the object that a cascade accepts; and counts of fixed stages by them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet._kernels.workers import ALL_THREADS, Workers, lost_image
from whet.cascade.cascade import Cascade
from whet.cascade.pyramid import SCALE_FACTOR, Pyramid, WindowIndex
from whet.cascade.scan import Scan, scan_images
from whet.cascade.stage import Stage
from whet.errors import UnreadableImageError
from whet.features.integral import IntegralStack
from whet.io.images import read_grey
from whet.lda.statistics import BinaryStatistics
from whet.training.negatives import (
    Boxes,
    ExcludedBoxes,
    SkippedImagesWarning,
    windows_of_images,
    without_excluded,
)

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
    has_contrast: Counts
    is_exhausted: bool

    @property
    def n_accepted(self) -> int:
        """Accepted windows of all images, including those beyond `max_per_image`."""
        return int(self.accepted.sum())

    @property
    def n_tested(self) -> int:
        """Windows with enough contrast, which the cascade evaluated, of all images."""
        return int(self.has_contrast.sum())

    @property
    def n_images(self) -> int:
        """Number of scanned images."""
        return len(self.accepted)

    @property
    def acceptance_rate(self) -> float:
        """Share of the evaluated windows that the cascade accepted."""
        return self.n_accepted / max(self.n_tested, 1)


# Images of a round: mining ends after the first round with enough windows.
IMAGES_PER_ROUND = 32


def mixed(*keys: int | NDArray[np.integer[Any]]) -> NDArray[np.uint64]:
    """Random numbers (n,) that are a hash of whole numbers (splitmix64): the same in any order, on any machine.

    >>> mixed(7, np.arange(3)) == mixed(7, np.array([0, 1, 3]))
    array([ True,  True, False])
    """
    found = np.zeros(1, np.uint64)
    for key in keys:
        found = (found ^ np.asarray(key).astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        found = found ^ (found >> np.uint64(31))
    return found


@dataclass(frozen=True, eq=False)
class _Haul:
    """Result of one image: new windows in the order of their random numbers, and counts; or why there is none."""

    places: Places
    rank: NDArray[np.uint64]
    patches: Patches
    n_accepted: int
    n_tested: int


@dataclass(frozen=True)
class _ImageScan:
    """How an image is scanned for windows, by any worker."""

    window: tuple[int, int]
    seed: int
    scale_factor: float
    step: int
    max_per_image: int
    threads: int

    def run(
        self, path: Path, number: int, boxes: Boxes | None, used: Places | None, cascade: Cascade
    ) -> _Haul | UnreadableImageError:
        """The accepted windows of an image outside of boxes (n, 4) that were not used before."""
        try:
            image = read_grey(path)
        except UnreadableImageError as error:
            return error
        pyramid = Pyramid.from_image(
            image, self.window, scale_factor=self.scale_factor, step=self.step, threads=self.threads
        )
        levels = [level.image for level in pyramid.levels]
        scans = scan_images(cascade, levels, step=self.step, threads=self.threads)
        if boxes is not None:
            scans = without_excluded(scans, pyramid.levels, self.window, boxes, self.step)
        places, rank = self._fresh(number, scans, used)
        level, y, x = places.T.astype(np.intp)
        patches = pyramid.patches(WindowIndex(np.array(pyramid.scales)[level], y, x))
        return _Haul(places, rank, patches, sum(map(len, scans)), sum(scan.n_tested for scan in scans))

    def _fresh(self, number: int, scans: Sequence[Scan], used: Places | None) -> tuple[Places, NDArray[np.uint64]]:
        """The places (n, 3) with the lowest random numbers (n,), at most `max_per_image`, without used ones."""
        none = np.empty((0, 3), np.int32)
        columns = (np.column_stack([np.full(len(s), k), s.y, s.x]) for k, s in enumerate(scans))
        places = np.concatenate([none, *columns]).astype(np.int32)
        rank = mixed(self.seed, number, *places.T)[: len(places)]
        if used is not None and len(used):
            # The number of a place is unique but for collisions, which cost a window.
            is_new = ~np.isin(rank, mixed(self.seed, number, *used.T))
            places, rank = places[is_new], rank[is_new]
        lowest = np.argsort(rank, kind="stable")[: self.max_per_image]
        return places[lowest], rank[lowest]


@dataclass(eq=False)
class Miner:
    """Scans images in random order at all scales, with windows `step` pixels apart; returns each window at most once.

    Every window has a random number, a hash of seed, image and place. Of an image, the `max_per_image` accepted windows
    with the lowest numbers count. Images are scanned in rounds of fixed size until there are enough windows; of those,
    the lowest are returned, in the order of their numbers. So the result does not depend on the number of `workers`.
    Unreadable images are skipped in all later calls, with a `SkippedImagesWarning`. Windows that overlap the
    `excluded_boxes` (n, 4) of their image are neither returned nor counted.
    """

    images: Sequence[Path]
    window: tuple[int, int]
    seed: int = 0
    scale_factor: float = SCALE_FACTOR
    step: int = 1
    max_per_image: int = MAX_PER_IMAGE
    workers: Workers = field(default=ALL_THREADS, repr=False)
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
        order = np.argsort(mixed(self.seed, turn, np.arange(len(self.images))), kind="stable")
        numbers = [i for i in order.tolist() if i not in self._unreadable]
        # With fewer images than threads, several scan one image.
        inner = self.workers.threads_of_task(len(numbers))
        scan = _ImageScan(self.window, self.seed, self.scale_factor, self.step, self.max_per_image, inner)
        paths = [self.images[i] for i in numbers]
        results = self.workers.map(
            scan.run,
            paths,
            numbers,
            map(self.excluded_boxes.get, paths),
            map(self._used.get, numbers),
            repeat(self.workers.share(cascade)),
            lost=lost_image,
        )
        hauls: dict[int, _Haul] = {}
        n_found = n_tested = 0
        for done, (i, result) in enumerate(zip(numbers, results, strict=False), start=1):
            if isinstance(result, UnreadableImageError):
                self._skip(i, result)
            else:
                hauls[i] = result
                n_found, n_tested = n_found + len(result.places), n_tested + result.n_tested
                progress(min(n_found, n), n_tested, len(hauls))
            if done % IMAGES_PER_ROUND == 0 and n_found >= n:
                break
        counts = np.array([(haul.n_accepted, haul.n_tested) for haul in hauls.values()], np.int64).reshape(-1, 2).T
        return Mined(self._lowest(hauls, n), counts[0], counts[1], n_found < n)

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

    def _skip(self, i: int, error: UnreadableImageError) -> None:
        self._unreadable.add(i)
        warnings.warn(f"skipped an image: {error}", SkippedImagesWarning, stacklevel=3)


# Negative windows to count in each stage, and how many are too few: those of the stages before are then counted too.
NEGATIVES = 2000
FEWEST_NEGATIVES = 500
# Prevents a few images from giving all negatives of a stage.
MAX_COUNTED_PER_IMAGE = 50
COUNTED_AT_ONCE = 2000


def count_stages(
    stages: Sequence[Stage],
    window: tuple[int, int],
    positives: Patches,
    images: Sequence[Path],
    *,
    excluded_boxes: ExcludedBoxes | None = None,
    n_negatives: int = NEGATIVES,
    seed: int = 0,
    workers: Workers = ALL_THREADS,
    progress: Callable[[float], None] = lambda _: None,
) -> tuple[tuple[Stage, ...], list[int]]:
    """The stages with the counts of their responses to all positives, and to the negative windows that reach them.

    Negatives are random windows of the images in the first stage, and windows that pass the stages before in the
    others. The second result numbers the stages that too few windows reach: windows of earlier stages are counted there
    too.
    """
    negatives = _Negatives(stages, window, images, excluded_boxes or {}, n_negatives, seed, workers)
    counted: list[Stage] = []
    short: list[int] = []
    for number, stage in enumerate(stages):
        reaching, others = negatives.next()
        if len(reaching) < min(FEWEST_NEGATIVES, n_negatives):
            short.append(number)
        pair = _count(stage, positives), _count(stage, np.concatenate([reaching, others]))
        counted.append(replace(stage, counts=pair))
        progress((number + 1) / len(stages))
    return tuple(counted), short


def _count(stage: Stage, patches: Patches) -> BinaryStatistics:
    parts = (stage.respond(IntegralStack.from_patches(block)).T.view(np.uint8) for block in _blocks(patches))
    return sum((BinaryStatistics.from_samples(part) for part in parts), BinaryStatistics.empty(len(stage)))


def _blocks(patches: Patches) -> Iterator[Patches]:
    return (patches[start : start + COUNTED_AT_ONCE] for start in range(0, len(patches), COUNTED_AT_ONCE))


class _Negatives:
    """Negative windows for one stage after the other."""

    def __init__(
        self,
        stages: Sequence[Stage],
        window: tuple[int, int],
        images: Sequence[Path],
        excluded_boxes: ExcludedBoxes,
        n: int,
        seed: int,
        workers: Workers,
    ) -> None:
        self.stages, self.window, self.n = stages, window, n
        self.miner = Miner(
            images,
            window,
            seed=seed,
            max_per_image=MAX_COUNTED_PER_IMAGE,
            workers=workers,
            excluded_boxes=excluded_boxes,
        )
        rng = np.random.default_rng([seed, 3])
        found = windows_of_images(images, 2 * n, window, rng, excluded_boxes=excluded_boxes, workers=workers)
        self.reaching = _kept(found, lambda block: IntegralStack.from_patches(block).has_contrast)
        self.before = self.reaching[:0]  # windows of earlier stages, the hardest first
        self.number = 0
        self.has_all = False

    def next(self) -> tuple[Patches, Patches]:
        """The windows that reach the next stage; and some of earlier stages, where these are too few."""
        if self.number:
            stage = self.stages[self.number - 1]
            passed = np.concatenate([np.empty(0, np.bool_), *(stage.accepts(b) for b in _blocks(self.reaching))])
            self.before = np.concatenate([self.reaching[~passed], self.before])[: self.n]
            self.reaching = self.reaching[passed]
            if len(self.reaching) < self.n and not self.has_all:
                self._mine()
        self.number += 1
        missing = max(min(FEWEST_NEGATIVES, self.n) - len(self.reaching), 0)
        return self.reaching, self.before[:missing]

    def _mine(self) -> None:
        """Twice as many as needed: half of them pass the next stage."""
        cascade = Cascade(self.window, tuple(self.stages[: self.number]))
        mined = self.miner.mine(cascade, 2 * self.n - len(self.reaching), turn=self.number)
        self.reaching = np.concatenate([self.reaching, mined.patches])
        self.has_all = mined.is_exhausted and bool((mined.accepted <= MAX_COUNTED_PER_IMAGE).all())


def _kept(patches: Patches, test: Callable[[Patches], NDArray[np.bool_]]) -> Patches:
    return np.concatenate([patches[:0], *(block[test(block)] for block in _blocks(patches))])
