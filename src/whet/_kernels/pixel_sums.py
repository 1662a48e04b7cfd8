"""Kernels on pixels: images in other sizes, integral images, contrast of patches, and the values of features on them.

An image in another size is, to the bit, as Pillow's bilinear filter makes it, in less time: each pixel is a mean of all
that it covers, weighted by a triangle, first across, rounded to bytes, then down. Weights are whole numbers of 2^-22.
Across, eight rows are computed at once, so rows are transposed before and after.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet._kernels.jit import (
    HAS_SIMD,
    SIMD_WIDTH,
    Address,
    Vector,
    address_of,
    broadcast,
    broadcast_last,
    evens,
    inlined,
    kernel,
    load,
    load_bytes,
    load_scalar,
    odds,
    prefix_sum,
    store,
    store_bytes,
    transpose_bytes,
)
from whet._kernels.window_scan import CLOCKWISE, window_factor
from whet.arrays import Bools, Float32s, Floats, Indices, Int32s, Int64s, Pixels, UInt32s

# --- Images in other sizes --------------------------------------------------------------------------------------------

PRECISION = 22


@lru_cache(maxsize=256)  # images of a video, or of one camera, have one size
def triangle_weights(length: int, wanted: int) -> tuple[Int32s, Int32s]:
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


# --- Integral images of stacks of patches and of whole images ---------------------------------------------------------

# Patches of 24 x 24 pixels: 64 of them are 36 KB and stay in the cache while their pixels are regrouped.
SAMPLES_AT_ONCE = 64


@kernel
def integrate_stack(patches: Pixels, sums: UInt32s, squares: UInt32s) -> None:
    """Fill `sums` and `squares` ((height + 1)(width + 1), samples) from `patches` (samples, height, width).

    Both outputs are zero on entry: their first row and column of pixels stay as they are.
    """
    n = patches.shape[0]
    for start in range(0, n, SAMPLES_AT_ONCE):
        stop = min(start + SAMPLES_AT_ONCE, n)
        _integrate_some(patches[start:stop], start, stop, sums, squares)


@kernel
def _integrate_some(patches: Pixels, start: int, stop: int, sums: UInt32s, squares: UInt32s) -> None:
    n, height, width = patches.shape
    for y in range(height):
        line_sum = np.zeros(n, dtype=np.uint32)
        line_square = np.zeros(n, dtype=np.uint32)
        for x in range(width):
            above = y * (width + 1) + x + 1
            sum_above, sum_here = sums[above][start:stop], sums[above + width + 1][start:stop]
            square_above, square_here = squares[above][start:stop], squares[above + width + 1][start:stop]
            for s in range(n):
                pixel = np.uint32(patches[s, y, x])
                line_sum[s] += pixel
                line_square[s] += pixel * pixel
                sum_here[s] = sum_above[s] + line_sum[s]
                square_here[s] = square_above[s] + line_square[s]


@kernel
def stack_factors(
    sums: UInt32s,
    squares: UInt32s,
    corners: Int64s,
    area: int,
    min_sigma: float,
    factors: Float32s,
    has_contrast: Bools,
) -> None:
    """Normalise a stack of patches: what `window_factor` returns for each sample.

    `sums` and `squares` are (pixels, samples); `corners` are the pixels at the top left, top right, bottom
    left and bottom right of the inner rectangle.
    """
    for s in range(factors.size):
        total = np.int64(_difference(sums, corners, s))
        square_total = np.int64(_difference(squares, corners, s))
        factors[s], has_contrast[s] = window_factor(total, square_total, area, min_sigma)


@kernel
def _difference(integral: UInt32s, corners: Int64s, s: int) -> np.uint32:
    gained = integral[corners[0], s] + integral[corners[3], s]
    lost = integral[corners[1], s] + integral[corners[2], s]
    return np.uint32(gained - lost)


# Pixels that are integrated at once: a line of pixels, and each part of a line of integrals, has this many to spare.
RUN = 2 * SIMD_WIDTH


@inlined
def _integrate_simd(
    pixels: Pixels, start: int, width: int, channel: int, step: int, above: UInt32s, here: UInt32s
) -> None:
    row, old, new = address_of(pixels), address_of(above), address_of(here)
    line = here.shape[1]
    begin, part = channel * line, line // step
    total = broadcast(np.int32(0))
    for x in range(0, width, RUN):
        first, second = load_bytes(row, start + x), load_bytes(row, start + x + SIMD_WIDTH)
        if channel == 1:
            first, second = first * first, second * second
        first = prefix_sum(first) + total
        total = broadcast_last(first, first)
        second = prefix_sum(second) + total
        total = broadcast_last(second, second)
        if step == 1:
            _add(old, new, begin + x + 1, first)
            _add(old, new, begin + x + 1 + SIMD_WIDTH, second)
        else:
            _add(old, new, begin + part + x // 2, evens(first, second))
            _add(old, new, begin + x // 2 + 1, odds(first, second))


@inlined
def _add(old: Address, new: Address, place: int, growth: Vector) -> None:
    store(new, place, load(old, place) + growth)


@inlined
def _integrate_scalar(
    pixels: Pixels, start: int, width: int, channel: int, step: int, above: UInt32s, here: UInt32s
) -> None:
    part = here.shape[1] // step
    total = np.uint32(0)
    for x in range(1, width + 1):
        pixel = np.uint32(pixels[start + x - 1])
        total = np.uint32(total + (pixel * pixel if channel == 1 else pixel))
        place = x % step * part + x // step
        here[channel, place] = above[channel, place] + total


_integrate_line = _integrate_simd if HAS_SIMD else _integrate_scalar


def integrate_channels(image: Pixels, channels: UInt32s, step: int) -> None:
    """Fill `channels` (height + 1, 2 or 3, line) from an image (height, width), columns apart by `step`, 1 or 2.

    `line` is at least `step` + `RUN` longer than the width; what lies behind the integrals of a row is any number.
    """
    # Two kernels: the tilted sums, which few detectors need, take a second to compile.
    (_integrate_upright if channels.shape[1] == 2 else _integrate_with_tilted)(image, channels, step)


@kernel
def _integrate_upright(image: Pixels, channels: UInt32s, step: int) -> None:
    height, width = image.shape
    pixels, copy = image.reshape(image.size), np.zeros(width + RUN, np.uint8)
    channels[0] = 0
    for y in range(height):
        # Runs go on with the next row; where they would leave the image, behind a copy.
        row, start = pixels, y * width
        if start + -(-width // RUN) * RUN > image.size:
            _copy_row(image[y], copy)
            row, start = copy, 0
        channels[y + 1, 0, 0] = channels[y + 1, 1, 0] = 0
        for channel in range(2):
            _integrate_line(row, start, width, channel, step, channels[y], channels[y + 1])


@kernel
def _integrate_with_tilted(image: Pixels, channels: UInt32s, step: int) -> None:
    height, width = image.shape
    row, tilted = np.zeros(width + RUN, np.uint8), np.zeros((3, width + 2), np.uint32)
    channels[0] = 0
    for y in range(height):
        _copy_row(image[y], row)
        integrate_row(row, width, step, channels[y], channels[y + 1], tilted)


@inlined
def _copy_row(pixels: Pixels, row: Pixels) -> None:
    for x in range(pixels.size):  # a slice would compile the message of an error that cannot be, in two seconds
        row[x] = pixels[x]


@kernel
def integrate_row(row: Pixels, width: int, step: int, above: UInt32s, here: UInt32s, tilted: UInt32s) -> None:
    """Fill `here` (1 to 3, line), modulo 2^32, from a row of pixels and the integrals `above` it.

    Entry x of a line is at x % step * (line / step) + x / step. Sums and squares at (Y, X) are over the pixels with
    y < Y and x < X; the third channel is over y < Y and |x - X + 1| <= Y - y - 1, as OpenCV's `integral` has it.
    `row` goes on with zeros for `RUN` pixels after its `width`, and `line` is at least `step` + `RUN` longer than it.
    `tilted` (3, width + 2) holds what the third channel has to know of the rows before; zero at first.
    """
    count = here.shape[0]
    here[:, 0] = 0
    for channel in range(min(count, 2)):
        _integrate_line(row, 0, width, channel, step, above, here)
    if count > 2:
        _tilted_growth(row[:width], tilted)
        _add_row(above[2], tilted[2, : width + 1], step, here[2])


@kernel
def _add_row(above: UInt32s, growth: UInt32s, step: int, here: UInt32s) -> None:
    part = here.size // step
    for phase in range(step):
        n = (growth.size - phase + step - 1) // step
        source, old, new = growth[phase:], above[phase * part :], here[phase * part :]
        if step == 1:
            for j in range(n):
                new[j] = old[j] + source[j]
        else:
            for j in range(n):
                new[j] = old[j] + source[j * step]


@kernel
def _tilted_growth(row: Pixels, tilted: UInt32s) -> None:
    """What a triangle that opens upwards gains with a row: the two diagonals that end in its lowest pixel.

    Rows of `tilted`: diagonals that end in column x of this row, for x from -1, coming from the left and from the
    right; and the growth, both less the pixel in which they meet.
    """
    from_left, from_right, growth = tilted[0], tilted[1], tilted[2]
    width = row.size
    for x in range(width - 1, -1, -1):
        from_left[x + 1] = from_left[x] + np.uint32(row[x])
    from_left[0] = 0
    from_right[0] = from_right[1]
    for x in range(width):
        from_right[x + 1] = from_right[x + 2] + np.uint32(row[x]) if x + 2 <= width else np.uint32(row[x])
    growth[0] = from_right[0]
    for x in range(width):
        growth[x + 1] = from_left[x + 1] + from_right[x + 1] - np.uint32(row[x])


# --- Values of features on stacks of patches --------------------------------------------------------------------------

# Samples in a run: nine corner rows of one feature are 147 KB and stay in a second-level cache of 512 KB for
# its neighbours in the pool, which share most of them. Runs of 2,048 or 8,192 take 10 % longer.
SAMPLES_IN_RUN = 4096


@kernel
def corner_values(sums: UInt32s, factors: Float32s, corners: Int32s, weights: Int32s, values: Float32s) -> None:
    """Fill `values` (features, samples) with weighted corner sums times the normalisation of each sample.

    `sums` is (pixels, samples), `factors` (samples,), `corners` and `weights` (features, a multiple of 3).
    Three corners whose weights are all zero are not read.
    """
    n = factors.size
    total = np.empty(min(SAMPLES_IN_RUN, n), dtype=np.int32)
    for start in range(0, n, SAMPLES_IN_RUN):
        stop = min(start + SAMPLES_IN_RUN, n)
        for f in range(corners.shape[0]):
            _weighted_sum(sums, start, stop, corners[f], weights[f], total)
            _scale(total, factors[start:stop], values[f][start:stop])


@kernel
def _weighted_sum(sums: UInt32s, start: int, stop: int, corners: Int32s, weights: Int32s, total: Int32s) -> None:
    for k in range(0, corners.size, 3):
        u, v, w = weights[k], weights[k + 1], weights[k + 2]
        if k > 0 and u == 0 and v == 0 and w == 0:
            continue
        a = sums[corners[k]][start:stop]
        b = sums[corners[k + 1]][start:stop]
        c = sums[corners[k + 2]][start:stop]
        add_three(a, b, c, u, v, w, k == 0, total)


@kernel
def add_three(
    a: UInt32s, b: UInt32s, c: UInt32s, u: np.int32, v: np.int32, w: np.int32, first: bool, total: Int32s
) -> None:
    """Add three weighted rows of corners to `total`, or, if they are the `first`, write it. Exact modulo 2^32."""
    # numba widens to 64 bits; the cast back lets the compiler process eight 32-bit numbers at once.
    if first:
        for s in range(a.size):
            total[s] = np.int32(u * a[s] + v * b[s] + w * c[s])
    else:
        for s in range(a.size):
            total[s] = np.int32(total[s] + u * a[s] + v * b[s] + w * c[s])


@kernel
def _scale(total: Int32s, factors: Float32s, values: Float32s) -> None:
    for s in range(values.size):
        values[s] = np.float32(total[s]) * factors[s]


@kernel
def block_codes(sums: UInt32s, corners: Int32s, codes: Pixels) -> None:
    """Fill `codes` (features, samples): a bit for each outer block that is at least as bright as the centre.

    `sums` is (pixels, samples), `corners` (features, 4, 4) the pixels at the corners of the nine blocks.
    """
    n = sums.shape[1]
    centre = np.empty(n, dtype=np.int32)
    outer = np.empty(n, dtype=np.int32)
    for f in range(corners.shape[0]):
        grid, row = corners[f], codes[f]
        _block_sum(sums, grid, 1, 1, centre)
        row[:] = np.uint8(0)
        for y, x in CLOCKWISE:
            _block_sum(sums, grid, y, x, outer)
            for s in range(n):
                row[s] = np.uint8((row[s] << np.uint8(1)) | np.uint8(outer[s] >= centre[s]))


@kernel
def _block_sum(sums: UInt32s, grid: Int32s, y: int, x: int, total: Int32s) -> None:
    a, b = sums[grid[y, x]], sums[grid[y, x + 1]]
    c, d = sums[grid[y + 1, x]], sums[grid[y + 1, x + 1]]
    for s in range(total.size):
        total[s] = np.int32(a[s] - b[s] - c[s] + d[s])


@kernel
def respond_one(
    x: Floats, feature: Indices, threshold: NDArray[np.floating[Any]], polarity: NDArray[np.int8]
) -> Pixels:
    """Responses (P,) of stumps to one sample x (features,)."""
    P = feature.shape[0]
    out = np.empty(P, dtype=np.uint8)
    for j in range(P):
        out[j] = (x[feature[j]] > threshold[j]) == (polarity[j] > 0)
    return out
