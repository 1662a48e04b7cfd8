"""The weights nearest to given ones that satisfy constraints, against an exact quadratic program."""

import numpy as np
import pytest
from scipy.optimize import nnls
from tests.samples import correlated_stumps

from whet.lda.constraints import SMOOTHING, WEIGHT_OF_POSITIVES, ChangeMetric, Constraints, nearest_weights
from whet.lda.discriminant import direction
from whet.lda.statistics import BinaryStatistics


def stage(seed, T=12, n=900):
    """Weights and threshold of a discriminant, its training samples of both classes, and its metric."""
    X, y = correlated_stumps(n, T, np.random.default_rng(seed))
    positive, negative = BinaryStatistics.from_samples(X[y]), BinaryStatistics.from_samples(X[~y])
    coef = direction(positive, negative, "fda", 20.0)
    threshold = float((X[y] @ coef).mean() + (X[~y] @ coef).mean()) / 2
    return coef, threshold, X[y], X[~y], ChangeMetric.from_statistics(positive, negative)


def with_ones(X):
    return np.column_stack([X, np.ones(len(X))])


def moments(positive, negative):
    """H from the samples themselves."""
    A, B = with_ones(positive), with_ones(negative)
    H = WEIGHT_OF_POSITIVES * A.T @ A / len(A) + B.T @ B / len(B)
    return H + SMOOTHING * np.eye(len(H))


def least_distance(w, H, A, b):
    """min (v - w)^T H (v - w) with A v >= b, exactly: Lawson and Hanson's least distance programming by NNLS."""
    L = np.linalg.cholesky(H)
    G = np.linalg.solve(L, A.T).T  # u = L^T (v - w)
    E = np.vstack([G.T, b - A @ w])
    y, _ = nnls(E, np.append(np.zeros(len(w)), 1.0))
    r = E @ y - np.append(np.zeros(len(w)), 1.0)
    return w + np.linalg.solve(L.T, -r[:-1] / r[-1])


def wrong_side(coef, threshold, samples, side, n):
    """The n samples that are deepest on the other side than `side`."""
    return samples[np.argsort(side * (samples @ coef - threshold), kind="stable")[:n]]


def test_the_metric_is_the_mean_squared_change_of_margins():
    _, _, positive, negative, metric = stage(0)
    v = np.random.default_rng(1).normal(size=13)
    change = [((with_ones(side) @ v) ** 2).mean() for side in (positive, negative)]
    expected = WEIGHT_OF_POSITIVES * change[0] + change[1] + SMOOTHING * v @ v
    assert v @ np.linalg.inv(metric.inverse) @ v == pytest.approx(expected)
    np.testing.assert_allclose(metric.inverse, np.linalg.inv(moments(positive, negative)), rtol=1e-6)
    np.testing.assert_array_equal(metric.inverse, metric.inverse.T)


@pytest.mark.parametrize("seed", range(8))
def test_weights_are_the_solution_of_the_quadratic_program(seed):
    coef, threshold, positive, negative, metric = stage(seed)
    length = np.linalg.norm(coef)
    false_positives = wrong_side(coef, threshold, negative, -1, 4)
    misses = wrong_side(coef, threshold, positive, 1, 3)
    X = np.concatenate([false_positives, misses])
    # A sample on both sides cannot be put right: draw others.
    assert not (false_positives[:, None] == misses[None]).all(axis=2).any()
    side, margin = np.repeat([-1.0, 1.0], [4, 3]), np.full(7, 0.05 * length)
    ours = np.append(*nearest_weights(coef, threshold, metric, Constraints(X, side, margin)))
    ours[-1] *= -1
    w, H, A = np.append(coef, -threshold), moments(positive, negative), side[:, None] * with_ones(X)
    best = least_distance(w, H, A, margin)
    assert (A @ best >= margin - 1e-8 * length).all()  # else the oracle is wrong, or this cannot be satisfied
    assert (A @ ours >= margin - 2e-3 * length).all()
    costs = [(v - w) @ H @ (v - w) for v in (ours, best)]
    assert costs[0] == pytest.approx(costs[1], rel=0.02)
    assert np.sqrt((ours - best) @ H @ (ours - best)) <= 0.01 * length


def test_one_false_positive_costs_its_margin_by_its_leverage():
    coef, threshold, positive, negative, metric = stage(3)
    x = wrong_side(coef, threshold, negative, -1, 1)
    depth = float(x[0] @ coef - threshold)
    assert depth > 0
    new, moved = nearest_weights(coef, threshold, metric, Constraints(x, np.array([-1.0]), np.zeros(1)))
    v = np.append(new - coef, threshold - moved)
    assert v @ moments(positive, negative) @ v == pytest.approx(depth**2 / metric.leverage(x)[0], rel=1e-6)


def test_satisfied_constraints_change_no_bit():
    coef, threshold, positive, _, metric = stage(4)
    margin = positive @ coef - threshold
    kept = Constraints(positive, np.sign(margin), abs(margin) / 2)
    new, moved = nearest_weights(coef, threshold, metric, kept)
    assert new.tobytes() == coef.tobytes()
    assert moved == threshold


def test_satisfied_constraints_beside_others_change_no_bit_where_they_stay_satisfied():
    coef, threshold, _, negative, metric = stage(5)
    x = wrong_side(coef, threshold, negative, -1, 1)
    alone = nearest_weights(coef, threshold, metric, Constraints(x, np.array([-1.0]), np.array([0.1])))
    margin = negative @ alone[0] - alone[1]
    clear = negative[(margin < -1.0) & (negative @ coef - threshold < -1.0)]
    X, side = np.concatenate([x, clear]), np.full(len(clear) + 1, -1.0)
    both = nearest_weights(coef, threshold, metric, Constraints(X, side, np.full(len(X), 0.1)))
    assert len(clear) > 5
    assert both[0].tobytes() == alone[0].tobytes()
    assert both[1] == alone[1]


def test_contradictions_end_with_finite_weights():
    coef, threshold, positive, negative, metric = stage(6)
    X = np.concatenate([positive[:50], negative[:50], positive[:50], negative[:50]])
    side = np.repeat([1.0, -1.0], 100)
    new, moved = nearest_weights(coef, threshold, metric, Constraints(X, side, np.full(200, 0.2)))
    assert np.isfinite(new).all()
    assert np.isfinite(moved)


def test_a_guard_gives_way_to_the_correction_that_it_contradicts():
    coef, threshold, _, negative, metric = stage(8)
    x = np.repeat(wrong_side(coef, threshold, negative, -1, 1), 2, axis=0)
    margin = np.array([0.2, 0.05]) * np.linalg.norm(coef)
    wanted = Constraints(x, np.array([-1.0, 1.0]), margin, n_guards=1)
    new, moved = nearest_weights(coef, threshold, metric, wanted)
    assert x[0] @ new - moved < 0
    undecided = nearest_weights(coef, threshold, metric, Constraints(x, wanted.side, margin))
    assert x[0] @ undecided[0] - undecided[1] > x[0] @ new - moved


def test_equal_rows_give_equal_bits_and_other_orders_nearly_the_same():
    coef, threshold, positive, negative, metric = stage(7)
    X = np.concatenate([wrong_side(coef, threshold, negative, -1, 5), wrong_side(coef, threshold, positive, 1, 2)])
    side, margin = np.repeat([-1.0, 1.0], [5, 2]), np.full(7, 0.1)
    first = nearest_weights(coef, threshold, metric, Constraints(X, side, margin))
    again = nearest_weights(coef, threshold, metric, Constraints(X.copy(order="F"), side, margin))
    turned = nearest_weights(coef, threshold, metric, Constraints(X[::-1], side[::-1].copy(), margin))
    assert first[0].tobytes() == again[0].tobytes()
    np.testing.assert_allclose(turned[0], first[0], atol=0.01 * np.linalg.norm(coef))


def test_second_moments_of_no_samples_are_refused():
    C = np.array([[5, 0], [0, 5]])
    impossible = BinaryStatistics(5, np.array([5, 5]), C)  # both always respond, and never together
    with pytest.raises(ValueError, match="Cholesky"):
        ChangeMetric.from_statistics(impossible, impossible)
