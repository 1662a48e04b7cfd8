"""A watcher's lessons: what they change, what they may not damage, and that they can be taken back."""

from dataclasses import replace

import numpy as np
import pytest
from tests.detectors import bull_finder, bull_scene, content

from whet.cascade.boxes import box_iou
from whet.cascade.detections import FiredWindows
from whet.errors import CannotLearnError
from whet.tracking.following import Sighting
from whet.tracking.self_training import memory_of, moved
from whet.tracking.tracker import Lessons, Watcher

EAGER = Lessons(gate=-np.inf, every=1, share=0.01, remembered=1.0, others=2, most_lost=2.0, most_accepted=np.inf)


def watching(**changes):
    return Watcher(bull_finder(), learn=True, lessons=replace(EAGER, **changes))


def poison(watcher, n, rng):
    """Teach so many pieces of noise as the object."""
    for _ in range(n):
        noise = rng.integers(0, 256, (60, 60), dtype=np.uint8)
        y, x = rng.integers(40, size=2).tolist()
        patch = noise[y : y + 12, x : x + 12]
        wrong = Sighting(np.array([0.0, 0.0, 12.0, 12.0]), 99.0, (1.0, y, x), True, FiredWindows(), patch)
        watcher._pending.append(watcher._lesson(noise, wrong))
    return watcher.finish()


def test_a_watcher_that_does_not_learn_leaves_the_detector_alone():
    watcher = Watcher(bull_finder())
    before = content(watcher.detector)
    look = watcher.look(bull_scene())
    assert look.sighting is not None
    assert len(look.detections)
    assert content(watcher.detector) == before


def test_a_frame_teaches_the_object_and_what_is_not_it():
    watcher = watching()
    look = watcher.look(bull_scene())
    assert (look.teaches, look.n_learned) == (True, 1)
    objects, others = watcher.detector.learned
    assert objects == EAGER.weight(watcher.detector.taught)
    assert others > 0
    assert look.moved == moved(watcher.detector.taught) > 0


def test_detections_elsewhere_are_those_beside_the_followed_object():
    look = Watcher(bull_finder()).look(bull_scene())
    beside = box_iou(look.box[None], look.detections.boxes)[0] < 0.3
    assert 0 < beside.sum() < len(look.detections)
    np.testing.assert_array_equal(look.elsewhere, look.detections.boxes[beside])


def test_lessons_wait_until_there_are_enough():
    watcher = watching(every=3)
    assert [watcher.look(bull_scene(seed)).n_learned for seed in (1, 2, 3, 4, 5, 6)] == [1, 0, 2, 0, 0, 3]
    watcher.look(bull_scene(7))
    assert watcher.finish() == (1, 0)
    assert watcher.finish() == (0, 0)


def test_roll_back_after_ten_poisoned_frames_restores_the_detector_byte_for_byte(rng):
    watcher = watching()
    for seed in (1, 2):
        watcher.look(bull_scene(seed))
    good = content(watcher.detector)
    assert poison(watcher, 10, rng) == (10, 0)
    assert content(watcher.detector) != good
    assert watcher.roll_back(10) == 10
    assert content(watcher.detector) == good
    assert watcher.roll_back() == 2
    assert content(watcher.detector) == content(bull_finder())


def test_the_guard_takes_back_what_damages_the_detector(rng):
    lax, guarded = watching(share=0.2), watching(share=0.2, most_accepted=3.0, every=10)
    before = content(guarded.detector)
    start = memory_of(lax.detector.taught)
    poison(lax, 10, rng)
    assert start.lost(memory_of(lax.detector.taught))[1] > 3  # else there is nothing to guard against
    assert poison(guarded, 10, rng) == (0, 10)
    assert content(guarded.detector) == before
    assert guarded.moved == 0


def test_what_is_too_old_is_unlearned_exactly():
    """A memory of four lessons: the detector is the one that saw the last four frames only."""
    long, short = watching(remembered=0.04), watching(remembered=0.04)
    assert EAGER.weight(long.detector.taught) > 0
    for seed in (1, 2, 3, 4, 5, 6):
        long.follower.last = None
        long.look(bull_scene(seed))
    assert len(long._learned) == 4
    entries = [entry for lesson in long._learned for entry in lesson]
    short.detector.relearn(entries)
    assert content(long.detector) == content(short.detector)


def test_memory_and_weights_stay_bounded_over_a_long_stream():
    watcher = watching(remembered=0.05)
    images = [bull_scene(seed) for seed in (1, 2, 3)]
    counts = []
    for number in range(60):
        watcher.look(images[number % 3])
        counts.append((len(watcher._learned), watcher.detector.learned[0]))
    assert counts[-1] == counts[10]
    assert all(np.isfinite(stage.coef).all() for stage in watcher.detector.taught.cascade().stages)


def test_memory_tells_what_would_become_of_the_training_samples():
    taught = bull_finder().taught
    memory = memory_of(taught)
    assert memory.kept > 0.9
    assert memory.accepted < 0.1
    assert memory.lost(memory) == (0.0, 1.0)
    assert moved(taught) == 0


def test_a_detector_that_cannot_learn_is_refused_at_once():
    from tests.cascades import random_stage
    from tests.detectors import WINDOW

    from whet.detector.base import DetectorBase
    from whet.detector.detector import Detector

    fixed = Detector.from_base(DetectorBase(WINDOW, (random_stage("haar", WINDOW, 4, np.random.default_rng(0)),)))
    Watcher(fixed)
    with pytest.raises(CannotLearnError, match="no stage has statistics"):
        Watcher(fixed, learn=True)
