"""What `whet.opencv.CascadeClassifier` refuses, by name."""

import numpy as np
import pytest
from tests.opencv_files import haar_file

from whet.errors import EmptyClassifierError
from whet.opencv import CascadeClassifier


@pytest.fixture
def faces(tmp_path, rng):
    path = tmp_path / "cascade.xml"
    path.write_text(haar_file(rng, (20, 20), [4, 9]))
    return CascadeClassifier(path)


@pytest.mark.parametrize("method", ["getOriginalWindowSize", "getFeatureType", "isOldFormatCascade"])
def test_an_empty_classifier_has_no_answers(method):
    with pytest.raises(EmptyClassifierError, match="load a cascade"):
        getattr(CascadeClassifier(), method)()


def test_an_empty_classifier_detects_nothing():
    with pytest.raises(EmptyClassifierError):
        CascadeClassifier().detectMultiScale(np.zeros((50, 50), dtype=np.uint8))


def test_a_file_that_is_no_cascade_leaves_the_classifier_empty(faces, tmp_path):
    (tmp_path / "no.xml").write_text("<opencv_storage/>")
    assert not faces.load(tmp_path / "no.xml")
    assert faces.empty()


@pytest.mark.parametrize(
    ("image", "options", "message"),
    [
        (np.zeros((50, 50)), {}, "expected uint8"),
        (np.zeros((50, 50, 2), dtype=np.uint8), {}, "1, 3 or 4 channels"),
        (np.zeros(50, dtype=np.uint8), {}, "expected \\(height, width\\)"),
        (np.zeros((50, 50), dtype=np.uint8), {"scaleFactor": 1.0}, "above 1"),
        (np.zeros((50, 50), dtype=np.uint8), {"scaleFactor": float("nan")}, "above 1"),
        (np.zeros((50, 50), dtype=np.uint8), {"scaleFactor": 1.0000001}, "use a larger factor"),
        (np.zeros((50, 50), dtype=np.uint8), {"minSize": (1, 2, 3)}, "expected \\(width, height\\)"),
    ],
)
def test_arguments_that_make_no_sense(faces, image, options, message):
    with pytest.raises(ValueError, match=message):
        faces.detectMultiScale(image, **options)
