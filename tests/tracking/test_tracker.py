"""Self-training: what updates change, what they may not damage, and that they can be rolled back."""

from dataclasses import replace

import numpy as np
import pytest
from tests.detectors import bull_finder, bull_scene, content

from whet.cascade.boxes import box_iou
from whet.cascade.detections import FiredWindows
from whet.cascade.pyramid import Pyramid, WindowIndex
from whet.errors import CannotLearnError
from whet.tracking.self_training import retention_of, weight_change
from whet.tracking.tracker import SelfTraining, Track, Tracker

EAGER = SelfTraining(learn_above=-np.inf, every=1, share=0.01, kept=1.0, others=2, max_lost=2.0, max_accepted=np.inf)


def learning_tracker(**changes):
    return Tracker(bull_finder(), learn=True, self_training=replace(EAGER, **changes))


def poison(tracker, n, rng):
    """Learn n pieces of noise as the object."""
    for _ in range(n):
        noise = rng.integers(0, 256, (60, 60), dtype=np.uint8)
        y, x = rng.integers(40, size=2).tolist()
        pyramid = Pyramid.from_image(noise, (12, 12))
        index = WindowIndex(np.ones(1), np.array([y]), np.array([x]))
        wrong = Track(np.array([0.0, 0.0, 12.0, 12.0]), 99.0, index, True, FiredWindows(), pyramid)
        tracker._pending.append(tracker._new_update(noise, wrong))
    return tracker.finish()


def test_a_tracker_that_does_not_learn_leaves_the_detector_unchanged():
    tracker = Tracker(bull_finder())
    before = content(tracker.detector)
    tracked = tracker.update(bull_scene())
    assert tracked.track is not None
    assert len(tracked.detections)
    assert content(tracker.detector) == before


def test_a_frame_is_learned_with_the_object_and_with_negatives():
    tracker = learning_tracker()
    tracked = tracker.update(bull_scene())
    assert (tracked.is_learned, tracked.n_learned) == (True, 1)
    objects, others = tracker.detector.learned
    assert objects == EAGER.weight(tracker.detector)
    assert others > 0
    assert tracked.weight_change == weight_change(tracker.detector) > 0


def test_detections_elsewhere_are_those_beside_the_tracked_object():
    tracked = Tracker(bull_finder()).update(bull_scene())
    beside = box_iou(tracked.box[None], tracked.detections.boxes)[0] < 0.3
    assert 0 < beside.sum() < len(tracked.detections)
    np.testing.assert_array_equal(tracked.elsewhere, tracked.detections.boxes[beside])


def test_updates_wait_until_there_are_enough():
    tracker = learning_tracker(every=3)
    assert [tracker.update(bull_scene(seed)).n_learned for seed in (1, 2, 3, 4, 5, 6)] == [1, 0, 2, 0, 0, 3]
    tracker.update(bull_scene(7))
    assert tracker.finish() == (1, 0)
    assert tracker.finish() == (0, 0)


def test_roll_back_after_ten_poisoned_frames_restores_the_detector_byte_for_byte(rng):
    tracker = learning_tracker()
    for seed in (1, 2):
        tracker.update(bull_scene(seed))
    good = content(tracker.detector)
    assert poison(tracker, 10, rng) == (10, 0)
    assert content(tracker.detector) != good
    assert tracker.roll_back(10) == 10
    assert content(tracker.detector) == good
    assert tracker.roll_back() == 2
    assert content(tracker.detector) == content(bull_finder())


def test_the_guard_rolls_back_what_damages_the_detector(rng):
    lax, guarded = learning_tracker(share=0.2), learning_tracker(share=0.2, max_accepted=3.0, every=10)
    before = content(guarded.detector)
    start = retention_of(lax.detector)
    poison(lax, 10, rng)
    assert start.change(retention_of(lax.detector))[1] > 3  # else there is nothing to guard against
    assert poison(guarded, 10, rng) == (0, 10)
    assert content(guarded.detector) == before
    assert guarded.weight_change == 0


def test_what_is_too_old_is_unlearned_exactly():
    """Four updates are kept: the detector is the one that learned the last four frames only."""
    long, short = learning_tracker(kept=0.04), learning_tracker(kept=0.04)
    assert EAGER.weight(long.detector) > 0
    for seed in (1, 2, 3, 4, 5, 6):
        long.last = None
        long.update(bull_scene(seed))
    assert len(long._learned) == 4
    short.detector.relearn(long.kept)
    assert content(long.detector) == content(short.detector)


def test_kept_updates_and_weights_stay_bounded_over_a_long_stream():
    tracker = learning_tracker(kept=0.05)
    images = [bull_scene(seed) for seed in (1, 2, 3)]
    counts = []
    for number in range(60):
        tracker.update(images[number % 3])
        counts.append((len(tracker._learned), tracker.detector.learned[0]))
    assert counts[-1] == counts[10]
    assert all(np.isfinite(stage.coef).all() for stage in tracker.detector.cascade.stages)


def test_retention_is_the_share_of_training_samples_that_pass():
    detector = bull_finder()
    retention = retention_of(detector)
    assert retention.kept > 0.9
    assert retention.accepted < 0.1
    assert retention.change(retention) == (0.0, 1.0)
    assert weight_change(detector) == 0


def test_a_detector_that_cannot_learn_is_refused_at_once():
    from tests.cascades import random_stage
    from tests.detectors import WINDOW

    from whet.detector.base import DetectorBase
    from whet.detector.detector import Detector

    fixed = Detector(DetectorBase(WINDOW, (random_stage("haar", WINDOW, 4, np.random.default_rng(0)),)))
    Tracker(fixed)
    with pytest.raises(CannotLearnError, match="no stage has statistics"):
        Tracker(fixed, learn=True)
