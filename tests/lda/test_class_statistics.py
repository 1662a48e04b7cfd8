import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.samples import binary_samples

from whet.lda.statistics import BinaryStatistics, CentredStatistics, co_occurrence

KINDS = pytest.mark.parametrize("kind", [BinaryStatistics, CentredStatistics])


def assert_same(a, b):
    """Exactly for integers, to rounding for floats."""
    assert a.n == b.n
    exact = isinstance(a, BinaryStatistics)
    for x, y in zip(a.arrays(), b.arrays(), strict=True):
        np.testing.assert_allclose(x, y, rtol=0 if exact else 1e-9, atol=0 if exact else 1e-9)


@KINDS
@given(samples=binary_samples())
def test_mean_and_scatter_are_those_of_the_repeated_samples(kind, samples):
    X, weights = samples
    repeated = np.repeat(X.astype(float), weights, axis=0)
    statistics = kind.from_samples(X, weights)
    np.testing.assert_allclose(statistics.mean, repeated.mean(axis=0), atol=1e-12)
    D = repeated - repeated.mean(axis=0)
    np.testing.assert_allclose(statistics.scatter, D.T @ D, atol=1e-9)


@KINDS
@given(samples=binary_samples())
def test_inserting_one_by_one_is_inserting_all_at_once(kind, samples):
    X, weights = samples
    one_by_one = kind.empty(X.shape[1])
    for x, k in zip(X, weights, strict=True):
        one_by_one.insert(x, int(k))
    assert_same(one_by_one, kind.from_samples(X, weights))


@KINDS
@given(samples=binary_samples(), cut=st.integers(1, 23))
def test_merge_is_concatenation(kind, samples, cut):
    X, weights = samples
    cut = min(cut, len(X) - 1)
    parts = kind.from_samples(X[:cut], weights[:cut]) + kind.from_samples(X[cut:], weights[cut:])
    assert_same(parts, kind.from_samples(X, weights))
    assert_same(parts - kind.from_samples(X[cut:], weights[cut:]), kind.from_samples(X[:cut], weights[:cut]))


@KINDS
@given(samples=binary_samples())
def test_subtraction_undoes_insert(kind, samples):
    X, weights = samples
    statistics = kind.from_samples(X, weights)
    before = statistics.copy()
    statistics.insert(X[0], 2)
    assert_same(statistics - kind.from_samples(X[:1], np.array([2])), before)


@given(samples=binary_samples(), weight=st.integers(0, 2**45))
def test_one_weight_for_all_is_counted_at_once_and_exactly(samples, weight):
    X, _ = samples
    expected = weight * (X.T.astype(np.int64) @ X)
    np.testing.assert_array_equal(co_occurrence(X, np.full(len(X), weight)), expected)


@KINDS
def test_the_last_sample_can_go_too(kind):
    statistics = kind.from_samples(np.array([[1, 0]], dtype=np.uint8))
    statistics = statistics - statistics.copy()
    assert statistics.n == 0
    assert statistics.is_possible(statistics)
    assert not statistics.C.any() if kind is BinaryStatistics else not statistics.S.any()


@pytest.mark.parametrize(
    ("inserted", "removed"),
    [
        ([[1, 1]], [[1, 0]]),  # C_01 would be 1 with s_1 = 1 and s_0 = 0
        ([[0, 0]], [[1, 0]]),  # s_0 would be -1
        ([[1, 0]], [[0, 0]]),  # n = 0 with s_0 = 1
        ([[1, 0], [0, 1]], [[1, 1]]),  # C_01 would be -1
        ([[1, 0]], [[1, 0], [1, 0]]),
        ([[1, 0], [0, 1]], [[0, 0]]),  # one sample left that has both responses, and C_01 = 0
        ([[1, 1, 0], [1, 0, 1], [0, 1, 1]], [[0, 0, 0]]),  # C_jk = 1 of n = 2, with every s_j = 2
    ],
)
def test_what_was_not_inserted_cannot_be_removed(inserted, removed):
    statistics = BinaryStatistics.from_samples(np.array(inserted, dtype=np.uint8))
    rest = statistics - BinaryStatistics.from_samples(np.array(removed, dtype=np.uint8))
    assert not rest.is_possible(statistics)


def test_counts_of_two_responses_are_possible_just_where_samples_have_them():
    for n, a, b, both in itertools.product(range(-1, 5), repeat=4):
        cells = [both, a - both, b - both, n - a - b + both]  # samples 11, 10, 01 and 00
        statistics = BinaryStatistics(n, np.array([a, b]), np.array([[a, both], [both, b]]))
        assert statistics.is_possible(statistics) == (min(cells) >= 0), cells


@given(samples=binary_samples())
def test_statistics_of_samples_are_always_possible(samples):
    statistics = BinaryStatistics.from_samples(*samples)
    assert statistics.is_possible(statistics)


def test_real_samples_far_from_what_was_inserted_cannot_be_removed(rng):
    statistics = CentredStatistics.from_samples(rng.normal(size=(10, 2)))
    assert not (statistics - CentredStatistics.from_samples(np.array([[50.0, 0.0]]))).is_possible(statistics)


def test_take_is_the_statistics_of_those_columns(rng):
    X = rng.integers(0, 2, (20, 5)).astype(np.uint8)
    chosen = np.array([3, 0])
    for kind in (BinaryStatistics, CentredStatistics):
        assert_same(kind.from_samples(X).take(chosen), kind.from_samples(X[:, chosen]))


@pytest.mark.parametrize("n", [1, 63, 64, 65, 200])  # around the words of 64 samples
def test_co_occurrence_is_the_weighted_product(n, rng):
    X = rng.integers(0, 2, (n, 7)).astype(np.uint8)
    weights = rng.integers(0, 1000, n)
    np.testing.assert_array_equal(co_occurrence(X, weights), (X.astype(np.int64) * weights[:, None]).T @ X)


@pytest.mark.parametrize("total", [2**24 + 1, 2**53 + 1, 2**62])
def test_counts_stay_exact_where_floats_no_longer_are(total):
    assert co_occurrence(np.ones((2, 1), dtype=np.uint8), np.array([total - 1, 1]))[0, 0] == total


def test_the_scatter_of_ten_billion_samples_does_not_overflow():
    n = 10**10
    statistics = BinaryStatistics(n, np.array([n // 2]), np.array([[n // 2]]))
    assert statistics.scatter[0, 0] == n / 4


def test_centred_scatter_survives_an_offset_that_breaks_the_sum_of_squares(rng):
    X = rng.normal(size=(1000, 1)) + 1e9
    true = 1000 * (X - X.mean()).var()
    naive = (X**2).sum() - 1000 * X.mean() ** 2  # what sums of squares would keep
    assert abs(naive / true - 1) > 0.5
    one_by_one = CentredStatistics.empty(1)
    for x in X:
        one_by_one.insert(x)
    assert abs(one_by_one.S[0, 0] / true - 1) < 1e-6


@KINDS
def test_samples_are_not_kept_by_reference(kind):
    X = np.array([[1, 0], [0, 1]], dtype=np.uint8)
    statistics = kind.from_samples(X)
    before = [a.copy() for a in statistics.arrays()]
    X[:] = 0
    for a, b in zip(statistics.arrays(), before, strict=True):
        np.testing.assert_array_equal(a, b)
