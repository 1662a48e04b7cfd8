import numpy as np
import pytest
from experiments.boosting import Boosting
from tests.detectors import WINDOW, base, detector, learn, mixed_detector, patches, to_bytes, unlearn
from tests.samples import direction

from whet.detector import state
from whet.detector.base import DetectorBase
from whet.detector.detector import Detector
from whet.detector.state import count_patches
from whet.errors import CannotLearnError, CannotUnlearnError
from whet.lda.statistics import BinaryStatistics
from whet.models.gslda.cascade_model import CascadeModel
from whet.models.gslda.fitting import train_stage
from whet.models.gslda.integral import IntegralStack


@pytest.fixture(scope="module")
def data():
    return patches(400, np.random.default_rng(11))


def test_a_positive_counts_in_all_stages_and_a_negative_in_those_it_reaches(data):
    X, y = data
    first = base().model.cascade.stages[0]
    stages = base().model.cascade.stages
    passes = [stage.score(X) > 0 for stage in stages]
    has_contrast = IntegralStack.from_patches(X, base().model.min_sigma).has_contrast
    reaches = [has_contrast, has_contrast & passes[0], has_contrast & passes[0] & passes[1]]
    counts = count_patches(base().model, X, y, weights=1).counts
    assert counts == tuple((int(y.sum()), int((~y & here).sum())) for here in reaches)
    assert counts[0][1] > counts[1][1] > counts[2][1] > 0
    assert (first.score(X[y]) <= 0).any()  # so some positive fails the first stage, and yet teaches the last


def test_a_flat_negative_counts_in_no_stage():
    flat = np.full((1, *WINDOW), 90, dtype=np.uint8)
    assert count_patches(base().model, flat, [False]).is_empty
    assert not count_patches(base().model, flat, [True]).is_empty


def test_statistics_are_those_of_everything_seen(data):
    X, y = data
    one = detector()
    k = np.random.default_rng(0).integers(0, 6, len(X))
    learn(one, X, y, k)
    first, now = base().model.stages[0], one.model.cascade.stages[0]
    H = first.weak.respond(first.features.evaluate(IntegralStack.from_patches(X))).astype(np.int64)
    totals = [first.positive, first.negative]
    for side, (total, rows) in enumerate(zip(totals, (y, ~y), strict=True)):
        C = (H[:, rows] * k[rows]) @ H[:, rows].T
        np.testing.assert_array_equal(one.only.total.stages[0][side].C, C)
        totals[side] = total + BinaryStatistics(int(k[rows].sum()), np.diagonal(C), C)
    np.testing.assert_array_equal(now.coef, direction(*totals, first.criterion, first.ridge))


def test_thresholds_follow_by_the_rule_of_the_stage(data):
    X, y = data
    one = detector()
    learn(one, X, y, weights=2)
    for number, stage in enumerate(base().model.stages):
        now = one.model.cascade.stages[number]
        total = stage.positive + one.only.total.stages[number][0]
        mu, variance = now.coef @ total.mean, now.coef @ total.scatter @ now.coef / total.n
        assert now.threshold == pytest.approx(mu + stage.rule.z * np.sqrt(variance))
        assert now.threshold != base().model.cascade.stages[number].threshold


def test_learning_nothing_changes_nothing(data):
    X, y = data
    one = detector()
    learn(one, X[:0], y[:0])
    learn(one, X, y, weights=0)
    assert to_bytes(one) == to_bytes(detector())
    np.testing.assert_array_equal(one.model.cascade.scores(X), base().model.cascade.scores(X))
    learn(one, X, y)
    unlearn(one, X, y)
    for before, after in zip(base().model.cascade.stages, one.model.cascade.stages, strict=True):
        assert after.threshold == before.threshold
        np.testing.assert_array_equal(after.coef, before.coef)


def test_neither_order_nor_division_nor_weight_matters(data):
    X, y = data
    together, apart = detector(), detector()
    learn(together, X, y, weights=2)
    order = np.random.default_rng(1).permutation(len(X))
    for rows in np.array_split(order, 7):
        learn(apart, X[rows], y[rows])
        learn(apart, X[rows], y[rows], weights=2)
        unlearn(apart, X[rows], y[rows])
    assert to_bytes(apart) == to_bytes(together)


def test_threads_do_not_matter(data, monkeypatch):
    X, y = data
    one, four = detector(), detector()
    learn(one, X, y, threads=1)
    monkeypatch.setattr(state, "AT_ONCE", 23)
    learn(four, X, y, threads=4)
    assert to_bytes(one) == to_bytes(four)


def test_routing_does_not_depend_on_what_was_learned(data):
    X, y = data
    one = detector()
    learn(one, X[~y], y[~y], weights=500)  # now the first stage rejects other negatives than before
    passed = [cascade.stages[0].accepts(X) for cascade in (base().model.cascade, one.model.cascade)]
    assert (passed[0] != passed[1])[~y].any()
    before = np.array(one.only.total.counts)
    learn(one, X, y, weights=1)
    assert (
        tuple(map(tuple, np.array(one.only.total.counts) - before))
        == count_patches(base().model, X, y, weights=1).counts
    )


def test_a_correction_is_felt(data):
    X, y = data
    wrong = X[~y & base().model.cascade.accepts(X)]
    one = detector()
    before = one.model.cascade.scores(wrong[:1])
    learn(one, wrong[:1], [False])
    assert one.model.cascade.scores(wrong[:1]) < before


def test_an_example_counts_once(data):
    X, y = data
    one = detector()
    one.learn_patches(X, y)
    assert one.n_examples == (int(y.sum()), int(count_patches(base().model, X, y).counts[0][1]))
    assert one.records == []


def test_what_was_never_learned_is_not_unlearned_and_nothing_changes(data):
    X, y = data
    one = detector()
    learn(one, X[:40], y[:40])
    before = to_bytes(one)
    for wrong in ((X[:40], ~y[:40]), (X[:60], y[:60]), (X[:40], y[:40], 1000)):
        with pytest.raises(CannotUnlearnError, match="nothing was changed"):
            unlearn(one, *wrong)
        assert to_bytes(one) == before


def test_fixed_stages_stay_as_they_are_and_the_others_learn(data):
    X, y = data
    mixed = mixed_detector()
    before = to_bytes(mixed)
    learn(mixed, X, y, weights=1)
    assert [any(counts) for counts in mixed.only.total.counts] == [False, True, False]
    fixed = [0, 2]
    assert all(mixed.model.cascade.stages[i] is mixed.base.model.stages[i] for i in fixed)
    unlearn(mixed, X, y, weights=1)
    assert to_bytes(mixed) == before


def test_a_detector_of_fixed_stages_alone_says_that_it_cannot_learn(data):
    X, y = data
    boosted = train_stage(base().model.stages[0].features, X, y, 3, learner=Boosting())
    with pytest.raises(CannotLearnError, match="train"):
        learn(Detector.from_base(DetectorBase(CascadeModel(WINDOW, (boosted,)))), X, y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (X[:, :-1], y), "expected uint8, .samples, 10, 8"),
        (lambda X, y: (X.astype(np.int64), y), "got patches int64"),
        (lambda X, y: (X, y[:-1]), "one for each"),
        (lambda X, y: (X, y + 1), "True .the object. or False"),
        (lambda X, y: (X, y, 0.5), "whole numbers"),
        (lambda X, y: (X, y, -1), "whole numbers"),
        (lambda X, y: (X, y, [1, 2]), "one for each"),
        (lambda X, y: (X, y, 2**50), "2.52"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(change, message, data):
    one = detector()
    with pytest.raises(ValueError, match=message):
        learn(one, *change(*data))
    assert one.only.total is None


def test_counts_that_would_no_longer_be_exact_are_refused(data):
    X, y = data
    one = detector()
    learn(one, X[:1], y[:1], 2**52 - 1 - 600)
    with pytest.raises(ValueError, match="exact below"):
        learn(one, X[:1], y[:1], 1)


def test_what_counts_nothing_is_unlearned_as_it_was_learned():
    made = Detector.from_base(base())
    before, flat = made.to_bytes(), np.full((3, *made.window), 7, np.uint8)
    made.learn_patches(flat, False)  # too little contrast to be counted
    made.unlearn_patches(flat, False)
    assert made.to_bytes() == before
