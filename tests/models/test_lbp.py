"""Multi-block LBP codes against a loop over blocks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import arrays

from whet.models.gslda.integral import IntegralStack
from whet.models.gslda.pools import BlockPatternPool


def code(patch, x, y, width, height):
    """The plain twin: sums of the nine blocks, compared clockwise from the top left."""
    block = [[int(patch[y + r * height :, x + c * width :][:height, :width].sum()) for c in range(3)] for r in range(3)]
    around = [block[0][0], block[0][1], block[0][2], block[1][2], block[2][2], block[2][1], block[2][0]]
    bits = [outer >= block[1][1] for outer in [*around, block[1][0]]]
    return int("".join("01"[bit] for bit in bits), 2)


@given(arrays(np.uint8, (3, 7, 10)))
def test_codes_of_every_feature(patches):
    pool = BlockPatternPool.from_window((7, 10))
    codes = pool.evaluate(IntegralStack.from_patches(patches))
    expected = [[code(patch, *pool.describe(i)) for patch in patches] for i in range(len(pool))]
    assert np.array_equal(codes, expected)


@pytest.mark.parametrize(("window", "n"), [((24, 24), 8464), ((3, 3), 1), ((3, 8), 9), ((2, 9), 0)])
def test_the_number_of_features(window, n):
    assert len(BlockPatternPool.from_window(window)) == n


def test_ties_count_as_brighter():
    flat = np.full((1, 3, 3), 9, dtype=np.uint8)
    assert BlockPatternPool.from_window((3, 3)).evaluate(IntegralStack.from_patches(flat)) == 255


@pytest.mark.parametrize(
    ("place", "bit"),
    [
        ((0, 0), 128),
        ((0, 1), 64),
        ((0, 2), 32),
        ((1, 2), 16),
        ((2, 2), 8),
        ((2, 1), 4),
        ((2, 0), 2),
        ((1, 0), 1),
    ],
)
def test_bits_go_clockwise_from_the_top_left(place, bit):
    patch = np.zeros((1, 3, 3), dtype=np.uint8)
    patch[0, 1, 1] = 5
    patch[(0, *place)] = 6
    assert BlockPatternPool.from_window((3, 3)).evaluate(IntegralStack.from_patches(patch)) == bit
