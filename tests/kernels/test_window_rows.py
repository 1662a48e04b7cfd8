"""Features on rows of windows, and on windows at any places, against sums over pixels."""

import numpy as np
import pytest

from whet.features.haar import HaarPool
from whet.features.integral import IntegralStack, picture_integrals
from whet.features.lbp import BlockPatternPool
from whet.kernels.window_rows import corner_sums, corner_sums_at, pattern_codes, pattern_codes_at

WINDOW = (7, 6)


@pytest.fixture(params=[0, 2**32 - 5000])  # an offset that makes the integrals of the picture wrap around
def sums(request, rng):
    picture = rng.integers(0, 256, (12, 30), dtype=np.uint8)
    views = np.lib.stride_tricks.sliding_window_view(picture, WINDOW)
    return picture_integrals(picture)[0] + np.uint32(request.param), views


def offsets(corners, line):
    y, x = np.divmod(corners, WINDOW[1] + 1)
    return (y * line + x).astype(np.int32)


def test_rectangle_features(sums, rng):
    integral, views = sums
    pool = HaarPool.of_window(WINDOW).sample(40, rng)
    corners, weights = pool.corners()
    flat, n, row = integral.ravel(), views.shape[1], 3
    places = rng.choice(n, 9, replace=False).astype(np.uint32)
    for f in range(len(pool)):
        expected = np.zeros(n)
        for x, y, width, height, weight in pool.parts(f):
            expected += weight * views[row, :, y : y + height, x : x + width].sum(axis=(1, 2), dtype=np.int64)
        moved = offsets(corners[f], integral.shape[1])
        total, some = np.empty(n, dtype=np.int32), np.empty(9, dtype=np.int32)
        corner_sums(flat, row * integral.shape[1], moved, weights[f], total)
        corner_sums_at(flat, moved, weights[f], places + np.uint32(row * integral.shape[1]), some)
        assert np.array_equal(total, expected)
        assert np.array_equal(some, expected[places])


def test_block_patterns(sums, rng):
    integral, views = sums
    pool = BlockPatternPool.of_window(WINDOW)
    flat, n, row = integral.ravel(), views.shape[1], 4
    expected = pool.evaluate(IntegralStack.of(views[row]))
    places = rng.choice(n, 5, replace=False).astype(np.uint32)
    for f in range(len(pool)):
        moved = offsets(pool.corners()[f].ravel(), integral.shape[1])
        codes, some = np.empty(n, dtype=np.uint8), np.empty(5, dtype=np.uint8)
        pattern_codes(flat, row * integral.shape[1], moved, codes)
        pattern_codes_at(flat, moved, places + np.uint32(row * integral.shape[1]), some)
        assert np.array_equal(codes, expected[f])
        assert np.array_equal(some, expected[f][places])
    assert len(np.unique(expected)) > 10
