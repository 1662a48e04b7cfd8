import numpy as np
import pytest
from tests.detectors import base, counts_in, counts_of, detector, learn, mixed_detector, patches, unlearn

from whet.errors import CannotMergeError, CannotUnlearnError
from whet.lda.statistics import BinaryStatistics


def seen(n, size=5, seed=0):
    return BinaryStatistics.from_samples(np.random.default_rng(seed).integers(0, 2, (n, size), dtype=np.uint8))


def test_with_nothing_learned_the_base_itself_is_run():
    one = detector()
    assert one.model is base().model
    one.only.add_counts(counts_in(one, 1, True, seen(5, 8)))
    before, now = base().model.cascade.stages[0], one.model.cascade.stages[0]
    assert (now.threshold, now.coef.tobytes()) == (before.threshold, before.coef.tobytes())
    assert one.model.cascade.stages[1].threshold != base().model.cascade.stages[1].threshold
    X, y = patches(10, np.random.default_rng(0))
    two = detector()
    learn(two, X, y)
    unlearn(two, X, y)
    assert two.model is base().model


def test_a_copy_learns_on_its_own():
    one = detector()
    one.only.add_counts(counts_in(one, 0, True, seen(4)))
    two = one.copy()
    two.only.add_counts(counts_in(two, 0, False, seen(4)))
    assert one.only.total.counts[0] == (4, 0)
    assert two.only.total.counts[0] == (4, 4)


def test_what_is_handed_in_is_not_held_on_to():
    one, new = detector(), seen(4)
    one.only.add_counts(counts_in(one, 0, True, new))
    new.insert(np.ones(5, np.uint8), 9)
    assert one.only.total.counts[0] == (4, 0)
    np.testing.assert_array_equal(one.only.total.stages[0][0].C, seen(4).C)


def test_removing_more_than_was_inserted_is_refused_as_a_whole():
    one = detector()
    X, y = patches(40, np.random.default_rng(0))
    learn(one, X[:20], y[:20])
    model, counts = one.model, one.only.total.counts
    for wrong in ((X, y), (X[20:], y[20:]), (X[:20], ~y[:20]), (X[:20], y[:20], 2)):
        with pytest.raises(CannotUnlearnError):
            unlearn(one, *wrong)
        assert one.model is model
        assert one.only.total.counts == counts


def test_merging_adds_and_needs_one_base():
    one, two = detector(), detector()
    one.only.add_counts(counts_in(one, 0, True, seen(4)))
    two.only.add_counts(counts_in(two, 0, True, seen(3, seed=1)))
    one.merge(two)
    np.testing.assert_array_equal(one.only.total.stages[0][0].C, seen(4).C + seen(3, seed=1).C)
    assert two.only.total.counts[0] == (3, 0)
    with pytest.raises(CannotMergeError, match="do not share one base"):
        one.merge(detector(criterion="lac"))


def test_a_fixed_stage_runs_but_does_not_learn():
    mixed = mixed_detector()
    with pytest.raises(ValueError, match="expected"):
        mixed.only.add_counts(counts_of([4, 5, 0], 0, True, seen(4, 4)))
    mixed.only.add_counts(counts_in(mixed, 1, True, seen(4)))
    assert mixed.only.total.counts == ((0, 0), (4, 0), (0, 0))
    assert mixed.model.cascade.stages[2].rejection_thresholds is not None


def test_statistics_that_do_not_fit_are_refused():
    one = detector()
    with pytest.raises(ValueError, match="no samples can have them"):
        one.only.add_counts(
            counts_in(one, 0, True, BinaryStatistics(1, np.array([2, 0, 0, 0, 0]), np.diag([2, 0, 0, 0, 0])))
        )
    with pytest.raises(ValueError, match="got counts"):
        one.only.add_counts(counts_of([5, 8], 0, True, seen(4)))
    assert one.only.total is None


def test_exits_of_a_soft_detector_follow_what_it_learns_and_come_back():
    from whet.lda.thresholds import prefix_moments

    soft = detector(soft=True)
    at_first = [stage.rejection_thresholds for stage in soft.model.cascade.stages]
    X, y = patches(80, np.random.default_rng(4))
    learn(soft, X, y)
    for stage, base_stage, (positive, _) in zip(
        soft.model.cascade.stages, soft.base.model.stages, soft.only.total.stages, strict=True
    ):
        mean, deviation = prefix_moments(base_stage.positive + positive, stage.coef)
        finite = np.isfinite(stage.rejection_thresholds)
        assert finite.any()
        np.testing.assert_allclose(
            stage.rejection_thresholds[finite], (mean + base_stage.rejection.z * deviation)[finite]
        )
    assert not all(
        np.array_equal(a, s.rejection_thresholds) for a, s in zip(at_first, soft.model.cascade.stages, strict=True)
    )
    unlearn(soft, X, y)
    for before, stage in zip(at_first, soft.model.cascade.stages, strict=True):
        np.testing.assert_array_equal(stage.rejection_thresholds, before)


def test_a_soft_base_is_not_the_hard_one():
    assert detector(soft=True).base.base_id != detector().base.base_id
