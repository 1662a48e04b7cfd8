import numpy as np
import pytest
from tests.detectors import bull_finder, bull_scene, content

import whet
from whet.errors import VideoError
from whet.io.video import VideoFrame
from whet.tracking.session import Session, TrackedModel, line_of
from whet.tracking.tracker import SelfTraining, Tracker

EAGER = SelfTraining(min_score=-np.inf, every=1, share=0.01, others=0, max_lost=2.0, max_accepted=np.inf)


def frames(images):
    for number, image in enumerate(images):
        yield VideoFrame(number, number / 25, image)


def breaking(images):
    yield from frames(images)
    raise VideoError("the camera is gone after 2 frames")


def test_a_source_that_breaks_off_leaves_the_model_of_the_last_good_frame(tmp_path):
    images, path = [bull_scene(1), bull_scene(2)], tmp_path / "taught.safetensors"
    summary = Session(Tracker(bull_finder(), learn=True, self_training=EAGER), save_as=TrackedModel(path)).run(
        breaking(images)
    )
    assert summary.ended == "the camera is gone after 2 frames"
    assert (summary.frames, summary.learned, summary.saved) == (2, 2, True)
    whole = Tracker(bull_finder(), learn=True, self_training=EAGER)
    Session(whole).run(frames(images))
    assert content(whet.load(path)) == content(whole.detector)


def test_no_frame_at_all_is_an_error_and_saves_nothing(tmp_path):
    with pytest.raises(VideoError, match="camera is gone"):
        Session(Tracker(bull_finder()), save_as=TrackedModel(tmp_path / "never.safetensors")).run(breaking([]))
    assert not list(tmp_path.iterdir())


def test_ctrl_c_saves_what_was_learned(tmp_path):
    def interrupted():
        yield from frames([bull_scene(1)])
        raise KeyboardInterrupt

    path = tmp_path / "taught.safetensors"
    tracker = Tracker(bull_finder(), learn=True, self_training=EAGER)
    assert Session(tracker, save_as=TrackedModel(path)).run(interrupted()).stopped
    assert whet.load(path).learned[0] > 0


def test_a_listener_that_cannot_write_ends_it_and_the_model_is_kept(tmp_path):
    def full(frame, _):
        if frame.number == 1:
            raise VideoError("seen.mp4 cannot be written: No space left on device")

    path = tmp_path / "taught.safetensors"
    tracker = Tracker(bull_finder(), learn=True, self_training=EAGER)
    summary = Session(tracker, (full,), TrackedModel(path)).run(frames([bull_scene(1), bull_scene(2), bull_scene(3)]))
    assert (summary.frames, summary.ended) == (2, "seen.mp4 cannot be written: No space left on device")
    assert content(whet.load(path)) == content(tracker.detector)


def test_it_saves_at_intervals(tmp_path):
    path, seen = tmp_path / "taught.safetensors", []
    session = Session(
        Tracker(bull_finder(), learn=True, self_training=EAGER),
        (lambda *_: seen.append(path.exists()),),
        save_as=TrackedModel(path),
        save_every=2,
    )
    session.run(frames([bull_scene(seed) for seed in (1, 2, 3)]))
    assert seen == [False, False, True]


def test_frames_may_change_their_size():
    images = [bull_scene(), bull_scene()[:120, :150], np.zeros((5, 5), np.uint8), np.dstack([bull_scene()] * 3)]
    assert Session(Tracker(bull_finder(), learn=True, self_training=EAGER)).run(frames(images)).frames == 4


def test_a_thousand_frames_without_a_detection_are_said():
    told = []
    dark = np.zeros((12, 12), np.uint8)
    summary = Session(Tracker(bull_finder()), tell=told.append).run(frames([dark] * 1001))
    assert told == [told[0]]
    assert "1,000 frames" in told[0]
    assert (summary.seen, summary.longest_unseen) == (0, 1001)


def test_frames_below_the_threshold_have_no_detection():
    bold = Session(Tracker(bull_finder(), min_score=1e9)).run(frames([bull_scene()] * 3))
    assert (bold.frames, bold.seen, bold.longest_unseen) == (3, 0, 3)


def test_a_line_holds_what_was_seen():
    tracker, (frame,) = Tracker(bull_finder()), frames([bull_scene()])
    tracked = tracker.update(frame.image)
    line = line_of(frame, tracked)
    assert line["frame"] == 0
    assert line["accepted"] is True
    assert [line[side] for side in ("x1", "y1", "x2", "y2")] == pytest.approx(tracked.box, abs=0.01)
    assert len(line["detections"]) == len(tracked.detections)
