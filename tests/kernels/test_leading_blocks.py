import numpy as np
import pytest

from whet._kernels.lda_algebra import leading_forms


@pytest.mark.parametrize(("size", "reserve"), [(1, 0), (7, 0), (40, 5)])
def test_forms_are_those_of_two_cumulative_sums_to_the_last_bit(size, reserve, rng):
    S, w = rng.normal(size=(size + reserve, size + reserve)), rng.normal(size=size)
    products = S[:size, :size] * np.outer(w, w)
    np.testing.assert_array_equal(leading_forms(S, w), np.diagonal(np.cumsum(np.cumsum(products, axis=0), axis=1)))
    blocks = [w[:t] @ S[:t, :t] @ w[:t] for t in range(1, size + 1)]
    np.testing.assert_allclose(leading_forms(S, w), blocks, atol=1e-9)
