"""Cuts and thresholds against a search over all of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.models.sorted_stumps import rank_values

from whet._kernels.weak_fitting import best_cut, middle

FINITE = st.floats(allow_nan=False, allow_infinity=False, width=32)
WEIGHTS = arrays(np.float64, 6, elements=st.integers(0, 5).map(float))


def all_cuts(positive, negative):
    """Error, cut and order of polarities (upright first) of every stump: the least is the best."""
    for cut in range(len(positive) - 1):
        yield positive[: cut + 1].sum() + negative[cut + 1 :].sum(), cut, 0
        yield negative[: cut + 1].sum() + positive[cut + 1 :].sum(), cut, 1


@given(WEIGHTS, WEIGHTS)
def test_the_best_cut_is_the_first_of_the_best(positive, negative):
    error, cut, turned = min(all_cuts(positive, negative))
    assert best_cut(positive, negative) == (cut, -1 if turned else 1, error)


@given(FINITE, FINITE)
def test_the_middle_separates(a, b):
    low, high = np.float32(min(a, b)), np.float32(max(a, b))
    if low < high:
        assert low <= np.float32(middle(low, high)) < high


@pytest.mark.parametrize("low", [1.0, -1.0, 0.0, 16777216.0])
def test_the_middle_of_neighbouring_floats_is_the_lower(low):
    high = np.nextafter(np.float32(low), np.float32(np.inf))
    assert middle(np.float32(low), high) == low


@given(arrays(np.float32, st.integers(1, 40), elements=st.integers(-5, 5).map(float)))
def test_ranks_among_distinct_values(values):
    ranks, distinct = np.empty(len(values), dtype=np.int64), np.empty_like(values)
    n = rank_values(values, ranks, distinct)
    expected, inverse = np.unique(values, return_inverse=True)
    assert np.array_equal(distinct[:n], expected)
    assert np.array_equal(ranks, inverse)
