import numpy as np
import pytest
from tests.samples import correlated_stumps

from whet.lda.statistics import BinaryStatistics, CentredStatistics
from whet.lda.thresholds import prefix_moments


@pytest.mark.parametrize("kind", [BinaryStatistics, CentredStatistics])
def test_moments_are_those_of_the_partial_sums(kind, rng):
    X, _ = correlated_stumps(120, 15, rng)
    w = rng.normal(size=15)
    sums = np.cumsum(X * w, axis=1)
    mean, deviation = prefix_moments(kind.from_samples(X), w)
    np.testing.assert_allclose(mean, sums.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(deviation, sums.std(axis=0), atol=1e-12)


def test_a_reserve_behind_the_voters_does_not_count(rng):
    X, _ = correlated_stumps(60, 9, rng)
    w = rng.normal(size=4)
    for a, b in zip(
        prefix_moments(BinaryStatistics.from_samples(X), w),
        prefix_moments(BinaryStatistics.from_samples(X[:, :4]), w),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
