"""Samples of a channel detector: jittered positives, and negatives as places in images."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from math import ceil
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from whet._kernels.channels import CELL
from whet._kernels.workers import ALL_THREADS, CACHE, Workers, lost_image
from whet.cascade.boxes import box_iou, intersection_over_first
from whet.cascade.cascade import Cascade
from whet.cascade.channel_scan import scan_channels
from whet.cascade.detect import suppress_non_maxima
from whet.cascade.pyramid import Pyramid, WindowIndex
from whet.errors import TrainingDataError, UnreadableImageError
from whet.evaluation.error_kinds import LEAST_OVERLAP
from whet.features.channels import N_FILTERED, cells_of, compute_channels, filter_channels
from whet.io.annotations.annotation import Annotations, ProblemKind, Problems
from whet.io.images import as_rgb
from whet.training.channel_window import ChannelWindow
from whet.training.negatives import SkippedImagesWarning
from whet.training.positives import Jitter, Positives, cut_window, is_safe_to_mirror

R = TypeVar("R")

Bytes = NDArray[np.uint8]
Boxes = NDArray[np.float64]
Places = NDArray[np.int32]  # rows of image, level, y and x, as a checkpoint keeps them

# Number of positives to aim for by jittered copies, and the maximum number of copies per object.
WANTED = 2000
MOST_COPIES = 24
# Pixels around a window that its channels depend on: smoothing, differences and normalisation, in whole cells.
RIM = 3 * CELL


def cut_channels(
    annotations: Annotations,
    choice: ChannelWindow,
    *,
    copies: int | None = None,
    jitter: Jitter | None = None,
    mirror: bool | str = "safe",
    seed: int = 0,
    workers: Workers = ALL_THREADS,
    progress: Callable[[float], None] = lambda _: None,
) -> Positives:
    """Cut all objects of a data set to the window: each unchanged, then jittered, each with its mirror image.

    About 2,000 positives are made, at most 24 of an object. Outside of an image, edge pixels repeat.
    """
    images = [image for image in annotations.images if len(image.objects)]
    n_objects = sum(len(image.objects) for image in images)
    if not n_objects:
        raise TrainingDataError(
            "the annotations contain no boxes; check the class (class_name) and the part of the data set (split)"
        )
    each = min(max(ceil(WANTED / (2 * n_objects)), 1), MOST_COPIES // 2) if copies is None else copies
    cutter = _Cutter(choice, each, Jitter() if jitter is None else jitter, seed)
    firsts = np.cumsum([0, *(len(image.objects) for image in images)]).tolist()
    problems, found = Problems(), []
    paths, objects = zip(*((image.path, image.objects) for image in images), strict=True)
    cuts = workers.map(cutter.cut, paths, objects, firsts, lost=lost_image)
    for number, (image, cut) in enumerate(zip(images, cuts, strict=True), start=1):
        if isinstance(cut, UnreadableImageError):
            problems.add(ProblemKind.UNREADABLE_IMAGE, image.path, None, str(cut))
        else:
            found.append(cut)
        progress(number / len(images))
    if not found:
        raise TrainingDataError(f"no object could be cut from the images: {problems.found[0]}")
    # (n, 2, 40, rows, columns): the patch, and its mirror image.
    cells, groups = (np.concatenate(parts) for parts in zip(*found, strict=True))
    is_mirrored = is_safe_to_mirror(cells[::each, 0, 0]) if mirror == "safe" else bool(mirror)
    sides = 2 if is_mirrored else 1
    cells = cells[:, :sides].reshape(-1, *cells.shape[2:])
    return Positives(cells, np.repeat(groups, sides), is_mirrored, problems.all())


@dataclass(frozen=True, eq=False)
class _Cutter:
    choice: ChannelWindow
    copies: int
    jitter: Jitter
    seed: int

    def cut(self, path: Path, objects: Boxes, first: int) -> tuple[Bytes, NDArray[np.intp]] | UnreadableImageError:
        """The positives (m, 2, 40, rows, columns) of objects (n, 4), and the numbers of these from `first` on (m,)."""
        try:
            rgb = as_rgb(path)
        except UnreadableImageError as error:
            return error
        found, groups = [], []
        for number, window in enumerate(self.choice.windows(objects), start=first):
            rng = np.random.default_rng([self.seed, number])
            for copy in range(self.copies):
                place, angle = self._draw(window, rng) if copy else (window, 0.0)
                found.append(self._pair(rgb, place, angle))
                groups.append(number)
        shape = (2, N_FILTERED, *cells_of(self.choice.window))
        return np.array(found, np.uint8).reshape(-1, *shape), np.array(groups, np.intp)

    def _draw(self, window: Boxes, rng: np.random.Generator) -> tuple[Boxes, float]:
        """A jittered window (4,) and an angle; the shift is a share of the shorter side, as windows lie in squares."""
        shorter = (window[2:] - window[:2]).min()
        centre = (window[:2] + window[2:]) / 2
        square, angle = self.jitter.draw(np.concatenate([centre - shorter / 2, centre + shorter / 2]), rng)
        half = (window[2:] - window[:2]) / 2 * (square[2] - square[0]) / shorter
        middle = (square[:2] + square[2:]) / 2
        return np.concatenate([middle - half, middle + half]), angle

    def _pair(self, rgb: Bytes, window: Boxes, angle: float) -> Bytes:
        """Filtered channels (2, 40, rows, columns) of a window (4,) and of its mirror image."""
        height, width = self.choice.window
        rim = (window[2:] - window[:2]) / [width, height] * RIM
        around = np.concatenate([window[:2] - rim, window[2:] + rim])
        patch = cut_window(rgb, around, (height + 2 * RIM, width + 2 * RIM), angle)
        inner = slice(RIM // CELL, -(RIM // CELL))
        both = (filter_channels(compute_channels(one)) for one in (patch, patch[:, ::-1]))
        return np.array([one[:, inner, inner] for one in both])


# A negative overlaps no object by this IoU or more, and lies in an ignored region by less than half.
MOST_OVERLAP = 0.3
MOST_IGNORED = 0.5
# Windows of one image with a higher IoU are near-copies of one mistake.
NEAR_COPIES = 0.6
# Windows of an image among which near-copies are left out.
MOST_FIRED = 20
# Windows of a round come from at least so many images, if there are as many.
FEWEST_SHARE = 3
FEWEST_PER_IMAGE = 10
# Places of an image that a threshold is chosen by.
MOST_PLACES = 200
# Random windows are tried so often, where some overlap objects.
TRIES = 3
NO_PLACES: Places = np.empty((0, 4), np.int32)
# What to do where an image cannot be read again whose windows are samples already.
REPEAT = (
    "the training has taken windows from this image before: repeat the command with --resume (in Python, with the same "
    "checkpoint) to continue from the checkpoint, or start again without the image"
)


@dataclass(eq=False)
class Background:
    """An image to take negatives from: outside of `excluded` boxes (n, 4), `ignored` ones among them.

    Its number is that of the image among all. The channels of its pyramid are kept as long as all of those that a
    process keeps take at most `max_memory` bytes, and computed again otherwise.
    """

    path: Path
    number: int
    choice: ChannelWindow
    excluded: Boxes = field(default_factory=lambda: np.empty((0, 4)))
    ignored: Boxes = field(default_factory=lambda: np.empty((0, 4)))
    max_memory: int = 0
    _kept: Pyramid | None = field(default=None, init=False, repr=False)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_kept": None}

    def pyramid(self) -> Pyramid | None:
        """The pyramid of the image, from the smallest objects on; None if it holds no window.

        Raises `UnreadableImageError`, also of an image that could be read before: a store may fail at any time.
        """
        if self._kept is not None:
            return self._kept.without_pixels()  # a copy, so that filtered channels, four times as large, are not kept
        rgb, choice = as_rgb(self.path), self.choice
        ratio = max(choice.window) / max(choice.object_height, choice.object_width)
        found = Pyramid.from_image(rgb, choice.window, min_size=choice.min_size * ratio, grid=choice.grid, threads=1)
        if not found.levels:
            return None
        if self.max_memory and CACHE.reserve(self, sum(each.nbytes for each in _channels(found)), self.max_memory):
            self._kept = found.without_pixels()
        return found

    def _pyramid_of_places(self) -> Pyramid:
        """The pyramid of an image in which places were chosen before; without it, there is no right answer."""
        try:
            pyramid = self.pyramid()
        except UnreadableImageError as error:
            raise UnreadableImageError(f"{error}; {REPEAT}") from error
        if pyramid is None:
            raise UnreadableImageError(f"{self.path} has changed: it is smaller than the window now; {REPEAT}")
        return pyramid

    def is_background(self, windows: Boxes) -> NDArray[np.bool_]:
        """Which windows (n, 4) show no object."""
        boxes = self.choice.box_offset.boxes(windows)
        near = (box_iou(boxes, self.excluded) >= MOST_OVERLAP).any(axis=1)
        inside = (intersection_over_first(boxes, self.ignored) >= MOST_IGNORED).any(axis=1)
        return np.asarray(~(near | inside))

    def random(self, n: int, seed: Sequence[int]) -> Places | UnreadableImageError:
        """Up to `n` random places; small windows are less likely than in a scan."""
        try:
            pyramid = self.pyramid()
        except UnreadableImageError as error:
            return error
        if pyramid is None:
            return NO_PLACES
        rng, (rows, columns) = np.random.default_rng([*seed, self.number]), cells_of(self.choice.window)
        free = np.array([[c.shape[1] - rows + 1, c.shape[2] - columns + 1] for c in _channels(pyramid)])
        room = np.sqrt(free.prod(axis=1))
        level = rng.choice(len(free), TRIES * n, p=room / room.sum())
        y, x = (rng.random((2, TRIES * n)) * free[level].T).astype(np.intp) * CELL
        index = WindowIndex(np.array(pyramid.scales)[level], y, x)
        chosen = np.flatnonzero(self.is_background(pyramid.boxes(index)))[:n]
        return self._places(level[chosen], y[chosen], x[chosen])

    def mine(self, cascade: Cascade, most: int) -> tuple[Places, NDArray[np.float64], int, int] | UnreadableImageError:
        """The `most` best places without near-copies, and their scores; numbers of accepted and of tested windows."""
        try:
            pyramid = self.pyramid()
        except UnreadableImageError as error:
            return error
        if pyramid is None:
            return NO_PLACES, np.empty(0), 0, 0
        scan = scan_channels(cascade, pyramid, threads=1)
        fired = scan.fired
        fired = fired.take(self.is_background(fired.boxes))
        accepted = len(fired)
        fired = fired.take(np.argsort(-fired.scores, kind="stable")[: most * MOST_FIRED])
        if len(fired):
            winners = suppress_non_maxima(fired.boxes, fired.scores, iou=NEAR_COPIES).group
            _, first = np.unique(winners, return_index=True)  # sorted by score: the first of a group is its best
            fired = fired.take(first[:most])
        level = np.array([pyramid.scales.index(scale) for scale in fired.index.scale.tolist()], np.int32)
        return self._places(level, fired.index.y, fired.index.x), fired.scores, accepted, scan.n_windows

    def is_apart(self, places: Places) -> NDArray[np.bool_]:
        """Which places (n,) hardly overlap any box: objects that were trained on raise the scores around them."""
        pyramid = self._pyramid_of_places()
        windows = pyramid.boxes(_index(pyramid, places))
        overlaps = box_iou(self.choice.box_offset.boxes(windows), self.excluded)
        return np.asarray(~(overlaps >= LEAST_OVERLAP).any(axis=1))

    def cells(self, places: Places) -> Bytes:
        """Filtered channels (n, 40, rows, columns) of places."""
        pyramid = self._pyramid_of_places()
        return pyramid.cells(_index(pyramid, places))

    def _places(self, level: NDArray[Any], y: NDArray[Any], x: NDArray[Any]) -> Places:
        return np.column_stack([np.full(len(level), self.number), level, y, x]).astype(np.int32)


def _index(pyramid: Pyramid, places: Places) -> WindowIndex:
    level, y, x = places[:, 1:].T.astype(np.intp)
    return WindowIndex(np.array(pyramid.scales)[level], y, x)


def _channels(pyramid: Pyramid) -> list[Bytes]:
    return [level.channels for level in pyramid.levels]


class Backgrounds:
    """Images to take negatives from, each held by a worker. Results do not depend on the `workers`.

    `excluded` and `ignored` are boxes (n, 4) by the path of an image. Where new windows are looked for, an image that
    cannot be read has none, and is named once in a `SkippedImagesWarning`. Where windows were found before, it is an
    `UnreadableImageError`.
    """

    def __init__(
        self,
        images: Sequence[Path],
        choice: ChannelWindow,
        excluded: Mapping[Path, Boxes] | None = None,
        ignored: Mapping[Path, Boxes] | None = None,
        max_memory: int = 1 << 30,
        workers: Workers = ALL_THREADS,
    ) -> None:
        self.images, self.choice, self.workers = images, choice, workers
        self._skipped: set[Path] = set()
        none = np.empty((0, 4))
        boxes = ([(each or {}).get(path, none) for path in images] for each in (excluded, ignored))
        self.held = workers.hold(Background, images, range(len(images)), repeat(choice), *boxes, repeat(max_memory))

    def random(self, n: int, seed: Sequence[int]) -> Places:
        """About `n` random places, evenly from all images."""
        each = -(-n // len(self.images))
        parts = self._map(Background.random, repeat(each), repeat(seed), otherwise=NO_PLACES)
        return np.concatenate([NO_PLACES, *parts])

    def mine(
        self, cascade: Cascade, n: int, progress: Callable[[int, int, int], None] = lambda *_: None
    ) -> tuple[Places, Mined]:
        """The `n` places with the highest scores, without near-copies, and counts.

        `progress` receives the numbers of windows found, of windows tested and of images scanned.
        """
        places, scores, counts = [NO_PLACES], [np.empty(0)], []
        for found, marks, accepted, tested in self._mine(cascade, self._per_image(n)):
            places.append(found)
            scores.append(marks)
            counts.append((accepted, tested))
            progress(min(sum(map(len, places)), n), sum(count for _, count in counts), len(counts))
        best = np.sort(np.argsort(-np.concatenate(scores), kind="stable")[:n])
        return np.concatenate(places)[best], Mined(*np.array(counts, np.int64).reshape(-1, 2).T)

    def accepted(self, cascade: Cascade) -> tuple[Places, NDArray[np.float64]]:
        """All places that a cascade accepts, without near-copies, image by image, and their scores."""
        parts = (part[:2] for part in self._mine(cascade, MOST_PLACES))
        places, scores = zip((NO_PLACES, np.empty(0)), *parts, strict=True)
        return np.concatenate(places), np.concatenate(scores)

    def beside(self, cascade: Cascade, n: int) -> Places:
        """The `n` places with the highest scores that a cascade accepts beside boxes, without near-copies."""
        places, scores = self.accepted(cascade)
        is_beside = ~self.is_apart(places)
        places, scores = places[is_beside], scores[is_beside]
        return places[np.sort(np.argsort(-scores, kind="stable")[:n])]

    def is_apart(self, places: Places) -> NDArray[np.bool_]:
        """Which places (n,) hardly overlap any box: objects that were trained on raise the scores around them."""
        return self._at(Background.is_apart, places, np.zeros(len(places), np.bool_))

    def cells(self, places: Places) -> Bytes:
        """Filtered channels (n, 40, rows, columns) of places."""
        shape = len(places), N_FILTERED, *cells_of(self.choice.window)
        return self._at(Background.cells, places, np.zeros(shape, np.uint8))

    def _per_image(self, n: int) -> int:
        return max(FEWEST_PER_IMAGE, -(-FEWEST_SHARE * n // len(self.images)))

    def _mine(self, cascade: Cascade, most: int) -> Iterator[tuple[Places, NDArray[np.float64], int, int]]:
        nothing = NO_PLACES, np.empty(0), 0, 0
        return self._map(Background.mine, repeat(self.workers.share(cascade)), repeat(most), otherwise=nothing)

    def _map(self, work: Callable[..., R | UnreadableImageError], *columns: Iterable[Any], otherwise: R) -> Iterator[R]:
        """Results of all images, in order; of one that cannot be read, or killed workers, `otherwise` and a warning."""
        results = self.workers.map(work, self.held, *columns, lost=_no_result)
        for path, result in zip(self.images, results, strict=True):
            if result is None or isinstance(result, UnreadableImageError):
                self.warn_skipped(path, result)
                yield otherwise
            else:
                yield result

    def warn_skipped(self, path: Path, error: UnreadableImageError | None) -> None:
        """Name an image that was skipped, once; without an error, workers died of it."""
        if path not in self._skipped:
            self._skipped.add(path)
            warnings.warn(f"skipped an image: {error or lost_image(path)}", SkippedImagesWarning, stacklevel=3)

    def _at(self, work: Callable[..., NDArray[Any]], places: Places, found: NDArray[Any]) -> NDArray[Any]:
        """Write results for the places of each image to their rows of `found`."""
        numbers = np.unique(places[:, 0]).tolist()
        rows = [np.flatnonzero(places[:, 0] == number) for number in numbers]
        results = self.workers.map(work, [self.held[i] for i in numbers], [places[each] for each in rows])
        for each, result in zip(rows, results, strict=True):
            found[each] = result
        return found


def _no_result(*_: object) -> None:
    return None


@dataclass(frozen=True, eq=False)
class Mined:
    """Per image, the numbers of windows without the object that a cascade accepted, and of all windows."""

    accepted: NDArray[np.int64]
    tested: NDArray[np.int64]
