import numpy as np
import pytest

from whet.errors import ForgettingError
from whet.lda.statistics import BinaryStatistics, CentredStatistics, DecayingStatistics


@pytest.fixture
def start(rng):
    return CentredStatistics.from_samples(rng.normal(size=(10, 3)))


def test_a_block_is_its_samples_in_order(start, rng):
    X, weights = rng.normal(size=(6, 3)), np.array([1, 2, 1, 1, 3, 1])
    block = DecayingStatistics.starting_from(start, 0.9)
    single = block.copy()
    block.insert_many(X, weights)
    for x, k in zip(X, weights, strict=True):
        single.insert(x, int(k))
    assert block.n == pytest.approx(single.n)
    np.testing.assert_allclose(block.m, single.m)
    np.testing.assert_allclose(block.S, single.S)
    assert block.decay == 0.9


def test_the_count_settles_at_one_over_one_minus_decay(start):
    statistics = DecayingStatistics.starting_from(start, 0.99)
    for _ in range(2000):
        statistics.insert(np.zeros(3))
    assert statistics.n == pytest.approx(100, rel=1e-6)


def test_a_drifted_mean_is_followed(start, rng):
    statistics = DecayingStatistics.starting_from(start, 0.9)
    for _ in range(200):
        statistics.insert(rng.normal(size=3) + 5)
    assert (statistics.m > 4).all()


def test_nothing_can_be_taken_out_or_merged():
    statistics = DecayingStatistics.starting_from(BinaryStatistics.from_samples(np.eye(3, dtype=np.uint8)), 0.9)
    with pytest.raises(ForgettingError, match="merged"):
        statistics + statistics
    with pytest.raises(ForgettingError, match="unlearn"):
        statistics - statistics
