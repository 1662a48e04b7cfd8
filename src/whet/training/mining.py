"""Mining of hard negatives, windows without the object that a cascade accepts; and counts of fixed stages by them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet._kernels.threads import available_threads, map_in_order
from whet.cascade.cascade import Cascade
from whet.cascade.pyramid import SCALE_FACTOR, Pyramid, WindowIndex
from whet.cascade.scan import Scan, scan_images
from whet.cascade.stage import Stage
from whet.errors import UnreadableImageError
from whet.features.integral import IntegralStack
from whet.io.images import read_grey
from whet.lda.statistics import BinaryStatistics
from whet.training.negatives import ExcludedBoxes, SkippedImagesWarning, windows_of_images, without_excluded

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


@dataclass(frozen=True, eq=False)
class _Haul:
    """Result of one image: new windows in random order, and counts."""

    image: int
    places: Places
    patches: Patches
    n_accepted: int
    n_tested: int


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
        n_found = n_tested = 0
        for haul in hauls:
            if isinstance(haul, _Unreadable):
                self._skip(haul)
                continue
            taken = slice(n - n_found)
            found.append(haul.patches[taken])
            self._mark(haul.image, haul.places[taken])
            counts.append((haul.n_accepted, haul.n_tested))
            n_found, n_tested = n_found + len(found[-1]), n_tested + haul.n_tested
            progress(n_found, n_tested, len(counts))
            if n_found >= n:
                break
        accepted, has_contrast = np.array(counts, dtype=np.int64).reshape(-1, 2).T
        return Mined(np.concatenate(found), accepted, has_contrast, n_found < n)

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
        n_accepted, n_tested = sum(map(len, scans)), sum(scan.n_tested for scan in scans)
        return _Haul(i, places, self._cut(pyramid, places), n_accepted, n_tested)

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
    threads: int | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> tuple[tuple[Stage, ...], list[int]]:
    """The stages with the counts of their responses to all positives, and to the negative windows that reach them.

    Negatives are random windows of the images in the first stage, and windows that pass the stages before in the
    others. The second result numbers the stages that too few windows reach: windows of earlier stages are counted there
    too.
    """
    negatives = _Negatives(stages, window, images, excluded_boxes or {}, n_negatives, seed, threads)
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
        threads: int | None,
    ) -> None:
        self.stages, self.window, self.n = stages, window, n
        self.miner = Miner(
            images,
            window,
            seed=seed,
            max_per_image=MAX_COUNTED_PER_IMAGE,
            threads=threads,
            excluded_boxes=excluded_boxes,
        )
        rng = np.random.default_rng([seed, 3])
        found = windows_of_images(images, 2 * n, window, rng, excluded_boxes=excluded_boxes)
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
