import numpy as np
import pytest
from experiments.boosting import Boosting
from experiments.forward_feature_selection import ForwardFeatureSelection
from tests.samples import direction

from whet.lda.statistics import BinaryStatistics
from whet.models.gslda.fitting import GreedyLDA, StageGoal, train_stage
from whet.models.gslda.haar import HaarPool
from whet.models.gslda.integral import IntegralStack
from whet.models.gslda.pools import BlockPatternPool
from whet.models.gslda.weak_training import train_weak_learners
from whet.parallel.workers import Threads

LEARNERS = [GreedyLDA(), GreedyLDA(criterion="lac"), Boosting(), Boosting(asymmetry=4.0), ForwardFeatureSelection()]


def patches(n, rng, side=10):
    """Noise; positives have a bright bar and a dark corner, each in most of them."""
    X = rng.integers(40, 200, (n, side, side), dtype=np.uint8)
    y = np.arange(n) % 2 == 0
    bar, corner = rng.random(n) < 0.8, rng.random(n) < 0.7
    X[y & bar, :, 4:6] = np.minimum(X[y & bar, :, 4:6] + 45, 255)
    X[y & corner, :3, :3] -= 35
    return X, y


def responses(stage, X):
    """Responses (samples, weak learners)."""
    return stage.run().respond(IntegralStack.from_patches(X)).T


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    return patches(400, rng), patches(600, rng)


@pytest.fixture(scope="module")
def pool():
    return HaarPool.from_window((10, 10))


@pytest.mark.parametrize("learner", LEARNERS, ids=repr)
def test_every_learner_separates_the_classes(learner, data, pool):
    train, test = data
    stage = train_stage(pool, *train, n_weak=12, learner=learner)
    assert len(stage) == 12
    assert (stage.run().accepts(test[0]) == test[1]).mean() > 0.8


def test_the_score_is_the_weighted_sum_of_the_stumps(data, pool):
    train, test = data
    stage = train_stage(pool, *train, n_weak=5)
    H = np.array([responses(stage, x[None])[0] for x in test[0][:50]])
    expected = H @ stage.discriminant().coef - stage.discriminant().threshold
    np.testing.assert_allclose(stage.run().score(test[0][:50]), expected)


def test_a_second_family_needs_nothing_but_itself(data):
    train, test = data
    stage = train_stage(BlockPatternPool.from_window((10, 10)), *train, n_weak=8)
    assert (stage.run().accepts(test[0]) == test[1]).mean() > 0.7


@pytest.mark.parametrize("criterion", ["fda", "lac"])
def test_weights_are_those_of_the_selected_responses(criterion, data, pool):
    (X, y), _ = data
    stage = train_stage(pool, X, y, n_weak=7, learner=GreedyLDA(criterion=criterion))
    H = responses(stage, X)
    expected = direction(BinaryStatistics.from_samples(H[y]), BinaryStatistics.from_samples(H[~y]), criterion, 20.0)
    np.testing.assert_array_equal(stage.run().coef, expected)


def test_learning_patches_online_is_counting_them_with_the_first(data, pool):
    (X, y), (X_new, y_new) = data
    stage = train_stage(pool, X, y, n_weak=10)
    learned = stage.learn(X_new[:250], y_new[:250])
    learned = learned.learn(X_new[250:], y_new[250:])
    learned = learned.learn(X_new[:20][y_new[:20]], y_new[:20][y_new[:20]])  # positives alone
    everything = np.concatenate([X, X_new, X_new[:20][y_new[:20]]])
    labels = np.concatenate([y, y_new, np.ones(10, dtype=bool)])
    H = responses(stage, everything).astype(np.int64)
    for statistics, side in ((learned.positive, labels), (learned.negative, ~labels)):
        assert statistics.n == side.sum()
        np.testing.assert_array_equal(statistics.C, H[side].T @ H[side])


@pytest.mark.parametrize("learner", LEARNERS, ids=repr)
def test_threads_do_not_change_a_bit(learner, data, pool):
    (X, y), (X_new, y_new) = data
    one, two = (train_stage(pool, X, y, n_weak=6, learner=learner, workers=Threads(n)) for n in (1, 2))
    np.testing.assert_array_equal(one.weak.feature, two.weak.feature)
    np.testing.assert_array_equal(one.weak.threshold, two.weak.threshold)
    np.testing.assert_array_equal(one.run().coef, two.run().coef)
    assert one.run().threshold == two.run().threshold
    if isinstance(learner, GreedyLDA):
        one, two = one.learn(X_new, y_new, threads=1), two.learn(X_new, y_new, threads=2)
        np.testing.assert_array_equal(one.run().coef, two.run().coef)
    np.testing.assert_array_equal(one.run().score(X_new, threads=1), two.run().score(X_new, threads=2))


@pytest.mark.parametrize("learner", LEARNERS, ids=repr)
def test_a_stage_stops_as_soon_as_its_goal_holds(learner, data, pool):
    train, (X_val, y_val) = data
    goal = StageGoal(detection_rate=0.8, false_positive_rate=0.25)
    stage = train_stage(pool, *train, n_weak=60, learner=learner, goal=goal, validation=(X_val, y_val))
    assert len(stage) < 60
    accepted = stage.run().accepts(X_val)
    assert accepted[y_val].mean() >= 0.8
    assert accepted[~y_val].mean() <= 0.25
    # One weak learner fewer would not have done. (AsymBoost's rounds depend on how many there may be.)
    if len(stage) > 1 and getattr(learner, "asymmetry", 1.0) == 1.0:
        shorter = train_stage(
            pool, *train, n_weak=len(stage) - 1, learner=learner, goal=goal, validation=(X_val, y_val)
        )
        assert shorter.run().accepts(X_val)[~y_val].mean() > 0.25


def test_a_goal_that_is_not_reached_keeps_its_detection_rate(data, pool):
    train, (X_val, y_val) = data
    goal = StageGoal(detection_rate=0.99, false_positive_rate=0.001)
    stage = train_stage(pool, *train, n_weak=2, goal=goal, validation=(X_val, y_val))
    assert len(stage) == 2
    assert stage.run().accepts(X_val)[y_val].mean() >= 0.99


def test_a_calibrated_threshold_follows_the_positives_online(data, pool):
    train, (X_val, y_val) = data
    stage = train_stage(pool, *train, n_weak=10, goal=StageGoal(0.95, 0.01), validation=(X_val, y_val))
    z = stage.rule.z
    learned = stage.learn(X_val, y_val)
    p = learned.discriminant().projection
    assert learned.run().threshold == p.mu_1 + z * p.sigma_1 != stage.run().threshold


def test_impossible_arguments_are_refused(data, pool):
    (X, y), (X_val, y_val) = data
    with pytest.raises(ValueError, match="give both or neither"):
        train_stage(pool, X, y, goal=StageGoal())
    with pytest.raises(ValueError, match="one class only"):
        train_stage(pool, X, y, goal=StageGoal(), validation=(X_val, np.ones_like(y_val)))
    with pytest.raises(ValueError, match="both classes"):
        train_stage(pool, X, np.ones_like(y))
    with pytest.raises(ValueError, match="detection_rate=1"):
        StageGoal(detection_rate=1.0)
    with pytest.raises(ValueError, match="separates"):
        train_stage(pool, np.full_like(X, 7), y)
    assert not train_stage(pool, X, y, 3, learner=Boosting()).learns
    with pytest.raises(ValueError, match="10 x 10 window"):
        train_stage(pool, X, y, 3).run().accepts(X[:, :9, :9])


def test_a_memory_budget_trains_on_a_seeded_sample_and_says_so(data, pool):
    (X, y), _ = data
    words = 8
    stages = []
    for _ in range(2):
        with pytest.warns(UserWarning, match="drawn at random"):
            stages.append(train_stage(pool, X, y, 5, max_memory=500 * 8 * words, seed=3))
    np.testing.assert_array_equal(stages[0].weak.feature, stages[1].weak.feature)
    _, responses = train_weak_learners(pool, X, y)
    assert responses.layout.words == words


@pytest.fixture(scope="module")
def soft(data, pool):
    train, validation = data
    return train_stage(pool, *train, n_weak=20, goal=StageGoal(0.9, 0.01), validation=validation, soft=True)


def test_rejection_thresholds_lose_none_of_the_validation_positives(soft, data):
    _, (X_val, y_val) = data
    by_threshold = soft.run().score(X_val[y_val]) > 0
    assert by_threshold.mean() >= 0.9
    np.testing.assert_array_equal(soft.run().accepts(X_val[y_val]), by_threshold)


def test_rejection_thresholds_reject_negatives_early(soft, data):
    _, (X_val, y_val) = data
    stage = soft.run()
    sums = stage.partial_sums(IntegralStack.from_patches(X_val[~y_val]))
    left = (sums <= stage.rejection_thresholds[:, None]).any(axis=0)
    assert left.mean() > 0.3
    assert np.isneginf(stage.rejection_thresholds[-1])


def test_rejection_thresholds_follow_what_is_learned(soft, data):
    from whet.lda.thresholds import prefix_moments

    _, (X_new, y_new) = data
    before = soft.run().rejection_thresholds
    learned = soft.learn(X_new, y_new)
    mean, deviation = prefix_moments(learned.positive, learned.run().coef)
    after = learned.run().rejection_thresholds
    finite = np.isfinite(after)
    np.testing.assert_allclose(after[finite], (mean + soft.rejection.z * deviation)[finite])
    assert not np.array_equal(before, after)
    np.testing.assert_array_equal(soft.run().rejection_thresholds, before)


def test_rejection_thresholds_need_validation_patches(data, pool):
    with pytest.raises(ValueError, match="soft=True needs"):
        train_stage(pool, *data[0], soft=True)
