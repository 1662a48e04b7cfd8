"""An OpenCV cascade over the levels of an image, in bands of rows that threads take in turn."""

from functools import partial
from typing import NamedTuple

import numpy as np

from whet._kernels.jit import (
    HAS_SIMD,
    SIMD_WIDTH,
    address_of,
    broadcast,
    inlined,
    kernel,
    load_bytes,
    load_pair,
    load_scalar,
    store,
    take,
)
from whet._kernels.opencv_trees import Accepted, SimdTrees, scan_row
from whet._kernels.pixel_sums import RUN, integrate_row
from whet._kernels.window_scan import Windows
from whet.arrays import Float32s, Floats, Int32s, Int64s, Pixels, UInt32s

# Weights are multiples of 1/256 along each side.
ONE = 256
HALF = 1 << 15


@inlined
def _source(target: int, source_size: int, target_size: int) -> tuple[int, int]:
    """The first of the two source pixels of a target pixel, and the weight of the second out of 256."""
    step = 1.0 / (target_size / source_size)
    place = step * (target + 0.5) - 0.5
    first = int(np.floor(place))
    if first < 0 or first >= source_size - 1:
        return min(max(first, 0), source_size - 1), 0
    return first, int(np.rint((place - first) * ONE))


@kernel
def column_sources(width: int, sources: Int32s, weights: Int64s) -> None:
    """Fill the source column of each target column, for an image of a width, and weights of the next one and of it.

    The first of the two weights is in the lower half, the second in the upper half.
    """
    for k in range(sources.size):
        sources[k], weight = _source(k, width, sources.size)
        weights[k] = weight | (ONE - weight) << 32


@inlined
def _mix_rows_simd(upper: Pixels, lower: Pixels, weight: int, mixed: Int32s) -> None:
    a, b, to, width = address_of(upper), address_of(lower), address_of(mixed), upper.size
    above, below = broadcast(np.int32(ONE - weight)), broadcast(np.int32(weight))
    whole = width // SIMD_WIDTH * SIMD_WIDTH
    for k in range(0, whole, SIMD_WIDTH):
        store(to, k, load_bytes(a, k) * above + load_bytes(b, k) * below)
    for k in range(whole, width):
        mixed[k] = np.int32((ONE - weight) * np.int32(upper[k]) + weight * np.int32(lower[k]))


@inlined
def _mix_rows_scalar(upper: Pixels, lower: Pixels, weight: int, mixed: Int32s) -> None:
    for k in range(upper.size):
        mixed[k] = np.int32((ONE - weight) * np.int32(upper[k]) + weight * np.int32(lower[k]))


@inlined
def _mix_columns_simd(mixed: Int32s, sources: Int32s, weights: Int64s, out: Pixels) -> None:
    """One product for two columns.

    Of left + 2^32 right and weight + 2^32 (256 - weight), modulo 2^64, the upper half is the sum.
    """
    at, places, shares = address_of(mixed), address_of(sources), address_of(weights)
    for k in range(sources.size):
        out[k] = np.uint8((load_pair(at, load_scalar(places, k)) * load_scalar(shares, k) + (HALF << 32)) >> 48)


@inlined
def _mix_columns_scalar(mixed: Int32s, sources: Int32s, weights: Int64s, out: Pixels) -> None:
    for k in range(sources.size):
        weight = weights[k] & 0xFFFFFFFF
        total = (ONE - weight) * np.int64(mixed[sources[k]]) + weight * np.int64(mixed[sources[k] + 1])
        out[k] = np.uint8((total + HALF) >> 16)


mix_rows = _mix_rows_simd if HAS_SIMD else _mix_rows_scalar
mix_columns = _mix_columns_simd if HAS_SIMD else _mix_columns_scalar


@kernel
def resize_row(
    image: Pixels, y: int, height: int, sources: Int32s, weights: Int64s, mixed: Int32s, out: Pixels
) -> None:
    """Row y of the image at a `height` and the width of `sources`, written to `out`.

    `mixed` has room for a row of the image and one pixel more. Products are below 2^24 and sums exact, so rounding
    once at the end does not depend on which side goes first: columns are contiguous, so rows are mixed first.
    """
    rows, width = image.shape
    if rows == height and width == sources.size:
        out[:width] = image[y]
        return
    first, weight = _source(y, rows, height)
    mix_rows(image[first], image[min(first + 1, rows - 1)], weight, mixed)
    mixed[width] = 0
    mix_columns(mixed, sources, weights, out)


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

    one: SimdTrees
    two: SimdTrees
    inner: Int32s  # (2, 4)


class Buffers(NamedTuple):
    """What a thread works in, besides the channels."""

    pixels: Pixels
    mixed: Int32s
    sources: Int32s
    weights: Int64s
    tilted: UInt32s
    reached: Int32s
    factors: Float32s
    accepted: Accepted


@partial(kernel, nogil=HAS_SIMD)  # the scalar `take` is not atomic
def scan_bands(
    image: Pixels,
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
    buffers = buffers_of(image.shape[1], steps.one.largest)
    pixels, tilted, accepted = buffers.pixels, buffers.tilted, buffers.accepted
    sums, stride = channels.reshape(channels.size), channels.shape[1] * channels.shape[2]
    squares = sums[channels.shape[2] if channels.shape[1] > 1 else 0 :]
    area = (window[0] - 2) * (window[1] - 2)
    places, scores, kept = np.empty((64, 3), np.int64), np.empty(64), 0
    number = take(counter)
    while number < len(bands):
        b = bands[number]
        band = Band(b[0], b[1], b[2], b[3], b[4], b[5])
        trees = steps.one if band.step == 1 else steps.two
        windows = Windows(band.rows, band.columns, band.step * stride, steps.inner[band.step - 1], area, min_sigma)
        sources, weights = buffers.sources[: band.width], buffers.weights[: band.width]
        column_sources(image.shape[1], sources, weights)
        pixels[band.width :] = 0
        channels[0] = 0
        tilted[:] = 0
        for y in range((band.rows - 1) * band.step + window[0]):
            resize_row(image, band.first * band.step + y, band.height, sources, weights, buffers.mixed, pixels)
            integrate_row(pixels, band.width, band.step, channels[y], channels[y + 1], tilted[:, : band.width + 2])
            first = y + 1 - window[0]
            if first >= 0 and first % band.step == 0:
                n = scan_row(sums, squares, first * stride, windows, trees, buffers.reached, buffers.factors, accepted)
                places, scores = _with_room(places, scores, kept + n)
                for i in range(n):
                    column = accepted.places[i] - first * stride
                    places[kept, 0], places[kept, 1], places[kept, 2] = (number, first // band.step, column)
                    scores[kept] = accepted.scores[i]
                    kept += 1
        number = take(counter)
    return places[:kept].copy(), scores[:kept].copy()


@kernel
def buffers_of(width: int, largest: int) -> Buffers:
    """Room for images of a width and trees of `largest` nodes."""
    return Buffers(
        np.zeros(width + RUN, np.uint8),
        np.empty(width + 1, np.int32),
        np.empty(width, np.int32),
        np.empty(width, np.int64),
        np.empty((3, width + 2), np.uint32),
        np.empty(SIMD_WIDTH * largest, np.int32),
        np.ones(SIMD_WIDTH, np.float32),
        Accepted(np.empty(width, np.uint32), np.empty(width)),
    )


@kernel
def _with_room(places: Int64s, scores: Floats, n: int) -> tuple[Int64s, Floats]:
    """Arrays with the same entries and room for n."""
    if n <= len(scores):
        return places, scores
    more_places, more_scores = np.empty((2 * n, 3), np.int64), np.empty(2 * n)
    more_places[: len(places)], more_scores[: len(scores)] = places, scores
    return more_places, more_scores
