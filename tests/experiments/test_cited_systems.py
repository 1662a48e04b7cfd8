"""The short baselines against plain versions of what was published."""

import numpy as np
import pytest
from experiments.cited_systems import (
    GaussianAdaBoost,
    IncrementalLDA,
    RegressionBoosting,
    SelectorBoosting,
    gaussian_stumps,
)
from sklearn.base import clone
from tests.samples import two_gaussians

from whet.estimators.baselines import AdaBoost

ONLINE = [RegressionBoosting(20), SelectorBoosting(20, n_pool=10), IncrementalLDA()]


@pytest.fixture
def data(rng):
    return two_gaussians(300, 12, rng)


def test_a_gaussian_stump_is_where_weighted_densities_are_equal():
    p, m, v = (0.3, 0.7), (np.array([3.0, -1.0]), np.array([0.0, 2.0])), (np.array([1.0, 0.5]), np.array([2.0, 0.5]))
    stumps = gaussian_stumps(p, m, v)

    def density(c, f, x):
        return p[c] * np.exp(-((x - m[c][f]) ** 2) / (2 * v[c][f])) / np.sqrt(v[c][f])

    for f, t in enumerate(stumps.threshold):
        assert density(0, f, t) == pytest.approx(density(1, f, t))
    assert stumps.polarity.tolist() == [1, -1]


def test_gaussian_stumps_boost_nearly_as_well_on_normal_classes(data):
    X, y = data
    errors = [
        (model.fit(X[:200], y[:200]).predict(X[200:]) != y[200:]).mean()
        for model in (AdaBoost(20), GaussianAdaBoost(20))
    ]
    assert errors[1] <= errors[0] + 0.1


def test_regressions_are_those_of_least_squares(data):
    """A weak learner that has seen samples of equal weight is the line that NumPy fits to them."""
    X, y = data
    model = RegressionBoosting(1).fit(X[:100], y[:100])
    model.partial_fit(X[100:], y[100:])
    (sums,) = model._models
    w, wx, wxx, wy, wxy = sums[0]
    feature = model.selected_features_[0]
    start = np.where(y[:100] == 1, 50 / (y[:100] == 1).sum(), 50 / (y[:100] == 0).sum())
    weights = np.concatenate([start, np.ones(len(X) - 100)])
    slope, intercept = np.polyfit(X[:, feature], 2.0 * y - 1, 1, w=np.sqrt(weights))
    np.testing.assert_allclose((w * wxy - wx * wy) / (w * wxx - wx**2), slope)
    np.testing.assert_allclose((wy - slope * wx) / w, intercept, atol=1e-9)


def test_a_selector_votes_with_the_feature_that_separates(rng):
    X, y = rng.normal(size=(400, 30)), np.arange(400) % 2
    X[y == 1, 7] += 4
    model = SelectorBoosting(3, n_pool=30).fit(X, y)
    assert model.selected_features_[0] == 7
    assert (model.predict(X) == y).mean() > 0.9


def test_idr_qr_in_two_dimensions_is_lda():
    """With as many features as classes the subspace is the whole space, and nothing is lost online."""
    rng = np.random.default_rng(0)
    X, y = two_gaussians(200, 2, rng)
    X += np.array([3.0, 1.0])
    online = IncrementalLDA().fit(X[:50], y[:50]).partial_fit(X[50:], y[50:])
    S = sum((X[y == c] - X[y == c].mean(axis=0)).T @ (X[y == c] - X[y == c].mean(axis=0)) for c in (0, 1))
    w = np.linalg.solve(S + 1e-6 * np.eye(2), X[y == 1].mean(axis=0) - X[y == 0].mean(axis=0))
    np.testing.assert_allclose(online.coef_, w, rtol=1e-6)


@pytest.mark.parametrize("model", ONLINE, ids=repr)
def test_online_baselines_learn_from_the_stream(model, data):
    X, y = data
    first = clone(model).fit(X[:20], y[:20])
    before = (first.predict(X) != y).mean()
    after = (first.partial_fit(X[20:], y[20:]).predict(X) != y).mean()
    assert after <= before + 0.02
    assert after < 0.4
