"""OpenCV's stumps as stages of ours: the same patches pass, in a file and out of it."""

from pathlib import Path

import numpy as np
import pytest
from tests.cascades import textured

import whet
from whet.detect.opencv_scan import scan_levels
from whet.errors import CannotConvertError, CannotLearnError, DetectorNotFoundError
from whet.features.rectangle_pool import RectanglePool
from whet.io.model_file import from_bytes, to_bytes
from whet.io.opencv_xml import read_opencv
from whet.model.cascade import Cascade
from whet.model.opencv_stages import stages_of
from whet.model.taught_detector import TaughtDetector

cv2 = pytest.importorskip("cv2")

HAAR, LBP = Path(cv2.data.haarcascades), Path(cv2.data.haarcascades).parent / "lbpcascades"
FACES = HAAR / "haarcascade_frontalface_default.xml"


def patches_near(cascade, picture):
    """Windows that the first two stages let through, with their neighbours, and windows anywhere."""
    height, width = cascade.window
    rng = np.random.default_rng(0)
    y, x = rng.integers(0, picture.shape[0] - height, 400), rng.integers(0, picture.shape[1] - width, 400)
    boxes = scan_levels(cascade, picture, [np.float32(1.0)]).boxes
    y, x = np.concatenate([y, boxes[:, 1]]), np.concatenate([x, boxes[:, 0]])
    return np.stack([picture[b : b + height, a : a + width] for b, a in zip(y, x, strict=True)])


def shortened(path, tmp_path, stages):
    """The file with its first stages only, so that many windows pass."""
    text = path.read_text()
    head, rest = text.split("<stages>", 1)
    body, tail = rest.split("</stages>", 1)
    parts = body.split("<maxWeakCount>")
    kept = "<maxWeakCount>".join(parts[: stages + 1])
    kept = kept[: kept.rindex("</_>") + 4]
    short = tmp_path / "short.xml"
    short.write_text(f"{head}<stages>{kept}</stages>{tail}")
    return short


@pytest.mark.parametrize("name", ["frontalface_default", "frontalface_alt"])
@pytest.mark.parametrize("stages", [1, 3])
def test_patches_pass_as_in_opencv(name, stages, tmp_path):
    path = shortened(HAAR / f"haarcascade_{name}.xml", tmp_path, stages)
    cascade = read_opencv(path)
    assert len(cascade) == stages
    ours = Cascade(cascade.window, stages_of(cascade))
    theirs = cv2.CascadeClassifier(str(path))
    patches = patches_near(cascade, textured((200, 260), np.random.default_rng(3)))
    expected = [len(theirs.detectMultiScale(patch, 1.1, 0)) == 1 for patch in patches]
    assert 20 < sum(expected) < len(expected) - 20
    np.testing.assert_array_equal(ours.accepts(patches), expected)


def test_an_opencv_file_is_a_detector_that_can_be_saved():
    detector = whet.load(FACES)
    assert detector.window == (24, 24)
    assert all(isinstance(stage.features, RectanglePool) for stage in detector.taught.base.stages)
    again = from_bytes(to_bytes(detector.taught))
    assert isinstance(again, TaughtDetector)
    assert again.base.base_id == detector.base_id
    picture = textured((60, 60), np.random.default_rng(0))
    with pytest.raises(CannotLearnError, match="adopt"):
        detector.learn(picture, [[0, 0, 24, 24]], [False])


@pytest.mark.parametrize("name", ["haarcascade_frontalface_alt2", "haarcascade_fullbody", "haarcascade_eye"])
def test_trees_and_tilted_features_are_refused_by_name(name):
    cascade = read_opencv(HAAR / f"{name}.xml")
    if cascade.trees.are_stumps and not cascade.has_tilted:
        pytest.skip(f"{name} has neither")
    with pytest.raises(CannotConvertError, match=r"whet\.opencv\.CascadeClassifier"):
        whet.load(HAAR / f"{name}.xml")


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(DetectorNotFoundError, match="no file"):
        whet.load(tmp_path / "none.xml")
