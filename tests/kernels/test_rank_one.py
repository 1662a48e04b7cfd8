"""Each kernel of the online step against a plain NumPy twin."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.samples import binary_samples, correlated_stumps

from whet._kernels import lda_algebra as rank_one
from whet._kernels.jit import as_float, kernel


@kernel
def _as_floats(whole, out):
    for i in range(whole.shape[0]):
        out[i] = as_float(whole[i])


@given(st.lists(st.integers(0, 2**52 - 1), min_size=1, max_size=20))
def test_counts_become_floats_exactly(numbers):
    whole = np.array(numbers, dtype=np.int64)
    out = np.empty(len(whole))
    _as_floats(whole, out)
    np.testing.assert_array_equal(out, whole.astype(np.float64))


@pytest.mark.parametrize("size", [1, 3, 4, 5, 8, 63])  # around the four rows that are taken at once
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_symmetric_product(size, dtype, rng):
    A = rng.integers(0, 100, (size, size)).astype(dtype)
    A = A + A.T
    v = rng.normal(size=size)
    out = np.ones(size)
    rank_one.add_symmetric_product(A, v, out)
    np.testing.assert_allclose(out, 1 + A @ v, rtol=1e-12)


@given(binary_samples(), st.integers(-3, 3))
def test_insert_binary(samples, k):
    X, _ = samples
    s, C = np.full(X.shape[1], 7), np.full((X.shape[1], X.shape[1]), 7)
    expected_s, expected_C = s + k * X[0].astype(int), C + k * np.outer(X[0].astype(int), X[0])
    rank_one.insert_binary(X[0], k, s, C)
    np.testing.assert_array_equal(s, expected_s)
    np.testing.assert_array_equal(C, expected_C)


@given(binary_samples())
def test_projected_mean_and_variance(samples):
    X, _ = samples
    v = np.linspace(-1, 2, X.shape[1])
    s, C = X.sum(axis=0).astype(np.int64), (X.astype(np.int64).T @ X)
    product = np.zeros(X.shape[1])
    mean, variance = rank_one.project_binary(len(X), s, C, v, product)
    scatter = np.cov(X.T, bias=True).reshape(C.shape) * len(X)
    assert mean == pytest.approx((X @ v).mean(), abs=1e-12)
    assert variance == pytest.approx((X @ v).var(), abs=1e-12)
    np.testing.assert_allclose(product, scatter @ v, atol=1e-11)


@pytest.mark.parametrize("c", [0.0, 0.7, -0.02])
def test_sherman_morrison_is_the_inverse_of_the_changed_matrix(c, rng):
    A = np.cov(rng.normal(size=(6, 40))) + np.eye(6)
    d = rng.normal(size=6)
    inverse, u = np.linalg.inv(A), np.empty(6)
    expected_u = inverse @ d
    denominator = rank_one.sherman_morrison(inverse, d, c, u, 1e-6)
    np.testing.assert_allclose(u, expected_u)
    assert denominator == pytest.approx(1 + c * d @ expected_u)
    np.testing.assert_allclose(inverse, np.linalg.inv(A + c * np.outer(d, d)), rtol=1e-10)


def test_sherman_morrison_refuses_to_annihilate_a_direction():
    inverse = np.eye(3)
    denominator = rank_one.sherman_morrison(inverse, np.array([1.0, 0, 0]), -1.0, np.empty(3), 1e-6)
    assert denominator == 0.0
    np.testing.assert_array_equal(inverse, np.eye(3))


def inverse_by_bif(inverse, p1, q1, p2, q2):
    """The paper's two-term formula [BIF], with its missing transposes put in."""
    r1 = 1 + q1 @ inverse @ p1
    U = np.column_stack([p1, p2 - (q1 @ inverse @ p2) / r1 * p1])
    V = np.column_stack([q1, q2 - (q2 @ inverse @ p1) / r1 * q1])
    r2 = 1 + V[:, 1] @ inverse @ p2
    return inverse - inverse @ U @ np.diag([1 / r1, 1 / r2]) @ V.T @ inverse


def test_the_papers_two_terms_and_our_one_term_agree(rng):
    X, _ = correlated_stumps(300, 40, rng)
    X = X.astype(float)
    ridge = np.eye(40)
    theirs = ours = np.linalg.inv(np.cov(X[:100].T, bias=True) * 100 + ridge)
    ours = ours.copy()
    mean = X[:100].mean(axis=0)
    for n in range(100, 300):
        x = X[n]
        mean_new = mean + (x - mean) / (n + 1)
        theirs = inverse_by_bif(theirs, x - mean_new, x - mean_new, n * (mean_new - mean), mean_new - mean)
        rank_one.sherman_morrison(ours, x - mean, n / (n + 1), np.empty(40), 1e-6)
        mean = mean_new
    assert abs(theirs - ours).max() / abs(ours).max() < 1e-10
    np.testing.assert_allclose(ours, np.linalg.inv(np.cov(X.T, bias=True) * 300 + ridge), rtol=0, atol=1e-10)


@pytest.mark.parametrize("k", [1, 3, -1])
def test_insert_centred(k, rng):
    X = rng.normal(size=(20, 4)) + 100
    m, S = X.mean(axis=0), np.cov(X.T, bias=True) * 20
    rank_one.insert_centred(X[0], float(k), 20.0, m, S)
    after = np.concatenate([X, np.tile(X[0], (k, 1))]) if k > 0 else X[1:]
    np.testing.assert_allclose(m, after.mean(axis=0))
    np.testing.assert_allclose(S, np.cov(after.T, bias=True) * len(after), atol=1e-9)


def test_largest_residual():
    assert rank_one.largest_residual(np.array([1.0, 2.5]), np.array([1.0, 2.0]), 0.0) == 0.25
    assert rank_one.largest_residual(np.array([1.0, 2.5]), np.array([1.0, 2.0]), 0.5) == 0.0
    assert rank_one.largest_residual(np.array([0.5]), np.array([0.0]), 0.0) == 0.5
