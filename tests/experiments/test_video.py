import numpy as np
import pytest
from experiments import datasets, single_stage, tracking, video
from experiments.datasets import LFW_FACE, FaceVideo, lfw_images
from experiments.drifting_faces import HARD, clip, true_box
from experiments.face_samples import inner_faces
from experiments.report import reproduce
from experiments.single_stage import (
    FACE_OFFSET,
    LFW_EYES_DOWN,
    LFW_PUPILS_APART,
    BestWindows,
    StageSettings,
    inner_offset,
    overlaps,
)
from experiments.video import faces_at, sheet
from PIL import Image

from whet.images.detections import FiredWindows
from whet.images.pyramid import WindowIndex
from whet.io.image_files import read_grey
from whet.models.gslda.fitting import train_stage
from whet.models.gslda.haar import HaarPool
from whet.tracking.tracker import Guard, Health


@pytest.fixture
def data():
    for name in ("faces_opencv24", "faces_lfw", "negatives", "david", "trellis"):
        if datasets.find(name) is None:
            pytest.skip(f"{name} is not on this machine: set WHET_DATA")


def test_a_frame_without_a_window_finds_no_face():
    truths = np.tile([10.0, 10.0, 50.0, 60.0], (3, 1))
    windows = FACE_OFFSET.windows(truths)
    windows[1] = np.nan
    windows[2] += 100
    np.testing.assert_array_equal(BestWindows(windows, np.zeros(3)).found(truths, FACE_OFFSET), [True, False, False])


def test_the_inner_faces_are_of_every_second_person(tmp_path, monkeypatch):
    (tmp_path / "faces_lfw").mkdir()
    left, top, side = LFW_FACE
    rim = (side - 0.5 * side) / 2
    inside = np.s_[int(top + rim) - 3 : int(top + side - rim) + 5, int(left + rim) - 3 : int(left + side - rim) + 5]
    for number in range(6):
        image = np.zeros((160, 160), np.uint8)
        image[inside] = 100 + 20 * number
        Image.fromarray(image).save(tmp_path / "faces_lfw" / f"{number}.jpg", quality=100)
    monkeypatch.setenv("WHET_DATA", str(tmp_path))
    faces = inner_faces(3, 0.5, np.random.default_rng(0))
    assert faces.shape == (3, 24, 24)
    assert sorted(np.rint(faces.mean(axis=(1, 2)))) == [100, 140, 180]
    assert inner_faces(1, 1.0, np.random.default_rng(0)).min() == 0  # all of the box has the black rim too


def test_a_narrower_crop_reports_the_same_face():
    """Windows of two crops of one photograph, each with the box offset of its crop: one box."""
    left, top, side = LFW_FACE
    boxes = []
    for share in (1.0, 0.7):
        rim = (1 - share) / 2 * side
        window = np.array([[left + rim, top + rim, left + side - rim, top + side - rim]])
        boxes.append(inner_offset(share).boxes(window)[0])
    np.testing.assert_allclose(boxes[0], boxes[1])


@pytest.mark.usefixtures("data")
def test_the_eyes_of_the_mean_photograph_are_where_the_box_offset_has_them():
    mean = np.mean([read_grey(path) for path in lfw_images()[::10]], axis=0)
    low, high = 55, 85
    columns = [start + int(np.argmin(mean[low:high, start : start + 40].min(axis=0))) for start in (40, 80)]
    rows = [low + int(np.argmin(mean[low:high, column])) for column in columns]
    assert abs(np.mean(rows) - LFW_EYES_DOWN) < 1.5
    assert abs(columns[1] - columns[0] - LFW_PUPILS_APART) < 3


def test_exactly_one_half_in_common_is_not_enough():
    truth = np.array([[0.0, 0.0, 10.0, 10.0]])
    half = np.array([[0.0, 0.0, 10.0, 5.0]])
    assert overlaps(half, truth)[0] == 0.5
    assert not (overlaps(half, truth) > 0.5).any()


def test_a_curve_counts_faces_and_false_positives():
    """Two frames: the face scores 3 and 1, something else 2 and 0.5."""
    truth = np.array([10.0, 10.0, 50.0, 60.0])
    face, other = FACE_OFFSET.windows(truth[None])[0], np.array([100.0, 100.0, 124.0, 124.0])
    windows = {
        number: FiredWindows(
            WindowIndex(np.ones(2), np.zeros(2, int), np.zeros(2, int)), np.stack([face, other]), np.array(scores)
        )
        for number, scores in enumerate(([3.0, 2.0], [1.0, 0.5]))
    }
    found = faces_at(windows, np.tile(truth, (2, 1)), FACE_OFFSET, [0, 1, 2])
    assert found[0] >= 0.5 - 1e-9 or found[1] >= 0.5  # one face before the first false positive
    assert found == sorted(found)


def test_footage_is_smooth_and_follows_from_the_seed(rng):
    face, background = (rng.integers(0, 256, shape, dtype=np.uint8) for shape in ((160, 160), (300, 400)))
    first, again = (clip(face, background, 8, np.random.default_rng(3), HARD) for _ in range(2))
    np.testing.assert_array_equal(first.frames, again.frames)
    assert first.frames.shape == (8, 240, 320)
    assert abs(np.diff(first.truths, axis=0)).max() < 12


def test_the_true_box_of_a_turned_face_follows_its_nose():
    straight, turned = (true_box((100.0, 100.0), 50.0, (0.0, yaw)) for yaw in (0.0, 0.5))
    assert turned[0] > straight[0]
    assert turned[1] == straight[1]


def test_a_sheet_has_a_row_a_method_and_a_column_a_frame(rng):
    images = [rng.integers(0, 256, (24, 32), dtype=np.uint8) for _ in range(3)]
    truths = np.tile([4.0, 4.0, 20.0, 20.0], (3, 1))
    made = sheet(FaceVideo("david", (), (340, 409, 600), truths), images, {"a": truths, "b": truths + np.nan})
    assert made.shape == (2 * 24, 5 * 32, 3)


@pytest.mark.slow
@pytest.mark.usefixtures("data")
def test_the_paper_s_experiment_runs_and_has_both_curves(monkeypatch, tmp_path):
    tiny = StageSettings(n_faces=200, n_random=200, n_mined=100, mining_rounds=1, n_weak=10, n_features=300)
    monkeypatch.setattr(video, "SETTINGS", {"small": tiny})
    monkeypatch.setattr(video, "EVERY", {"small": 120})
    monkeypatch.setattr(video, "CURVES_EVERY", {"small": 1})
    few = datasets.negative_images()[:100]
    monkeypatch.setattr(single_stage, "negative_images", lambda: few)
    done = reproduce("video", tmp_path)
    report = done.report
    for name in ("david", "trellis"):
        for method in (*video.PAPER, video.OGSLDA + video.GUARDED, "AdaBoost, frozen stumps"):
            assert 0 <= report.one(video.RATE, method, video=name, box="raw").mean <= 1
        for method in video.PAPER:
            assert 0 <= report.one(video.NARROW_RATE, method, video=name, box="offset").mean <= 1
        for method in ("GSLDA", video.OWN, video.BEFORE):
            assert len(report.select("faces found", method, video=name)) == len(video.FALSE_POSITIVES)
    assert report.figures == ["video-david.png", "video-rates.png", "video-trellis.png"]


def test_a_guard_refuses_windows_that_harm_held_out_samples(rng):
    """A stage of drawn samples: a window that scores like a face is learned, one that does not is left out."""
    patches = rng.integers(0, 200, (300, 24, 24), dtype=np.uint8)
    patches[:150, :, 12:] += 50
    is_face = np.arange(300) < 150
    pool = HaarPool.from_window((24, 24)).sample(400, rng)
    stage = train_stage(pool, patches[::2], is_face[::2], 10)
    held_out = single_stage.Samples(patches[1:150:2], patches[151::2])
    guard = single_stage.GuardedLearning(stage, held_out)
    margins = stage.run().score(patches)
    face, other = patches[[np.argmax(margins)]], patches[[np.argmin(margins)]]
    assert guard(stage, other, float(margins.min())) is stage
    learned = guard(stage, face, float(margins.max()))
    assert guard.learned == 1
    assert learned.statistics[0].n == stage.statistics[0].n + 1
    guard.guard = Guard(Health(2.0, 2.0, 0.0), 0.02, 1.1)  # nothing is good enough
    assert guard(stage, face, float(margins.max())) is stage
    assert guard.refused == 1


@pytest.mark.slow
@pytest.mark.usefixtures("data")
def test_the_paper_s_trellis_has_501_frames_and_begins_where_its_tracker_does():
    """Ross et al. start their tracker of `trellis70` at a centre of (200, 100)."""
    footage = video.Footage.from_name("trellis", 1).as_in_paper
    assert len(footage.video) == len(footage.images) == 501
    x1, y1, x2, y2 = footage.video.truths[0]
    assert abs((x1 + x2) / 2 - 200) < 2
    assert abs((y1 + y2) / 2 - 100) < 8
    assert len(video.Footage.from_name("david", 10).as_in_paper.video) == 48


@pytest.mark.slow
@pytest.mark.usefixtures("data")
def test_tracking_is_compared_with_its_peers(monkeypatch, tmp_path):
    monkeypatch.setattr(tracking, "N_FRAMES", {"small": 3})
    report = reproduce("tracking", tmp_path).report
    assert tracking.rate(report, tracking.BEST, "david", "face").mean == 1.0  # the first frames are easy
    assert tracking.rate(report, tracking.BEST, "david", iou=0.3).mean == 1.0
    assert report.figures == ["tracking-rates.png"]
