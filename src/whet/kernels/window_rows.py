"""Codes of 3 x 3 blocks on neighbouring windows of a picture."""

import numpy as np
from numpy.typing import NDArray

from whet.kernels.jit import kernel

Int32s = NDArray[np.int32]
UInt32s = NDArray[np.uint32]
Codes = NDArray[np.uint8]
Corners = tuple[np.uint32, np.uint32, np.uint32, np.uint32]


@kernel
def pattern_codes(sums: UInt32s, start: int, corners: Int32s, codes: Codes) -> None:
    """Codes of 3 x 3 blocks for windows `start`, `start` + 1 and so on; `corners` (16,) row by row."""
    n = codes.size
    a0, a1, a2, a3 = _corner_row(sums, start, corners[0:4], n)
    b0, b1, b2, b3 = _corner_row(sums, start, corners[4:8], n)
    c0, c1, c2, c3 = _corner_row(sums, start, corners[8:12], n)
    d0, d1, d2, d3 = _corner_row(sums, start, corners[12:16], n)
    for k in range(n):
        a, b = (a0[k], a1[k], a2[k], a3[k]), (b0[k], b1[k], b2[k], b3[k])
        c, d = (c0[k], c1[k], c2[k], c3[k]), (d0[k], d1[k], d2[k], d3[k])
        codes[k] = _code(a, b, c, d)


@kernel
def _corner_row(sums: UInt32s, start: int, corners: Int32s, n: int) -> tuple[UInt32s, UInt32s, UInt32s, UInt32s]:
    a, b, c, d = start + corners[0], start + corners[1], start + corners[2], start + corners[3]
    return sums[a : a + n], sums[b : b + n], sums[c : c + n], sums[d : d + n]


@kernel
def _code(a: Corners, b: Corners, c: Corners, d: Corners) -> np.uint8:
    """The code of one window from its 4 x 4 corners, rows a to d; bits as `CLOCKWISE` in `block_patterns`."""
    top, middle, bottom = _blocks(a, b), _blocks(b, c), _blocks(c, d)
    centre = middle[1]
    code = np.int32(top[0] >= centre) << 7 | np.int32(top[1] >= centre) << 6 | np.int32(top[2] >= centre) << 5
    code |= np.int32(middle[2] >= centre) << 4 | np.int32(bottom[2] >= centre) << 3
    code |= np.int32(bottom[1] >= centre) << 2 | np.int32(bottom[0] >= centre) << 1
    return np.uint8(code | np.int32(middle[0] >= centre))


@kernel
def _blocks(above: Corners, below: Corners) -> tuple[np.int32, np.int32, np.int32]:
    """Sums of the three blocks between two rows of corners."""
    first = np.int32(above[0] - above[1] - below[0] + below[1])
    second = np.int32(above[1] - above[2] - below[1] + below[2])
    return first, second, np.int32(above[2] - above[3] - below[2] + below[3])
