"""The windows of an image: their position in integral images, their contrast and their normalisation."""

from typing import NamedTuple

import numpy as np

from whet._kernels.jit import (
    Address,
    Vector,
    as_floats,
    broadcast,
    inlined,
    kernel,
    load,
    load_scalar,
    mask_bits,
    rounded,
    select,
    square_root,
    store,
    to_doubles,
    widened,
)
from whet.arrays import Int32s, UInt32s

# OpenCV skips windows unless area * factor < 0.1, which means sigma > 10.
OPENCV_MIN_SIGMA = 10.0


@kernel
def window_factor(
    total: np.int64, squares: np.int64, area: int, min_sigma: float = OPENCV_MIN_SIGMA
) -> tuple[np.float32, np.bool_]:
    """The factor 1 / (area sigma) of a window, and whether the window has enough contrast.

    `total` and `squares` are the sums of the `area` pixels of the inner rectangle (x = 1, y = 1, width - 2,
    height - 2) and of their squares. A feature's value is its weighted sum of pixels times the factor. Flat
    windows have the factor 1 and no contrast.

    >>> window_factor(20, 400, 4)  # pixels 0, 0, 0 and 20: area * sigma = sqrt(4 * 400 - 20 * 20)
    (0.0288..., False)
    >>> window_factor(40, 400, 4)  # four pixels of 10
    (1.0, False)
    """
    # In float64: area * squares reaches 2e10 in a window of 24 x 24, too much for 32 bits.
    wide = np.float64(total)
    dispersion = np.float64(area) * np.float64(squares) - wide * wide
    # Without a branch, so that the compiler normalises four windows at once.
    is_varied = dispersion > 0.0
    factor = np.float32(1.0 / np.sqrt(dispersion if is_varied else 1.0))
    has_contrast = np.float64(area) * np.float64(factor) < 1.0 / np.float64(min_sigma)
    return factor, is_varied & has_contrast


# Windows of less contrast than this times the least are left out before the square root: its rounding is far finer.
NEARLY_ONE = 0.999


class Windows(NamedTuple):
    """Where the windows of an image lie in its integral images."""

    rows: int
    columns: int
    row_step: int  # integrals between a row of windows and the next; windows of a row are neighbours
    inner: Int32s  # (4,): corners of the inner rectangle, top left, top right, bottom left, bottom right
    area: int  # of the inner rectangle
    min_sigma: float


@inlined
def normalise_simd(
    sums: Address, squares: Address, place: int, inner: Address, pixels: float, min_sigma: float, factors: Address
) -> int:
    """Factors of eight windows, by the arithmetic of `window_factor`; one bit for each that has contrast."""
    total, square = to_doubles(_inner(sums, place, inner)), to_doubles(_inner(squares, place, inner))
    area = broadcast(pixels)
    dispersion = area * square - total * total
    least = pixels * min_sigma
    if mask_bits(dispersion >= broadcast(NEARLY_ONE * least * least)) == 0:
        return 0
    one = broadcast(1.0)
    is_varied = broadcast(0.0) < dispersion
    factor = rounded(one / square_root(select(is_varied, dispersion, one)))
    store(factors, 0, factor)
    has_contrast = area * widened(factor) < broadcast(1.0 / min_sigma)
    return mask_bits(is_varied & has_contrast)


@inlined
def _inner(integral: Address, place: int, corners: Address) -> Vector:
    gained = load(integral, place + load_scalar(corners, 0)) + load(integral, place + load_scalar(corners, 3))
    return gained - load(integral, place + load_scalar(corners, 1)) - load(integral, place + load_scalar(corners, 2))


# A weak learner of a cascade, or a node of an OpenCV tree, is a row of 32 whole numbers, two lines of the cache.
NODE = 32
CORNERS = 0  # places of up to 16 corners, seen from the window's own
SUBSET = 16  # 8 words of 32 bits


@inlined
def real(nodes: Address, node: int, k: int) -> Vector:
    """Number k of a node, which is a float32."""
    return as_floats(broadcast(load_scalar(nodes, node + k)))


@inlined
def corner(sums: Address, place: int, nodes: Address, node: int, k: int) -> Vector:
    """Corner k of a node."""
    return load(sums, place + load_scalar(nodes, node + CORNERS + k))


@kernel
def rectangle_sum(integral: UInt32s, place: int, corners: Int32s) -> np.uint32:
    """The sum over a rectangle of the window at `place`, modulo 2^32; `corners` (4,) as in `Windows.inner`."""
    gained = integral[place + corners[0]] + integral[place + corners[3]]
    lost = integral[place + corners[1]] + integral[place + corners[2]]
    return np.uint32(gained - lost)


# Places of the eight outer blocks in the 3 x 3 grid, clockwise from the top left: highest bit first, as in
# OpenCV's `LBPEvaluator::OptFeature::calc` (modules/objdetect/src/cascadedetect.hpp).
CLOCKWISE = ((0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0))


@kernel
def pattern_code(sums: UInt32s, place: int, corners: Int32s) -> np.uint8:
    """The code of 3 x 3 blocks for the window at `place`; `corners` (16,) row by row."""
    code, centre = 0, _block(sums, place, corners, 5)
    for y, x in CLOCKWISE:
        code = code << 1 | int(_block(sums, place, corners, 4 * y + x) >= centre)
    return np.uint8(code)


@kernel
def _block(sums: UInt32s, place: int, corners: Int32s, k: int) -> np.int32:
    """The sum of the block whose top left corner is number k."""
    above = sums[place + corners[k]] - sums[place + corners[k + 1]]
    return np.int32(above - sums[place + corners[k + 4]] + sums[place + corners[k + 5]])
