from dataclasses import replace

import numpy as np
import pytest
from tests.cascades import random_stage

from whet.detector.base import DetectorBase
from whet.lda.statistics import BinaryStatistics
from whet.lda.thresholds import fisher
from whet.models.gslda.cascade import Stage, check_statistics
from whet.models.gslda.cascade_model import CascadeModel
from whet.models.gslda.fitting import GreedyLDA, train_stage
from whet.models.gslda.haar import HaarPool
from whet.models.gslda.integral import IntegralStack

WINDOW = (10, 8)


@pytest.fixture
def patches(rng):
    return rng.integers(0, 256, (400, *WINDOW), dtype=np.uint8)


@pytest.mark.parametrize("kind", ["haar", "lbp"])
def test_a_margin_is_the_sum_in_the_order_of_the_learners_minus_the_threshold(kind, patches, rng):
    stage = random_stage(kind, WINDOW, 23, rng)
    responses = stage.weak.respond(stage.features.evaluate(IntegralStack.from_patches(patches)))
    expected = np.zeros(len(patches))
    for t in range(23):
        expected += np.where(responses[t], stage.coef[t], 0.0)
    assert np.array_equal(stage.score(patches), expected - stage.threshold)
    assert np.array_equal(stage.accepts(patches), expected > stage.threshold)
    assert 0 < stage.accepts(patches).sum() < len(patches)


@pytest.mark.parametrize("n_weak", [1, 40])
def test_a_stage_that_learns_gives_a_new_one_and_stays_as_it_is(n_weak, patches):
    is_positive = np.arange(len(patches)) % 2 == 0
    patches[is_positive, 2:5] //= 2
    trained = train_stage(HaarPool.from_window(WINDOW), patches, is_positive, n_weak)
    before = trained.run().score(patches)
    assert np.array_equal(trained.run().score(patches, threads=3), before)
    assert np.array_equal(trained.run().accepts(patches), before > 0)
    learned = trained.learn(patches[:50], ~is_positive[:50])
    assert np.array_equal(trained.run().score(patches), before)
    assert not np.array_equal(learned.run().score(patches), before)
    assert learned.positive.n == trained.positive.n + 25
    new = trained.count(patches[:50], ~is_positive[:50])
    assert np.array_equal(trained.run(new).coef, learned.run().coef)


def test_log_priors_are_refused_for_scores_of_lac(patches):
    is_positive = np.arange(len(patches)) % 2 == 0
    trained = train_stage(HaarPool.from_window(WINDOW), patches, is_positive, 3, learner=GreedyLDA(criterion="lac"))
    for combine in (
        lambda: GreedyLDA(criterion="lac", threshold="fisher"),
        lambda: replace(trained, rule=fisher),
    ):
        with pytest.raises(ValueError, match=r"lac.*fisher.*use threshold='bayes'"):
            combine()


def test_fewer_co_occurrences_than_the_sums_need_are_refused():
    statistics = BinaryStatistics(3, np.array([2, 2]), np.array([[2, 0], [0, 2]]))
    with pytest.raises(ValueError, match="s_j \\+ s_k - n"):
        check_statistics(statistics, "negatives")


def test_a_soft_stage_rejects_what_falls_below_an_exit_on_the_way(patches, rng):
    soft = random_stage("haar", WINDOW, 12, rng, soft=True)
    hard = Stage(soft.features, soft.weak, soft.coef, soft.threshold)
    sums = soft.partial_sums(IntegralStack.from_patches(patches))
    stays = np.array([all(sums[t, i] > soft.rejection_thresholds[t] for t in range(12)) for i in range(len(patches))])
    assert np.array_equal(soft.accepts(patches), hard.accepts(patches) & stays)
    assert soft.accepts(patches).sum() < hard.accepts(patches).sum()
    assert np.array_equal(soft.score(patches), hard.score(patches))


def test_exits_of_minus_infinity_change_nothing(patches, rng):
    hard = random_stage("haar", WINDOW, 6, rng)
    soft = Stage(hard.features, hard.weak, hard.coef, hard.threshold, np.full(6, -np.inf))
    assert np.array_equal(soft.accepts(patches), hard.accepts(patches))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"coef": np.ones(4)}, "equal numbers"),
        ({"rejection_thresholds": np.zeros(6)}, "equal numbers"),
        ({"coef": np.array([1, 2, np.nan, 4, 5])}, "finite"),
        ({"threshold": np.inf}, "finite"),
        ({"rejection_thresholds": np.full(5, np.nan)}, "below infinity"),
        ({"rejection_thresholds": np.full(5, np.inf)}, "below infinity"),
    ],
)
def test_what_cannot_be_a_stage_of_a_detector_is_refused(change, message, rng):
    stage = random_stage("haar", WINDOW, 5, rng)
    fields = {"coef": stage.coef, "threshold": 0.0, "rejection_thresholds": None, **change}
    with pytest.raises(ValueError, match=message):
        DetectorBase(CascadeModel(WINDOW, (Stage(stage.features, stage.weak, **fields),)))
