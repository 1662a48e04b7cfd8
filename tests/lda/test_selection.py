from itertools import combinations

import numpy as np
import pytest
from scipy.linalg import eigh
from tests.samples import correlated_stumps

from whet.lda.discriminant import regularised_scatter
from whet.lda.selection import Scatter, eliminate, forward, select
from whet.lda.statistics import BinaryStatistics, CentredStatistics


def separation(positive, negative, chosen, criterion, ridge):
    """Largest generalised eigenvalue of the between-class against the regularised within-class scatter."""
    chosen = np.array(chosen)
    a, b = positive.take(chosen), negative.take(chosen)
    gap = a.mean - b.mean
    return eigh(np.outer(gap, gap), regularised_scatter(a, b, criterion, ridge), eigvals_only=True)[-1]


@pytest.mark.parametrize("criterion", ["fda", "lac"])
@pytest.mark.parametrize("ridge", [1e-6, 3.0])
def test_each_round_adds_the_candidate_with_the_largest_eigenvalue(criterion, ridge, rng):
    X, y = correlated_stumps(150, 20, rng)
    positive, negative = BinaryStatistics.from_samples(X[y]), BinaryStatistics.from_samples(X[~y])
    order, J = forward(Scatter.from_statistics(positive, negative, criterion, ridge), 8)
    chosen = []
    for j, reached in zip(order, J, strict=True):
        values = {
            i: separation(positive, negative, [*chosen, i], criterion, ridge) for i in range(20) if i not in chosen
        }
        assert values[j] == pytest.approx(max(values.values()), rel=1e-9)
        assert reached == pytest.approx(values[j], rel=1e-9)
        chosen.append(int(j))


@pytest.mark.parametrize("criterion", ["fda", "lac"])
def test_statistics_and_responses_give_the_same_bits(criterion, rng):
    X, y = correlated_stumps(300, 30, rng)
    weights = rng.integers(1, 5, 300)
    positive = BinaryStatistics.from_samples(X[y], weights[y])
    negative = BinaryStatistics.from_samples(X[~y], weights[~y])
    a = Scatter.from_statistics(positive, negative, criterion, 0.3)
    b = Scatter.from_responses(X, y, weights, criterion, 0.3)
    np.testing.assert_array_equal(a.gap, b.gap)
    np.testing.assert_array_equal(a.diagonal, b.diagonal)
    for j in range(30):
        np.testing.assert_array_equal(a.row(a.described(j)), b.row(b.described(j)))


def test_real_responses(rng):
    X, y = correlated_stumps(200, 12, rng)
    X = X + rng.normal(size=X.shape)
    a = Scatter.from_statistics(CentredStatistics.from_samples(X[y]), CentredStatistics.from_samples(X[~y]), "fda", 0.1)
    b = Scatter.from_responses(X, y, np.ones(200, dtype=np.int64), "fda", 0.1)
    np.testing.assert_array_equal(forward(a, 6)[0], forward(b, 6)[0])


def test_ties_go_to_the_lowest_index(rng):
    X, y = correlated_stumps(100, 6, rng)
    twice = np.concatenate([X, X], axis=1)
    scatter = Scatter.from_responses(twice, y, np.ones(100, dtype=np.int64), "fda", 1.0)
    order = list(forward(scatter, 12)[0])
    first_of_twins = [order.index(j) < order.index(j + 6) for j in range(6) if j + 6 in order]
    assert all(first_of_twins)
    assert len(first_of_twins) > 0


def test_a_candidate_that_depends_on_the_selected_ones_is_out(rng):
    X, y = correlated_stumps(100, 3, rng)
    alike = np.column_stack([X, X[:, 0], 1 - X[:, 1]])
    scatter = Scatter.from_responses(alike, y, np.ones(100, dtype=np.int64), "fda", 0.0)
    assert len(forward(scatter, 5)[0]) == 3


def test_constant_candidates_are_never_selected(rng):
    X, y = correlated_stumps(100, 4, rng)
    X[:, 2] = 1
    scatter = Scatter.from_responses(X, y, np.ones(100, dtype=np.int64), "fda", 1.0)
    assert 2 not in forward(scatter, 4)[0]


def test_elimination_takes_out_what_is_missed_least(rng):
    X, y = correlated_stumps(150, 8, rng)
    positive, negative = BinaryStatistics.from_samples(X[y]), BinaryStatistics.from_samples(X[~y])
    scatter = Scatter.from_statistics(positive, negative, "fda", 0.5)
    kept, J = eliminate(scatter, np.arange(8), 7)
    best = max(combinations(range(8), 7), key=lambda c: separation(positive, negative, c, "fda", 0.5))
    assert tuple(sorted(kept)) == best
    assert pytest.approx(separation(positive, negative, best, "fda", 0.5)) == J


def test_going_back_never_separates_less():
    better = 0
    for seed in range(20):
        X, y = correlated_stumps(120, 25, np.random.default_rng(seed))
        positive, negative = BinaryStatistics.from_samples(X[y]), BinaryStatistics.from_samples(X[~y])
        scatter = Scatter.from_statistics(positive, negative, "fda", 0.5)
        one_way, both_ways = select(scatter, 5), select(scatter, 5, "forward-backward")
        assert len(both_ways) == 5
        gain = separation(positive, negative, both_ways, "fda", 0.5) - separation(
            positive, negative, one_way, "fda", 0.5
        )
        assert gain >= -1e-9
        better += gain > 1e-9
    assert better > 0
