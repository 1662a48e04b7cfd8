"""Samples of a channel detector: jittered positives, and negatives as places in images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet._kernels.channels import CELL
from whet._kernels.threads import map_in_order
from whet.cascade.boxes import box_iou, intersection_over_first
from whet.cascade.cascade import Cascade
from whet.cascade.channel_scan import scan_channels
from whet.cascade.detect import suppress_non_maxima
from whet.cascade.pyramid import Pyramid, WindowIndex
from whet.errors import TrainingDataError, UnreadableImageError
from whet.evaluation.error_kinds import LEAST_OVERLAP
from whet.features.channels import N_FILTERED, cells_of, compute_channels, filter_channels
from whet.io.annotations.annotation import AnnotatedImage, Annotations, ProblemKind, Problems
from whet.io.images import as_rgb
from whet.training.channel_window import ChannelWindow
from whet.training.positives import Jitter, Positives, cut_window, is_safe_to_mirror

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
    threads: int | None = None,
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
    cuts = map_in_order(lambda i: cutter.cut(images[i], firsts[i]), range(len(images)), threads)
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

    def cut(self, image: AnnotatedImage, first: int) -> tuple[Bytes, NDArray[np.intp]] | UnreadableImageError:
        """The positives of an image (n, 2, 40, rows, columns) and their objects (n,), numbered from `first`."""
        try:
            rgb = as_rgb(image.path)
        except UnreadableImageError as error:
            return error
        found, groups = [], []
        for number, window in enumerate(self.choice.windows(image.objects), start=first):
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


@dataclass(eq=False)
class Backgrounds:
    """Images to take negatives from: outside of `excluded` boxes (n, 4), `ignored` ones among them.

    Channels of pyramids are kept up to `max_memory` bytes, and computed again for the other images. Unreadable images
    have no windows. Results do not depend on `threads`.
    """

    images: Sequence[Path]
    choice: ChannelWindow
    excluded: Mapping[Path, Boxes] = field(default_factory=dict)
    ignored: Mapping[Path, Boxes] = field(default_factory=dict)
    max_memory: int = 1 << 30
    threads: int | None = None
    _kept: dict[int, Pyramid] = field(default_factory=dict, init=False, repr=False)
    _used: int = field(default=0, init=False, repr=False)

    def pyramid(self, number: int) -> Pyramid | None:
        """The pyramid of an image; None if it cannot be read or holds no window."""
        kept = self._kept.get(number)
        if kept is not None:
            return kept.without_pixels()  # a copy, so that filtered channels, four times as large, are not kept
        try:
            rgb = as_rgb(self.images[number])
        except UnreadableImageError:
            return None
        found = self.pyramid_of(rgb)
        size = sum(level.channels.nbytes for level in found.levels)
        if self._used + size <= self.max_memory:
            self._used += size
            self._kept[number] = found.without_pixels()
        return found if found.levels else None

    def pyramid_of(self, rgb: Bytes) -> Pyramid:
        """The pyramid of an image, from the smallest objects on."""
        choice = self.choice
        ratio = max(choice.window) / max(choice.object_height, choice.object_width)
        return Pyramid.from_image(
            rgb,
            choice.window,
            min_size=choice.min_size * ratio,
            grid=choice.grid,
            threads=1,
        )

    def random(self, n: int, seed: Sequence[int]) -> Places:
        """About `n` random places, evenly from all images; small windows are less likely than in a scan."""
        each = -(-n // len(self.images))
        parts = map_in_order(lambda i: self._random(i, each, [*seed, i]), range(len(self.images)), self.threads)
        return np.concatenate([np.empty((0, 4), np.int32), *parts])

    def _random(self, number: int, n: int, seed: Sequence[int]) -> Places:
        pyramid = self.pyramid(number)
        if pyramid is None:
            return np.empty((0, 4), np.int32)
        rng, (rows, columns) = np.random.default_rng(seed), cells_of(self.choice.window)
        free = np.array([[c.shape[1] - rows + 1, c.shape[2] - columns + 1] for c in _channels(pyramid)])
        room = np.sqrt(free.prod(axis=1))
        level = rng.choice(len(free), TRIES * n, p=room / room.sum())
        y, x = (rng.random((2, TRIES * n)) * free[level].T).astype(np.intp) * CELL
        index = WindowIndex(np.array(pyramid.scales)[level], y, x)
        chosen = np.flatnonzero(self.is_background(number, pyramid.boxes(index)))[:n]
        return np.column_stack([np.full(len(chosen), number), level[chosen], y[chosen], x[chosen]]).astype(np.int32)

    def is_background(self, number: int, windows: Boxes) -> NDArray[np.bool_]:
        """Which windows (n, 4) of an image show no object."""
        boxes, path = self.choice.box_offset.boxes(windows), self.images[number]
        none = np.empty((0, 4))
        near = (box_iou(boxes, self.excluded.get(path, none)) >= MOST_OVERLAP).any(axis=1)
        inside = (intersection_over_first(boxes, self.ignored.get(path, none)) >= MOST_IGNORED).any(axis=1)
        return np.asarray(~(near | inside))

    def mine(
        self, cascade: Cascade, n: int, progress: Callable[[int, int, int], None] = lambda *_: None
    ) -> tuple[Places, Mined]:
        """The `n` places with the highest scores, without near-copies, and counts.

        `progress` receives the numbers of windows found, of windows tested and of images scanned.
        """
        each = max(FEWEST_PER_IMAGE, -(-FEWEST_SHARE * n // len(self.images)))
        parts = map_in_order(lambda i: self._mine(i, cascade, each), range(len(self.images)), self.threads)
        places, scores, counts = [np.empty((0, 4), np.int32)], [np.empty(0)], []
        for found, marks, accepted, tested in parts:
            places.append(found)
            scores.append(marks)
            counts.append((accepted, tested))
            progress(min(sum(map(len, places)), n), sum(count for _, count in counts), len(counts))
        best = np.sort(np.argsort(-np.concatenate(scores), kind="stable")[:n])
        return np.concatenate(places)[best], Mined(*np.array(counts, np.int64).reshape(-1, 2).T)

    def _mine(self, number: int, cascade: Cascade, most: int) -> tuple[Places, NDArray[np.float64], int, int]:
        pyramid = self.pyramid(number)
        if pyramid is None:
            return np.empty((0, 4), np.int32), np.empty(0), 0, 0
        scan = scan_channels(cascade, pyramid, threads=1)
        fired = scan.fired
        fired = fired.take(self.is_background(number, fired.boxes))
        accepted = len(fired)
        fired = fired.take(np.argsort(-fired.scores, kind="stable")[: most * MOST_FIRED])
        if len(fired):
            winners = suppress_non_maxima(fired.boxes, fired.scores, iou=NEAR_COPIES).group
            _, first = np.unique(winners, return_index=True)  # sorted by score: the first of a group is its best
            fired = fired.take(first[:most])
        level = np.array([pyramid.scales.index(scale) for scale in fired.index.scale.tolist()], np.int32)
        places = np.column_stack([np.full(len(fired), number), level, fired.index.y, fired.index.x])
        return places.astype(np.int32), fired.scores, accepted, scan.n_windows

    def accepted(self, cascade: Cascade) -> tuple[Places, NDArray[np.float64]]:
        """All places that a cascade accepts, without near-copies, image by image, and their scores."""
        parts = map_in_order(lambda i: self._mine(i, cascade, MOST_PLACES)[:2], range(len(self.images)), self.threads)
        places, scores = zip((np.empty((0, 4), np.int32), np.empty(0)), *parts, strict=True)
        return np.concatenate(places), np.concatenate(scores)

    def is_apart(self, places: Places) -> NDArray[np.bool_]:
        """Which places (n,) hardly overlap any box: objects that were trained on raise the scores around them."""
        found = np.zeros(len(places), np.bool_)
        for number in np.unique(places[:, 0]).tolist():
            rows, pyramid = np.flatnonzero(places[:, 0] == number), self.pyramid(number)
            if pyramid is not None:
                level, y, x = places[rows, 1:].T.astype(np.intp)
                windows = pyramid.boxes(WindowIndex(np.array(pyramid.scales)[level], y, x))
                excluded = self.excluded.get(self.images[number], np.empty((0, 4)))
                overlaps = box_iou(self.choice.box_offset.boxes(windows), excluded)
                found[rows] = ~(overlaps >= LEAST_OVERLAP).any(axis=1)
        return found

    def cells(self, places: Places) -> Bytes:
        """Filtered channels (n, 40, rows, columns) of places."""
        found = np.empty((len(places), N_FILTERED, *cells_of(self.choice.window)), np.uint8)

        def cut(number: int) -> None:
            rows = np.flatnonzero(places[:, 0] == number)
            pyramid = self.pyramid(number)
            if pyramid is not None:
                level, y, x = places[rows, 1:].T.astype(np.intp)
                found[rows] = pyramid.cells(WindowIndex(np.array(pyramid.scales)[level], y, x))

        for _ in map_in_order(cut, np.unique(places[:, 0]).tolist(), self.threads):
            pass
        return found


@dataclass(frozen=True, eq=False)
class Mined:
    """Per image, the numbers of windows without the object that a cascade accepted, and of all windows."""

    accepted: NDArray[np.int64]
    tested: NDArray[np.int64]


def _channels(pyramid: Pyramid) -> list[Bytes]:
    return [level.channels for level in pyramid.levels]
