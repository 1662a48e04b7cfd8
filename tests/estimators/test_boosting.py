from itertools import pairwise

import numpy as np
import pytest
from sklearn.ensemble import AdaBoostClassifier
from sklearn.tree import DecisionTreeClassifier
from tests.samples import two_gaussians

from whet.estimators.baselines import AdaBoost, AsymBoost


def test_one_round_by_hand():
    # Cut at 0.25, one negative of two is above; cut at 1.5, one positive of two is below: error 1/4 each.
    X, y = np.array([[0.0], [0.5], [1.0], [2.0]]), np.array([0, 1, 0, 1])
    model = AdaBoost(n_weak=1).fit(X, y)
    assert model.weak_learners_.threshold[0] == 0.25
    assert model.coef_[0] == pytest.approx(np.log(3))
    # A stump that is right three times in four is believed three to one.
    np.testing.assert_allclose(model.predict_proba([[0.0], [2.0]])[:, 1], [0.25, 0.75])


def test_a_round_makes_the_last_stump_useless(rng):
    """After reweighting, the stump just chosen errs on exactly half of the weight: it is not chosen again at once."""
    X, y = two_gaussians(300, 4, rng, gap=0.5)
    features = AdaBoost(n_weak=12).fit(X, y).weak_learners_
    pairs = list(zip(features.feature, features.threshold, strict=True))
    assert all(a != b for a, b in pairwise(pairs))


def test_as_good_as_scikit_learns(rng):
    X, y = two_gaussians(600, 10, rng, gap=0.6)
    ours = AdaBoost(n_weak=40).fit(X[:300], y[:300])
    theirs = AdaBoostClassifier(DecisionTreeClassifier(max_depth=1), n_estimators=40, random_state=0)
    theirs.fit(X[:300], y[:300])
    assert ours.score(X[300:], y[300:]) > theirs.score(X[300:], y[300:]) - 0.04


def test_training_error_falls(rng):
    X, y = two_gaussians(300, 10, rng, gap=0.5)
    stages = AdaBoost(n_weak=60).fit(X, y).staged_decision_function(X)
    errors = ((stages > 0) != (y[:, None] == 1)).mean(axis=0)
    assert errors[-1] < errors[0] / 2


def test_boosting_stops_at_a_stump_without_error():
    model = AdaBoost(n_weak=10).fit(np.array([[0.0], [1.0]]), [0, 1])
    assert len(model.coef_) == 1


@pytest.mark.parametrize("n_weak", [1, 20])
def test_asymmetry_buys_detections_with_false_positives(n_weak, rng):
    X, y = two_gaussians(600, 10, rng, gap=0.5)
    plain, asymmetric = (AsymBoost(n_weak, asymmetry=k).fit(X, y).predict(X) for k in (1.0, 20.0))
    assert asymmetric[y == 1].mean() > plain[y == 1].mean()
    assert asymmetric[y == 0].mean() > plain[y == 0].mean()


def test_without_asymmetry_it_is_adaboost(rng):
    X, y = two_gaussians(200, 6, rng)
    ones, plain = AsymBoost(10, asymmetry=1.0).fit(X, y), AdaBoost(10).fit(X, y)
    np.testing.assert_array_equal(ones.coef_, plain.coef_)


def test_the_cost_is_spread_over_the_rounds(rng):
    """Each round pays asymmetry^(1/2T): after T rounds the product is the whole cost."""
    _, y = two_gaussians(100, 4, rng)
    model = AsymBoost(8, asymmetry=16.0)
    tilt = model._tilt(y == 1)
    assert (tilt[y == 1][0] / tilt[y == 0][0]) ** 8 == pytest.approx(16.0)


def test_asymmetry_must_be_positive(rng):
    with pytest.raises(ValueError, match="asymmetry"):
        AsymBoost(asymmetry=0.0).fit(*two_gaussians(20, 2, rng))
