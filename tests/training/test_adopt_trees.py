"""OpenCV's trees and tilted features, adopted on drawn data: corrected, saved, and run by OpenCV."""

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from experiments.patches import adopt_patches
from PIL import Image
from tests.cascades import textured, windows_of
from tests.opencv_files import shortened

from whet.detector.detector import Detector
from whet.detector.storage import load
from whet.errors import CannotExportError
from whet.models.gslda.cascade import Cascade
from whet.models.gslda.integral import IntegralStack
from whet.opencv import CascadeClassifier
from whet.opencv.tree_cascade import stages_of
from whet.opencv.xml_reader import read_opencv
from whet.training.adopt import FEW_OBJECTS
from whet.training.loop import FewPositivesWarning

cv2 = pytest.importorskip("cv2")

HAAR = Path(cv2.data.haarcascades)
NAMES = ["frontalface_alt2", "eye_tree_eyeglasses", "lefteye_2splits", "fullbody"]


def objects(path, seed, n=120):
    """Windows that OpenCV's stages take for the object, and that are brighter below: what is to be found."""
    source = read_opencv(path)
    cascade = Cascade(source.window, stages_of(source))
    patches = windows_of(textured((260, 300), np.random.default_rng(seed)), source.window, 3)[0]
    patches = patches[cascade.accepts(patches)]
    gain = patches[:, source.window[0] // 2 :].mean(axis=(1, 2)) - patches.mean(axis=(1, 2))
    return patches[np.argsort(-gain, kind="stable")[:n]]


@pytest.fixture(params=NAMES)
def case(request, tmp_path):
    """The first stages of a cascade of trees, of tilted ones or of both, and images without the object."""
    path = tmp_path / "short.xml"
    path.write_text(shortened((HAAR / f"haarcascade_{request.param}.xml").read_text(), 4))
    images = [tmp_path / f"{seed}.png" for seed in range(6)]
    for seed, image in enumerate(images):
        Image.fromarray(textured((90, 110), np.random.default_rng(seed))).save(image)
    return path, images


@pytest.fixture
def adopted(case):
    path, images = case
    shown = objects(path, 50)
    few = pytest.warns(FewPositivesWarning) if len(shown) < FEW_OBJECTS else nullcontext()
    with few:
        return adopt_patches(path, shown, images, n_negatives=250, threads=1)


def test_counts_are_those_of_the_responses_leaf_by_leaf(case, adopted):
    positives = objects(case[0], 50)
    for stage in adopted.model.stages:
        answers = stage.respond(IntegralStack.from_patches(positives)).astype(int)
        assert (answers @ answers.T >= stage.statistics[0].C).all()  # some are held out
        assert stage.statistics[0].n < len(positives)


@pytest.mark.slow
def test_it_is_corrected_saved_and_run_by_opencv(case, adopted, tmp_path):
    before = adopted.to_bytes()
    assert Detector.from_bytes(before).to_bytes() == before
    image = textured((160, 180), np.random.default_rng(21))
    found = adopted.detect(image)
    theirs = load(case[0]).detect(image)
    assert np.array_equal(found.boxes, theirs.boxes)
    assert np.array_equal(found.scores, theirs.scores)
    corrected = adopted.copy()
    update = corrected.learn(image, found.boxes[:2], False)
    left = corrected.detect(image).boxes.tolist()
    unsatisfied = {record.box for record in update.unsatisfied}  # four stages separate little
    assert len(unsatisfied) < 2
    assert all((box in left) <= (tuple(box) in unsatisfied) for box in found.boxes[:2].tolist())
    corrected.save(tmp_path / "corrected.whet")
    assert load(tmp_path / "corrected.whet").to_bytes() == corrected.to_bytes()
    with pytest.raises(CannotExportError, match="corrections"):
        corrected.export_opencv(tmp_path / "out.xml")
    corrected.unlearn(update)
    assert corrected.export_opencv(tmp_path / "out.xml").differences == ()
    check_in_opencv(corrected, tmp_path / "out.xml", image, objects(case[0], 60))
    assert corrected.to_bytes() == before


def check_in_opencv(detector, path, image, patches):
    ours, theirs = CascadeClassifier(path), cv2.CascadeClassifier(str(path))
    found = [sorted(map(tuple, np.array(c.detectMultiScale(image, 1.1, 0)).tolist())) for c in (ours, theirs)]
    assert found[0] == found[1]
    patches = np.concatenate([patches, windows_of(image, detector.window, 4)[0]])
    accepted = [len(theirs.detectMultiScale(np.ascontiguousarray(patch), 1.1, 0)) == 1 for patch in patches]
    np.testing.assert_array_equal(detector.model.cascade.accepts(patches), accepted)
    assert 0 < sum(accepted) < len(accepted)
