import numpy as np
import pytest

pytest.importorskip("river", reason="the extra `river` is not installed")

from river import checks, evaluate, metrics
from river.datasets import Phishing

from whet.errors import SampleWeightError
from whet.estimators import OnlineGSLDA, RiverClassifier

MODEL = RiverClassifier(n_weak=5, min_initial=10)


def name_of(check):
    return getattr(check, "__name__", getattr(getattr(check, "func", check), "__name__", "check"))


@pytest.mark.parametrize("check", list(checks.yield_checks(MODEL)), ids=name_of)
def test_rivers_contract(check):
    check(MODEL.clone())


def test_it_is_online_gslda_on_dictionaries():
    stream = [(dict(enumerate(x.values())), y) for x, y in Phishing()]
    model = RiverClassifier(n_weak=4, min_initial=20)
    for x, y in stream:
        model.learn_one(x, y)
    X, y = np.array([list(x.values()) for x, _ in stream]), np.array([y for _, y in stream])
    direct = OnlineGSLDA(4, min_initial=20)
    for row, label in zip(X, y, strict=True):
        direct.update(row, label)
    assert model.predict_proba_one(stream[0][0])[True] == pytest.approx(direct.predict_proba(X[:1])[0, 1], rel=1e-9)


def test_a_weight_is_a_repetition():
    stream = [(dict(enumerate(x.values())), y) for x, y in Phishing()][:200]
    weighted, repeated = (RiverClassifier(n_weak=4, min_initial=20) for _ in range(2))
    for i, (x, y) in enumerate(stream):
        weighted.learn_one(x, y, w=i % 3)
        for _ in range(i % 3):
            repeated.learn_one(x, y)
    assert weighted.predict_proba_one(stream[0][0]) == pytest.approx(repeated.predict_proba_one(stream[0][0]))


@pytest.mark.parametrize("n", [10, 100])  # while it gathers, and when it is trained
@pytest.mark.parametrize("weight", [0.5, -1, -50, np.nan, np.inf, 2**52])
def test_a_weight_that_counts_no_samples_changes_nothing(n, weight):
    stream = [(dict(enumerate(x.values())), y) for x, y in Phishing()][: n + 100]
    model, untouched = (RiverClassifier(n_weak=4, min_initial=20) for _ in range(2))
    for i, (x, y) in enumerate(stream):
        if i == n:
            with pytest.raises(SampleWeightError):
                model.learn_one(x, y, w=weight)
        model.learn_one(x, y)
        untouched.learn_one(x, y)
    assert model.predict_proba_one(x) == untouched.predict_proba_one(x)


def test_progressive_validation_on_phishing():
    score = evaluate.progressive_val_score(Phishing(), RiverClassifier(min_initial=30), metrics.Accuracy())
    assert score.get() > 0.85


def test_a_third_label_is_refused_and_forgotten():
    model = RiverClassifier(min_initial=5)
    model.learn_one({"a": 1.0}, "x")
    model.learn_one({"a": 2.0}, "y")
    with pytest.raises(ValueError, match="third label"):
        model.learn_one({"a": 3.0}, "z")
    assert set(model.predict_proba_one({"a": 1.0})) == {"x", "y"}
