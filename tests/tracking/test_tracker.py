"""Self-training: what updates change, what they may not damage, and that they can be rolled back."""

import inspect
from dataclasses import replace

import numpy as np
import pytest
from tests.detectors import bull_finder, bull_scene, content
from tests.tracking.guarded import guarded_finder

from whet.corrections.records import image_hash
from whet.errors import CannotLearnError
from whet.images.boxes import box_iou
from whet.images.detections import FiredWindows
from whet.images.pyramid import Pyramid, WindowIndex
from whet.tracking.tracker import TRACKED, SelfTraining, Track, Tracker, health_of, weight_change

EAGER = SelfTraining(learn_min_score=-np.inf, every=1, share=0.01, kept=1.0, guarded=False)


def learning_tracker(**changes):
    return Tracker(bull_finder(), learn=True, self_training=replace(EAGER, **changes))


def poison(tracker, n, rng):
    """Learn n pieces of noise as the object."""
    for _ in range(n):
        noise = rng.integers(0, 256, (60, 60), dtype=np.uint8)
        y, x = rng.integers(40, size=2).tolist()
        pyramid = Pyramid.from_image(noise, (12, 12))
        index = WindowIndex(np.ones(1), np.array([y]), np.array([x]))
        box = np.array([x, y, x + 12.0, y + 12.0])
        wrong = Track(box, 99.0, index, True, FiredWindows(), pyramid, box)
        tracker._pending.append(tracker._new_update(noise, wrong))
    return tracker.finish()


def test_a_tracker_that_does_not_learn_leaves_the_detector_unchanged():
    tracker = Tracker(bull_finder())
    before = content(tracker.detector)
    tracked = tracker.update(bull_scene())
    assert tracked.track is not None
    assert len(tracked.detections)
    assert content(tracker.detector) == before


def test_the_tracked_window_is_learned_as_the_object_and_nothing_else_is():
    tracker = learning_tracker()
    tracked = tracker.update(bull_scene())
    assert (tracked.is_learned, tracked.n_learned) == (True, 1)
    assert tracker.detector.n_examples == (EAGER.weight(tracker.detector), 0)
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


def test_a_tracker_trains_a_copy_and_not_the_detector_of_the_caller():
    own = bull_finder()
    tracker = Tracker(own, learn=True, self_training=EAGER)
    tracker.update(bull_scene())
    assert tracker.detector.n_examples[0] > 0
    assert content(own) == content(bull_finder())


def test_what_is_learned_is_a_record_of_the_detector():
    tracker = learning_tracker()
    tracker.source = "film.mp4"
    tracked = tracker.update(bull_scene())
    (record,) = (record for record in tracker.detector.records if record.is_object)
    assert (record.kind, record.note, record.name) == ("example", TRACKED, "film.mp4 frame 0")
    assert box_iou(np.array([record.box]), tracked.box[None]) > 0.5
    assert record.image == image_hash(bull_scene())
    by_hand = bull_finder()
    by_hand.learn_patches(Pyramid.from_image(bull_scene(), (12, 12)).patches(record.index), True, record.weight)
    for ours, theirs in zip(tracker.detector.only.total.stages, by_hand.only.total.stages, strict=True):
        np.testing.assert_array_equal(ours[0].C, theirs[0].C)


def test_a_frame_that_is_shown_twice_is_learned_once():
    tracker = learning_tracker()
    first, second = (tracker._new_update(bull_scene(), Tracker(bull_finder()).update(bull_scene()).track) for _ in "ab")
    tracker._pending += [first, second]
    assert tracker.finish() == (1, 0)
    tracker._pending.append(first)
    assert tracker.finish() == (0, 0)
    assert len(tracker.detector.records) == 1


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


def test_the_guard_rolls_back_ten_poisoned_frames(rng):
    settings = replace(EAGER, share=0.2, every=10)
    lax = Tracker(guarded_finder(), learn=True, self_training=settings)
    guarded = Tracker(guarded_finder(), learn=True, self_training=replace(settings, guarded=True))
    before, start = content(guarded.detector), health_of(guarded.detector)
    poison(lax, 10, rng)
    now = health_of(lax.detector)
    assert start.recall - now.recall > 0.02 or now.false_positives > 1.1 * start.false_positives  # there is damage
    assert poison(guarded, 10, rng) == (0, 10)
    assert content(guarded.detector) == before
    assert guarded.weight_change == 0


def test_the_guard_compares_with_the_detector_before_any_session(rng):
    """A second session cannot lose as much again."""
    tracker = Tracker(guarded_finder(), learn=True, self_training=replace(EAGER, share=0.2))
    poison(tracker, 10, rng)
    again = Tracker(tracker.detector, learn=True, self_training=replace(EAGER, guarded=True))
    assert again._guard.start == health_of(guarded_finder()) != health_of(tracker.detector)


def test_without_a_reference_set_a_detector_learns_only_unguarded():
    with pytest.raises(CannotLearnError, match="--unguarded"):
        Tracker(bull_finder(), learn=True)
    Tracker(bull_finder(), learn=False)
    assert learning_tracker().update(bull_scene()).n_learned == 1


def test_what_is_too_old_is_unlearned_exactly():
    """Four updates are kept: the detector is the one that learned the last four frames only."""
    tracker = learning_tracker(kept=0.04)
    for seed in (1, 2, 3, 4, 5, 6):
        tracker.last = None
        tracker.update(bull_scene(seed))
    assert len(tracker._learned) == 4
    names = {record.name for record in tracker.kept}
    assert names == {f"frame {number}" for number in (2, 3, 4, 5)}
    short = bull_finder()
    short.add(tracker.kept)
    assert content(tracker.detector) == content(short)


@pytest.mark.slow
def test_kept_updates_and_weights_stay_bounded_over_a_long_stream():
    tracker = learning_tracker(kept=0.05)
    counts = []
    for number in range(60):
        tracker.update(np.roll(bull_scene(), number, axis=1))
        counts.append((len(tracker._learned), tracker.detector.n_examples[0]))
    assert counts[-1] == counts[10] == (5, 5 * EAGER.weight(tracker.detector))
    assert all(np.isfinite(stage.coef).all() for stage in tracker.detector.model.cascade.stages)


def test_the_state_of_a_tracker_is_no_argument_of_its_constructor():
    names = inspect.signature(Tracker).parameters
    assert not [name for name in names if name.startswith("_")]
    assert "_pending" not in repr(Tracker(bull_finder()))


def test_a_detector_that_cannot_learn_is_refused_at_once():
    from tests.cascades import random_stage
    from tests.detectors import WINDOW

    from whet.detector.base import DetectorBase
    from whet.detector.detector import Detector
    from whet.models.gslda.cascade_model import CascadeModel

    stage = random_stage("haar", WINDOW, 4, np.random.default_rng(0))
    fixed = Detector.from_base(DetectorBase(CascadeModel(WINDOW, (stage,))))
    Tracker(fixed)
    with pytest.raises(CannotLearnError, match="no stage has statistics"):
        Tracker(fixed, learn=True)
