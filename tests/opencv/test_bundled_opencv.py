"""OpenCV files that others ship, loaded as detectors."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import whet
from whet.errors import CascadeFileError
from whet.images.pyramid import resized
from whet.io.image_files import read_grey
from whet.models.gslda.integral import IntegralStack
from whet.models.gslda.pools import BlockPatternPool
from whet.opencv import CascadeClassifier


@pytest.fixture(scope="module")
def data():
    found = find_spec("skimage")
    if found is None or found.origin is None:
        pytest.skip("scikit-image is not installed")
    return Path(found.origin).parent / "data"


@pytest.fixture(scope="module")
def mended(data, tmp_path_factory):
    """scikit-image's file has a slip in a name (featuhreParams), for which OpenCV refuses it too."""
    text = (data / "lbpcascade_frontalface_opencv.xml").read_text()
    path = tmp_path_factory.mktemp("lbp") / "lbp.xml"
    path.write_text(text.replace("featuhreParams", "featureParams"))
    return path


def test_the_file_as_scikit_image_has_it_is_refused_as_opencv_refuses_it(data):
    path = data / "lbpcascade_frontalface_opencv.xml"
    with pytest.raises(CascadeFileError, match="featureParams"):
        whet.load(path)
    assert CascadeClassifier(path).empty()
    cv2 = pytest.importorskip("cv2")
    assert cv2.CascadeClassifier(str(path)).empty()


def test_an_lbp_cascade_is_a_detector_that_finds_a_face_and_judges_windows_as_opencv_does(data, mended):
    detector = whet.load(mended)
    assert all(isinstance(stage.features, BlockPatternPool) for stage in detector.model.stages)
    image = read_grey(data / "astronaut.png")
    best = detector.detect(image, max_detections=1)
    x1, y1, x2, y2 = best.boxes[0]
    assert x1 < 224 < x2
    assert y1 < 120 < y2
    classifier = CascadeClassifier(mended, threads=1)
    height, width = detector.window
    rng = np.random.default_rng(0)
    places = rng.integers(0, 400, (300, 2))
    patches = np.array([image[y : y + height, x : x + width] for y, x in places])
    face = resized(np.ascontiguousarray(image[round(y1) : round(y2), round(x1) : round(x2)]), detector.window)
    patches = np.concatenate([patches, face[None]])
    enough = IntegralStack.from_patches(patches).has_contrast
    theirs = np.array([len(classifier.detectMultiScale(np.ascontiguousarray(one), 1.1, 0)) == 1 for one in patches])
    np.testing.assert_array_equal(detector.model.cascade.accepts(patches)[enough], theirs[enough])
    assert theirs.any()


def test_an_lbp_detector_is_written_again_as_it_was(data, mended, tmp_path):
    detector = whet.load(mended)
    exported = detector.export_opencv(tmp_path / "again.xml")
    assert exported.stumps == sum(map(len, detector.model.stages))
    image = read_grey(data / "astronaut.png")
    # Unmerged: scores differ by the rounding of float32 leaves, and merged boxes are weighted by them.
    found, again = (one.detect(image, grouping=None) for one in (detector, whet.load(tmp_path / "again.xml")))
    np.testing.assert_array_equal(np.unique(found.boxes, axis=0), np.unique(again.boxes, axis=0))
    assert len(found.boxes)
