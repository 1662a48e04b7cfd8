"""A detector that is trained for OpenCV runs there, and finds the same objects."""

import numpy as np
import pytest
from PIL import Image
from tests.drawn_sets import van_set

import whet
from whet.errors import ConfigError
from whet.images.boxes import box_iou
from whet.training.config import TrainingConfig, opencv_settings

SIZES = {"max_stages": 4, "max_weak_learners": 20, "max_features": 1000, "negatives_per_stage": 300}


@pytest.fixture(scope="module")
def vans(tmp_path_factory):
    folder = tmp_path_factory.mktemp("for_opencv")
    return folder, van_set(folder)


@pytest.mark.slow
@pytest.mark.parametrize("features", ["channels", "lbp"])
def test_what_is_trained_for_opencv_is_exported_and_finds_the_same_objects(vans, features, tmp_path):
    cv2 = pytest.importorskip("cv2")
    if not hasattr(cv2, "CascadeClassifier"):
        pytest.skip("this OpenCV has no CascadeClassifier")
    folder, found = vans
    detector = whet.train(
        folder / "vans.csv",
        folder / "textures",
        features=features,
        for_opencv=True,
        copies_per_object=3,
        **SIZES,
    )
    exported = detector.export_opencv(tmp_path / "vans.xml")
    assert "1.20 times as wide" in " ".join(exported.differences)
    classifier = cv2.CascadeClassifier(str(tmp_path / "vans.xml"))
    n_found = 0
    for image in found.images:
        grey = np.asarray(Image.open(image.path).convert("L"))
        boxes = np.array(classifier.detectMultiScale(grey, 1.1, 1), np.float64).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        boxes = detector.box_offset.boxes(boxes)  # OpenCV reports windows
        n_found += int((box_iou(image.objects, boxes) > 0.5).any(axis=1).sum())
    assert n_found > 0.6 * found.n_boxes


def test_the_settings_for_opencv_are_those_that_can_be_exported():
    config = TrainingConfig(**opencv_settings({"annotations": "cars.csv", "min_sigma": 5.0}))
    assert (config.features, config.min_sigma, config.early_exits) == ("haar", 10.0, False)
    assert opencv_settings({"features": "lbp"})["features"] == "lbp"
    with pytest.raises(ConfigError, match="haar or lbp"):
        opencv_settings({"features": "haar,lbp"})
