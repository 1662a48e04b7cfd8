import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet._kernels import lda_algebra as cholesky


def positive_definite(size, seed):
    B = np.random.default_rng(seed).normal(size=(size, size + 2))
    return B @ B.T + 0.1 * np.eye(size)


@given(st.integers(1, 20), st.integers(0, 10**6))
def test_factor_solve_and_inverse_equal_numpys(size, seed):
    A = positive_definite(size, seed)
    U, failed = cholesky.factorise(A)
    assert failed == -1
    np.testing.assert_allclose(U, np.linalg.cholesky(A).T, rtol=1e-9, atol=1e-12)
    b = np.arange(1.0, size + 1)
    np.testing.assert_allclose(cholesky.solve(U, b), np.linalg.solve(A, b), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(cholesky.invert(U), np.linalg.inv(A), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("size", [1, 4, 6, 33])
def test_every_entry_is_reduced_row_by_row_in_a_fixed_order(size):
    """The bits of a model's weights hang on it: whoever makes this faster keeps the order."""
    U = np.triu(positive_definite(size, 3))
    for k in range(size):
        U[k, k:] /= np.sqrt(U[k, k])
        for i in range(k + 1, size):
            U[i, i:] -= U[k, i] * U[k, i:]
    np.testing.assert_array_equal(cholesky.factorise(positive_definite(size, 3))[0], U)


def test_inverse_is_symmetric_to_the_last_bit():
    W = cholesky.invert(cholesky.factorise(positive_definite(30, 1))[0])
    np.testing.assert_array_equal(W, W.T)


@pytest.mark.parametrize(
    ("A", "row"),
    [
        (np.zeros((2, 2)), 0),
        (np.array([[1.0, 1.0], [1.0, 1.0]]), 1),  # two responses alike
        (np.array([[1.0, 2.0], [2.0, 1.0]]), 1),  # indefinite
        (np.array([[np.nan]]), 0),
    ],
)
def test_a_matrix_that_is_not_positive_definite_is_named_by_its_row(A, row):
    assert cholesky.factorise(A)[1] == row


def test_the_input_is_left_alone():
    A = positive_definite(5, 2)
    before = A.copy()
    cholesky.factorise(A)
    np.testing.assert_array_equal(A, before)
