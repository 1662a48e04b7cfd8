"""The bundled face detector stays as it is: its base, its stages, and what it finds in a few images.

`face_regression.json` has the expected values. After an intended change (a newly trained detector, another way of
grouping), write it again and review the difference:

    python -m tests.detector.test_face_regression --write
"""

import json
import re
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

import whet

STORED = Path(__file__).with_name("face_regression.json")
MODEL = Path(whet.__file__).parent / "bundled" / "face.whet"
BENCHMARK = Path(__file__).parents[2] / "docs" / "results" / "benchmark-face-detector.json"
# Below the default operating point, so that a handful of images has more than a handful of boxes.
OPERATING_POINT = "one false positive per image"
SETTINGS = {"default": {}, "fine": {"scale_factor": 1.1}, "coarse": {"scale_factor": 1.3, "step": 2, "min_size": 40}}


def images():
    """Images by name. No library resizes or draws them, whose next version might do it otherwise."""
    from skimage import data

    photograph = data.astronaut()
    return {
        "astronaut": photograph,
        "astronaut, flipped": photograph[:, ::-1],
        "astronaut, half": photograph[::2, ::2],
        "astronaut, a third": photograph[::3, ::3],
        "astronaut, twice": photograph[:256, 100:356].repeat(2, axis=0).repeat(2, axis=1),
        "astronaut, dark": photograph // 3,
        "drawn scene": drawn_scene(),
    }


def drawn_scene(shape=(240, 320)):
    """Three discs with eyes and a mouth on a slope of grey, and a pattern of noise: integers only."""
    y, x = np.indices(shape)
    scene = 90 + x * 60 // shape[1]
    for top, left, radius in ((70, 80, 48), (150, 220, 70), (60, 270, 24)):
        dy, dx = y - top, x - left
        scene[dy * dy * 3 + dx * dx * 4 < 4 * radius * radius] = 190
        for side in (-1, 1):
            eye = (dy + radius // 4) ** 2 * 4 + (dx - side * radius * 2 // 5) ** 2 < (radius // 4) ** 2
            scene[eye] = 50
        scene[(abs(dx) < radius // 3) & (abs(dy - radius // 2) < radius // 10)] = 80
        scene[(abs(dx) < radius // 10) & (abs(dy - radius // 8) < radius // 5)] = 215
    return (scene + (x * 7919 + y * 104729) % 23 - 11).clip(0, 255).astype(np.uint8)


def model():
    """Identity and size of the model, from the header of its file."""
    with safe_open(MODEL, "np") as file:
        header = json.loads(file.metadata()["whet"])
    return {
        "base_id": header["base_id"],
        "weak learners of each stage": [stage["n_weak"] for stage in header["model"]["stages"]],
        "operating_points": {name: round(score, 6) for name, score in header["operating_points"].items()},
    }


@cache
def detector():
    return whet.load("face")


def found(image, setting):
    """Boxes and scores, best first, as rows of x1, y1, x2, y2, score."""
    detections = detector().detect(image, min_score=OPERATING_POINT, **SETTINGS[setting])
    return np.column_stack([detections.boxes, detections.scores]).round(3).tolist()


def measured():
    cases = {name: {setting: found(image, setting) for setting in SETTINGS} for name, image in images().items()}
    return model() | {"detections": cases}


@pytest.fixture(scope="module")
def stored():
    return json.loads(STORED.read_text(encoding="utf-8"))


def test_the_model_is_the_one_that_was_measured(stored):
    expected = {key: value for key, value in stored.items() if key != "detections"}
    assert model() == expected
    assert detector().base_id == expected["base_id"]


def test_the_benchmark_is_of_this_model(stored):
    assert json.loads(BENCHMARK.read_text())["stages"] == stored["weak learners of each stage"]


def test_boxes_and_scores_are_those_of_before(stored):
    pytest.importorskip("skimage")
    for name, image in images().items():
        for setting in SETTINGS:
            rows, expected = found(image, setting), stored["detections"][name][setting]
            assert len(rows) == len(expected), (name, setting)
            np.testing.assert_allclose(rows, expected, rtol=1e-5, atol=0.002, err_msg=f"{name}, {setting}")


def test_every_kind_of_image_has_a_detection(stored):
    for name, settings in stored["detections"].items():
        assert any(settings.values()), f"{name} pins nothing"


@pytest.mark.slow
@pytest.mark.parametrize("scale_factor", [1.1, 1.2])
def test_faces_of_mit_cmu_are_those_of_the_benchmark(scale_factor):
    from experiments.mit_cmu import Trial, faces_at

    from whet.errors import DataNotFoundError

    try:
        trial = Trial.from_mit_cmu()
    except DataNotFoundError as error:
        pytest.skip(str(error))
    expected = json.loads(BENCHMARK.read_text())["faces"][f"whet, factor {scale_factor}"]
    detections = [detector().detect(image, scale_factor=scale_factor, min_score=-np.inf) for image in trial.images]
    # The detector's own boxes; the benchmark widens windows by the same offsets.
    curve = trial.evaluate([(one.boxes, one.scores) for one in detections], "raw").curve
    assert dict(zip(expected, faces_at(curve, [int(n) for n in expected]), strict=True)) == expected


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.detector.test_face_regression --write")
    text = json.dumps(measured(), indent=1)
    text = re.sub(r"\[[^][{}]*\]", lambda row: re.sub(r"\s+", " ", row[0]), text)  # a row of numbers on one line
    STORED.write_text(text + "\n", encoding="utf-8")
    print(f"wrote {STORED}")
