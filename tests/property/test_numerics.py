"""Statistics over long and lopsided streams: still those of samples, semidefinite, and the weights that follow."""

from copy import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.detectors import BULL, bull_scene, detector, false_positive, judged_finder, learn, patches
from tests.samples import direction

from whet.detector.state import run_checks
from whet.errors import WhetError
from whet.estimators import OnlineGSLDA
from whet.lda.discriminant import OnlineDiscriminant
from whet.lda.statistics import BinaryStatistics
from whet.lda.thresholds import bayes_crossing

UPDATES = 10**7


def bits(rng, n, T=12):
    """Correlated responses; one is constant, and two are equal."""
    X = (rng.random((n, T)) < np.linspace(0.1, 0.9, T)).astype(np.uint8)
    X[:, 3] = X[:, 2]
    X[:, 5] = 1
    return X


@pytest.mark.slow
def test_ten_million_updates_leave_exact_counts_and_the_weights_that_follow(rng):
    """A million samples one by one, the rest in blocks with weights; then all but the first out again."""
    first = [BinaryStatistics.from_samples(bits(rng, 200)) for _ in range(2)]
    online = OnlineDiscriminant(*(one.copy() for one in first), 12, rule=bayes_crossing, ridge=1.0)
    singles = bits(rng, 20_000)
    for x in singles:
        online.insert(x, is_positive=True)
    block = bits(rng, 1000)
    k = np.full(1000, (UPDATES - len(singles)) // 1000)
    online.positive.insert_many(block, k)
    online.forget_caches()
    assert online.positive.n == 200 + UPDATES
    want = first[0] + BinaryStatistics.from_samples(singles) + BinaryStatistics.from_samples(block, k)
    assert np.array_equal(online.positive.C, want.C)
    assert np.array_equal(online.coef, direction(want, first[1], ridge=1.0))
    assert np.linalg.eigvalsh(online.positive.scatter)[0] >= -1e-9 * online.positive.scatter.max()
    learned = BinaryStatistics.from_samples(block, k) + BinaryStatistics.from_samples(singles)
    assert np.array_equal((online.positive - learned).C, first[0].C)


@pytest.mark.parametrize("ratio", [1, 10**3, 10**6])
def test_lopsided_classes_keep_their_checks(ratio):
    """Ratios of the classes up to 1 : 1,000,000, with a weight for each negative."""
    made = detector()
    X, y = patches(40, np.random.default_rng(3))
    learn(made, X[y], True)
    learn(made, X[~y], False, weights=ratio)
    assert [fault for check in made.check() for fault in check.faults] == []
    assert made.n_examples == (20, 20 * ratio)
    made.unlearn_patches(X[~y], False, ratio)
    made.unlearn_patches(X[y], True)
    assert made.to_bytes() == detector().to_bytes()


@pytest.mark.parametrize("value", [0, 128, 255])
def test_duplicates_and_constant_patches_keep_the_checks(value):
    made = detector()
    learn(made, np.full((500, 10, 8), value, np.uint8), True)
    learn(made, np.repeat(patches(2, np.random.default_rng(1))[0], 300, axis=0), False)
    assert [fault for check in made.check() for fault in check.faults] == []


def test_a_corrected_detector_passes_its_checks():
    made = judged_finder(default=12.0)
    made.learn(bull_scene(), [*false_positive(made), *BULL], [False, True])
    names = [check.name for check in made.check() if check.holds]
    assert len(names) == len(made.check()) == 5


def test_each_check_finds_what_it_is_for():
    """A state that was altered behind the detector's back contradicts its checks."""
    made = detector()
    learn(made, *patches(40, np.random.default_rng(1)))
    sound = made.only._state
    faults = {check.name: check.faults for check in run_checks(made.only, sound)}
    assert not any(faults.values())
    other = detector()
    learn(other, *patches(30, np.random.default_rng(2)))
    mixed = replace(sound, total=other.only.total, model=altered(sound.model, counts=other.only.total))
    found = {check.name for check in run_checks(made.only, mixed) if not check.holds}
    assert found == {"weights follow from counts", "state follows from records"}
    statistics = sound.total.stages[0][0]
    C = statistics.C.copy()
    C[0, 1] = C[1, 0] = statistics.n + 1
    forged = BinaryStatistics(statistics.n, statistics.s, C)
    pairs = ((forged, sound.total.stages[0][1]), *sound.total.stages[1:])
    counts = type(sound.total)(pairs)
    broken = replace(sound, total=counts, model=altered(sound.model, counts=counts))
    assert "statistics are those of samples" in {c.name for c in run_checks(made.only, broken) if not c.holds}


def altered(model, **fields):
    """A model with other fields, whose weights are still those of before."""
    assert model.cascade
    forged = copy(model)
    for name, value in fields.items():
        object.__setattr__(forged, name, value)
    return forged


WEIGHTS = st.one_of(
    st.integers(-2, 3), st.sampled_from([0.5, -1.0, float("nan"), float("inf"), 2**52, 2**51, 1e300, None, "x"])
)


@given(st.lists(st.tuples(st.integers(0, 1), WEIGHTS), min_size=1, max_size=4), st.booleans())
def test_an_estimator_that_refuses_has_not_changed(samples, trained):
    """Sums past 2^52, fractions, negative weights and NaN: everything is learned, or nothing is."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), np.arange(40) % 2
    model = OnlineGSLDA(n_weak=2, min_initial=1 if trained else 100)
    model.fit(X, y) if trained else model.partial_fit(X, y)
    before = state_of(model)
    new = rng.normal(size=(len(samples), 3))
    try:
        model.partial_fit(new, [label for label, _ in samples], sample_weight=[weight for _, weight in samples])
    except (WhetError, ValueError, TypeError):
        assert state_of(model) == before
    else:
        assert all(isinstance(weight, int) and weight >= 0 for _, weight in samples)


def state_of(model):
    counts = model.class_count_.tolist()
    if not model._is_trained:
        return counts, len(model._cold.blocks)
    return counts, [array.tobytes() for total in model._totals for array in total.arrays()]


@pytest.mark.filterwarnings("ignore:overflow|invalid value:RuntimeWarning")
def test_values_whose_squares_overflow_are_refused_before_anything_changes():
    rng = np.random.default_rng(0)
    model = OnlineGSLDA(n_weak=2, weak="identity").fit(rng.normal(size=(40, 3)), np.arange(40) % 2)
    before = state_of(model)
    with pytest.raises(ValueError, match="overflow"):
        model.partial_fit(np.full((2, 3), 1e200), [0, 1])
    assert state_of(model) == before
