"""OpenCV's stumps and trees as stages of ours: the same windows pass, in a file and out of it."""

from pathlib import Path

import numpy as np
import pytest
from tests.cascades import scan, textured, windows_of
from tests.detectors import from_bytes, to_bytes
from tests.opencv_files import haar_file, lbp_file, old_file, shortened

import whet
from whet.detector.detector import Detector
from whet.errors import CannotConvertError, CannotLearnError, DetectorNotFoundError
from whet.models.gslda.cascade import Cascade
from whet.models.gslda.integral import IntegralStack
from whet.models.gslda.pools import RectanglePool
from whet.opencv.classifier import scan_levels
from whet.opencv.tree_cascade import OpenCVCascade, Trees, stages_of
from whet.opencv.xml_reader import parse_opencv, read_opencv

cv2 = pytest.importorskip("cv2")

HAAR, LBP = Path(cv2.data.haarcascades), Path(cv2.data.haarcascades).parent / "lbpcascades"
FACES = HAAR / "haarcascade_frontalface_default.xml"
BUNDLED = sorted(HAAR.glob("*.xml"))


def patches_near(cascade, image):
    """Windows that the first two stages let through, with their neighbours, and windows anywhere."""
    height, width = cascade.window
    rng = np.random.default_rng(0)
    y, x = rng.integers(0, image.shape[0] - height, 400), rng.integers(0, image.shape[1] - width, 400)
    boxes, _ = scan_levels(cascade, image, [np.float32(1.0)])
    y, x = np.concatenate([y, boxes[:, 1]]), np.concatenate([x, boxes[:, 0]])
    return np.stack([image[b : b + height, a : a + width] for b, a in zip(y, x, strict=True)])


@pytest.mark.parametrize(
    "name", ["frontalface_default", "frontalface_alt", "frontalface_alt2", "fullbody", "lefteye_2splits"]
)
@pytest.mark.parametrize("stages", [1, 3])
def test_patches_pass_as_in_opencv(name, stages, tmp_path):
    path = tmp_path / "short.xml"
    path.write_text(shortened((HAAR / f"haarcascade_{name}.xml").read_text(), stages))
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
    assert all(isinstance(stage.features, RectanglePool) for stage in detector.base.model.stages)
    again = from_bytes(detector.to_bytes())
    assert isinstance(again, Detector)
    assert again.base.base_id == detector.base_id
    image = textured((60, 60), np.random.default_rng(0))
    with pytest.raises(CannotLearnError, match="adopt"):
        detector.learn(image, [[0, 0, 24, 24]], [False])


def first_stages(cascade, n):
    """The cascade with its first stages only, so that some windows pass."""
    t, last = cascade.trees, int(cascade.first_tree[n])
    nodes = slice(0, int(t.first[last]))
    columns = (column[nodes] for column in (t.left, t.right, t.feature, t.threshold, t.subset))
    trees = Trees(t.first[: last + 1], *columns, t.leaves[: nodes.stop + last])
    return OpenCVCascade(cascade.features, trees, cascade.first_tree[: n + 1], cascade.threshold[:n])


def passes_in_opencv(cascade, patches):
    """Whether each patch passes: an image of one window has no second scale, no step and no skipped neighbour."""
    images = map(np.ascontiguousarray, patches)
    return np.array([len(scan_levels(cascade, image, [np.float32(1.0)], 1)[1]) == 1 for image in images])


@pytest.mark.slow
@pytest.mark.parametrize("path", BUNDLED, ids=lambda path: path.stem)
def test_every_file_of_opencv_is_a_detector_that_judges_windows_as_opencv_does(path):
    whole = read_opencv(path)
    height, width = whole.window
    image = textured((height + 12, width + 20), np.random.default_rng(3))
    patches, places = windows_of(image, whole.window)
    for n in (1, 3):
        short = first_stages(whole, n)
        cascade = Cascade(whole.window, stages_of(short))
        scores = cascade.scores(patches)
        accepted = scores > -np.inf
        found = scan(cascade, image)
        np.testing.assert_array_equal(np.stack([found.y, found.x], axis=1), places[accepted])
        np.testing.assert_array_equal(found.scores, scores[accepted])
        np.testing.assert_array_equal(accepted, passes_in_opencv(short, patches))
        assert 0 < accepted.sum() < len(accepted)
    detector = whet.load(path)
    assert len(detector.base.model.stages) == len(whole)
    detector.detect(image)
    data = detector.to_bytes()
    again = from_bytes(data)
    assert again.base.base_id == detector.base_id
    assert to_bytes(again) == data
    np.testing.assert_array_equal(again.model.cascade.accepts(patches), detector.model.cascade.accepts(patches))


@pytest.mark.parametrize("seed", range(6))
def test_trees_of_lbp_and_of_the_old_format_are_judged_as_opencv_does(seed):
    rng = np.random.default_rng(seed)
    text = lbp_file(rng, (15, 15), [3, 5], sizes=(1, 2, 4)) if seed % 2 else old_file(rng, (16, 18), [3, 5])
    source = parse_opencv(text.encode())
    patches, _ = windows_of(textured((30, 40), rng), source.window)
    patches = patches[IntegralStack.from_patches(patches).has_contrast]  # OpenCV looks at flat windows of LBP, too
    accepted = Cascade(source.window, stages_of(source)).accepts(patches)
    assert 0 < accepted.sum() < len(accepted)
    np.testing.assert_array_equal(accepted, passes_in_opencv(source, patches))


def test_weights_that_are_not_whole_are_refused_by_name(tmp_path, rng):
    path = tmp_path / "fractional.xml"
    path.write_text(haar_file(rng, (18, 22), [3], fractional=True))
    with pytest.raises(CannotConvertError, match=r"fractional weights.*whet\.opencv\.CascadeClassifier"):
        whet.load(path)


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(DetectorNotFoundError, match="no such file"):
        whet.load(tmp_path / "none.xml")
