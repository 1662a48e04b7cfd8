"""Where the time of a scan with an OpenCV cascade goes, on one thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet._kernels.images import RUN
from whet._kernels.jit import kernel
from whet._kernels.opencv_scan import band_of, begin_band, buffers_of, make_row, scan_bands
from whet._kernels.windows import OPENCV_MIN_SIGMA
from whet.cascade.scan import Layout
from whet.opencv import CascadeClassifier
from whet.opencv.cascade import channels_of
from whet.opencv.classifier import MOST_INTEGRALS, bands_of, levels_of, resized_exactly, scales_between, steps_of
from whet.opencv.xml import read_opencv


@kernel
def make_rows(image: NDArray[np.uint8], bands: NDArray[np.int64], height: int, channels: NDArray[np.uint32]) -> None:
    """Resize and integrate all bands."""
    buffers = buffers_of(image.shape[1], channels, 1)
    for number in range(len(bands)):
        band = band_of(bands, number)
        begin_band(image, band, buffers)
        for y in range((band.rows - 1) * band.step + height):
            make_row(image, band, y, buffers)


def parts(path: Path, image: NDArray[np.uint8], turns: int) -> dict[str, float]:
    """Milliseconds of a processor for each part: more and more of the work is done, and differences taken."""
    cascade, shape = read_opencv(path), image.shape
    classifier = CascadeClassifier(path, threads=1)
    scales = scales_between((shape[0], shape[1]), cascade.window, 1.1, (0, 0), (shape[1], shape[0]))
    levels = levels_of((shape[0], shape[1]), cascade.window, scales)
    line, count = Layout.from_width(shape[1] + RUN, 2).line, channels_of(cascade)
    bands, steps = bands_of(levels, cascade.window, MOST_INTEGRALS // (line * count), 1), steps_of(cascade, line)
    channels = np.zeros((MOST_INTEGRALS // (line * count) + cascade.window[0], count, line), dtype=np.uint32)

    def scan_all() -> object:
        counter = np.zeros(1, dtype=np.int64)
        return scan_bands(image, bands[:, 1:], steps, cascade.window, OPENCV_MIN_SIGMA, channels, counter)

    resize = least(lambda: [resized_exactly(image, level.shape) for level in levels], turns)
    rows = least(lambda: make_rows(image, bands[:, 1:], cascade.window[0], channels), turns)
    scan = least(scan_all, turns)
    whole = least(lambda: classifier.detectMultiScale(image), turns)
    names = "resize", "integrals", "cascade", "grouping and the rest"
    values = resize, rows - resize, scan - rows, whole - scan
    return {name: round(1e3 * value, 2) for name, value in zip(names, values, strict=True)}


def least(work: Callable[[], object], turns: int) -> float:
    """Seconds of the processor, the least of some turns."""
    work()
    seconds = []
    for _ in range(turns):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return min(seconds)
