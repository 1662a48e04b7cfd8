import numpy as np
import pytest
from experiments.sparse_lda import BranchAndBound, exhaustive, scatter_matrix, separation
from tests.samples import correlated_stumps

from whet.lda.selection import Scatter, select


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("k", [1, 3, 6])
def test_branch_and_bound_finds_the_best_of_all_sets(seed, k):
    X, y = correlated_stumps(120, 10, np.random.default_rng(seed))
    scatter = Scatter.from_responses(X, y, np.ones(len(X), dtype=np.int64), "fda", 1e-6)
    A, d = scatter_matrix(scatter), scatter.gap
    search = BranchAndBound(k)
    best, members = search.run(A, d)
    expected, _ = exhaustive(A, d, k)
    assert best == pytest.approx(expected)
    assert separation(A, d, np.array(members)) == pytest.approx(expected)
    assert separation(A, d, select(scatter, k)) <= best * (1 + 1e-9)


def test_the_separation_is_that_of_the_whole_matrix(rng):
    X, y = correlated_stumps(80, 6, rng)
    scatter = Scatter.from_responses(X, y, np.ones(len(X), dtype=np.int64), "fda", 0.5)
    S = sum(np.cov(X[side].T, bias=True) * side.sum() for side in (y, ~y)) + 0.5 * np.eye(6)
    np.testing.assert_allclose(scatter_matrix(scatter), S)
