import copy
import itertools

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from tests.samples import two_gaussians

from whet.errors import CannotMergeError, CannotUnlearnError, ForgettingError, SampleWeightError, WhetError
from whet.estimators import GSLDA, OnlineGSLDA


@pytest.fixture
def data(rng):
    X, y = two_gaussians(400, 30, rng, gap=0.8)
    return X[:100], y[:100], X[100:], y[100:]


def state(model):
    return [a.copy() for total in model._totals for a in total.arrays()]


def assert_same_state(a, b):
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("weak", ["stump", "identity"])
@pytest.mark.parametrize(
    ("criterion", "threshold"),
    [
        *itertools.product(("fda", "lac"), ("bayes", "asymmetric", "detection_rate", "negative_mean")),
        ("fda", "fisher"),
    ],
)
def test_update_partial_fit_and_training_at_once_agree(weak, criterion, threshold, data):
    X, y, X_new, y_new = data
    options = {"n_weak": 10, "weak": weak, "criterion": criterion, "threshold": threshold}
    single = OnlineGSLDA(**options).fit(X, y)
    for x, label in zip(X_new, y_new, strict=True):
        single.update(x, label)
    block = OnlineGSLDA(**options).fit(X, y).partial_fit(X_new, y_new)
    np.testing.assert_allclose(single.coef_, block.coef_, rtol=1e-10)
    assert single.intercept_ == pytest.approx(block.intercept_, rel=1e-9)
    # The same weak learners on everything at once, by the textbook.
    H = block.weak_learners_.transform(np.concatenate([X, X_new])).astype(float)
    labels = np.concatenate([y, y_new])
    S1, S2 = (np.cov(H[labels == c].T, bias=True) * (labels == c).sum() for c in (1, 0))
    A = (S1 + S2 if criterion == "fda" else S1) + 20.0 * np.eye(10)
    factor = len(H) - 2 if criterion == "fda" else (labels == 1).sum() - 1
    w = factor * np.linalg.solve(A, H[labels == 1].mean(axis=0) - H[labels == 0].mean(axis=0))
    np.testing.assert_allclose(block.coef_, w, rtol=1e-9)


def test_online_and_batch_start_from_one_training(data):
    X, y, *_ = data
    np.testing.assert_array_equal(OnlineGSLDA(8).fit(X, y).coef_, GSLDA(8).fit(X, y).coef_)


def test_whole_weights_are_repetitions(data, rng):
    X, y, X_new, y_new = data
    weights = rng.integers(0, 4, len(X_new))
    weighted = OnlineGSLDA(8).fit(X, y).partial_fit(X_new, y_new, sample_weight=weights)
    repeated = OnlineGSLDA(8).fit(X, y).partial_fit(np.repeat(X_new, weights, axis=0), np.repeat(y_new, weights))
    assert_same_state(state(weighted), state(repeated))
    single = OnlineGSLDA(8).fit(X, y)
    for x, label, k in zip(X_new, y_new, weights, strict=True):
        if k:
            single.update(x, label, int(k))
    assert_same_state(state(single), state(repeated))


BAD_WEIGHTS = [0.5, -1, -50, -51, np.nan, np.inf, -np.inf, 2**52, 2**52 - 50, 10**400, np.float64(1.5), None, "two"]


@pytest.mark.parametrize("weak", ["stump", "identity"])
@pytest.mark.parametrize("weight", BAD_WEIGHTS, ids=lambda weight: str(weight)[:20])
def test_a_weight_that_counts_no_samples_changes_nothing(weak, weight, data):
    X, y, X_new, y_new = data  # 50 samples of each class
    model = OnlineGSLDA(8, weak=weak).fit(X, y)
    model.update(X_new[0], y_new[0])
    model.unlearn(X_new[:1], y_new[:1])
    before, coef = state(model), model.coef_
    calls = [
        lambda: model.update(X_new[0], y_new[0], weight),
        lambda: model.partial_fit(X_new[:2], y_new[:2], sample_weight=[1, weight]),
    ]
    for call in calls:
        with pytest.raises(SampleWeightError, match=r"whole|exact"):
            call()
        assert_same_state(state(model), before)
        np.testing.assert_array_equal(model.coef_, coef)
    with pytest.raises(ValueError, match=r"whole|exact|not learned"):
        model.unlearn(X_new[:2], y_new[:2], sample_weight=[1, weight])
    assert_same_state(state(model), before)
    model.update(X_new[0], y_new[0])  # it goes on learning
    assert model.class_count_.sum() == 101


@pytest.mark.parametrize("weight", BAD_WEIGHTS, ids=lambda weight: str(weight)[:20])
def test_a_weight_that_counts_no_samples_leaves_a_cold_start_as_it_was(weight, data):
    X, *_ = data
    model = OnlineGSLDA(8).partial_fit(X[:1], [0], sample_weight=[50])
    for call in (
        lambda: model.update(X[0], 0, weight),
        lambda: model.partial_fit(X[:2], [0, 1], sample_weight=[weight, 1]),
    ):
        with pytest.raises(SampleWeightError, match=r"whole|exact"):
            call()
        assert model.class_count_.tolist() == [50]


@pytest.mark.parametrize("weight", [2, 2.0, np.int64(2), np.uint8(2), np.float32(2)])
def test_a_whole_weight_of_any_type_counts_as_that_many_samples(weight, data):
    X, y, X_new, y_new = data
    twice = OnlineGSLDA(8).fit(X, y).partial_fit(X_new[[0, 0]], y_new[[0, 0]])
    model = OnlineGSLDA(8).fit(X, y)
    model.update(X_new[0], y_new[0], weight)
    assert_same_state(state(model), state(twice))


def test_counts_stay_exact_over_many_calls(data):
    X, y, *_ = data
    most = 2**51

    def refused(model, learn):
        before = model.class_count_
        with pytest.raises(ValueError, match="exact"):
            learn()
        np.testing.assert_array_equal(model.class_count_, before)

    for learn in (
        lambda model: model.update(X[0], 0, most),
        lambda model: model.partial_fit(X[:2], y[:2], sample_weight=[most, 1]),
    ):
        model = OnlineGSLDA(8).fit(X, y)
        learn(model)
        refused(model, lambda model=model, learn=learn: learn(model))
        other = OnlineGSLDA(8).fit(X, y)
        other.update(X[0], 0, most)
        refused(model, lambda model=model, other=other: model.merge(other))
    cold = OnlineGSLDA(8).partial_fit(X[:1], [0], sample_weight=[most])
    refused(cold, lambda: cold.partial_fit(X[:1], [0], sample_weight=[most]))


def test_unlearning_gives_back_the_bits(data):
    X, y, X_new, y_new = data
    model = OnlineGSLDA(8).fit(X, y)
    before, coef, intercept = state(model), model.coef_, model.intercept_
    model.partial_fit(X_new, y_new).unlearn(X_new[::-1], y_new[::-1])
    assert_same_state(state(model), before)
    np.testing.assert_array_equal(model.coef_, coef)
    assert model.intercept_ == intercept


def test_unlearning_real_values_gives_them_back_to_rounding(data):
    X, y, X_new, y_new = data
    model = OnlineGSLDA(8, weak="identity").fit(X, y)
    coef = model.coef_
    model.partial_fit(X_new, y_new).unlearn(X_new, y_new)
    np.testing.assert_allclose(model.coef_, coef, rtol=1e-9)


@pytest.mark.parametrize("weak", ["stump", "identity"])
def test_the_first_batch_cannot_be_unlearned(weak, data):
    X, y, X_new, y_new = data
    model = OnlineGSLDA(8, weak=weak).fit(X, y)
    with pytest.raises(CannotUnlearnError, match="first batch"):
        model.unlearn(X[:1], y[:1])
    model.partial_fit(X_new[:5], y_new[:5])
    before = state(model)
    with pytest.raises(CannotUnlearnError, match="nothing was changed"):
        model.unlearn(X[:20], y[:20])
    with pytest.raises(CannotUnlearnError):
        model.unlearn(X_new[:5], y_new[:5], sample_weight=[2] * 5)
    assert_same_state(state(model), before)


@pytest.mark.parametrize("weak", ["stump", "identity"])
def test_another_sample_in_place_of_the_one_that_was_learned_is_refused(weak, data):
    X, y, *_ = data
    model = OnlineGSLDA(8, weak=weak).fit(X, y).partial_fit(np.full((1, 30), 9.0), [1])
    before = state(model)
    with pytest.raises(CannotUnlearnError):
        model.unlearn(np.full((1, 30), -9.0), [1])
    assert_same_state(state(model), before)


@pytest.mark.parametrize("weak", ["stump", "identity"])
def test_samples_that_count_zero_times_are_not_there(weak, data):
    X, y, X_new, y_new = data
    model = OnlineGSLDA(8, weak=weak).fit(X, y).partial_fit(X_new[:4], y_new[:4])
    twin = copy.deepcopy(model).unlearn(X_new[:1], y_new[:1])
    model.unlearn(X_new[:4], y_new[:4], sample_weight=[1, 0, 0, 0])
    assert_same_state(state(model), state(twin))
    model.update(X_new[0], y_new[0], 0)
    assert_same_state(state(model), state(twin))


def test_a_wrong_label_unlearns_nothing_of_either_class(data):
    X, y, X_new, y_new = data
    model = OnlineGSLDA(8).fit(X, y).partial_fit(X_new[:1], y_new[:1])
    before = state(model)
    with pytest.raises(CannotUnlearnError):
        model.unlearn(X_new[:1], 1 - y_new[:1])
    assert_same_state(state(model), before)


def test_merging_copies_is_learning_both_streams(data):
    X, y, X_new, y_new = data
    here = OnlineGSLDA(8, n_reserve=20).fit(X, y)
    there = copy.deepcopy(here)
    both = copy.deepcopy(here).partial_fit(X_new, y_new)
    here.partial_fit(X_new[:120], y_new[:120])
    there.partial_fit(X_new[120:], y_new[120:])
    a, b = copy.deepcopy(here).merge(there), copy.deepcopy(there).merge(here)
    assert_same_state(state(a), state(both))
    np.testing.assert_array_equal(a.coef_, both.coef_)
    np.testing.assert_array_equal(b.coef_, both.coef_)


def test_merging_finds_its_way_through_a_reselection(data):
    X, y, X_new, y_new = data
    here = OnlineGSLDA(8, n_reserve=30).fit(X, y)
    there = copy.deepcopy(here).partial_fit(X_new[120:], y_new[120:]).reselect()
    here.partial_fit(X_new[:120], y_new[:120])
    both = OnlineGSLDA(8, n_reserve=30).fit(X, y).partial_fit(X_new, y_new).reselect()
    np.testing.assert_array_equal(there.merge(here).reselect().coef_, both.coef_)
    assert there.base_id_ == both.base_id_


def test_models_trained_apart_do_not_merge(data):
    X, y, X_new, y_new = data
    model = OnlineGSLDA(8).fit(X, y)
    before = state(model)
    for other in (
        OnlineGSLDA(8).fit(X_new, y_new),
        OnlineGSLDA(7).fit(X, y),
        OnlineGSLDA(8, ridge=1.0).fit(X, y),
        OnlineGSLDA(8, weak="identity").fit(X, y),
        OnlineGSLDA(8).fit(X, y, sample_weight=np.full(len(X), 2)),  # the same stumps, another first batch
        GSLDA(8).fit(X, y),
        OnlineGSLDA(8),
    ):
        with pytest.raises(CannotMergeError, match="base"):
            model.merge(other)
    assert_same_state(state(model), before)


def test_what_was_learned_before_a_rebase_is_not_merged_twice(data):
    X, y, X_new, y_new = data
    common = OnlineGSLDA(8).fit(X, y).partial_fit(X_new[:100], y_new[:100])
    twice = copy.deepcopy(common).merge(copy.deepcopy(common))
    assert twice.class_count_.sum() == 300  # the merge adds all since the base
    common.rebase()
    here, there = copy.deepcopy(common), copy.deepcopy(common)
    here.partial_fit(X_new[100:200], y_new[100:200])
    there.partial_fit(X_new[200:], y_new[200:])
    both = OnlineGSLDA(8).fit(X, y).partial_fit(X_new, y_new)
    assert_same_state(state(here.merge(there)), state(both))
    with pytest.raises(CannotUnlearnError):
        here.unlearn(X_new[:100], y_new[:100])


def test_what_was_merged_can_be_unlearned(data):
    X, y, X_new, y_new = data
    here = OnlineGSLDA(8).fit(X, y)
    before = state(here)
    there = copy.deepcopy(here).partial_fit(X_new, y_new)
    assert_same_state(state(here.merge(there).unlearn(X_new, y_new)), before)


def test_forgetting_forgets_and_cannot_go_back(data):
    X, y, X_new, y_new = data
    model = OnlineGSLDA(8, decay=0.9).fit(X, y)
    assert model.class_count_.sum() == 100
    model.partial_fit(X_new, y_new)
    np.testing.assert_allclose(model.class_count_, 10, rtol=0.01)
    for x, label in zip(X_new, y_new, strict=True):
        model.update(x, label)
    before = model.class_count_
    model.update(X[0], y[0], 0)
    np.testing.assert_array_equal(model.class_count_, before)
    with_zeros = copy.deepcopy(model).partial_fit(X[:4], y[:4], sample_weight=[1, 1, 0, 0])
    np.testing.assert_array_equal(with_zeros.class_count_, copy.deepcopy(model).partial_fit(X[:2], y[:2]).class_count_)
    with pytest.raises(ForgettingError):
        model.update(X[0], y[0], -1)
    np.testing.assert_array_equal(model.class_count_, before)
    model.set_params(decay=1.0)  # what was fitted counts
    for call in (lambda: model.unlearn(X_new, y_new), lambda: model.merge(copy.deepcopy(model))):
        with pytest.raises(ForgettingError, match=r"decay=0\.9"):
            call()


def test_forgetting_follows_a_drift_that_exact_memory_averages_away(rng):
    X, y = two_gaussians(400, 10, rng, gap=4)
    turned = 1 - y  # the classes change places
    remembering, forgetting = OnlineGSLDA(5).fit(X, y), OnlineGSLDA(5, decay=0.97).fit(X, y)
    for model in (remembering, forgetting):
        model.partial_fit(X[:300], turned[:300])
    assert (forgetting.predict(X[300:]) == turned[300:]).mean() > 0.9
    assert (remembering.predict(X[300:]) == turned[300:]).mean() < 0.5


@pytest.fixture(scope="module")
def digits():
    bunch = load_digits()
    chosen = np.isin(bunch.target, (3, 5))
    return bunch.data[chosen], bunch.target[chosen]


def assert_reselection_is_batch_selection(X, y, n_weak, ridge, share=0.3):
    n = round(share * len(X))
    model = OnlineGSLDA(n_weak, n_reserve=X.shape[1], ridge=ridge).fit(X[:n], y[:n])
    at_start = model.selected_features_
    stumps = model._pool.take(np.argsort(model._candidate))
    for x, label in zip(X[n:], y[n:], strict=True):
        model.update(x, label)
    model.reselect()
    # Batch selection over the same stumps: their responses are the features.
    batch = GSLDA(n_weak, weak="identity", ridge=ridge).fit(stumps.transform(X), y)
    np.testing.assert_array_equal(model.selected_features_, batch.selected_features_)
    np.testing.assert_allclose(model.coef_, batch.coef_, rtol=1e-6)
    return at_start, model.selected_features_


@pytest.mark.parametrize("ridge", [1e-6, 20.0])
def test_reselection_from_statistics_is_batch_selection_on_digits(digits, ridge):
    at_start, now = assert_reselection_is_batch_selection(*digits, 15, ridge)
    assert not np.array_equal(at_start, now)


@pytest.mark.parametrize("n_weak", [25, 100])
def test_reselection_from_statistics_is_batch_selection_on_usps(usps, n_weak):
    assert_reselection_is_batch_selection(usps.X_train, usps.y_train, n_weak, 1e-6)


def test_reselection_without_a_reserve_keeps_the_same_weak_learners(data):
    X, y, X_new, y_new = data
    model = OnlineGSLDA(8).fit(X, y).partial_fit(X_new, y_new)
    before = set(model.selected_features_)
    assert set(model.reselect().selected_features_) == before


def test_online_learning_goes_on_after_reselection(data):
    X, y, X_new, y_new = data
    single = OnlineGSLDA(8, n_reserve=30).fit(X, y).partial_fit(X_new[:150], y_new[:150]).reselect()
    block = copy.deepcopy(single).partial_fit(X_new[150:], y_new[150:])
    for x, label in zip(X_new[150:], y_new[150:], strict=True):
        single.update(x, label)
    np.testing.assert_allclose(single.coef_, block.coef_, rtol=1e-10)
    assert_same_state(state(single), state(block))


def test_cold_start_gathers_until_both_classes_have_come(data):
    X, y, X_new, y_new = data
    model = OnlineGSLDA(8)
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.partial_fit(X[y == 0], y[y == 0])
    assert (model.predict(X) == 0).all()
    np.testing.assert_array_equal(model.predict_proba(X[:2]), 1.0)
    with pytest.raises(CannotUnlearnError, match="gathered"):
        model.unlearn(X[y == 0], y[y == 0])
    model.partial_fit(X[y == 1], y[y == 1])
    np.testing.assert_array_equal(model.coef_, OnlineGSLDA(8).fit(X, y).coef_)
    model.partial_fit(X_new, y_new)
    assert model.class_count_.sum() == 400


def test_cold_start_predicts_the_prior_of_named_classes(data):
    X, y, *_ = data
    model = OnlineGSLDA(8, min_initial=60).partial_fit(X, y, classes=[0, 1])
    assert model.predict_proba(X[:1])[0].tolist() == [0.5, 0.5]
    model.partial_fit(X[y == 1][:8], y[y == 1][:8])
    assert (model.predict(X) == 1).all()
    with pytest.raises(ValueError, match="label 7"):
        model.partial_fit(X[:1], [7])
    model.partial_fit(X, y)
    assert hasattr(model, "_discriminant")


def test_refused_calls_leave_a_cold_start_as_it_was(data):
    X, y, *_ = data
    model = OnlineGSLDA(8)
    with pytest.raises(ValueError, match="multiclass"):
        model.partial_fit(X[:3, :5], [0, 1, 2])
    model.partial_fit(X[:2], [0, 0])  # with another number of features: the refused call left nothing
    with pytest.raises(ValueError, match="label 0"):
        model.partial_fit(X[:2], [1, 2], classes=[1, 2])
    assert model.class_count_.tolist() == [2]
    model.partial_fit(X, y)
    assert model.class_count_.sum() == 102
    with pytest.raises(ValueError, match="first call"):
        model.partial_fit(X, y, classes=[5, 6])


def test_weights_count_towards_a_complete_start(data):
    X, y, *_ = data
    model = OnlineGSLDA(8, min_initial=3).partial_fit(X[:2], y[:2], sample_weight=[3, 2])
    assert not hasattr(model, "_discriminant")
    model.partial_fit(X[:2], y[:2])
    assert hasattr(model, "_discriminant")


def test_a_refused_fit_leaves_the_trained_model(data):
    X, y, *_ = data
    for model in (OnlineGSLDA(8).fit(X, y), GSLDA(8).fit(X, y)):
        before = model.decision_function(X)
        for bad, labels in ((X[:, :5], np.zeros(len(X))), (np.full_like(X, np.nan), y)):
            with pytest.raises(ValueError, match=r".+"):
                model.fit(bad, labels)
        np.testing.assert_array_equal(model.decision_function(X), before)


def test_parameters_set_after_training_do_not_change_what_was_trained(data):
    X, y, X_new, y_new = data
    model = OnlineGSLDA(8, n_reserve=20).fit(X, y).partial_fit(X_new, y_new)
    twin = copy.deepcopy(model).set_params(ridge=1e-6, criterion="lac")
    assert twin.base_id_ == model.base_id_
    np.testing.assert_array_equal(twin.reselect().coef_, model.reselect().coef_)


def test_single_updates_from_nothing(data):
    X, y, *_ = data
    model = OnlineGSLDA(8, min_initial=50)
    for x, label in zip(X, y, strict=True):
        model.update(x, label)
    np.testing.assert_array_equal(model.coef_, OnlineGSLDA(8).fit(X, y).coef_)


def test_an_unknown_label_is_refused_even_in_the_hot_loop(data):
    X, y, *_ = data
    model = OnlineGSLDA(8).fit(X, y)
    before = state(model)
    with pytest.raises(ValueError, match="label 7"):
        model.update(X[0], 7)
    with pytest.raises(ValueError, match="3 values"):
        model.update(X[0, :3], y[0])
    assert_same_state(state(model), before)


def test_fit_forgets_everything(data):
    X, y, X_new, y_new = data
    model = OnlineGSLDA(8).fit(X_new[:, :20], y_new).partial_fit(X_new[:, :20], y_new)
    np.testing.assert_array_equal(model.fit(X, y).coef_, OnlineGSLDA(8).fit(X, y).coef_)


def test_more_weak_learners_than_features_are_clipped_and_said(data):
    X, y, *_ = data
    with pytest.warns(UserWarning, match="n_weak=99 is more than the 30 features"):
        model = OnlineGSLDA(99).fit(X, y)
    assert len(model.coef_) <= 30


def test_errors_have_one_root():
    assert issubclass(CannotUnlearnError, WhetError)
    assert issubclass(CannotUnlearnError, ValueError)


def test_single_samples_without_validation_count_as_those_with_it(rng):
    X, y = rng.normal(size=(60, 4)), rng.integers(0, 2, 60)
    plain, validated = (OnlineGSLDA(3).fit(X[:40], y[:40]) for _ in range(2))
    for i in range(40, 60):
        plain.partial_fit(X[i : i + 1], y[i : i + 1])
        validated.partial_fit(X[i : i + 1].tolist(), y[i : i + 1].tolist())
    whole = OnlineGSLDA(3).fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    for other in (validated, whole):
        assert np.array_equal(plain.coef_, other.coef_)
        assert np.array_equal(plain.class_count_, other.class_count_)


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.array([[np.nan, 0.0]]), np.array([1])),
        (np.array([[np.inf, 0.0]]), np.array([1])),
        (np.zeros((1, 3)), np.array([1])),
        (np.zeros((1, 2)), np.array([7])),
        (np.zeros((2, 2)), np.array([1])),
        (np.zeros((0, 2)), np.array([], dtype=np.int64)),
        (np.zeros(2), np.array([1])),
        (np.zeros((1, 2)), np.array([[1]])[None]),
    ],
)
def test_bad_samples_are_refused_and_change_nothing(X, y, rng):
    model = OnlineGSLDA(2).fit(rng.normal(size=(20, 2)), np.arange(20) % 2)
    before = model.class_count_
    with pytest.raises(ValueError):  # noqa: PT011 - scikit-learn's wording
        model.partial_fit(X, y)
    assert np.array_equal(model.class_count_, before)


@pytest.mark.parametrize("weak", ["stump", "identity"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_update_that_could_not_be_unlearned_is_refused(weak, value):
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(40, 3)), np.arange(40) % 2
    model = OnlineGSLDA(n_weak=2, weak=weak).fit(X, y)
    before = model.coef_.tobytes(), model.class_count_.tobytes()
    with pytest.raises(ValueError, match="NaN"):
        model.update(np.array([0.0, value, 1.0]), 1)
    assert (model.coef_.tobytes(), model.class_count_.tobytes()) == before


def test_an_update_whose_squares_overflow_is_refused():
    rng = np.random.default_rng(4)
    model = OnlineGSLDA(n_weak=2, weak="identity").fit(rng.normal(size=(40, 3)), np.arange(40) % 2)
    with pytest.raises(ValueError, match="large"):
        model.update(np.full(3, 1e200), 1)
