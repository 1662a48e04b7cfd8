"""Stumps that are trained anew under weights, by bins, against a plain search; and boosting with them."""

import numpy as np
import pytest
from experiments.boosting import BinnedFeatures, best_cuts, retrained_rounds

from whet.models.gslda.haar import HaarPool
from whet.models.gslda.integral import IntegralStack

WINDOW = (8, 8)


@pytest.fixture(scope="module")
def samples():
    """120 patches, a third of them positive, in mixed order; positives are brighter in the middle."""
    rng = np.random.default_rng(0)
    patches = rng.integers(0, 200, (120, *WINDOW), dtype=np.uint8)
    is_positive = np.arange(120) % 3 == 0
    patches[is_positive, 2:6, 2:6] += 40
    return patches, is_positive


@pytest.fixture(scope="module")
def pool():
    return HaarPool.from_window(WINDOW).take(slice(None, None, 7))


def errors_of_all_cuts(bins, is_positive, weights):
    """Weighted error of every cut of one feature and both polarities (2, 255): the specification."""
    above = bins[None, :] > np.arange(255)[:, None]
    wrong = (above != is_positive) @ weights
    return np.stack([wrong, weights.sum() - wrong])


def test_cuts_have_the_least_weighted_error(rng):
    bins = rng.integers(0, 256, (5, 61), dtype=np.uint8)
    is_positive, weights = rng.random(61) < 0.4, rng.random(61)
    signed = np.where(is_positive, weights, -weights)
    totals = float(weights[is_positive].sum()), float(weights[~is_positive].sum())
    cut, polarity, error = np.empty(5, np.uint8), np.empty(5, np.int8), np.empty(5)
    best_cuts(bins, signed, totals, cut, polarity, error)
    for f in range(5):
        errors = errors_of_all_cuts(bins[f], is_positive, weights)
        assert error[f] == pytest.approx(errors.min())
        assert errors[0 if polarity[f] == 1 else 1, cut[f]] == pytest.approx(errors.min())


@pytest.mark.parametrize("threads", [1, 2])
def test_the_best_stump_has_the_error_that_it_claims(samples, pool, rng, threads):
    patches, is_positive = samples
    weights = rng.random(len(patches))
    weights /= weights.sum()
    binned = BinnedFeatures.from_patches(pool, patches, is_positive, threads)
    stump, right = binned.best_stump(weights)
    assert weights[~right].sum() == pytest.approx(stump.error[0])
    values = pool.take(stump.feature).evaluate(IntegralStack.from_patches(patches))
    np.testing.assert_array_equal(stump.respond(values)[0] == is_positive, right)
    ordered = weights[binned.layout.order]
    flags = np.arange(len(patches)) < binned.layout.n_positive
    least = min(errors_of_all_cuts(bins, flags, ordered).min() for bins in binned.bins)
    assert stump.error[0] == pytest.approx(least)


def test_a_round_is_boosting_as_published(samples, pool):
    """Weights of each round by Viola and Jones's rule: the vote is the log odds of the error under them."""
    patches, is_positive = samples
    binned = BinnedFeatures.from_patches(pool, patches, is_positive)
    D = np.where(is_positive, 0.5 / is_positive.sum(), 0.5 / (~is_positive).sum())
    for stump, vote in retrained_rounds(binned, 5):
        expected, right = binned.best_stump(D / D.sum())
        assert stump.feature[0] == expected.feature[0]
        error = (D / D.sum())[~right].sum()
        assert vote == pytest.approx(np.log((1 - error) / error))
        D = np.where(right, D * error / (1 - error), D)


def test_retrained_boosting_fits_better_than_its_first_stump(samples, pool):
    patches, is_positive = samples
    binned = BinnedFeatures.from_patches(pool, patches, is_positive)
    stack = IntegralStack.from_patches(patches)
    margins, total = np.zeros(len(patches)), 0.0
    for stump, vote in retrained_rounds(binned, 30):
        margins += vote * stump.respond(pool.take(stump.feature).evaluate(stack))[0]
        total += vote
    first = next(retrained_rounds(binned, 1))[0]
    assert ((margins > total / 2) == is_positive).mean() > 1 - first.error[0]
