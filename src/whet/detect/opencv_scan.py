"""An OpenCV cascade over all windows that OpenCV would visit, in threads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet.detect.compiled_cascade import Layout
from whet.detect.compiled_trees import channels_of, flat_trees, is_simple, walked_trees
from whet.detect.opencv_levels import Level, levels_of, resized_exactly, rounded
from whet.features.parallel import blocks, for_each_block
from whet.kernels.channels import integrate_channels
from whet.kernels.normalisation import OPENCV_MIN_SIGMA
from whet.kernels.tree_scan import scan_trees
from whet.kernels.tree_walk import walk_trees
from whet.kernels.windows import Windows
from whet.model.opencv_cascade import OpenCVCascade

Picture = NDArray[np.uint8]
Int32s = NDArray[np.int32]

# Rows of windows a task.
BAND = 96


@dataclass(frozen=True, eq=False)
class FoundWindows:
    """Accepted windows as boxes (n, 4), x, y, width and height, by scale, y and x; and sums in the last stage (n,)."""

    boxes: NDArray[np.int32]
    scores: NDArray[np.float64]


def scan_levels(
    cascade: OpenCVCascade, picture: Picture, scales: list[np.float32], threads: int | None = None
) -> FoundWindows:
    """The windows of a grey picture (height, width) that the cascade accepts, whatever the number of threads."""
    height, width = picture.shape
    levels = levels_of((height, width), cascade.window, scales)
    pictures: list[Picture] = [picture] * len(levels)

    def shrink(task: slice) -> None:
        pictures[task.start] = resized_exactly(picture, levels[task.start].shape)

    for_each_block(shrink, len(levels), 1, threads)
    tasks = [(i, rows) for i, level in enumerate(levels) if level.columns for rows in blocks(level.rows, BAND)]
    bands: list[FoundWindows | None] = [None] * len(tasks)

    def work(task: slice) -> None:
        i, rows = tasks[task.start]
        bands[task.start] = _scan_band(cascade, levels[i], pictures[i], rows, width)

    for_each_block(work, len(tasks), 1, threads)
    found = [band for band in bands if band is not None]
    if not found:
        return FoundWindows(np.empty((0, 4), dtype=np.int32), np.empty(0))
    return FoundWindows(np.concatenate([f.boxes for f in found]), np.concatenate([f.scores for f in found]))


def _scan_band(cascade: OpenCVCascade, level: Level, picture: Picture, rows: slice, widest: int) -> FoundWindows:
    """Scan some rows of windows of a level."""
    step, (height, width) = level.step, cascade.window
    layout = Layout.of_width(widest, step)
    top, bottom = rows.start * step, (rows.stop - 1) * step + height
    sums, squares = _integrals(cascade, np.ascontiguousarray(picture[top:bottom]), layout)
    n = rows.stop - rows.start
    y, x = np.array([1, 1, height - 1, height - 1]), np.array([1, width - 1, 1, width - 1])
    stride = layout.line * channels_of(cascade)
    inner = (layout.offset(0 * y, x) + y * stride).astype(np.int32)
    area = (height - 2) * (width - 2)
    windows = Windows(n, level.columns, step * stride, inner, area, OPENCV_MIN_SIGMA)
    places, scores = np.empty(n * level.columns, dtype=np.uint32), np.empty(n * level.columns)
    if is_simple(cascade):
        found = scan_trees(sums, squares, windows, flat_trees(cascade, layout), places, scores)
    else:
        found = walk_trees(sums, squares, windows, walked_trees(cascade, layout), places, scores)
    order = np.argsort(places[:found])
    row, column = np.divmod(places[order].astype(np.int64), windows.row_step)
    return FoundWindows(_boxes((rows.start + row) * step, column * step, level.scale, cascade.window), scores[order])


def _boxes(y: NDArray[np.int64], x: NDArray[np.int64], scale: np.float32, window: tuple[int, int]) -> NDArray[np.int32]:
    """Windows in pixels of the picture, each number rounded by itself."""
    boxes = np.empty((len(y), 4), dtype=np.int32)
    boxes[:, 0], boxes[:, 1] = np.rint(x.astype(np.float32) * scale), np.rint(y.astype(np.float32) * scale)
    boxes[:, 2], boxes[:, 3] = rounded(np.float32(window[1]) * scale), rounded(np.float32(window[0]) * scale)
    return boxes


def _integrals(cascade: OpenCVCascade, band: Picture, layout: Layout) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The channels of a band, flat, as seen from the sums and from the squares."""
    channels = np.empty((len(band) + 1, channels_of(cascade), layout.line), dtype=np.uint32)
    integrate_channels(band, layout.step, channels)
    flat = channels.ravel()
    return flat, flat[layout.line :] if channels.shape[1] > 1 else flat
