"""Block patterns on rows of windows, against those of patches."""

import numpy as np
import pytest
from tests.samples import cumulated

from whet._kernels.window_scan import pattern_code
from whet.models.gslda.integral import IntegralStack
from whet.models.gslda.pools import BlockPatternPool

WINDOW = (7, 6)


@pytest.fixture(params=[0, 2**32 - 5000])  # an offset that makes the integrals of the image wrap around
def sums(request, rng):
    image = rng.integers(0, 256, (12, 30), dtype=np.uint8)
    views = np.lib.stride_tricks.sliding_window_view(image, WINDOW)
    return cumulated(image).astype(np.uint32) + np.uint32(request.param), views


def offsets(corners, line):
    y, x = np.divmod(corners, WINDOW[1] + 1)
    return (y * line + x).astype(np.int32)


def test_block_patterns(sums):
    integral, views = sums
    pool = BlockPatternPool.from_window(WINDOW)
    flat, n, row = integral.ravel(), views.shape[1], 4
    expected = pool.evaluate(IntegralStack.from_patches(views[row]))
    for f in range(len(pool)):
        moved = offsets(pool.corners()[f].ravel(), integral.shape[1])
        codes = [pattern_code(flat, row * integral.shape[1] + x, moved) for x in range(n)]
        assert np.array_equal(codes, expected[f])
    assert len(np.unique(expected)) > 10
