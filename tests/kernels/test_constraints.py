"""The kernels of corrections against plain NumPy: leverages, the smallest change of weights, votes on bits."""

import numpy as np
import pytest
from tests.cascades import random_cascade
from tests.samples import correlated_stumps

from whet._kernels.constraints import judge_bits, leverages, satisfy
from whet.features.integral import IntegralStack

NEVER = np.inf


def problem(rng, n=12, T=9):
    """Weights (T + 1,), an inverse metric, and samples that the weights put on some side."""
    X = correlated_stumps(400, T, rng)[0]
    ones = np.column_stack([X, np.ones(len(X))])
    inverse = np.linalg.inv(ones.T @ ones / len(X) + 0.01 * np.eye(T + 1))
    return rng.normal(size=T + 1), np.ascontiguousarray(X[:n]), (inverse + inverse.T) / 2


def slow_satisfy(w, X, inverse, side, margin, most, tolerance, max_sweeps):
    """The specification: one constraint after the other, as far as its multiplier may go."""
    w, a, ones = w.copy(), np.zeros(len(X)), np.column_stack([X, np.ones(len(X))])
    rows = ones @ inverse
    gain = (rows * ones).sum(axis=1)
    for _ in range(max_sweeps):
        worst = 0.0
        for i in range(len(X)):
            new = np.clip(a[i] + (margin[i] - side[i] * (w @ ones[i])) / gain[i], 0, most[i] / gain[i])
            w, worst, a[i] = w + (new - a[i]) * side[i] * rows[i], max(worst, abs(new - a[i]) * gain[i]), new
        if worst <= tolerance:
            break
    return w


def test_leverages_are_quadratic_forms(rng):
    _, X, inverse = problem(rng, 30)
    result, ones = np.empty(30), np.column_stack([X, np.ones(30)])
    leverages(inverse, X, result)
    np.testing.assert_allclose(result, np.einsum("ij,jk,ik->i", ones, inverse, ones))


@pytest.mark.parametrize("most", [NEVER, 0.3])
@pytest.mark.parametrize("seed", range(5))
def test_weights_are_those_of_plain_coordinate_ascent(seed, most):
    rng = np.random.default_rng(seed)
    w, X, inverse = problem(rng)
    side, margin = rng.choice([-1.0, 1.0], len(X)), rng.uniform(0, 1, len(X))
    arguments = X, inverse, side, margin, np.full(len(X), min(most, 1e3)), 1e-10, 3000
    ours = w.copy()
    satisfy(ours, *arguments)
    np.testing.assert_allclose(ours, slow_satisfy(w, *arguments), atol=1e-6)
    assert not np.array_equal(ours, w)


def test_satisfied_constraints_change_no_bit_and_need_one_sweep(rng):
    w, X, inverse = problem(rng, 40)
    vote = X @ w[:-1] + w[-1]
    ours = w.copy()
    sweeps = satisfy(ours, X, inverse, np.sign(vote), abs(vote) * (1 - 1e-9), np.full(len(X), NEVER), 1e-9, 100)
    assert sweeps == 1
    assert ours.tobytes() == w.tobytes()


def test_contradictory_constraints_end_and_move_no_margin_further_than_allowed(rng):
    w, X, inverse = problem(rng, 1)
    X, side = np.repeat(X, 2, axis=0), np.array([1.0, -1.0])
    ours = w.copy()
    sweeps = satisfy(ours, X, inverse, side, np.array([0.5, 0.5]), np.full(2, 2.0), 1e-9, 500)
    assert sweeps < 500
    assert np.isfinite(ours).all()
    assert abs(X[0] @ (ours - w)[:-1] + (ours - w)[-1]) <= 2.0 + 1e-9


def test_no_constraints_change_nothing(rng):
    w, X, inverse = problem(rng)
    ours, none = w.copy(), np.empty(0)
    satisfy(ours, X[:0], inverse, none, none, none, 0.0, 10)
    assert ours.tobytes() == w.tobytes()


@pytest.mark.parametrize("soft", [False, True])
def test_votes_on_bits_are_those_on_patches_to_the_bit(soft, rng):
    cascade = random_cascade(("haar", "lbp", "haar"), (12, 9), (7, 5, 9), rng, passing=0.8, soft=soft)
    patches = rng.integers(0, 256, (400, 12, 9), dtype=np.uint8)
    stack = IntegralStack.from_patches(patches, cascade.min_sigma)
    bits = np.concatenate([stage.respond(stack) for stage in cascade.stages]).T.astype(np.uint8)
    for stage, columns in zip(cascade.stages, cascade.columns, strict=True):
        rejection = np.full(len(stage), -np.inf) if stage.rejection_thresholds is None else stage.rejection_thresholds
        margin, passed = np.empty(400), np.ones(400, np.bool_)
        judge_bits(bits[:, columns], stage.coef, stage.threshold, rejection, margin, passed)
        expected, passes = stage.judge(stack)
        assert margin[passes].tobytes() == expected[passes].tobytes()
        np.testing.assert_array_equal(passed, passes)
        assert stage.margins(np.ascontiguousarray(bits[:, columns])).tobytes() == expected.tobytes()
    scores = cascade.scores(patches)
    assert stack.has_contrast.all()
    assert 0 < np.isfinite(scores).sum() < 400
    assert cascade.scores_of_responses(np.ascontiguousarray(bits)).tobytes() == scores.tobytes()


def test_what_was_rejected_before_stays_rejected():
    passed, margin = np.array([False, True]), np.empty(2)
    judge_bits(np.ones((2, 3), np.uint8), np.ones(3), 1.0, np.full(3, -np.inf), margin, passed)
    assert passed.tolist() == [False, True]
