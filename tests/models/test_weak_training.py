"""Weak learners on every feature of a pool: what is trained, and that nothing else decides it."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.models.sorted_stumps import train_by_sorting

from whet.models.gslda.candidates import SampleLayout
from whet.models.gslda.haar import HaarPool
from whet.models.gslda.integral import IntegralStack
from whet.models.gslda.pools import BlockPatternPool
from whet.models.gslda.weak_learners import Stumps
from whet.models.gslda.weak_training import (
    ClassWeights,
    WeightedPatches,
    class_weights,
    train_block,
    train_weak_learners,
)
from whet.parallel.threads import MemoryBudgetWarning
from whet.parallel.workers import Threads

WINDOW = (8, 8)
FAMILIES = [HaarPool.from_window(WINDOW), BlockPatternPool.from_window(WINDOW)]


@pytest.fixture(scope="module")
def samples():
    """150 patches, a third of them positive, in mixed order; positives are brighter in the middle."""
    rng = np.random.default_rng(0)
    patches = rng.integers(0, 200, (150, *WINDOW), dtype=np.uint8)
    is_positive = np.arange(150) % 3 == 0
    patches[is_positive, 2:6, 2:6] += 40
    return patches, is_positive


def train_on(values, is_positive, method, weights=None, balanced=True):
    """Stumps on the rows of `values` (features, samples) and their responses, without any patch."""
    layout = SampleLayout.from_labels(is_positive)
    shares = class_weights(layout, weights, balanced)
    if method == "sorting":
        n, bits = len(values), np.empty((len(values), layout.words), np.uint64)
        columns = np.empty(n, np.float32), np.empty(n, np.int8), np.empty(n)
        ordered = Values(values).evaluate(layout.order)
        train_by_sorting(ordered, layout.n_positive, shares.weights, *columns, bits)
        threshold, polarity, error = columns
        return Stumps(np.arange(n), threshold, polarity, error / shares.total), bits
    trained = train_block(Values(values), np.arange(len(values)), GivenSamples(layout.order, layout, shares))
    return trained.learners, trained.bits


class GivenSamples(WeightedPatches):
    """Samples by their order, in the place of patches."""

    @property
    def stack(self):
        return self.patches


class Values:
    """Features whose values (features, samples) are given, in the place of patches."""

    def __init__(self, values, categories=None):
        self.values, self.categories = np.asarray(values), categories

    def __len__(self):
        return len(self.values)

    def take(self, rows):
        return Values(self.values[rows], self.categories)

    def evaluate(self, order):
        dtype = np.float32 if self.categories is None else np.uint8
        return np.ascontiguousarray(self.values[:, order], dtype=dtype)


def balanced_error(responses, is_positive, weights):
    wrong = (responses != is_positive) * weights
    missed, false_positives = wrong[:, is_positive].sum(1), wrong[:, ~is_positive].sum(1)
    return missed / weights[is_positive].sum() / 2 + false_positives / weights[~is_positive].sum() / 2


@st.composite
def few_values(draw):
    """Whole numbers of 256 different values at most, as many as there are bins."""
    n = draw(st.integers(2, 80))
    values = draw(arrays(np.float32, (3, n), elements=st.integers(0, 255).map(float)))
    labels = draw(arrays(np.bool_, n).filter(lambda y: 0 < y.sum() < len(y)))
    return values * draw(st.sampled_from([1.0, 0.25, -2.0])), labels


@pytest.mark.slow
@given(few_values(), st.sampled_from(["balanced", "plain", "weighted"]))
def test_histograms_find_what_sorting_finds(case, errors):
    values, is_positive = case
    # Whole weights: sums are exact in any order, so that both methods see the same ties.
    weights = np.arange(1.0, values.shape[1] + 1) if errors == "weighted" else None
    by_bins, bits_of_bins = train_on(values, is_positive, "histogram", weights, errors == "balanced")
    by_order, bits_of_order = train_on(values, is_positive, "sorting", weights, errors == "balanced")
    assert np.array_equal(by_bins.error, by_order.error)
    assert np.array_equal(by_bins.threshold, by_order.threshold)
    assert np.array_equal(by_bins.polarity, by_order.polarity)
    assert np.array_equal(bits_of_bins, bits_of_order)


@pytest.mark.slow
@given(few_values())
def test_no_stump_is_better(case):
    values, is_positive = case
    stumps, _ = train_on(values, is_positive, "sorting")
    ones = np.ones(len(is_positive))
    for f, row in enumerate(values):
        cuts = [row > t for t in np.unique(row)[:-1]]
        errors = [balanced_error(np.array([cut, ~cut]), is_positive, ones).min() for cut in cuts]
        assert stumps.error[f] == pytest.approx(min(errors, default=0.5))


def test_a_stump_responds_to_the_side_of_the_positives():
    values = np.array([[1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0], [5.0, 5.0, 5.0, 5.0]])
    stumps, bits = train_on(values, np.array([False, False, True, True]), "histogram")
    assert bits.tolist() == [[0b11, 0], [0b11, 0], [0, 0]]
    assert stumps.threshold.tolist() == [2.5, 2.5, 5.0]
    assert stumps.polarity.tolist() == [1, -1, 1]
    assert stumps.error.tolist() == [0.0, 0.0, 0.5]


def test_codes_without_a_majority_of_positives_stay_out():
    codes = np.array([[7, 7, 200, 9, 200, 9, 9]], dtype=np.uint8)
    layout = SampleLayout.from_labels(np.arange(7) < 3)
    samples = GivenSamples(layout.order, layout, ClassWeights(np.ones(2), 7.0))
    trained = train_block(Values(codes, categories=256), np.array([0]), samples)
    learner, bits = trained.learners, trained.bits
    all_codes = np.arange(256, dtype=np.uint8)[None]
    assert np.flatnonzero(learner.respond(all_codes)).tolist() == [7]  # 200 is a tie, the others unseen or worse
    assert bits.tolist() == [[0b011, 0]]
    assert learner.error == 1 / 7


def test_ties_go_to_the_lowest_threshold():
    values = np.array([[0.0, 1.0, 2.0, 3.0]])  # a cut after the first or after the third: one mistake each
    for method in ("histogram", "sorting"):
        stumps, _ = train_on(values, np.array([False, True, False, True]), method)
        assert (stumps.threshold[0], stumps.polarity[0], stumps.error[0]) == (0.5, 1, 0.25)


def test_unbalanced_samples_do_not_drown_the_positives():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(1, 1100))
    is_positive = np.arange(1100) < 100
    values[0, :100] += 1
    balanced, _ = train_on(values, is_positive, "histogram")
    plain, _ = train_on(values, is_positive, "histogram", balanced=False)
    found = values[0, is_positive]
    assert (found > balanced.threshold[0]).mean() > 0.5 > (found > plain.threshold[0]).mean()


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=["haar", "lbp"])
@pytest.mark.parametrize("weighted", [False, True])
def test_errors_and_bits_are_those_of_the_learners(family, weighted, samples):
    patches, is_positive = samples
    weights = np.random.default_rng(1).random(len(patches)) if weighted else np.ones(len(patches))
    learners, bits = train_weak_learners(family, patches, is_positive, weights=weights if weighted else None)
    responses = learners.respond(family.take(learners.feature).evaluate(IntegralStack.from_patches(patches)))
    assert np.array_equal([bits.row(j) for j in range(len(bits))], responses)
    assert np.allclose(learners.error, balanced_error(responses, is_positive, weights), rtol=0, atol=1e-12)
    assert learners.error.min() < 0.18 < learners.error.max() <= 0.5


@pytest.mark.parametrize("family", FAMILIES, ids=["haar", "lbp"])
@pytest.mark.parametrize("weights", [None, np.linspace(0.1, 1, 150)], ids=["equal", "weighted"])
def test_one_and_two_threads_give_the_same_bytes(family, weights, samples):
    def trained(threads):
        learners, bits = train_weak_learners(family, *samples, weights=weights, workers=Threads(threads))
        return [array.tobytes() for array in (*vars(learners).values(), bits.take(slice(None)).bits)]

    assert trained(1) == trained(2)


def test_a_tight_budget_samples_features_and_says_so(samples):
    family, row = FAMILIES[0], 8 * (1 + 2)
    with pytest.warns(MemoryBudgetWarning, match="training on 100 features drawn at random"):
        stumps, bits = train_weak_learners(family, *samples, max_memory=100 * row, seed=1)
    assert len(stumps) == len(bits) == 100
    whole, _ = train_weak_learners(family, *samples)
    assert np.array_equal(stumps.threshold, whole.threshold[stumps.feature])
    with pytest.warns(MemoryBudgetWarning):
        other, _ = train_weak_learners(family, *samples, max_memory=100 * row, seed=2)
    assert not np.array_equal(stumps.feature, other.feature)


def test_a_budget_that_fits_is_silent(samples):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(train_weak_learners(FAMILIES[0], *samples, max_memory=24 * len(FAMILIES[0]))[0]) == len(FAMILIES[0])


def test_a_budget_below_one_row_is_refused(samples):
    with pytest.raises(MemoryError, match="one feature alone"):
        train_weak_learners(FAMILIES[0], *samples, max_memory=10)
