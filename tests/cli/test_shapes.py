"""Commands on a class with several shapes: they read, correct and write the model as one."""

import json

import numpy as np
import pytest
from PIL import Image
from tests.channels import colourful, random_detector

from whet.cli.options import ExitCode
from whet.detector.detector import Detector
from whet.detector.storage import load
from whet.images.boxes import box_iou


def cars():
    return [*random_detector(0, (40, 20)).shapes(), *random_detector(1, (20, 40)).shapes()]


@pytest.fixture(scope="module")
def scene():
    return colourful((90, 110), np.random.default_rng(0))


@pytest.fixture(scope="module")
def box(scene):
    """The best detection to which both shapes contribute."""
    found = Detector({"car": cars()}).detect(scene)
    both = [(box_iou(one.detect_pixels(scene).boxes, found.boxes) >= 0.3).any(axis=0) for one in cars()]
    return found.boxes[np.all(both, axis=0)][0]


@pytest.fixture
def folder(tmp_path, scene, box):
    """Cars with two shapes, alone and beside signs; an image with one car, where a detection is; and a broken one."""
    Detector({"car": cars()}).save(tmp_path / "cars.whet")
    Detector({"car": cars(), "sign": random_detector(2).shapes()}).save(tmp_path / "both.whet")
    random_detector(0).save(tmp_path / "one.whet")
    Image.fromarray(scene).save(tmp_path / "a.png")
    (tmp_path / "broken.png").write_bytes((tmp_path / "a.png").read_bytes()[:400])
    (tmp_path / "cars.csv").write_text(f"a.png,{sized(box)},car\n")
    return tmp_path


def sized(box):
    x1, y1, x2, y2 = box.tolist()
    return f"{x1},{y1},{x2 - x1},{y2 - y1}"


def test_an_operating_point_is_that_of_all_shapes_and_other_classes_stay(folder, run_here):
    before = load(folder / "both.whet")
    done = run_here("evaluate", "both.whet", "cars.csv", "--class", "car", "--set-point", "default")
    assert done.code == 0, done.err
    after = load(folder / "both.whet")
    assert after.classes == ("car", "sign")
    assert after.select("sign").to_bytes() == before.select("sign").to_bytes()
    points = [shape.reporting.operating_points for shape in after.shapes("car")]
    assert points[0] == points[1] != before.select("car").operating_points
    done = run_here(
        "evaluate", "both.whet", "cars.csv", "--class", "car", "--set-point", "x", "--save-as", "new.whet", "--json"
    )
    assert json.loads(done.out)["operating_point"]["model"] == "new.whet"
    assert load(folder / "new.whet").classes == ("car", "sign")


def test_an_operating_point_is_that_of_one_class(folder, run_here):
    before = (folder / "both.whet").read_bytes()
    done = run_here("evaluate", "both.whet", "cars.csv", "--set-point", "default")
    assert done.code == 2
    assert "--class car" in done.err
    assert (folder / "both.whet").read_bytes() == before
    assert run_here("evaluate", "both.whet:car", "cars.csv", "--set-point", "x").code == 0
    assert "x" in load(folder / "both.whet").select("car").operating_points
    assert run_here("evaluate", "both.whet:car", "cars.csv", "--set-point", "x", "--save-as", "own.whet").code == 0
    assert len(load(folder / "own.whet").shapes("car")) == 2


def test_shapes_are_corrected_together_and_undone_by_the_command_that_is_printed(folder, run_here, scene, box):
    before = (folder / "cars.whet").read_bytes()
    done = run_here("learn", "cars.whet", "--wrong", f"a.png:{sized(box)}", "--json")
    assert done.code == 0, done.err
    results = json.loads(done.out)
    after = load(folder / "cars.whet")
    assert all(shape.records for shape in after.shapes())
    assert [set(one["new"]) for one in results["shapes"]] == [
        {record.id for record in shape.records} for shape in after.shapes()
    ]
    same = Detector({"car": cars()}).learn(scene, box, False)
    assert set(same.ids) == set(results["learned"]["new"])
    assert not (box_iou(after.detect(scene).boxes, box[None]) >= 0.5).any()
    assert run_here(*results["undo"].split()[1:]).code == 0
    assert (folder / "cars.whet").read_bytes() == before


@pytest.mark.slow
def test_detections_that_are_no_objects_are_corrected_in_annotated_images(folder, run_here, scene, box):
    done = run_here("learn", "cars.whet", "--annotations", "cars.csv", "--json")
    assert done.code == 0, done.err
    results = json.loads(done.out)["on_input"]
    assert results["after"]["missed"] == 0
    assert results["after"]["false_positives"] < results["before"]["false_positives"]
    assert (box_iou(load(folder / "cars.whet").detect(scene).boxes, box[None]) >= 0.5).any()


@pytest.mark.parametrize("out", [(), ("--out", "new.whet")])
def test_if_results_get_worse_nothing_is_written_for_any_shape(folder, run_here, box, out):
    files = {path: path.read_bytes() for path in folder.iterdir()}
    call = ("learn", "cars.whet", "--wrong", f"a.png:{sized(box)}", "--held-out", "cars.csv", *out)
    done = run_here(*call)
    assert done.code == ExitCode.WORSE
    assert done.err.count("nothing was written") == 1
    assert files == {path: path.read_bytes() for path in folder.iterdir()}
    assert run_here(*call, "--force").code == 0
    assert all(shape.records for shape in load(folder / (*out, "cars.whet")[len(out) // 2]).shapes())


@pytest.mark.slow
def test_images_that_cannot_be_read_are_reported_once_as_for_one_detector(folder, run_here):
    files = {path: path.read_bytes() for path in folder.iterdir()}
    for wrong in (("--negatives", "broken.png"), ("--wrong", "broken.png:5,5,30,30")):
        done = {name: run_here("learn", name, *wrong, "--out", "new.whet") for name in ("one.whet", "cars.whet")}
        assert done["cars.whet"].code == done["one.whet"].code != 0
        assert done["cars.whet"].err == done["one.whet"].err
        assert "broken.png" in done["cars.whet"].err
        assert files == {path: path.read_bytes() for path in folder.iterdir()}
    done = run_here("learn", "cars.whet", "--negatives", "a.png", "--wrong", "broken.png:5,5,30,30", "--dry-run")
    assert done.code == ExitCode.SOME_SKIPPED
    assert done.err.count("broken.png") == 1


@pytest.mark.usefixtures("folder")
def test_crops_are_refused_as_for_one_channel_detector(run_here):
    for name in ("one.whet", "cars.whet"):
        done = run_here("learn", name, "--positives", "a.png")
        assert done.code == ExitCode.FAILED
        assert "--wrong" in done.err


def test_a_file_of_one_class_with_one_shape_learns_like_its_detector(folder, run_here, scene):
    Detector({"car": random_detector(0).shapes()}).save(folder / "only.whet")
    wrong = f"a.png:{sized(random_detector(0).detect(scene).boxes[0])}"
    done = run_here("learn", "only.whet", "--wrong", wrong, "--json")
    assert done.code == 0, done.err
    (record,) = load(folder / "only.whet").records
    assert json.loads(done.out)["undo"] == f"whet unlearn only.whet --id {record.id[:8]}"
