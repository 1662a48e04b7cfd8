"""An OpenCV cascade over all windows that OpenCV would visit, in threads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from whet.detect.compiled_cascade import Layout
from whet.detect.compiled_trees import channels_of, lane_trees
from whet.detect.opencv_levels import Level, levels_of
from whet.features.parallel import available_threads, blocks, in_threads
from whet.kernels.channels import RUN
from whet.kernels.level_scan import Steps, scan_bands
from whet.kernels.normalisation import OPENCV_MIN_SIGMA
from whet.model.opencv_cascade import OpenCVCascade

Picture = NDArray[np.uint8]

# Integrals of a band: 4 MB. What is read stays in the cache anyway, but memory that is new to a process costs time.
MOST_INTEGRALS = 2**20
# So that no thread waits long for the last.
BANDS_A_WORKER = 6


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
    workers = threads or available_threads()
    line = Layout.of_width(width + RUN, 2).line
    count = channels_of(cascade)
    bands = bands_of(levels, cascade.window, MOST_INTEGRALS // (line * count), workers)
    steps = steps_of(cascade, line)
    counter = np.zeros(1, dtype=np.int64)
    most_rows = int(((bands[:, 2] - 1) * bands[:, 4]).max(initial=0)) + cascade.window[0]
    parts: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []

    def work() -> None:
        channels = np.empty((most_rows + 1, count, line), dtype=np.uint32)
        parts.append(scan_bands(picture, bands[:, 1:], steps, cascade.window, OPENCV_MIN_SIGMA, channels, counter))

    in_threads(work, min(workers, len(bands)))
    if not any(len(scores) for _, scores in parts):
        return FoundWindows(np.empty((0, 4), dtype=np.int32), np.empty(0))
    places, scores = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(places[:, 0], kind="stable")
    band, row, column = places[order].T
    level, first, step = bands[band, 0], bands[band, 1], bands[band, 4]
    scale = np.array(scales, dtype=np.float32)[level]
    return FoundWindows(_boxes((first + row) * step, column * step, scale, cascade.window), scores[order])


def bands_of(levels: list[Level], window: tuple[int, int], most_rows: int, workers: int) -> NDArray[np.int64]:
    """Bands (n, 7): their levels, then the fields of `Band`. Some for every worker, but no more rows of pixels each."""
    total = sum(level.rows * level.columns for level in levels)
    bands: list[tuple[int, ...]] = []
    for i, level in enumerate(levels):
        if level.rows and level.columns:
            share = -(-total // (workers * BANDS_A_WORKER * level.columns)) if workers > 1 else level.rows
            size = max(min(max(share, window[0]), (most_rows - window[0]) // level.step), 1)
            bands += [
                (i, rows.start, rows.stop - rows.start, level.columns, level.step, *level.shape)
                for rows in blocks(level.rows, size)
            ]
    return np.array(bands, dtype=np.int64).reshape(-1, 7)


@lru_cache(maxsize=8)
def steps_of(cascade: OpenCVCascade, line: int) -> Steps:
    """The cascade for both steps, in integral images of so many columns."""
    height, width = cascade.window
    y, x = np.array([1, 1, height - 1, height - 1]), np.array([1, width - 1, 1, width - 1])
    layouts = Layout(line, 1), Layout(line, 2)
    inner = [layout.offset(0 * y, x) + y * line * channels_of(cascade) for layout in layouts]
    one, two = (lane_trees(cascade, layout) for layout in layouts)
    return Steps(one, two, np.array(inner, dtype=np.int32))


def _boxes(
    y: NDArray[np.int64], x: NDArray[np.int64], scale: NDArray[np.float32], window: tuple[int, int]
) -> NDArray[np.int32]:
    """Windows in pixels of the picture, each number rounded by itself."""
    boxes = np.empty((len(y), 4), dtype=np.int32)
    boxes[:, 0], boxes[:, 1] = np.rint(x.astype(np.float32) * scale), np.rint(y.astype(np.float32) * scale)
    boxes[:, 2], boxes[:, 3] = np.rint(np.float32(window[1]) * scale), np.rint(np.float32(window[0]) * scale)
    return boxes
