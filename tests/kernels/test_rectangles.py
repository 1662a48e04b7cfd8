"""Weighted corners against sums in NumPy, across the boundary of a run of samples."""

import numpy as np
import pytest

from whet._kernels.pixel_sums import SAMPLES_IN_RUN, corner_values


@pytest.mark.parametrize("n", [1, 7, SAMPLES_IN_RUN - 1, SAMPLES_IN_RUN, SAMPLES_IN_RUN + 1])
@pytest.mark.parametrize("used", [3, 6, 8, 9])
def test_values_are_weighted_corners_times_the_factor(n, used):
    rng = np.random.default_rng(n)
    sums = rng.integers(0, 150_000, (25, n), dtype=np.uint32)
    factors = rng.random(n).astype(np.float32)
    corners = rng.integers(0, 25, (5, 9), dtype=np.int32)
    weights = np.where(np.arange(9) < used, rng.integers(-4, 5, (5, 9)), 0).astype(np.int32)
    values = np.empty((5, n), dtype=np.float32)
    corner_values(sums, factors, corners, weights, values)
    total = np.einsum("fk,fks->fs", weights.astype(np.int64), sums.astype(np.int64)[corners])
    assert np.array_equal(values, total.astype(np.float32) * factors)


def test_sums_that_wrapped_around_give_the_same_differences():
    sums = np.array([[2**32 - 10], [2**32 - 4], [3]], dtype=np.uint32)  # 3 stands for 2^32 + 3
    values = np.empty((1, 1), dtype=np.float32)
    corners, weights = np.array([[0, 1, 2]], dtype=np.int32), np.array([[1, -2, 1]], dtype=np.int32)
    corner_values(sums, np.ones(1, dtype=np.float32), corners, weights, values)
    assert values[0, 0] == -10 + 8 + 3
