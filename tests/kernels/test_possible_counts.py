import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet._kernels.lda import in_order

SMALL = st.integers(-1, 3)


@given(st.integers(1, 4).flatmap(lambda P: st.tuples(SMALL, *[st.lists(SMALL, min_size=P, max_size=P)] * (P + 1))))
def test_order_is_numpys(counts):
    n, s, *rows = counts
    s, C = np.array(s, np.int64), np.array(rows, np.int64)
    at_least, at_most = np.maximum(np.add.outer(s, s) - n, 0), np.minimum.outer(s, s)
    assert in_order(n, s, C) == (n >= 0 and (at_least <= C).all() and (at_most >= C).all() and (s <= n).all())


@pytest.mark.parametrize(("common", "possible"), [(2**62, True), (2**62 - 1, False), (0, False)])
def test_counts_whose_sums_overflow_are_compared_all_the_same(common, possible):
    n = 2**62
    assert in_order(n, np.array([n, n]), np.array([[n, common], [common, n]])) == possible


@pytest.mark.parametrize(("n", "possible"), [(0, True), (-1, False)])
def test_no_responses_are_counted_by_n_alone(n, possible):
    assert in_order(n, np.zeros(0, np.int64), np.zeros((0, 0), np.int64)) == possible
