"""Grey images in other sizes, to the bit as Pillow's bilinear filter makes them, in less time.

Each pixel is a mean of all that it covers, weighted by a triangle: first across, rounded to bytes, then down. Weights
are whole numbers of 2^-22. Across, eight rows are computed at once, so rows are transposed before and after.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from whet._kernels.jit import inlined, kernel
from whet._kernels.simd import (
    SIMD_WIDTH,
    Address,
    Vector,
    address_of,
    broadcast,
    load_bytes,
    load_scalar,
    store_bytes,
    transpose_bytes,
)

Pixels = NDArray[np.uint8]
Int32s = NDArray[np.int32]
Weights = tuple[Int32s, Int32s]

PRECISION = 22


@lru_cache(maxsize=256)  # images of a video, or of one camera, have one size
def triangle_weights(length: int, wanted: int) -> Weights:
    """For each of the `wanted` pixels the first of `length` that it covers (wanted,), and their weights (wanted, most).

    Pixels that it does not cover have weight 0.

    >>> triangle_weights(4, 2)[0]
    array([0, 1], dtype=int32)
    """
    scale = length / wanted
    support = max(scale, 1.0)
    centre = (np.arange(wanted) + 0.5) * scale
    first = np.maximum((centre - support + 0.5).astype(np.int64), 0)
    last = np.minimum((centre + support + 0.5).astype(np.int64), length)
    places = np.arange(int((last - first).max()))
    distance = np.abs((places + first[:, None] - centre[:, None] + 0.5) * (1.0 / support))
    weights = np.where((distance < 1.0) & (places < (last - first)[:, None]), 1.0 - distance, 0.0)
    shares = weights / np.cumsum(weights, axis=1)[:, -1:]
    return first.astype(np.int32), np.trunc(shares * (1 << PRECISION) + 0.5).astype(np.int32)


def transposed(image: Pixels) -> Pixels:
    """The columns of an image (height, width) as rows (width, height), each with up to seven bytes to spare."""
    columns = np.empty((_wide(image.shape[1]), _wide(image.shape[0])), np.uint8)
    padded = np.zeros((columns.shape[1], columns.shape[0]), np.uint8)
    padded[: image.shape[0], : image.shape[1]] = image
    _transpose(padded, columns)
    return columns


def resample(columns: Pixels, before: tuple[int, int], shape: tuple[int, int]) -> Pixels:
    """An image of the size `before` in another size; `columns` are what `transposed` makes of it."""
    (height, width), (rows, wanted) = before, shape
    across = np.zeros((_wide(wanted), columns.shape[1]), np.uint8)
    _mix_rows(columns, *triangle_weights(width, wanted), across.shape[1], across.ravel())
    lines = np.empty((columns.shape[1], len(across)), np.uint8)
    _transpose(across, lines)
    # Rows are written from top to bottom, eight pixels at a time: what a row writes too much, the next one replaces.
    flat = np.empty(rows * wanted + SIMD_WIDTH, np.uint8)
    _mix_rows(lines, *triangle_weights(height, rows), wanted, flat)
    return flat[: rows * wanted].reshape(rows, wanted)


def _wide(length: int) -> int:
    return -(-length // SIMD_WIDTH) * SIMD_WIDTH


@kernel
def _transpose(source: Pixels, target: Pixels) -> None:
    """Both sides of both arrays are multiples of eight."""
    rows, columns = source.shape
    bytes_at, to = address_of(source), address_of(target)
    for y in range(0, rows, SIMD_WIDTH):
        for x in range(0, columns, SIMD_WIDTH):
            transpose_bytes(bytes_at, y * columns + x, columns, to, x * rows + y, rows)


@kernel
def _mix_rows(source: Pixels, first: Int32s, weights: Int32s, width: int, target: Pixels) -> None:
    """Weighted means of rows of `source` from `first` on, `width` bytes each, one after the other in `target`."""
    line, bytes_at, to, shares = source.shape[1], address_of(source), address_of(target), address_of(weights)
    n = weights.shape[1]
    for i in range(first.size):
        most = min(n, source.shape[0] - first[i])  # weights of rows behind the last are 0
        for x in range(0, width, SIMD_WIDTH):
            store_bytes(to, i * width + x, _mean(bytes_at, first[i] * line + x, line, shares, i * n, most))


@inlined
def _mean(source: Address, place: int, line: int, weights: Address, start: int, n: int) -> Vector:
    """Eight weighted means of `n` bytes below one another."""
    total = broadcast(np.int32(1 << (PRECISION - 1)))
    for k in range(n):
        total = total + load_bytes(source, place + k * line) * broadcast(load_scalar(weights, start + k))
    return total >> broadcast(np.int32(PRECISION))
