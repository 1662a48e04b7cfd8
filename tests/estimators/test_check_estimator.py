"""scikit-learn's own contract, and what every estimator of ours has to keep besides."""

import pickle
import warnings

import numpy as np
import pytest
from experiments.cited_systems import GaussianAdaBoost, IncrementalLDA, RegressionBoosting, SelectorBoosting
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks
from tests.samples import two_gaussians

from whet.estimators import GSLDA, OnlineGSLDA
from whet.estimators.baselines import AdaBoost, AsymBoost, OnlineBoosting

ESTIMATORS = [
    GSLDA(),
    GSLDA(weak="identity"),
    GSLDA(criterion="lac", search="forward-backward"),
    GSLDA(threshold="fisher"),
    OnlineGSLDA(),
    OnlineGSLDA(n_reserve=60),
    OnlineGSLDA(weak="identity", decay=0.999),
    AdaBoost(),
    AsymBoost(),
    OnlineBoosting(),
    GSLDA(stump_error="plain"),
    GaussianAdaBoost(),
    RegressionBoosting(),
    SelectorBoosting(5),
    IncrementalLDA(),
]
EACH = pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
ONLINE = pytest.mark.parametrize("estimator", [e for e in ESTIMATORS if hasattr(e, "partial_fit")], ids=repr)


def known_failures(estimator):
    """As scikit-learn lists them for its own learners of one pass, such as `SGDClassifier`."""
    if not isinstance(estimator, SelectorBoosting):
        return {}
    return {"check_sample_weight_equivalence_on_dense_data": "samples are learned one by one: their order matters"}


@pytest.mark.filterwarnings("ignore:n_weak")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=known_failures)
def test_scikit_learns_contract(estimator, check):
    check(estimator)


@pytest.fixture
def data(rng):
    return two_gaussians(200, 60, rng)


@EACH
def test_prediction_changes_nothing(estimator, data):
    X, y = data
    model = clone(estimator).fit(X, y)
    first = model.decision_function(X)
    model.predict(X)
    model.predict_proba(X)
    np.testing.assert_array_equal(model.decision_function(X), first)


@EACH
def test_inputs_are_neither_changed_nor_kept(estimator, data):
    X, y = data[0].copy(), data[1].copy()
    model = clone(estimator).fit(X, y)
    before = model.decision_function(data[0])
    np.testing.assert_array_equal(X, data[0])
    X[:], y[:] = 0, 0
    np.testing.assert_array_equal(model.decision_function(data[0]), before)


@EACH
def test_probability_agrees_with_prediction(estimator, data):
    X, y = data
    model = clone(estimator).fit(X, y)
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(X))


@EACH
@pytest.mark.parametrize("labels", [("no", "yes"), (-1, 1), (False, True), (3, 5)])
def test_any_two_labels(estimator, labels, data):
    X, y = data
    predicted = clone(estimator).fit(X, y).predict(X)
    # Few selectors of random features are weaker than the others, which choose from all.
    assert (predicted == y).mean() > (0.8 if isinstance(estimator, SelectorBoosting) else 0.9)
    model = clone(estimator).fit(X, np.array(labels)[y])
    np.testing.assert_array_equal(model.predict(X), np.array(labels)[predicted])
    np.testing.assert_array_equal(model.classes_, labels)


@EACH
def test_a_pickled_model_predicts_alike(estimator, data):
    X, y = data
    model = clone(estimator).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))


@EACH
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_a_number_is_refused(estimator, bad, data):
    X, y = data[0].copy(), data[1]
    X[3, 1] = bad
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        clone(estimator).fit(X, y)


@EACH
@pytest.mark.parametrize(
    ("labels", "message"),
    [(np.zeros(200), "class"), (np.arange(200) % 3, "multiclass"), (np.linspace(0, 1, 200), "label|target")],
)
def test_labels_that_are_not_two_classes_are_refused(estimator, labels, message, data):
    with pytest.raises(ValueError, match=message):
        clone(estimator).fit(data[0], labels)


@EACH
@pytest.mark.parametrize("weights", [[0.5] * 200, [1e17] * 200, [-1] * 200, [1] * 199, [0] * 200])
def test_weights_that_do_not_count_samples_are_refused(estimator, weights, data):
    with pytest.raises(ValueError, match=r"whole|egative|shape|zero|exact"):
        clone(estimator).fit(*data, sample_weight=weights)


@EACH
def test_constant_features_and_fewer_samples_than_weak_learners(estimator, rng):
    X, y = two_gaussians(12, 60, rng, gap=5)
    X[:, 1::2] = 4.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = clone(estimator).fit(X, y)
    assert (model.predict(X) == y).all()


@EACH
def test_features_that_tell_nothing_predict_the_larger_class(estimator):
    fewer = {"n_weak": 2} if "n_weak" in estimator.get_params() else {}
    model = clone(estimator).set_params(**fewer).fit(np.ones((5, 2)), [0, 1, 1, 1, 0])
    assert np.isfinite(model.predict_proba(np.ones((1, 2)))).all()
    if isinstance(estimator, GSLDA):
        assert model.predict(np.ones((1, 2)))[0] == 1
        assert model.predict_proba(np.ones((1, 2)))[0, 1] == pytest.approx(0.6)


@ONLINE
def test_a_bad_block_leaves_the_state_as_it_was(estimator, data):
    X, y = data
    model = clone(estimator).fit(X, y)
    before = model.decision_function(X)
    broken = X.copy()
    broken[0, 0] = np.nan
    for block, labels, weights in [
        (broken, y, None),
        (X, y + 5, None),
        (X[:, :-1], y, None),
        (X, y, np.full(len(X), 0.5)),
        (X[:0], y[:0], None),
    ]:
        with pytest.raises(ValueError, match=r".+"):
            model.partial_fit(block, labels, sample_weight=weights)
        np.testing.assert_array_equal(model.decision_function(X), before)


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_weak": 0},
        {"n_weak": 3.0},
        {"ridge": -1.0},
        {"ridge": 0.0},
        {"ridge": np.nan},
        {"miss_rate": 1.0},
        {"criterion": "pca"},
        {"weak": "tree"},
        {"threshold": "best"},
        {"search": "backward"},
        {"threshold": "fisher", "criterion": "lac"},
        {"n_reserve": 3},
        {"decay": 0.0},
        {"decay": 1.5},
        {"min_initial": 0},
    ],
)
def test_parameters_that_make_no_sense_are_named(parameters, data):
    for fit in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match=next(iter(parameters))):
            getattr(OnlineGSLDA().set_params(**parameters), fit)(*data)
