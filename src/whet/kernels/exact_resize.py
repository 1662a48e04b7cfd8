"""OpenCV's bit-exact bilinear resize, in whole numbers (`interpolationLinear` in modules/imgproc/src/resize.cpp)."""

import numpy as np
from numpy.typing import NDArray

from whet.kernels.jit import inlined, kernel
from whet.kernels.lanes import LANES, address_of, item, load_bytes, pair, spread, store

Pixels = NDArray[np.uint8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

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
    """Fill the source column of each target column, for a picture of a width, and weights of the next one and of it.

    The first of the two weights is in the lower half, the second in the upper half.
    """
    for k in range(sources.size):
        sources[k], weight = _source(k, width, sources.size)
        weights[k] = weight | (ONE - weight) << 32


@kernel
def resize_row(
    picture: Pixels, y: int, height: int, sources: Int32s, weights: Int64s, mixed: Int32s, out: Pixels
) -> None:
    """Row y of the picture at a `height` and the width of `sources`, written to `out`.

    `mixed` has room for a row of the picture and one pixel more. Products are below 2^24 and sums exact, so rounding
    once at the end does not depend on which side goes first: columns are contiguous, so rows are mixed first. Columns
    are mixed by one product: of left + 2^32 right and weight + 2^32 (256 - weight), modulo 2^64, the upper half is what
    is wanted.
    """
    rows, width = picture.shape
    if rows == height and width == sources.size:
        out[:width] = picture[y]
        return
    first, weight = _source(y, rows, height)
    _mix(picture[first], picture[min(first + 1, rows - 1)], weight, mixed)
    mixed[width] = 0
    at, places, shares = address_of(mixed), address_of(sources), address_of(weights)
    for k in range(sources.size):
        out[k] = np.uint8((pair(at, item(places, k)) * item(shares, k) + (HALF << 32)) >> 48)


@kernel
def resize_picture(picture: Pixels, out: Pixels) -> None:
    """Fill `out` (rows, columns) with the picture in its size."""
    height, width = out.shape
    sources, weights = np.empty(width, np.int32), np.empty(width, np.int64)
    column_sources(picture.shape[1], sources, weights)
    mixed = np.empty(picture.shape[1] + 1, np.int32)
    for y in range(height):
        resize_row(picture, y, height, sources, weights, mixed, out[y])


@inlined
def _mix(upper: Pixels, lower: Pixels, weight: int, mixed: Int32s) -> None:
    a, b, to, width = address_of(upper), address_of(lower), address_of(mixed), upper.size
    above, below = spread(np.int32(ONE - weight)), spread(np.int32(weight))
    whole = width // LANES * LANES
    for k in range(0, whole, LANES):
        store(to, k, load_bytes(a, k) * above + load_bytes(b, k) * below)
    for k in range(whole, width):
        mixed[k] = np.int32((ONE - weight) * np.int32(upper[k]) + weight * np.int32(lower[k]))
