"""Channels of colour images (Dollar et al., 2014): colours and gradients in cells, and these filtered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from threading import local
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet._kernels import channel_planes as kernels
from whet._kernels.channel_planes import CELL as CELL
from whet._kernels.channel_planes import N_CHANNELS, RADIUS
from whet._kernels.channel_planes import N_FILTERED as N_FILTERED
from whet.arrays import Indices, Pixels
from whet.images.pyramid import Grid, Level, Pyramid, WindowIndex
from whet.images.scan_memory import PART_PIXELS, windows_of_part

Cells = NDArray[np.uint8]

# Pixels that levels are padded by, the same for all windows, so that detectors can share levels. Windows have a margin
# around the object, so that objects at the border of an image are found in the padding. With 8, 12 and 16 pixels,
# average precision in cross-validation was 0.55, 0.62 and 0.70 for raccoons; with 12 and 16, 0.72 and 0.74 for cars
# from behind, 0.72 and 0.70 for cats, 0.97 for stop signs.
PADDING = 4 * CELL
# Cells of a side: places are saved as bytes.
MOST_CELLS = 256
# Gradients are normalised by their surroundings, so that the cells of a window depend on some pixels around it.
CONTEXT = 2 * CELL
# Cells around one that its filtered channels depend on.
RIM = 1
# Bytes for each pixel: of channels and filtered ones, and of the planes that they are computed in.
KEPT, WORKING = (N_CHANNELS + N_FILTERED) / CELL**2, 40.0
GRID = Grid(CELL, PADDING, is_colour=True, context=CONTEXT, by_object=True, kept=KEPT, working=WORKING)
# Bytes of working memory that a thread keeps: enough for levels of two megapixels.
MOST_KEPT = 1 << 26
_thread = local()


def compute_channels(image: NDArray[np.uint8], padding: int = 0) -> Cells:
    """Channels (10, rows, columns) of an image (height, width, 3) in RGB, or grey (height, width), in 4 x 4 cells.

    Edge pixels repeat in a margin of `padding` pixels on all sides. Pixels beyond the last whole cell are left out.

    >>> cells = compute_channels(np.full((9, 12, 3), 255, np.uint8), padding=4)
    >>> cells.shape, cells[:, 0, 0]
    ((10, 4, 5), array([255,  88, 134,   0,   0,   0,   0,   0,   0,   0], dtype=uint8))
    """
    rgb = image if image.ndim == 3 else np.repeat(image[:, :, None], 3, axis=2)
    height, width = (side + 2 * padding for side in image.shape[:2])
    planes = _planes(height, width)
    luv, smoothed = planes.luv, planes.smoothed
    kernels.to_luv(np.ascontiguousarray(rgb), kernels.LIGHTNESS, padding, luv)
    line = np.empty(width + 2 * RADIUS, np.int32)
    for plane, out in zip(luv, smoothed, strict=True):
        kernels.smooth(plane, line, out)
    (across, along), (orientation, share) = planes.difference, planes.angle
    kernels.differences(smoothed[0], across, along)
    for plane in smoothed[1:]:
        kernels.stronger_differences(plane, across, along)
    magnitude, normal = luv[0], luv[1]  # no longer needed: their memory is used again
    kernels.gradients(across, along, magnitude, orientation, share)
    kernels.normalise(magnitude, line, luv[2], normal)
    cells = np.empty((N_CHANNELS, height // CELL, width // CELL), np.uint8)
    kernels.aggregate(smoothed, normal, orientation, share, kernels.OTHERS, cells)
    return cells


class _Planes(NamedTuple):
    """Working memory: LUV and its smoothed copy, differences across and down, orientations and their shares."""

    luv: NDArray[np.int32]
    smoothed: NDArray[np.int32]
    difference: NDArray[np.float32]
    angle: NDArray[np.uint8]


def _planes(height: int, width: int) -> _Planes:
    """Planes in the memory of this thread: fresh memory would take as long as half of the channels."""
    shapes = ((3, height, width), (3, height, width + 2), (2, height, width), (2, height, width))
    types = (np.int32, np.int32, np.float32, np.uint8)
    sizes = [int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in zip(shapes, types, strict=True)]
    memory = getattr(_thread, "memory", None)
    if memory is None or len(memory) < sum(sizes):
        memory = np.empty(sum(sizes), np.uint8)
        if len(memory) <= MOST_KEPT:
            _thread.memory = memory
    ends = np.cumsum(sizes).tolist()
    parts = zip(shapes, types, ends, sizes, strict=True)
    return _Planes(*(memory[end - size : end].view(kind).reshape(shape) for shape, kind, end, size in parts))


def resampled_channels(cells: Cells, shape: tuple[int, int], target: tuple[int, int], padding: int) -> Cells:
    """Channels of a level (height, width) of size `target` from those of a level of size `shape`, without padding.

    A level that is a few percent larger has nearly the same channels (Dollar et al., 2014); computing them takes ten
    times as long.
    """
    rows, columns = ((side + 2 * padding) // CELL for side in target)
    top, down = _between(shape[0], target[0], padding, cells.shape[1], 0, rows)
    left, across = _between(shape[1], target[1], padding, cells.shape[2], 0, columns)
    out = np.empty((N_CHANNELS, len(top), len(left)), np.uint8)
    kernels.resample(cells, top, down, left, across, out)
    return out


def _between(
    side: int, target: int, padding: int, n: int, first: int, last: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """For some cells along one side of a level: the cell of the other level before their centre, and how far beyond."""
    centres = (np.arange(first, last) + 0.5) * CELL - padding
    at = np.clip((centres * side / target + padding) / CELL - 0.5, 0, n - 1)
    before = np.floor(at).astype(np.int32)
    return before, np.rint((at - before) * 256).astype(np.int32)


def filter_channels(cells: Cells) -> Cells:
    """Filtered channels (40, rows, columns), which trees read, of channels (10, rows, columns).

    All channels as they are, then smoothed over 3 x 3 cells, then their differences across and down, around 128: a
    tree that sees single cells cannot compare neighbours (Nam et al., 2014; Zhang et al., 2015).

    >>> step = np.repeat(np.uint8([[[10, 10, 50]]]), 10, axis=0)
    >>> filter_channels(step)[::10, 0]
    array([[ 10,  10,  50],
           [ 10,  20,  40],
           [128, 168, 168],
           [128, 128, 128]], dtype=uint8)
    """
    filtered = np.empty((N_FILTERED, *cells.shape[1:]), np.uint8)
    kernels.filter_cells(cells, np.empty((2, cells.shape[2] + 2), np.int32), filtered)
    return filtered


def cells_of(window: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of cells in a window (height, width)."""
    if any(side % CELL or not CELL <= side <= MOST_CELLS * CELL for side in window):
        raise ValueError(
            f"got a window of {window[1]} x {window[0]}; sides of channel windows are multiples of {CELL}, up to "
            f"{MOST_CELLS * CELL}"
        )
    return window[0] // CELL, window[1] // CELL


def level_channels(level: Level) -> Cells:
    """Channels (10, rows, columns) of a level, in cells, padding included; the level keeps them if it is whole."""
    if "channels" in level.kept:
        return level.kept["channels"]
    if level.source is None:
        channels = _all_channels(level)
    else:
        shapes = level.source.image.shape[:2], level.image.shape[:2]
        channels = resampled_channels(level_channels(level.source), *shapes, level.padding)
    if not level.is_in_parts:
        level.kept["channels"] = channels
    return channels


def _all_channels(level: Level) -> Cells:
    """Channels (10, rows, columns) of a level without a source: large ones part by part, for less working memory."""
    pixels, (rows, columns) = level.pixels, _n_cells(level)
    if rows * columns * CELL**2 <= PART_PIXELS:
        return compute_channels(pixels, level.padding)
    cells = np.empty((N_CHANNELS, rows, columns), np.uint8)
    n_rows, n_columns = windows_of_part(rows, columns, (CELL, CELL), CELL)
    for top in range(0, rows, n_rows):
        for left in range(0, columns, n_columns):
            part = range(top, min(top + n_rows, rows)), range(left, min(left + n_columns, columns))
            cells[:, part[0].start : part[0].stop, part[1].start : part[1].stop] = _computed_part(level, pixels, *part)
    return cells


def level_cells(level: Level) -> Cells:
    """Filtered channels (40, rows, columns) of a level, which trees read; the level keeps them."""
    if "cells" not in level.kept:
        level.kept["cells"] = filter_channels(level_channels(level))
    return level.kept["cells"]


class Part(NamedTuple):
    """Filtered channels (40, rows, columns) of a part of a level, from this row and column of cells on."""

    cells: Cells
    row: int
    column: int


def part_of_level(level: Level, pixels: Pixels, rows: range, columns: range) -> Part:
    """Filtered channels of some cells of a level, and some around them, as `level_cells` has them.

    `pixels` are those of the level, or of its source.
    """
    wide = [
        range(max(cells.start - RIM, 0), min(cells.stop + RIM, n))
        for cells, n in zip((rows, columns), _n_cells(level), strict=True)
    ]
    channels = _part_of_channels(level, pixels, wide[0], wide[1])
    return Part(filter_channels(channels), wide[0].start, wide[1].start)


def _n_cells(level: Level) -> tuple[int, int]:
    """Rows and columns of cells in a level."""
    return level.shape[0] // CELL, level.shape[1] // CELL


def _part_of_channels(level: Level, pixels: Pixels, rows: range, columns: range) -> Cells:
    """Channels (10, rows, columns) of some cells of a level."""
    if level.source is None:
        return _computed_part(level, pixels, rows, columns)
    shape, target, (n_rows, n_columns) = level.source.image.shape, level.image.shape, _n_cells(level.source)
    top, down = _between(shape[0], target[0], level.padding, n_rows, rows.start, rows.stop)
    left, across = _between(shape[1], target[1], level.padding, n_columns, columns.start, columns.stop)
    upper = range(int(top[0]), min(int(top[-1]) + 2, n_rows))
    lefter = range(int(left[0]), min(int(left[-1]) + 2, n_columns))
    cells = _computed_part(level.source, pixels, upper, lefter)
    out = np.empty((N_CHANNELS, len(rows), len(columns)), np.uint8)
    kernels.resample(cells, top - np.int32(upper.start), down, left - np.int32(lefter.start), across, out)
    return out


def _computed_part(level: Level, pixels: Pixels, rows: range, columns: range) -> Cells:
    """Channels (10, rows, columns) of some cells, computed from these and the pixels around them."""
    (top, bottom), (left, right) = (
        (max(cells.start * CELL - CONTEXT, 0), min(cells.stop * CELL + CONTEXT, side))
        for cells, side in zip((rows, columns), level.shape, strict=True)
    )
    channels = compute_channels(level.patch(top, left, (bottom - top, right - left), pixels))
    row, column = rows.start - top // CELL, columns.start - left // CELL
    return np.ascontiguousarray(channels[:, row : row + len(rows), column : column + len(columns)])


def without_pixels(pyramid: Pyramid) -> Pyramid:
    """The same with channels only: pixels take five times as much memory."""
    for level in pyramid.levels:
        level_channels(level)
    return replace(pyramid, levels=tuple(level.without_pixels("channels") for level in pyramid.levels))


def window_cells(pyramid: Pyramid, index: WindowIndex) -> Cells:
    """Filtered channels (n, 40, rows, columns) of windows, in cells."""
    rows, columns = cells_of(pyramid.window)
    cells = np.empty((len(index), N_FILTERED, rows, columns), np.uint8)
    for level, chosen in pyramid.by_level(index):
        for part, windows in _parts_with(level, chosen, index.y // CELL, index.x // CELL, rows, columns):
            for window in windows.tolist():
                y, x = index.y[window] // CELL - part.row, index.x[window] // CELL - part.column
                cells[window] = part.cells[:, y : y + rows, x : x + columns]
    return cells


def _parts_with(
    level: Level, chosen: Indices, y: Indices, x: Indices, rows: int, columns: int
) -> Iterator[tuple[Part, Indices]]:
    """Parts of a level that hold the `chosen` windows at cells `y` and `x`; a level that is kept is one part."""
    if not level.is_in_parts:
        yield Part(level_cells(level), 0, 0), chosen
        return
    pixels = (level.source or level).pixels
    tile = np.stack([y[chosen] // rows, x[chosen] // columns])
    _, numbers = np.unique(tile, axis=1, return_inverse=True)
    for number in range(int(numbers.max()) + 1):
        windows = chosen[numbers == number]
        down, across = (
            range(int(first[windows].min()), int(first[windows].max()) + length)
            for first, length in ((y, rows), (x, columns))
        )
        yield part_of_level(level, pixels, down, across), windows
