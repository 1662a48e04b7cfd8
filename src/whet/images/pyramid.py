"""An image at falling sizes, so that windows of one size cover objects of all sizes; and the windows in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, floor, log
from typing import NamedTuple, cast

import numpy as np

from whet._kernels.jit import HAS_SIMD
from whet._kernels.pixel_sums import resample, transposed
from whet.arrays import Bools, Floats, Indices
from whet.arrays import Pixels as Pixels
from whet.images.boxes import BoxOffset, box_iou
from whet.images.scan_memory import ScanMemory, most_windows
from whet.parallel.threads import available_threads, for_each_block

SCALE_FACTOR = 1.2
# A larger enlargement adds no information, and takes sixteen times the memory.
SMALLEST = 0.25
# Pixels of the largest level that an image is enlarged to: those of the largest image that is read.
MOST_ENLARGED = 100_000_000
# Colours of larger images (bytes) are resized one by one, to the same bits: a third of the memory, in the same time.
MOST_AT_ONCE = 1 << 26
# A factor of 1.01 between the smallest windows and an image of 30,000 pixels has some 850 levels.
MOST_LEVELS = 1000


@dataclass(frozen=True, eq=False)
class Level:
    """An image made smaller, and how many pixels of the original one of its pixels covers, down and across.

    Windows also lie in a `padding` of this many pixels around it, in which edge pixels repeat. Places count from the
    corner of the padding. What a model computes of a level with a `source` is resampled from that level; its own image
    is black then, and only its size counts. `kept` is what models have computed of the level, by name. The image of a
    level with an `original` is black, too: it is made of that when it is asked for, and neither it nor what models
    compute of it is kept.
    """

    image: Pixels
    scale_y: float
    scale_x: float
    padding: int = 0
    source: Level | None = None
    kept: dict[str, Pixels] = field(default_factory=dict, repr=False)
    original: Resizable | None = field(default=None, repr=False)

    @property
    def is_in_parts(self) -> bool:
        """Whether models look at one part after the other, and keep nothing: all of it would take too much memory."""
        return (self.original or (self.source and self.source.original)) is not None

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width, padding included."""
        return self.image.shape[0] + 2 * self.padding, self.image.shape[1] + 2 * self.padding

    def without_pixels(self, *names: str) -> Level:
        """The same with black pixels, which take no memory, and of what is kept only these."""
        kept = {name: self.kept[name] for name in names}
        return replace(self, image=_black(self.image.shape), source=None, kept=kept)

    @property
    def pixels(self) -> Pixels:
        """The image; of a level with a `source`, that one's image made larger."""
        if self.original is not None:
            return self.original.resized(self.image.shape[:2])
        if self.source is None:
            return self.image
        return resized(self.source.pixels, self.image.shape[:2]) if self.is_in_parts else self._enlarged

    @cached_property
    def _enlarged(self) -> Pixels:
        return resized(cast(Level, self.source).image, self.image.shape[:2])

    def patch(self, y: int, x: int, window: tuple[int, int], pixels: Pixels | None = None) -> Pixels:
        """The pixels of the window (height, width) at (y, x): edge pixels repeat outside; inside it is no copy.

        `pixels` are those of the level, where they are known.
        """
        pixels = self.pixels if pixels is None else pixels
        top, left, (height, width) = y - self.padding, x - self.padding, window
        rows, columns = pixels.shape[:2]
        if min(top, left) >= 0 and top + height <= rows and left + width <= columns:
            return pixels[top : top + height, left : left + width]
        return _with_edges(pixels, top, left, window)

    def patches(self, y: Indices, x: Indices, window: tuple[int, int]) -> Pixels:
        """The pixels (n, height, width[, 3]) of windows at these places."""
        pixels = self.pixels
        if self.padding:
            return np.array([self.patch(*place, window, pixels) for place in zip(y.tolist(), x.tolist(), strict=True)])
        cut = np.lib.stride_tricks.sliding_window_view(pixels, window, axis=(0, 1))[y, x]
        return cut if cut.ndim == 3 else np.moveaxis(cut, 1, -1)

    def boxes(self, y: Indices, x: Indices, window: tuple[int, int]) -> Floats:
        """Boxes (n, 4) in the original, x1, y1, x2, y2, of windows (height, width) at these places of the level.

        >>> level = Level(np.zeros((50, 100), dtype=np.uint8), scale_y=2.0, scale_x=1.5)
        >>> level.boxes(np.array([10]), np.array([20]), (24, 24))
        array([[30., 20., 66., 68.]])
        """
        height, width = window
        corners = np.stack([x, y, x + width, y + height], axis=-1).astype(np.float64) - self.padding
        return corners * [self.scale_x, self.scale_y, self.scale_x, self.scale_y]


@dataclass(frozen=True, eq=False)
class WindowIndex:
    """Windows of a pyramid: the scale (n,) of their level, and y (n,) and x (n,) in pixels of that level."""

    scale: Floats = field(default_factory=lambda: np.empty(0))
    y: Indices = field(default_factory=lambda: np.empty(0, np.intp))
    x: Indices = field(default_factory=lambda: np.empty(0, np.intp))

    def __len__(self) -> int:
        return len(self.y)

    def __iter__(self) -> Iterator[tuple[float, int, int]]:
        """Scale, y and x of each window."""
        return zip(self.scale.tolist(), self.y.tolist(), self.x.tolist(), strict=True)

    def take(self, rows: Indices | Bools | slice) -> WindowIndex:
        """Those at these indices, in this order."""
        return WindowIndex(self.scale[rows], self.y[rows], self.x[rows])

    @classmethod
    def concatenate(cls, parts: Sequence[WindowIndex]) -> WindowIndex:
        """One index after the other."""
        columns = zip(*((part.scale, part.y, part.x) for part in (cls(), *parts)), strict=True)
        return cls(*map(np.concatenate, columns))


@dataclass(frozen=True)
class Grid:
    """How the windows of a model lie on levels: pixels between neighbours, padding of levels, colour or grey.

    With colour, one more level lies between each two: what a model computes of it is resampled from the next level.
    `context` are pixels around a window that its responses depend on. Windows with a wide margin overlap even where
    their objects stand side by side: with `by_object`, they are grouped by the boxes that are reported for them.

    A model keeps `kept` bytes of each pixel of a level, padding included, and needs `working` bytes of each while it
    computes them (see `whet.images.scan_memory`).
    """

    cell: int = 1
    padding: int = 0
    is_colour: bool = False
    context: int = 0
    by_object: bool = False
    kept: float = 0.0
    working: float = 0.0


class Span(NamedTuple):
    """First and last + 1 row and column of windows in a level, in pixels."""

    top: int
    bottom: int
    left: int
    right: int


@dataclass(frozen=True, eq=False)
class Pyramid:
    """The levels of an image (height, width) on which windows (height, width) are moved by `step` pixels.

    `stack` has the pixels (n, height, width[, 3]) of level number s at s - 1, where levels are patches of one size.
    More than `most_windows` that a model accepts do not fit into the memory of a scan; None is no limit.

    >>> pyramid = Pyramid.from_image(np.zeros((50, 60), np.uint8), (24, 24), scale_factor=1.5)
    >>> [level.image.shape for level in pyramid.levels]
    [(50, 60), (33, 40)]
    >>> near = pyramid.nearest(np.array([10.0, 8.0, 45.0, 44.0]))
    >>> near.scale, near.y, near.x
    (array([1.5]), array([5]), array([6]))
    >>> pyramid.patches(near).shape
    (1, 24, 24)
    """

    shape: tuple[int, ...]
    window: tuple[int, int]
    scales: tuple[float, ...]
    levels: tuple[Level, ...]
    step: int = 1
    stack: Pixels | None = None
    most_windows: int | None = None

    @classmethod
    def from_image(
        cls,
        image: Pixels,
        window: tuple[int, int],
        *,
        scale_factor: float = SCALE_FACTOR,
        step: int = 1,
        min_size: float | None = None,
        max_size: float | None = None,
        grid: Grid | None = None,
        shared: dict[float, Level] | None = None,
        threads: int | None = None,
        max_memory: int | None = None,
    ) -> Pyramid:
        """The levels at which windows cover objects from `min_size` to `max_size`, largest level first.

        Sizes are the longer side of an object in pixels of the image. Objects grow by `scale_factor` from the
        window's own size on: the limits choose among these levels and do not move them. Only a `min_size` below the
        window's own adds levels, on which the image is enlarged, to 100 megapixels at most. `grid` is that of the
        model: `step` counts its cells. `shared` are levels by scale that another pyramid of this image has, with the
        same grid; new ones are added. A scan that would take more than `max_memory` bytes looks at one part of a level
        after the other; where that does not help, this raises `ImageMemoryError`.
        """
        shared = {} if shared is None else shared
        grid = Grid() if grid is None else grid
        if image.ndim != 2 + (image.ndim == 3 and grid.is_colour) or image.dtype != np.uint8:
            expected = "RGB (height, width, 3) or grey" if grid.is_colour else "grey (height, width)"
            raise ValueError(f"got an image {image.shape} of {image.dtype}; expected {expected} of uint8")
        if step < 1:
            raise ValueError(f"got step={step}; expected at least 1 pixel")
        if grid.is_colour and image.ndim == 2:
            image = np.repeat(image[:, :, None], 3, axis=2)
        shape = image.shape[0], image.shape[1]
        if not grid.is_colour:
            scales = level_scales(shape, window, scale_factor, min_size, max_size)
            memory = scan_memory(shape, window, scales, scales, grid, threads)
            in_parts = memory.is_in_parts(max_memory)
            levels = levels_at(image, scales, shared, threads, in_parts=in_parts)
            return cls(shape, window, tuple(scales), tuple(levels), step, None, most_windows(max_memory))
        _check_scale_factor(scale_factor)
        factor = scale_factor**0.5
        scales = level_scales(shape, window, factor, min_size, max_size, grid.padding)
        made = [factor**power for power in _even_powers(scales, factor)]
        memory = scan_memory(shape, window, made, sorted({*made, *scales}), grid, threads)
        in_parts = memory.is_in_parts(max_memory)
        levels = _levels_with_between(image, scales, factor, shared, grid.padding, threads, in_parts=in_parts)
        most = most_windows(max_memory)
        return cls(shape, window, tuple(scales), tuple(levels), step * grid.cell, None, most)

    def patches(self, index: WindowIndex) -> Pixels:
        """The pixels (n, height, width[, 3]) of windows."""
        if self.stack is not None and len(index) and (index.y == index.y[0]).all() and (index.x == index.x[0]).all():
            (height, width), y, x = self.window, index.y[0], index.x[0]
            return self.stack[index.scale.astype(np.intp) - 1, y : y + height, x : x + width]
        colours = self.levels[0].image.shape[2:] if self.levels else ()
        patches = np.empty((len(index), *self.window, *colours), np.uint8)
        for level, rows in self.by_level(index):
            patches[rows] = level.patches(index.y[rows], index.x[rows], self.window)
        return patches

    @classmethod
    def from_patches(cls, patches: Pixels, window: tuple[int, int]) -> tuple[Pyramid, WindowIndex]:
        """Patches (n, height, width[, 3]) as levels, and the index of the window in the middle of each."""
        levels = tuple(Level(patch, 1.0, 1.0) for patch in patches)
        scales = tuple(float(number) for number in range(1, len(levels) + 1))
        top, left = ((side - length) // 2 for side, length in zip(patches.shape[1:3], window, strict=True))
        index = WindowIndex(np.array(scales), np.full(len(levels), top), np.full(len(levels), left))
        return cls(patches.shape[1:3], window, scales, levels, stack=patches), index

    def spans_around(self, box: Floats, reach: float, max_ratio: float) -> dict[float, Span]:
        """Windows around a box (4,), by the scale of their level.

        Their centres are at most `reach` pixels of the image away from that of the box, down and across, and their
        widths at most `max_ratio` times larger or smaller.
        """
        spans, (height, width) = {}, self.window
        for level, scale in zip(self.levels, self.scales, strict=True):
            if abs(log(scale * width / float(box[2] - box[0]))) > log(max_ratio) + 1e-9:
                continue
            span = Span(
                *self._span((box[1] + box[3]) / 2, reach, level.scale_y, level.padding, height, level.shape[0]),
                *self._span((box[0] + box[2]) / 2, reach, level.scale_x, level.padding, width, level.shape[1]),
            )
            if span.top < span.bottom and span.left < span.right:
                spans[scale] = span
        return spans

    def _span(self, centre: float, reach: float, scale: float, padding: int, length: int, side: int) -> tuple[int, int]:
        """First and last + 1 place along one side of a level of windows with centres within reach."""
        first = max(int((centre - reach) / scale + padding - length / 2), 0)
        last = min(int(np.ceil((centre + reach) / scale + padding + length / 2)), side)
        return -(-first // self.step) * self.step, last - length + 1

    def boxes(self, index: WindowIndex) -> Floats:
        """Boxes (n, 4) of windows in the image: x1, y1, x2, y2."""
        boxes = np.empty((len(index), 4))
        for level, rows in self.by_level(index):
            boxes[rows] = level.boxes(index.y[rows], index.x[rows], self.window)
        return boxes

    def by_level(self, index: WindowIndex) -> Iterator[tuple[Level, Indices]]:
        """The levels of windows, and the numbers of the windows on each."""
        order = np.argsort(index.scale, kind="stable")
        scales, first = np.unique(index.scale[order], return_index=True)
        for scale, rows in zip(scales.tolist(), np.split(order, first[1:]), strict=False):
            yield self.level(scale), rows

    def nearest(self, box: Floats) -> WindowIndex:
        """The window for a box (4,): nearest in the logarithm of its scale, and then in place."""
        height, width = self.window
        size = (box[2] - box[0]) * (box[3] - box[1]) / (height * width)
        number = int(np.argmin(abs(np.log(self.scales) - np.log(size) / 2)))
        level = self.levels[number]
        y = self._start((box[1] + box[3]) / 2 / level.scale_y + level.padding, height, level.shape[0])
        x = self._start((box[0] + box[2]) / 2 / level.scale_x + level.padding, width, level.shape[1])
        return WindowIndex(np.array([self.scales[number]]), np.array([y]), np.array([x]))

    def overlapping(self, box: Floats, iou: float, offset: BoxOffset | None = None) -> WindowIndex:
        """All windows whose boxes have at least this IoU with a box (4,), by level, y and x.

        The box of a window is the window itself, or with an `offset` the box that is reported for it.

        >>> pyramid = Pyramid.from_image(np.zeros((50, 60), np.uint8), (24, 24), scale_factor=1.5)
        >>> near = pyramid.overlapping(np.array([10.0, 8.0, 34.0, 32.0]), 0.9)
        >>> list(near)
        [(1.0, 7, 10), (1.0, 8, 9), (1.0, 8, 10), (1.0, 8, 11), (1.0, 9, 10)]
        """
        offset = BoxOffset() if offset is None else offset
        (height, width), parts = self.window, []
        sides = (box[2:] - box[:2]) / np.multiply(offset.size[::-1], (width, height))  # of the box, in windows
        for level, scale in zip(self.levels, self.scales, strict=True):
            share = sides.prod() / (level.scale_x * level.scale_y)
            if min(share, 1 / share) < 0.99 * iou:  # boxes of such sizes overlap less, wherever they are
                continue
            y, x = (
                np.arange(*self._reach(span / size + level.padding, reported, length, side))
                for span, reported, size, length, side in (
                    (box[1::2], (offset.top, offset.bottom), level.scale_y, height, level.shape[0]),
                    (box[::2], (offset.left, offset.right), level.scale_x, width, level.shape[1]),
                )
            )
            ys, xs = (places.ravel() for places in np.meshgrid(y * self.step, x * self.step, indexing="ij"))
            shared = box_iou(box[None], offset.boxes(level.boxes(ys, xs, self.window)))[0]
            near = shared >= iou
            parts.append(WindowIndex(np.full(int(near.sum()), scale), ys[near], xs[near]))
        return WindowIndex.concatenate(parts)

    def _reach(self, span: Floats, reported: tuple[float, float], length: int, side: int) -> tuple[int, int]:
        """First and last + 1 of the places, in steps, where the box of a window of this length meets a span (2,)."""
        first = max(floor((span[0] - reported[1] * length) / self.step), 0)
        last = min(ceil((span[1] - reported[0] * length) / self.step), (side - length) // self.step)
        return first, max(last + 1, first)

    def level(self, scale: float) -> Level:
        """The level of one of the scales."""
        return self._level_at[scale]

    @cached_property
    def _level_at(self) -> dict[float, Level]:
        return dict(zip(self.scales, self.levels, strict=True))

    def _start(self, centre: float, length: int, side: int) -> int:
        """The start of the window of this length around a centre: a multiple of the step, inside the level."""
        last = (side - length) // self.step
        return int(np.clip(round((centre - length / 2) / self.step), 0, last)) * self.step


def scan_memory(
    shape: tuple[int, ...],
    window: tuple[int, int],
    made: Sequence[float],
    scales: Sequence[float],
    grid: Grid,
    threads: int | None,
) -> ScanMemory:
    """What a scan of an image (height, width) takes: at these scales, of which images are `made` at some.

    >>> memory = scan_memory((1000, 1000), (24, 24), [1.0, 1.25], [1.0, 1.25], Grid(), 2)
    >>> memory.whole, memory.levels
    (3640000, [(1000, 1000), (800, 800)])
    """
    levels, sides = [level_shape(shape, scale) for scale in made], 2 * grid.padding
    padded = [(rows + sides, columns + sides) for rows, columns in (level_shape(shape, scale) for scale in scales)]
    colours, n_threads = 3 if grid.is_colour else 1, threads or available_threads()
    return ScanMemory((shape[0], shape[1]), colours, levels, padded, grid.kept, grid.working, n_threads, window)


def levels_at(
    image: Pixels,
    scales: Sequence[float],
    shared: dict[float, Level],
    threads: int | None = None,
    padding: int = 0,
    *,
    in_parts: bool = False,
) -> list[Level]:
    """The levels of these scales; those that are not in `shared` are added to it."""
    new = [scale for scale in scales if scale not in shared]
    # A copy of the image that others have made.
    known = next((level.original for level in shared.values() if level.original is not None), None)
    source = Resizable(image) if known is None else known

    def work(rows: slice) -> None:
        shared[new[rows.start]] = source.level(new[rows.start], padding, in_parts=in_parts)

    for_each_block(work, len(new), 1, 1 if in_parts else threads)
    return [shared[scale] for scale in scales]


def _levels_with_between(
    image: Pixels,
    scales: Sequence[float],
    factor: float,
    shared: dict[float, Level],
    padding: int,
    threads: int | None,
    *,
    in_parts: bool,
) -> list[Level]:
    """The levels of these scales, powers of a factor: those of odd powers have the next smaller level as source."""
    powers, even = _powers(scales, factor), _even_powers(scales, factor)
    exact = levels_at(image, [factor**power for power in even], shared, threads, padding, in_parts=in_parts)
    by_power = dict(zip(even, exact, strict=True))
    for power, scale in zip(powers, scales, strict=True):
        if scale not in shared and power in by_power:
            shared[scale] = by_power[power]
        elif scale not in shared:
            (height, width), (rows, columns) = image.shape[:2], level_shape(image.shape, scale)
            black, source = _black((rows, columns, *image.shape[2:])), by_power[power + 1]
            shared[scale] = Level(black, height / rows, width / columns, source.padding, source)
    return [shared[scale] for scale in scales]


def _with_edges(pixels: Pixels, top: int, left: int, shape: tuple[int, int]) -> Pixels:
    """Pixels (height, width[, 3]) of an image from (top, left) on; edge pixels repeat outside of it."""
    (height, width), (rows, columns) = shape, pixels.shape[:2]
    across = slice(min(max(left, 0), columns - 1), max(min(left + width, columns), 1))
    down = np.arange(top, top + height).clip(0, rows - 1)
    before, inside = min(max(across.start - left, 0), width - 1), across.stop - across.start
    out = np.empty((height, width, *pixels.shape[2:]), np.uint8)
    out[:, before : before + inside] = pixels[down, across]
    out[:, :before] = out[:, before, None]
    out[:, before + inside :] = out[:, before + inside - 1, None]
    return out


def _powers(scales: Sequence[float], factor: float) -> list[int]:
    return [round(log(scale) / log(factor)) for scale in scales]


def _even_powers(scales: Sequence[float], factor: float) -> list[int]:
    """Those of the levels that images are made of: the others have the next one as source."""
    return sorted({power + power % 2 for power in _powers(scales, factor)})


def _black(shape: tuple[int, ...]) -> Pixels:
    """Black pixels that take no memory."""
    return np.broadcast_to(np.uint8(0), shape)


def level_scales(
    shape: tuple[int, ...],
    window: tuple[int, int],
    scale_factor: float = SCALE_FACTOR,
    min_size: float | None = None,
    max_size: float | None = None,
    padding: int = 0,
) -> list[float]:
    """How many times smaller than an image (height, width) each level is; below 1, it is enlarged.

    >>> [round(scale, 2) for scale in level_scales((100, 60), (24, 24), min_size=30)]
    [1.44, 1.73, 2.07, 2.49]
    >>> [round(scale, 2) for scale in level_scales((30, 30), (24, 24), min_size=16)]
    [0.69, 0.83, 1.0, 1.2]
    """
    _check_scale_factor(scale_factor)
    for name, size in (("min_size", min_size), ("max_size", max_size)):
        if size is not None and not size > 0:
            raise ValueError(f"got {name}={size}; expected a size in pixels, above 0")
    longer = max(window)
    # Half a pixel of the level is what rounding its size can lose.
    sides = [max(length - 2 * padding, 1) for length in window]
    largest = min((side + 0.5) / length for side, length in zip(shape, sides, strict=True))
    smallest = 1.0 if min_size is None else min(min_size / longer, 1.0)
    if not smallest >= SMALLEST:
        raise ValueError(f"got min_size={min_size}; windows of {longer} find objects from {SMALLEST * longer:g} pixels")
    first, last = (floor(log(max(limit, SMALLEST)) / log(scale_factor)) for limit in (smallest, largest))
    if last - first >= MOST_LEVELS:
        raise ValueError(
            f"got scale_factor={scale_factor}, which makes {last - first + 1:,} levels of this image; expected at most "
            f"{MOST_LEVELS:,}: use a larger factor, such as {SCALE_FACTOR}"
        )
    low, high = min_size or 0.0, np.inf if max_size is None else max_size
    scales = [scale_factor**k for k in range(first, last + 1) if low <= scale_factor**k * longer <= high]
    scales = [scale for scale in scales if scale >= 1 or shape[0] * shape[1] <= MOST_ENLARGED * scale * scale]
    rooms = [[side + 2 * padding for side in level_shape(shape, scale)] for scale in scales]
    return [scale for scale, room in zip(scales, rooms, strict=True) if room[0] >= window[0] and room[1] >= window[1]]


def _check_scale_factor(scale_factor: float) -> None:
    if not 1 < scale_factor < np.inf:
        raise ValueError(f"got scale_factor={scale_factor}; levels shrink by a factor above 1, such as {SCALE_FACTOR}")


def level_shape(shape: tuple[int, ...], scale: float) -> tuple[int, int]:
    """Height and width of an image that was made smaller."""
    return round(shape[0] / scale), round(shape[1] / scale)


def level_at(image: Pixels, scale: float, padding: int = 0) -> Level:
    """The level of a pyramid whose pixels are `scale` times as large."""
    return Resizable(image).level(scale, padding)


def resized(image: Pixels, shape: tuple[int, int]) -> Pixels:
    """An image in another size (height, width): the one way in which whet makes images smaller.

    Each pixel is a mean of all that it covers, weighted by a triangle, as Pillow's bilinear filter does it: first
    across, then down. (Pillow 13 begins with the height where that is faster, so its bits are others in tall images.)

    >>> resized(np.array([[0, 0, 100, 100]] * 4, dtype=np.uint8), (2, 2))
    array([[14, 86],
           [14, 86]], dtype=uint8)
    """
    return Resizable(image).resized(shape)


class Resizable:
    """An image that is made smaller to several sizes; what they share is computed once."""

    def __init__(self, image: Pixels) -> None:
        self.image = image

    @cached_property
    def _columns(self) -> Pixels:
        return transposed(self.image)

    def level(self, scale: float, padding: int = 0, *, in_parts: bool = False) -> Level:
        """The level of a pyramid whose pixels are `scale` times as large; `in_parts`, they are made when asked for."""
        image, shape = self.image, level_shape(self.image.shape, scale)
        smaller = _black((*shape, *image.shape[2:])) if in_parts else self.resized(shape)
        scales = image.shape[0] / shape[0], image.shape[1] / shape[1]
        return Level(smaller, *scales, padding, original=self if in_parts else None)

    def resized(self, shape: tuple[int, int]) -> Pixels:
        """The image in another size (height, width)."""
        image = self.image
        if shape == image.shape[:2]:
            return image
        if image.ndim == 2 and HAS_SIMD:
            return resample(self._columns, (image.shape[0], image.shape[1]), shape)
        from PIL import Image

        if image.ndim == 3 and image.nbytes > MOST_AT_ONCE:
            out = np.empty((*shape, image.shape[2]), np.uint8)
            for colour in range(image.shape[2]):
                source = Image.fromarray(np.ascontiguousarray(image[:, :, colour]))
                smaller = source.resize(shape[::-1], Image.Resampling.BILINEAR, reducing_gap=1.0)
                out[:, :, colour] = np.asarray(smaller)
            return out
        source = Image.fromarray(image)
        if image.ndim == 2:
            source = source.resize((shape[1], image.shape[0]), Image.Resampling.BILINEAR)
        # Colour images are halved first where that is possible: half the time.
        gap = 1.0 if image.ndim == 3 else None
        return np.asarray(source.resize(shape[::-1], Image.Resampling.BILINEAR, reducing_gap=gap))
