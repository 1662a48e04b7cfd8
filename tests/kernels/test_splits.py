import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from whet.models.gslda.weak_learners import Stumps
from whet.models.gslda.weak_training import SortedFeatures, train_stumps


def best_split_by_trying_all(x, is_positive, weights):
    """Error of the best stump, by brute force over all midpoints and both polarities."""
    cuts = np.unique(x)
    middles = (cuts[:-1] + cuts[1:]) / 2
    errors = [
        weights[(x > t) != is_positive].sum() if polarity == 1 else weights[(x <= t) != is_positive].sum()
        for t in middles
        for polarity in (1, -1)
    ]
    return min(errors) if errors else weights[is_positive].sum()


@given(st.data())
def test_the_best_stump_is_found(data):
    n = data.draw(st.integers(2, 20))
    x = data.draw(hnp.arrays(np.float64, n, elements=st.integers(-3, 3).map(float)))
    is_positive = data.draw(hnp.arrays(np.bool_, n))
    weights = data.draw(hnp.arrays(np.float64, n, elements=st.integers(0, 4).map(float)))
    stumps = SortedFeatures.from_values(x[:, None]).best_stumps(is_positive, weights)
    assert stumps.error[0] == best_split_by_trying_all(x, is_positive, weights)
    says = stumps.transform(x[:, None])[:, 0] == 1
    assert weights[says != is_positive].sum() == stumps.error[0]


def test_neighbouring_floats_are_distinguished():
    low = 1.0
    high = np.nextafter(low, 2.0)
    stump = train_stumps(np.array([[low], [high]]), np.array([False, True]))
    np.testing.assert_array_equal(stump.transform(np.array([[low], [high]])), [[0], [1]])


def test_huge_values_do_not_overflow():
    stump = train_stumps(np.array([[-1.7e308], [1.7e308]]), np.array([False, True]))
    assert stump.threshold[0] == 0.0


def test_ties_go_to_the_lowest_threshold_and_to_polarity_one():
    stump = train_stumps(np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([False, True, False, True]))
    assert (stump.threshold[0], stump.polarity[0]) == (0.5, 1)


def test_a_constant_feature_never_responds():
    stump = train_stumps(np.full((4, 1), 7.0), np.array([False, True, False, True]))
    assert not stump.transform(np.full((4, 1), 7.0)).any()


def test_classes_weigh_the_same_however_many_samples_they_have():
    # Plain error would call everything negative: 100 negatives against 10 positives that overlap with them.
    x = np.concatenate([np.linspace(-2, 2, 100), np.linspace(0, 2, 10)])[:, None]
    is_positive = np.arange(110) >= 100
    plain = SortedFeatures.from_values(x).best_stumps(is_positive, np.ones(110))
    assert plain.transform(x)[is_positive].mean() < 0.5
    assert train_stumps(x, is_positive).transform(x)[is_positive].mean() > 0.5


def test_a_weight_of_three_is_three_copies(rng):
    X = rng.normal(size=(30, 5))
    is_positive = rng.random(30) < 0.4
    weights = rng.integers(1, 4, 30)
    weighted = train_stumps(X, is_positive, weights)
    repeated = train_stumps(np.repeat(X, weights, axis=0), np.repeat(is_positive, weights))
    np.testing.assert_array_equal(weighted.threshold, repeated.threshold)
    np.testing.assert_array_equal(weighted.polarity, repeated.polarity)


@pytest.mark.parametrize("polarity", [1, -1])
def test_responses_of_a_batch_are_those_of_its_samples(polarity, rng):
    X = rng.normal(size=(9, 3))
    stumps = Stumps(np.array([2, 0]), np.array([0.1, -0.2]), np.array([polarity, 1], dtype=np.int8), np.zeros(2))
    np.testing.assert_array_equal(stumps.transform(X), [stumps.transform(x) for x in X])
