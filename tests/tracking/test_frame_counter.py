import numpy as np
from tests.detectors import bull_finder, bull_scene

from whet.io.video import VideoFrame
from whet.tracking.session import RECENT, FrameCounter, Session
from whet.tracking.tracker import SelfTraining, Tracker

EAGER = SelfTraining(learn_min_score=-np.inf, every=1, share=0.01, guarded=False)


def test_the_status_after_the_last_frame_is_that_of_the_summary():
    counter, seen = FrameCounter(), []
    tracker = Tracker(bull_finder(), learn=True, self_training=EAGER)
    frames = [VideoFrame(2 * number, 0.0, bull_scene(number)) for number in range(5)]
    summary = Session(tracker, (lambda frame, tracked: seen.append((counter.add(frame, tracked), tracked)),)).run(
        frames
    )
    status, tracked = seen[-1]
    assert [each.frame for each, _ in seen] == [0, 2, 4, 6, 8]
    assert (status.learned, status.rolled_back, status.weight_change) == (
        summary.learned,
        0,
        summary.weight_change,
    )
    assert status.learned == 5
    assert (status.score, status.accepted) == (tracked.track.score, tracked.track.accepted)
    assert status.detected == len(tracked.detections)


def test_the_rate_is_that_of_recent_frames(monkeypatch):
    """A minute of compiling before the second frame is forgotten after some more."""
    moments = iter([0.0, 60.0, *(60 + 0.1 * n for n in range(1, 2 * RECENT))])
    monkeypatch.setattr("whet.tracking.session.time.perf_counter", lambda: next(moments))
    black = np.zeros((60, 80), np.uint8)
    tracked = Tracker(bull_finder()).update(black)
    counter = FrameCounter()
    rates = [counter.add(VideoFrame(0, 0.0, black), tracked).rate for _ in range(RECENT + 2)]
    assert rates[0] == 0.0
    assert rates[1] < 1
    assert abs(rates[-1] - 10) < 1e-6
    assert counter.add(VideoFrame(0, 0.0, black), tracked).score is None
