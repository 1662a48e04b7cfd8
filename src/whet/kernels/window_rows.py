"""One feature on a row of windows of a picture: on all of them, or on some.

For a given feature, neighbouring windows read neighbouring integrals: on a whole row the loads are contiguous and the
compiler does eight windows at once. Windows at any `places` of the flat integral image take six
times as long each, most of it for single loads.
"""

import numpy as np
from numpy.typing import NDArray

from whet.kernels.block_patterns import CLOCKWISE
from whet.kernels.jit import kernel
from whet.kernels.rectangles import add_three

Int32s = NDArray[np.int32]
UInt32s = NDArray[np.uint32]
Codes = NDArray[np.uint8]


@kernel
def corner_sums(sums: UInt32s, start: int, corners: Int32s, weights: Int32s, total: Int32s) -> None:
    """Weighted corners of windows `start`, `start` + 1 and so on of the flat integral image `sums`."""
    n = total.size
    for k in range(0, weights.size, 3):
        u, v, w = weights[k], weights[k + 1], weights[k + 2]
        if k == 0 or u != 0 or v != 0 or w != 0:
            a, b, c = start + corners[k], start + corners[k + 1], start + corners[k + 2]
            add_three(sums[a : a + n], sums[b : b + n], sums[c : c + n], u, v, w, k == 0, total)


@kernel
def corner_sums_at(sums: UInt32s, corners: Int32s, weights: Int32s, places: UInt32s, total: Int32s) -> None:
    """Weighted corners of the windows at `places`."""
    for k in range(0, weights.size, 3):
        u, v, w = weights[k], weights[k + 1], weights[k + 2]
        if k == 0 or u != 0 or v != 0 or w != 0:
            a, b, c = sums[corners[k] :], sums[corners[k + 1] :], sums[corners[k + 2] :]
            for i in range(places.size):
                p = places[i]
                more = np.int32(u * a[p] + v * b[p] + w * c[p])
                total[i] = more if k == 0 else np.int32(total[i] + more)


@kernel
def pattern_codes(sums: UInt32s, start: int, corners: Int32s, scratch: Int32s, codes: Codes) -> None:
    """Codes of 3 x 3 blocks for a row of windows; `corners` (16,), `scratch` (2, windows)."""
    n = codes.size
    centre, outer = scratch[0], scratch[1]
    _block(sums, start, corners, 1, 1, centre[:n])
    codes[:] = np.uint8(0)
    for y, x in CLOCKWISE:
        _block(sums, start, corners, y, x, outer[:n])
        _append_bit(outer, centre, codes)


@kernel
def pattern_codes_at(sums: UInt32s, corners: Int32s, places: UInt32s, scratch: Int32s, codes: Codes) -> None:
    """Codes of 3 x 3 blocks for the windows at `places`."""
    centre, outer = scratch[0], scratch[1]
    _block_at(sums, corners, 1, 1, places, centre)
    codes[:] = np.uint8(0)
    for y, x in CLOCKWISE:
        _block_at(sums, corners, y, x, places, outer)
        _append_bit(outer, centre, codes)


@kernel
def _append_bit(outer: Int32s, centre: Int32s, codes: Codes) -> None:
    for k in range(codes.size):
        codes[k] = np.uint8((codes[k] << np.uint8(1)) | np.uint8(outer[k] >= centre[k]))


@kernel
def _block(sums: UInt32s, start: int, corners: Int32s, y: int, x: int, total: Int32s) -> None:
    n, first = total.size, 4 * y + x
    a, b = start + corners[first], start + corners[first + 1]
    c, d = start + corners[first + 4], start + corners[first + 5]
    top_left, top_right = sums[a : a + n], sums[b : b + n]
    bottom_left, bottom_right = sums[c : c + n], sums[d : d + n]
    for k in range(n):
        total[k] = np.int32(top_left[k] - top_right[k] - bottom_left[k] + bottom_right[k])


@kernel
def _block_at(sums: UInt32s, corners: Int32s, y: int, x: int, places: UInt32s, total: Int32s) -> None:
    first = 4 * y + x
    top_left, top_right = sums[corners[first] :], sums[corners[first + 1] :]
    bottom_left, bottom_right = sums[corners[first + 4] :], sums[corners[first + 5] :]
    for i in range(places.size):
        p = places[i]
        total[i] = np.int32(top_left[p] - top_right[p] - bottom_left[p] + bottom_right[p])
