"""Shapes: boxes of very different shapes are trained apart, and found together."""

import json

import numpy as np
import pytest
from PIL import Image
from tests.channels import random_detector
from tests.commands import whet as whet_
from tests.commands import whet_here

import whet
from whet.detector.detector import Detector
from whet.errors import ConfigError, TrainingDataError
from whet.images.boxes import box_iou
from whet.parallel.workers import Threads
from whet.training.config import TrainingConfig
from whet.training.preparation import prepare_class
from whet.training.windows import Shapes, choose_shapes

QUICK = {"trees": 16, "negatives_per_round": 200, "copies_per_object": 2}
TALL, WIDE = (24, 60), (60, 24)


def boxes_of(*sizes):
    return np.array([[0.0, 0.0, width, height] for width, height in sizes])


@pytest.fixture(scope="module")
def bars(tmp_path_factory):
    """Bright bars on noise, upright in the left half of each image and lying in the right half."""
    folder, rng = tmp_path_factory.mktemp("bars"), np.random.default_rng(0)
    rows = []
    for i in range(48):
        scene = rng.integers(90, 160, (110, 220, 3), dtype=np.uint8)
        for (width, height), left in ((TALL, 20), (WIDE, 120)):
            x, y = left + int(rng.integers(0, 30)), int(rng.integers(10, 40))
            scene[y : y + height, x : x + width] = 250
            rows.append(f"{i}.png,{x},{y},{width},{height},bar")
        Image.fromarray(scene).save(folder / f"{i}.png")
    (folder / "bars.csv").write_text("\n".join(rows))
    (folder / "quick.toml").write_text("copies_per_object = 2\n[channels]\ntrees = 16\nnegatives_per_round = 200\n")
    return folder


def test_boxes_of_one_shape_are_one_shape():
    assert len(choose_shapes(boxes_of(*[(30, 40), (40, 30)] * 60))) == 1


def test_boxes_that_no_window_fits_are_split_by_shape():
    boxes = boxes_of(*[TALL] * 50, *[WIDE] * 60)
    found = choose_shapes(boxes)
    assert found.n_boxes == (50, 60)
    assert found.misfits_of_one > 0.4
    assert found.misfits == 0
    assert found.shape_of(boxes).tolist() == [0] * 50 + [1] * 60


def test_three_groups_are_three_shapes():
    assert choose_shapes(boxes_of(*[(20, 90)] * 50, *[(90, 20)] * 50, *[(40, 40)] * 50)).n_boxes == (50, 50, 50)


def test_few_boxes_are_not_split():
    assert len(choose_shapes(boxes_of(*[TALL] * 39, *[WIDE] * 200))) == 1


def test_shapes_that_are_not_apart_are_not_split():
    aspects = np.exp(np.random.default_rng(0).normal(0, 0.5, 300))
    boxes = boxes_of(*np.column_stack([50 * np.sqrt(aspects), 50 / np.sqrt(aspects)]))
    found = Shapes.from_boxes(boxes, 2)
    assert found.misfits_of_one > 0.05 > found.misfits
    assert not found.are_apart
    assert len(choose_shapes(boxes)) == 1


def test_the_number_of_shapes_can_be_given():
    assert Shapes.from_boxes(boxes_of(*[(30, 40), (40, 30)] * 6), 2).n_boxes == (6, 6)
    assert len(choose_shapes(boxes_of(*[TALL] * 50, *[WIDE] * 60), 1)) == 1


@pytest.mark.parametrize("shapes", [0, 4, "many", 1.5])
def test_other_numbers_of_shapes_are_refused(shapes):
    with pytest.raises(ConfigError, match="shapes"):
        TrainingConfig("a.csv", shapes=shapes)


def test_a_cascade_and_a_given_window_have_one_shape(bars):
    for settings, said in (({"features": "haar"}, "shapes.*features=channels"), ({"window": (48, 48)}, "shapes")):
        with pytest.raises(ConfigError, match=said):
            prepare_class(TrainingConfig(str(bars / "bars.csv"), shapes=2, **settings))


def test_one_detector_has_one_shape(bars):
    with pytest.raises(ConfigError, match="train_classes"):
        whet.train(bars / "bars.csv", shapes=2)


@pytest.mark.slow
def test_objects_of_other_shapes_are_ignored_but_parts_of_them_are_background(bars):
    prepared = prepare_class(TrainingConfig(str(bars / "bars.csv"), **QUICK), workers=Threads(1))
    assert prepared.titles == ["bar, shape 1", "bar, shape 2"]
    for one in prepared.parts:
        assert one.positives.n_objects == 48
        assert all((len(image.objects), len(image.ignored)) == (1, 1) for image in one.annotations.images)
        place = one.backgrounds(held_out=False, workers=Threads(1)).held[0]
        assert len(place.excluded) == 2  # no negative overlaps them much
        assert len(place.ignored) == 0  # but negatives may lie in them


def test_annotations_without_objects_are_refused_like_those_of_one_shape(tmp_path, monkeypatch, capsys):
    Image.new("RGB", (90, 90)).save(tmp_path / "a.png")
    images = [{"id": 1, "file_name": "a.png", "width": 90, "height": 90}]
    crowd = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 50, 50], "area": 2500, "iscrowd": 1}
    for annotations in ([], [crowd]):
        boxes = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "bar"}]}
        (tmp_path / "boxes.json").write_text(json.dumps(boxes))
        for attempt in (
            lambda: whet.train(tmp_path / "boxes.json"),
            lambda: whet.train_classes(tmp_path / "boxes.json"),
            lambda: prepare_class(TrainingConfig(str(tmp_path / "boxes.json"), shapes=2)),
        ):
            with pytest.raises(TrainingDataError, match="no box to choose a window from"):
                attempt()
        done = whet_here(monkeypatch, capsys, "train", tmp_path / "boxes.json", "--out", tmp_path / "new.whet")
        assert done.code == 1
        assert "no box to choose a window from" in done.err


def test_all_shapes_hold_out_the_same_images_although_some_are_too_small_for_one(tmp_path):
    rng, rows = np.random.default_rng(0), []
    for i in range(24):
        Image.fromarray(rng.integers(0, 256, (110, 220, 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
        rows += [f"{i}.png,20,30,40,40,bar", f"{i}.png,100,30,100,18,bar"]
    (tmp_path / "bars.csv").write_text("\n".join(rows))
    (tmp_path / "none").mkdir()
    for i in range(5):
        Image.fromarray(rng.integers(0, 256, (44, 44, 3), dtype=np.uint8)).save(tmp_path / "none" / f"{i}.png")
    config = TrainingConfig(str(tmp_path / "bars.csv"), (str(tmp_path / "none"),), shapes=2, **QUICK)
    square, wide = prepare_class(config, workers=Threads(1)).parts
    assert (len(square.images), len(wide.images)) == (29, 24)
    assert square.held_out_images == wide.held_out_images
    assert set(square.held_out_images) < set(wide.images)
    for one in (square, wide):
        assert not set(one.training_images) & set(one.held_out_images)


@pytest.mark.slow
def test_a_training_that_would_delete_other_classes_is_refused_before_it_starts(bars, tmp_path, monkeypatch, capsys):
    out = tmp_path / "other.whet"
    Detector({"bar": random_detector(0).shapes(), "sign": random_detector(1).shapes()}).save(out)
    before = out.read_bytes()
    monkeypatch.setattr("whet.training.train.train_prepared", lambda *_, **__: pytest.fail("it was trained"))
    done = whet_here(monkeypatch, capsys, "train", bars / "bars.csv", "--out", out, "--force")
    assert done.code == 1
    assert "sign" in done.err
    assert out.read_bytes() == before


@pytest.mark.slow
def test_objects_of_all_shapes_are_found(bars):
    both = whet.train_classes(bars / "bars.csv", **QUICK)
    assert both.classes == ("bar",)
    tall, wide = both.shapes()
    assert tall.aspect < 1 < wide.aspect
    assert tall.reporting.operating_points == wide.reporting.operating_points
    one = whet.train(bars / "bars.csv", **QUICK)
    several, single = (whet.evaluate(model, bars / "bars.csv") for model in (both, one))
    assert several.recall > 0.95
    assert single.recall < 0.6


@pytest.mark.slow
def test_the_commands_take_shapes_for_one_detector(bars, tmp_path):
    out = tmp_path / "bars.whet"
    done = whet_("train", bars / "bars.csv", "--out", out, "--config", bars / "quick.toml", "--threads", "1")
    assert done.returncode == 0, done.stderr
    assert "2 by the shape of the boxes" in done.stderr
    assert [len(whet.load(out).shapes(name)) for name in whet.load(out).classes] == [2]
    evaluated = json.loads(whet_("evaluate", out, bars / "bars.csv", "--json").stdout)
    assert evaluated["measures"]["recall"]["value"] > 0.95
    assert "bar, shape 2: " in whet_("inspect", out).stdout
    assert whet_("inspect", out, "--check").returncode == 0
    refused = whet_("serve", out, bars)
    assert refused.returncode
    assert "2 shapes" in refused.stderr


def scene_of(value, stripes=0):
    """An upright and a lying bar of another brightness, with dark stripes or without, and their boxes."""
    scene = np.random.default_rng(9).integers(90, 160, (110, 220, 3), dtype=np.uint8)
    boxes = [(30, 20, *TALL), (130, 30, *WIDE)]
    for x, y, width, height in boxes:
        scene[y : y + height, x : x + width] = value
        if stripes:
            scene[y : y + height : stripes, x : x + width] = 100
    return scene, boxes


@pytest.mark.slow
@pytest.mark.parametrize(("option", "value", "stripes"), [("--wrong", 170, 0), ("--missed", 200, 4)])
def test_a_correction_by_command_goes_to_the_shape_that_it_concerns(bars, tmp_path, option, value, stripes):
    out, image = tmp_path / "bars.whet", tmp_path / "other.png"
    model = whet.train_classes(bars / "bars.csv", **QUICK)
    model.save(out)
    before = out.read_bytes()
    scene, boxes = scene_of(value, stripes)
    Image.fromarray(scene).save(image)
    truth = np.array([[x, y, x + width, y + height] for x, y, width, height in boxes], np.float64)

    def are_found():
        return (box_iou(truth, whet.load(out).detect(image).boxes) > 0.5).any(axis=1).tolist()

    is_wrong = option == "--wrong"
    assert are_found() == [is_wrong, is_wrong]
    marks = [part for box in boxes for part in (option, f"{image}:{','.join(map(str, box))}")]
    learned = whet_("learn", out, *marks, "--force")
    assert learned.returncode == 0, learned.stderr
    assert are_found() == [not is_wrong, not is_wrong]
    after = whet.load(out)
    assert [len(shape.records) for shape in after.shapes()] == [1, 1]
    same = model.learn(image, truth, not is_wrong, class_name="bar")
    assert set(same.ids) == {record.id for record in after.records}
    assert whet_("unlearn", out, "--all").returncode == 0
    assert out.read_bytes() == before
