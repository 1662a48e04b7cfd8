import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.lda.statistics import BinaryStatistics

SMALL = st.integers(-1, 3)


def is_possible(n, s, C):
    counts = BinaryStatistics(n, s, C)
    return counts.is_possible(counts)


@given(st.integers(1, 4).flatmap(lambda P: st.tuples(SMALL, *[st.lists(SMALL, min_size=P, max_size=P)] * (P + 1))))
def test_counts_lie_between_their_bounds_pair_by_pair(counts):
    n, s, *C = counts
    pairs = [max(0, s[j] + s[k] - n) <= C[j][k] <= min(s[j], s[k]) <= n for j in range(len(s)) for k in range(len(s))]
    assert is_possible(n, np.array(s, np.int64), np.array(C, np.int64)) == (n >= 0 and all(pairs))


@pytest.mark.parametrize(("common", "possible"), [(2**62, True), (2**62 - 1, False), (0, False)])
def test_counts_whose_sums_overflow_are_compared_all_the_same(common, possible):
    n = 2**62
    assert is_possible(n, np.array([n, n]), np.array([[n, common], [common, n]])) == possible


@pytest.mark.parametrize(("n", "possible"), [(0, True), (-1, False)])
def test_no_responses_are_counted_by_n_alone(n, possible):
    assert is_possible(n, np.zeros(0, np.int64), np.zeros((0, 0), np.int64)) == possible
