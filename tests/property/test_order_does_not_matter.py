"""Any permutation, split or merge of the same binary samples: the same model, to the last bit."""

import copy

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.estimators import OnlineGSLDA


def first_batch(seed):
    rng = np.random.default_rng(seed)
    y = np.arange(40) % 2
    return rng.normal(size=(40, 12)) + y[:, None], y


@st.composite
def streams(draw):
    """A trained model, a stream of samples with weights, and how it is shuffled, cut and sent to two sites."""
    seed = draw(st.integers(0, 10**6))
    X, y = first_batch(seed)
    n_weak = draw(st.integers(1, 8))
    model = OnlineGSLDA(n_weak, n_reserve=draw(st.sampled_from([None, 12])), ridge=draw(st.sampled_from([0.1, 20.0])))
    n = draw(st.integers(1, 30))
    rng = np.random.default_rng(seed + 1)
    labels = rng.integers(0, 2, n)
    samples = rng.normal(size=(n, 12)) + labels[:, None]
    weights = rng.integers(1, 4, n)
    cuts = sorted(draw(st.lists(st.integers(0, n), max_size=4)))
    return model.fit(X, y), samples, labels, weights, rng.permutation(n), cuts, rng.random(n) < 0.5


def assert_identical(a, b):
    for x, y in zip(a._totals, b._totals, strict=True):
        for p, q in zip(x.arrays(), y.arrays(), strict=True):
            np.testing.assert_array_equal(p, q)
    np.testing.assert_array_equal(a.refresh().coef_, b.refresh().coef_)
    assert a.intercept_ == b.intercept_


@settings(max_examples=40)
@given(streams())
def test_permutations_splits_merges_and_single_updates(stream):
    model, X, y, k, order, cuts, goes_there = stream
    at_once = copy.deepcopy(model).partial_fit(X, y, sample_weight=k)

    in_pieces = copy.deepcopy(model)
    for piece in np.split(order, cuts):
        if len(piece):
            in_pieces.partial_fit(X[piece], y[piece], sample_weight=k[piece])
    assert_identical(in_pieces, at_once)

    one_by_one = copy.deepcopy(model)
    for i in order:
        one_by_one.update(X[i], y[i], int(k[i]))
    np.testing.assert_allclose(one_by_one.coef_, at_once.coef_, rtol=1e-10, atol=1e-12)
    assert_identical(one_by_one, at_once)

    here, there = copy.deepcopy(model), copy.deepcopy(model)
    for i in order:
        (there if goes_there[i] else here).update(X[i], y[i], int(k[i]))
    assert_identical(here.merge(there), at_once)

    assert_identical(at_once.unlearn(X[order], y[order], sample_weight=k[order]), model)
