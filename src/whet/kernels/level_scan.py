"""An OpenCV cascade over the levels of a picture, in bands of rows that threads take one after the other.

Each row of a level is made from the picture, integrated, and scanned as soon as the window's last row is there: what is
read has just been written.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet.kernels.channels import RUN, integrate_row
from whet.kernels.exact_resize import column_sources, resize_row
from whet.kernels.jit import kernel
from whet.kernels.lane_scan import Found, LaneTrees, scan_row
from whet.kernels.lanes import LANES
from whet.kernels.shared_counter import take
from whet.kernels.windows import Windows

Pixels = NDArray[np.uint8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
UInt32s = NDArray[np.uint32]
Floats = NDArray[np.float64]


class Band(NamedTuple):
    """Rows of windows of a level; a row of the table of bands."""

    first: int
    rows: int
    columns: int
    step: int
    height: int  # of the level
    width: int


class Steps(NamedTuple):
    """What depends on the step: the cascade and the corners of the inner rectangle in its layout, for steps 1 and 2."""

    one: LaneTrees
    two: LaneTrees
    inner: Int32s  # (2, 4)


class Buffers(NamedTuple):
    """What a thread works in."""

    channels: NDArray[np.uint32]  # (most rows + 1, channels, line)
    pixels: Pixels
    mixed: Int32s
    sources: Int32s
    weights: Int64s
    tilted: UInt32s
    asked: Int32s
    factors: NDArray[np.float32]
    found: Found


@kernel
def scan_bands(
    picture: Pixels,
    bands: Int64s,
    steps: Steps,
    window: tuple[int, int],
    min_sigma: float,
    channels: UInt32s,
    counter: Int64s,
) -> tuple[Int64s, Floats]:
    """Scan the bands (n, 6) whose numbers this thread takes from the counter.

    Returns accepted windows (n, 3), band, row and column in it, each band's from the top left, and their last sums.
    `channels` (most rows + 1, 1 to 3, line) is written over.
    """
    buffers = buffers_of(picture.shape[1], channels, steps.one.largest)
    area = (window[0] - 2) * (window[1] - 2)
    places, scores, found = np.empty((64, 3), np.int64), np.empty(64), 0
    number = take(counter)
    while number < len(bands):
        band = band_of(bands, number)
        trees = steps.one if band.step == 1 else steps.two
        stride = channels.shape[1] * channels.shape[2]
        windows = Windows(band.rows, band.columns, band.step * stride, steps.inner[band.step - 1], area, min_sigma)
        begin_band(picture, band, buffers)
        for y in range((band.rows - 1) * band.step + window[0]):
            make_row(picture, band, y, buffers)
            first = y + 1 - window[0]
            if first >= 0 and first % band.step == 0:
                n = _scan_row(first * stride, windows, trees, buffers)
                places, scores = _with_room(places, scores, found + n)
                for i in range(n):
                    column = buffers.found.places[i] - first * stride
                    places[found, 0], places[found, 1], places[found, 2] = number, first // band.step, column
                    scores[found] = buffers.found.scores[i]
                    found += 1
        number = take(counter)
    return places[:found].copy(), scores[:found].copy()


@kernel
def buffers_of(width: int, channels: UInt32s, largest: int) -> Buffers:
    """Room for pictures of a width and trees of `largest` nodes."""
    return Buffers(
        channels,
        np.zeros(width + RUN, np.uint8),
        np.empty(width + 1, np.int32),
        np.empty(width, np.int32),
        np.empty(width, np.int64),
        np.empty((3, width + 2), np.uint32),
        np.empty(LANES * largest, np.int32),
        np.ones(LANES, np.float32),
        Found(np.empty(width, np.uint32), np.empty(width)),
    )


@kernel
def band_of(bands: Int64s, number: int) -> Band:
    """A row of the table."""
    b = bands[number]
    return Band(b[0], b[1], b[2], b[3], b[4], b[5])


@kernel
def begin_band(picture: Pixels, band: Band, buffers: Buffers) -> None:
    """Prepare for the first row of a band."""
    column_sources(picture.shape[1], buffers.sources[: band.width], buffers.weights[: band.width])
    buffers.pixels[band.width :] = 0
    buffers.channels[0] = 0
    buffers.tilted[:] = 0


@kernel
def make_row(picture: Pixels, band: Band, y: int, buffers: Buffers) -> None:
    """Pixels and integrals of row y of a band."""
    sources, weights = buffers.sources[: band.width], buffers.weights[: band.width]
    resize_row(picture, band.first * band.step + y, band.height, sources, weights, buffers.mixed, buffers.pixels)
    above, here = buffers.channels[y], buffers.channels[y + 1]
    integrate_row(buffers.pixels, band.width, band.step, above, here, buffers.tilted[:, : band.width + 2])


@kernel
def _scan_row(start: int, windows: Windows, trees: LaneTrees, buffers: Buffers) -> int:
    channels = buffers.channels
    sums = channels.reshape(channels.size)
    squares = sums[channels.shape[2] if channels.shape[1] > 1 else 0 :]
    return scan_row(sums, squares, start, windows, trees, buffers.asked, buffers.factors, buffers.found)


@kernel
def _with_room(places: Int64s, scores: Floats, n: int) -> tuple[Int64s, Floats]:
    """Arrays with the same entries and room for n."""
    if n <= len(scores):
        return places, scores
    more_places, more_scores = np.empty((2 * n, 3), np.int64), np.empty(2 * n)
    more_places[: len(places)], more_scores[: len(scores)] = places, scores
    return more_places, more_scores
