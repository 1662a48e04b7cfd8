import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.cascades import detect
from tests.detectors import BULL, bull_base, bull_finder, bull_scene, content

import whet
from whet.detector import storage as bundled
from whet.detector.storage import load
from whet.errors import (
    BoxError,
    DetectorNotFoundError,
    ModelFileError,
    UnreadableImageError,
)
from whet.evaluation.evaluation import evaluate_detections, operating_point
from whet.images.boxes import BoxOffset, box_iou

WIDER = BoxOffset(-0.1, -0.2, 1.1, 1.25)


# Detecting.


def test_it_finds_what_its_cascade_finds():
    finder = bull_finder()
    ours = finder.detect(bull_scene(), scale_factor=1.3, step=2, grouping="nms", min_size=20, max_size=60)
    theirs = detect(
        bull_base().model, bull_scene(), scale_factor=1.3, step=2, grouping="nms", min_size=20, max_size=60, threads=1
    )
    np.testing.assert_array_equal(ours.boxes, theirs.boxes)
    np.testing.assert_array_equal(ours.scores, theirs.scores)
    assert len(ours) > 2


def test_a_path_an_image_and_an_array_are_one_image(tmp_path):
    Image.fromarray(bull_scene()).save(tmp_path / "scene.png")
    finder = bull_finder()
    found = [
        finder.detect(image).boxes
        for image in (
            bull_scene(),
            tmp_path / "scene.png",
            str(tmp_path / "scene.png"),
            Image.open(tmp_path / "scene.png"),
        )
    ]
    for boxes in found[1:]:
        np.testing.assert_array_equal(boxes, found[0])


@pytest.mark.parametrize("shape", [(1, 1), (11, 300), (12, 12)])
def test_images_smaller_than_the_window_hold_nothing(shape):
    assert bull_finder().detect(np.zeros(shape, np.uint8)).boxes.shape == (0, 4)


def test_images_that_are_none_are_named(tmp_path):
    (tmp_path / "empty.png").write_bytes(b"")
    for image in (tmp_path / "empty.png", np.zeros((0, 5), np.uint8), np.full((20, 20), 7.0), None):
        with pytest.raises(UnreadableImageError):
            bull_finder().detect(image)


def test_a_minimum_score_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="min_score=nan"):
        bull_finder().detect(bull_scene(), min_score=float("nan"))


@pytest.mark.parametrize("options", [{"scale_factor": 1.0}, {"step": 0}])
@pytest.mark.parametrize("label", [True, False])
def test_a_scan_that_cannot_be_is_refused_in_learning_as_in_detecting(options, label):
    for verb in (
        lambda one: one.detect(bull_scene(), **options),
        lambda one: one.learn(bull_scene(), BULL, [label], **options),
    ):
        with pytest.raises(ValueError, match=r"factor|step"):
            verb(bull_finder())


@pytest.mark.slow
def test_detecting_needs_neither_scikit_learn_nor_the_distributions_of_scipy(tmp_path):
    bull_finder().save(tmp_path / "bull.whet")
    Image.fromarray(bull_scene()).save(tmp_path / "scene.png")
    code = (
        "import sys, whet; found = whet.load('./bull.whet').detect('scene.png'); assert len(found) > 1; "
        "print(sorted({'sklearn', 'scipy.stats', 'matplotlib'} & set(sys.modules)))"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(whet.__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


# Frames.


@pytest.mark.parametrize("grouping", ["peaks", "nms", None])
def test_framing_the_merged_is_merging_the_framed(grouping):
    plain, framed = (
        bull_finder().detect(bull_scene(), grouping=grouping),
        bull_finder(offset=WIDER).detect(bull_scene(), grouping=grouping),
    )
    np.testing.assert_array_equal(plain.group, framed.group)  # windows overlap as windows
    np.testing.assert_array_equal(plain.windows.boxes, framed.windows.boxes)
    for i in range(len(framed)):
        windows = framed.windows_of(i)
        if grouping == "peaks":  # windows of a nested group are behind it, but have no say in its box
            best = framed.windows.boxes[windows][np.argmax(framed.windows.scores[windows])]
            shared = box_iou(best[None], framed.windows.boxes[windows])[0]
            windows = windows[shared >= 0.3]
        boxes, margins = WIDER.boxes(framed.windows.boxes[windows]), framed.windows.scores[windows]
        match grouping:
            case "peaks":
                expected = np.average(boxes, axis=0, weights=margins)
            case _:  # of equal margins any may be the one that stays
                expected = min(boxes[margins == margins.max()], key=lambda box: abs(box - framed.boxes[i]).max())
        np.testing.assert_allclose(framed.boxes[i], expected)


def test_sizes_are_those_of_the_boxes_that_are_reported():
    framed = bull_finder(offset=WIDER)
    found = framed.detect(bull_scene(), grouping=None, min_size=30, max_size=60)
    sides = (found.boxes[:, 2:] - found.boxes[:, :2]).max(axis=1)
    everything = framed.detect(bull_scene(), grouping=None)
    all_sides = (everything.boxes[:, 2:] - everything.boxes[:, :2]).max(axis=1)
    assert 0 < len(found) < len(everything)
    # Rounding a level to whole pixels moves sides by some per cent.
    assert (sides > 30 * 0.97).all()
    assert (sides < 60 * 1.03).all()
    assert ((all_sides > 31) & (all_sides < 58)).sum() <= len(found)


# Operating points, names and files.


def test_operating_points_from_an_evaluation_are_saved_and_used(tmp_path):
    finder = bull_finder()
    truths = [[40.0, 30, 70, 60], [120.0, 70, 170, 120]]
    found = [finder.detect(bull_scene(seed)) for seed in range(1, 6)]
    result = evaluate_detections([(one.boxes, one.scores) for one in found], [(truths, None)] * 5)
    finder.set_operating_point("one in five", operating_point(result.curve, 0.2))
    finder.save(tmp_path / "bull.whet")
    loaded = load(tmp_path / "bull.whet")
    assert loaded.operating_points == finder.operating_points
    kept = [loaded.detect(bull_scene(seed), min_score="one in five") for seed in range(1, 6)]
    judged = evaluate_detections([(one.boxes, one.scores) for one in kept], [(truths, None)] * 5)
    assert judged.curve.false_positives[-1] <= 1
    assert judged.curve.found[-1] > 5
    with pytest.raises(ValueError, match=r"'two'.*'one in five'"):
        loaded.detect(bull_scene(), min_score="two")
    loaded.set_operating_point("one in five", None)
    assert content(loaded) == content(bull_finder())


def test_the_default_point_is_used_where_no_threshold_is_given():
    finder = bull_finder()
    everything = finder.detect(bull_scene())
    score = float(everything.scores[1:3].mean())
    finder.set_operating_point("default", score)
    np.testing.assert_array_equal(finder.detect(bull_scene()).boxes, everything.boxes[:2])
    np.testing.assert_array_equal(finder.detect(bull_scene(), min_score=0).boxes, everything.boxes)
    assert len(finder.detect(bull_scene(), min_score=float(everything.scores[0]))) == 0


@pytest.mark.parametrize(("name", "score"), [("", 1.0), (" a", 1.0), ("a\n", 1.0), ("a" * 101, 1.0), ("a", np.inf)])
def test_operating_points_have_a_name_and_a_score(name, score):
    with pytest.raises(ValueError, match="operating point"):
        bull_finder().set_operating_point(name, score)


def test_the_frame_is_saved_and_no_part_of_the_id(tmp_path):
    bull_finder(offset=WIDER).save(tmp_path / "wide.whet")
    loaded = load(tmp_path / "wide.whet")
    assert loaded.box_offset == WIDER
    assert loaded.base_id == bull_finder().base_id


@pytest.mark.parametrize("frame", [(0, 0, 0, 1), (0, 1, 1, 0), (0, 0, np.nan, 1), (0, 0, 1, 3.1), (-2.5, 0, 1, 1)])
def test_frames_that_are_no_boxes_are_refused(frame):
    with pytest.raises(ValueError, match="expected left < right"):
        bull_finder(offset=BoxOffset(*frame))


def test_bare_names_are_bundled_detectors(tmp_path, monkeypatch):
    monkeypatch.setattr(bundled, "BUNDLED", tmp_path)
    bull_finder().save(tmp_path / "bull.whet")
    assert whet.load("bull").base_id == bull_finder().base_id
    with pytest.raises(DetectorNotFoundError, match=r"unknown detector 'face'; bundled with whet: 'bull'\. For a file"):
        whet.load("face")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "face").mkdir()
    with pytest.raises(DetectorNotFoundError, match="face is a directory here"):
        whet.load("face")
    (tmp_path / "mine").touch()
    with pytest.raises(DetectorNotFoundError, match=r"write '\./mine'"):
        whet.load("mine")


def test_a_path_that_does_not_exist_says_so(tmp_path):
    for path in (tmp_path / "none.whet", str(tmp_path / "none"), "./none", "none.whet"):
        with pytest.raises(DetectorNotFoundError, match=r"no such file: .*none"):
            whet.load(path)
    with pytest.raises(ModelFileError, match="is a folder"):
        whet.load(tmp_path)


def test_the_folder_of_bundled_detectors_is_there():
    assert (bundled.BUNDLED / "README.md").is_file()
    for name in bundled.bundled_names():
        assert whet.load(name).provenance.licence


def test_the_repr_of_a_detector_has_its_numbers():
    finder = bull_finder()
    finder.learn(bull_scene(), BULL, [True])
    finder.learn_patches(bull_scene()[None, 30:42, 40:52], True, weights=5)
    finder.set_operating_point("careful", 4.5)
    assert repr(finder) == (
        "Detector(12 x 12 windows, 3 stages, 17 weak learners; learned 1 correction, 5 positives, 0 negatives; "
        "operating points 'careful': 4.5)"
    )
    assert finder.n_examples == (5, 0)
    assert finder.provenance.licence == "CC0-1.0"


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("min_size", (10, 10), "a number of pixels"),
        ("max_size", "40", "a number of pixels"),
        ("scale_factor", "1.1", "a number"),
        ("step", 1.5, "a whole number"),
        ("iou", None, "a number"),
        ("max_detections", 1.5, "a whole number of at least 1"),
        ("max_detections", 0, "a whole number of at least 1"),
        ("max_detections", -1, "a whole number of at least 1"),
    ],
)
def test_an_option_of_another_type_is_named_with_what_is_expected(option, value, expected):
    with pytest.raises((TypeError, ValueError), match=f"got {option}=.*expected {expected}"):
        bull_finder().detect(bull_scene(), **{option: value})


def test_numbers_of_numpy_are_numbers():
    plain = bull_finder().detect(bull_scene(), step=2, min_size=14.0, max_detections=2)
    options = {"step": np.int64(2), "min_size": np.float32(14), "max_detections": np.uint8(2)}
    assert bull_finder().detect(bull_scene(), **options).boxes.tolist() == plain.boxes.tolist()


def test_the_name_of_a_model_is_no_detector():
    for kind in (whet.Detector, whet.Tracker):
        with pytest.raises(TypeError, match=r"whet\.load"):
            kind("face")
    with pytest.raises(TypeError, match=r"whet\.load"):
        whet.Detector.from_base("face.whet")
    for shapes in (bull_finder(), ["face"], "face", [bull_finder()]):
        with pytest.raises(TypeError, match=r"class 'bull'.*shapes\(\)"):
            whet.Detector({"bull": shapes})


def test_a_detection_and_a_single_box_can_be_corrected():
    finders = [bull_finder() for _ in range(3)]
    found = finders[0].detect(bull_scene())
    for finder, wrong in zip(finders, (found[-1], found.boxes[-1], found.boxes[-1:]), strict=True):
        finder.learn(bull_scene(), wrong, False)
    assert len({finder.records[0].id for finder in finders}) == 1
    with pytest.raises(BoxError, match="x1, y1, x2, y2"):
        finders[0].learn(bull_scene(), [1, 2, 3], False)


def test_a_list_of_images_gives_a_list_of_detections():
    finder, images = bull_finder(), [bull_scene(1), bull_scene(2)]
    found = finder.detect(images, max_detections=3)
    assert [each.boxes.tolist() for each in found] == [
        finder.detect(image, max_detections=3).boxes.tolist() for image in images
    ]
    assert finder.detect([]) == []


def test_detections_are_taken_by_number_slice_and_flags():
    found = bull_finder().detect(bull_scene())
    assert found[0].boxes.tolist() == found.boxes[:1].tolist()
    assert found[-1].scores.tolist() == found.scores[-1:].tolist()
    assert found[1:3].boxes.tolist() == found.boxes[1:3].tolist()
    high = found[found.scores > found.scores[2]]
    assert len(high) == 2
    np.testing.assert_array_equal(high.windows_of(1), found.windows_of(1))
    np.testing.assert_array_equal(found[1].windows_of(0), found.windows_of(1))
    with pytest.raises(IndexError):
        found[len(found)]


def test_bgr_arrays_are_read_as_such():
    rng = np.random.default_rng(0)
    rgb = np.repeat(bull_scene()[..., None], 3, axis=2)
    rgb = (rgb * rng.uniform(0.8, 1.0, 3)).astype(np.uint8)
    ours, theirs = bull_finder().detect(rgb), bull_finder().detect(rgb[..., ::-1].copy(), color="bgr")
    np.testing.assert_array_equal(ours.boxes, theirs.boxes)
    with pytest.raises(ValueError, match="bgr"):
        bull_finder().detect(rgb, color="hsv")


def test_merge_takes_a_file_too(tmp_path):
    one, two = bull_finder(), bull_finder()
    two.learn(bull_scene(), BULL, True)
    two.save(tmp_path / "two.whet")
    one.merge(tmp_path / "two.whet")
    assert content(one) == content(two)
