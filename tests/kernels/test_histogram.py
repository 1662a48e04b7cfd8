"""Histograms against NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from whet._kernels.weak_fitting import bin_values, class_histograms, count_bins, extremes, gap, weigh_bins

NUMBERS = st.floats(-1e6, 1e6, width=32)
ROWS = st.integers(1, 70).flatmap(lambda n: arrays(np.float32, n, elements=NUMBERS))


@given(ROWS)
def test_extremes(values):
    assert extremes(values) == (values.min(), values.max())


@given(ROWS.filter(lambda values: np.ptp(values) > 1e-3))
def test_bins_ascend_from_first_to_last(values):
    bins = np.empty(len(values), dtype=np.uint8)
    bin_values(values, values.min(), values.max(), bins)
    assert bins[values.argmin()] == 0
    assert bins[values.argmax()] == 255
    assert np.all(np.diff(bins[np.argsort(values)].astype(int)) >= 0)
    assert np.allclose(bins, 255.999 * (values - values.min()) / np.ptp(values), atol=1.01)


@given(ROWS.filter(lambda values: np.ptp(values) > 1e-3), st.integers(0, 254))
def test_the_gap_at_a_cut(values, cut):
    bins = np.empty(len(values), dtype=np.uint8)
    bin_values(values, values.min(), values.max(), bins)
    assert gap(values, bins, cut) == (values[bins <= cut].max(), values[bins > cut].min())


@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 1000])
def test_counts_and_weights(n):
    rng = np.random.default_rng(n)
    bins, weights = rng.integers(0, 256, n, dtype=np.uint8), rng.random(n)
    counts, sums = np.empty(256, dtype=np.int64), np.empty(256)
    count_bins(bins, counts)
    assert np.array_equal(counts, np.bincount(bins, minlength=256))
    weigh_bins(bins, weights, sums)
    assert np.allclose(sums, np.bincount(bins, weights, minlength=256))


def test_two_weights_are_those_of_the_classes():
    rng = np.random.default_rng(0)
    bins = rng.integers(0, 256, 500, dtype=np.uint8)
    by_class, by_sample = np.empty((2, 256)), np.empty((2, 256))
    class_histograms(bins, 200, np.array([3.0, 2.0]), *by_class)
    class_histograms(bins, 200, np.repeat([3.0, 2.0], [200, 300]), *by_sample)
    assert np.array_equal(by_class, by_sample)
    assert np.array_equal(by_class[0], 3 * np.bincount(bins[:200], minlength=256))
