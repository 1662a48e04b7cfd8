import csv
import json

import numpy as np
import pytest
from tests.detectors import bull_finder, bull_scene, content

import whet
from whet.errors import VideoError
from whet.io.detection_files import FrameLines
from whet.io.video import VideoFrame
from whet.tracking.session import SavedModel, Session, frame_row
from whet.tracking.tracker import SelfTraining, Tracker

EAGER = SelfTraining(learn_min_score=-np.inf, every=1, share=0.01, guarded=False)

FIELDS = {"frame", "seconds", "tracked", "score", "accepted", "boxes", "scores"}
FIELDS |= {"learned", "rolled_back", "weight_change"}


def frames(images):
    for number, image in enumerate(images):
        yield VideoFrame(number, number / 25, image)


def breaking(images):
    yield from frames(images)
    raise VideoError("the camera is gone after 2 frames")


def test_a_source_that_fails_leaves_the_model_of_the_last_good_frame(tmp_path, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1.8e9)  # records have the time at which they were made
    images, path = [bull_scene(1), bull_scene(2)], tmp_path / "learned.whet"
    summary = Session(Tracker(bull_finder(), learn=True, self_training=EAGER), save_as=SavedModel(path)).run(
        breaking(images)
    )
    assert summary.error == "the camera is gone after 2 frames"
    assert (summary.frames, summary.learned, summary.saved) == (2, 2, True)
    whole = Tracker(bull_finder(), learn=True, self_training=EAGER)
    Session(whole).run(frames(images))
    assert content(whet.load(path)) == content(whole.detector)


def test_no_frame_at_all_is_an_error_and_saves_nothing(tmp_path):
    with pytest.raises(VideoError, match="camera is gone"):
        Session(Tracker(bull_finder()), save_as=SavedModel(tmp_path / "never.whet")).run(breaking([]))
    assert not list(tmp_path.iterdir())


def test_ctrl_c_saves_what_was_learned(tmp_path):
    def interrupted():
        yield from frames([bull_scene(1)])
        raise KeyboardInterrupt

    path = tmp_path / "learned.whet"
    tracker = Tracker(bull_finder(), learn=True, self_training=EAGER)
    assert Session(tracker, save_as=SavedModel(path)).run(interrupted()).interrupted
    assert whet.load(path).n_examples[0] > 0


def test_a_callback_that_cannot_write_ends_the_session_and_the_model_is_saved(tmp_path):
    def full(frame, _):
        if frame.number == 1:
            raise VideoError("seen.mp4 cannot be written: No space left on device")

    path = tmp_path / "learned.whet"
    tracker = Tracker(bull_finder(), learn=True, self_training=EAGER)
    summary = Session(tracker, (full,), SavedModel(path)).run(frames([bull_scene(1), bull_scene(2), bull_scene(3)]))
    assert (summary.frames, summary.error) == (2, "seen.mp4 cannot be written: No space left on device")
    assert content(whet.load(path)) == content(tracker.detector)


def test_it_saves_at_intervals(tmp_path):
    path, seen = tmp_path / "learned.whet", []
    session = Session(
        Tracker(bull_finder(), learn=True, self_training=EAGER),
        (lambda *_: seen.append(path.exists()),),
        save_as=SavedModel(path),
        save_every=2,
    )
    session.run(frames([bull_scene(seed) for seed in (1, 2, 3)]))
    assert seen == [False, False, True]


def test_frames_may_change_their_size():
    images = [bull_scene(), bull_scene()[:120, :150], np.zeros((5, 5), np.uint8), np.dstack([bull_scene()] * 3)]
    assert Session(Tracker(bull_finder(), learn=True, self_training=EAGER)).run(frames(images)).frames == 4


def test_a_thousand_frames_without_a_detection_give_a_warning():
    warnings = []
    dark = np.zeros((12, 12), np.uint8)
    summary = Session(Tracker(bull_finder()), warn=warnings.append).run(frames([dark] * 1001))
    assert len(warnings) == 1
    assert "1,000 frames" in warnings[0]
    assert (summary.with_detections, summary.longest_without) == (0, 1001)


def test_frames_below_the_minimum_score_have_no_detection():
    bold = Session(Tracker(bull_finder(), min_score=1e9)).run(frames([bull_scene()] * 3))
    assert (bold.frames, bold.with_detections, bold.longest_without) == (3, 0, 3)


def test_a_row_has_all_boxes_and_the_tracked_one():
    tracker, (frame,) = Tracker(bull_finder()), frames([bull_scene()])
    tracked = tracker.update(frame.image)
    row = frame_row(frame, tracked)
    assert row["frame"] == 0
    assert row["accepted"] is True
    assert row["tracked"] == pytest.approx(tracked.box, abs=0.01)
    assert np.array(row["boxes"]) == pytest.approx(tracked.detections.boxes, abs=0.01)
    assert row["scores"] == pytest.approx(tracked.detections.scores, abs=0.001)
    assert set(row) == set(FIELDS)


def test_rows_are_written_as_json_lines_and_as_a_table(tmp_path):
    tracker = Tracker(bull_finder())
    images = [np.zeros((12, 12), np.uint8), bull_scene()]
    rows = [frame_row(frame, tracker.update(frame.image)) for frame in frames(images)]
    for name in ("rows.jsonl", "rows.csv"):
        with FrameLines(tmp_path / name) as lines:
            for row in rows:
                lines.write(row)
    assert [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()] == rows
    with (tmp_path / "rows.csv").open() as file:
        first, second = csv.DictReader(file)
    assert (first["x1"], first["detections"], first["score"]) == ("", "0", "")
    assert [float(second[side]) for side in ("x1", "y1", "x2", "y2")] == rows[1]["tracked"]
    assert int(second["detections"]) == len(rows[1]["boxes"])
    assert float(second["weight_change"]) == rows[1]["weight_change"]
