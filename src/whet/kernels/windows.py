"""The windows of a picture: where they lie in its integral images, and which have the contrast to be looked at."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet.kernels.jit import inlined
from whet.kernels.lanes import (
    Address,
    Lanes,
    bits_of,
    item,
    load,
    rounded,
    select,
    spread,
    square_root,
    store,
    to_doubles,
    widened,
)

Int32s = NDArray[np.int32]


# Windows of less contrast than this times the least are left out before the square root: its rounding is far finer.
NEARLY_ONE = 0.999


class Windows(NamedTuple):
    """Where the windows of a picture lie in its integral images."""

    rows: int
    columns: int
    row_step: int  # integrals between a row of windows and the next; windows of a row are neighbours
    inner: Int32s  # (4,): corners of the inner rectangle, top left, top right, bottom left, bottom right
    area: int  # of the inner rectangle
    min_sigma: float


@inlined
def normalise_lanes(
    sums: Address, squares: Address, place: int, inner: Address, pixels: float, min_sigma: float, factors: Address
) -> int:
    """Factors of eight windows, by the arithmetic of `window_factor`; which of them are looked at, one bit each."""
    total, square = to_doubles(_inner(sums, place, inner)), to_doubles(_inner(squares, place, inner))
    area = spread(pixels)
    spread_out = area * square - total * total
    least = pixels * min_sigma
    if bits_of(spread_out >= spread(NEARLY_ONE * least * least)) == 0:
        return 0
    one = spread(1.0)
    has_spread = spread(0.0) < spread_out
    factor = rounded(one / square_root(select(has_spread, spread_out, one)))
    store(factors, 0, factor)
    has_contrast = area * widened(factor) < spread(1.0 / min_sigma)
    return bits_of(has_spread & has_contrast)


@inlined
def _inner(integral: Address, place: int, corners: Address) -> Lanes:
    gained = load(integral, place + item(corners, 0)) + load(integral, place + item(corners, 3))
    return gained - load(integral, place + item(corners, 1)) - load(integral, place + item(corners, 2))
