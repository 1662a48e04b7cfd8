"""What a model remembers of its training: its class and its images; and which part of a data set commands use."""

import csv
import json
from dataclasses import replace

import pytest
from PIL import Image
from tests.detectors import bull_base, bull_finder, bull_scene

from whet.detector.base import Provenance
from whet.detector.detector import Detector
from whet.detector.storage import load
from whet.io.files import short_hashes

# Bulls in both places of every scene, and a cow.
LABELS = "0 0.275 0.3 0.15 0.2\n0 0.725 0.6333333333333333 0.25 0.3333333333333333\n1 0.5 0.1 0.1 0.1\n"
SCENES = {"train": 1, "test": 2}


@pytest.fixture
def folder(tmp_path):
    """A YOLO set with two parts and two classes, and a detector of bulls that was trained on the part train."""
    for part, seed in SCENES.items():
        for kind in ("images", "labels"):
            (tmp_path / "set" / part / kind).mkdir(parents=True)
        Image.fromarray(bull_scene(seed)).save(tmp_path / "set" / part / "images" / f"{part}.png")
        (tmp_path / "set" / part / "labels" / f"{part}.txt").write_text(LABELS)
    said = "train: train/images\nval: ../set/test/images\ntest: test/images\nnames: [bull, cow]\n"
    (tmp_path / "set" / "data.yaml").write_text(said)
    trained = short_hashes([tmp_path / "set" / "train" / "images" / "train.png"])
    base = replace(bull_base(), provenance=Provenance().with_class("bull"), training_images=trained)
    Detector.from_base(base).save(tmp_path / "bull.whet")
    return tmp_path


def test_evaluate_uses_the_test_part_and_the_class_of_the_model_and_says_so(run_here):
    done = run_here("evaluate", "bull.whet", "set")
    assert done.code == 0, done.err
    assert "Using the part test of set" in done.err
    assert "Using the class bull" in done.err
    assert "Warning: the model was trained" not in done.err
    assert "1 image, 2 objects" in done.out
    results = json.loads(run_here("evaluate", "bull.whet", "set", "--json", "--split", "valid", "--class", "cow").out)
    assert (results["split"], results["class"], results["objects"]) == ("test", "cow", 1)
    assert "choose one (--class NAME)" in run_here("evaluate", "face", "set").err


def test_images_that_were_trained_on_are_counted_under_any_name(folder, run_here):
    done = run_here("evaluate", "bull.whet", "set", "--split", "train")
    assert "trained on 1 of these 1 image" in done.err
    (folder / "copy.png").write_bytes((folder / "set" / "train" / "images" / "train.png").read_bytes())
    (folder / "copy.csv").write_text("copy.png,40,30,30,30,bull\n")
    results = json.loads(run_here("evaluate", "bull.whet", "copy.csv", "--json").out)
    assert (results["trained_on"], results["learned_from"]) == (1, 0)


def test_images_that_were_learned_from_are_counted_under_any_name(folder, run_here):
    image = folder / "set" / "test" / "images" / "test.png"
    (folder / "copy.png").write_bytes(image.read_bytes())
    (folder / "copy.csv").write_text("copy.png,40,30,30,30,bull\n")
    assert "learned from" not in run_here("evaluate", "bull.whet", "copy.csv").err
    assert run_here("learn", "bull.whet", "--missed", f"{image}:40,30,30,30", "--force").code == 0
    done = run_here("evaluate", "bull.whet", "copy.csv")
    assert "learned from 1 of these 1 image" in done.err


def test_learn_takes_the_train_part_and_judges_on_the_test_part(run_here):
    done = run_here("learn", "bull.whet", "--annotations", "set", "--held-out", "set", "--dry-run")
    assert done.code == 0, done.err
    assert "Using the part train of set" in done.err
    assert "Using the part test of set" in done.err
    assert "will also be learned" not in done.err
    assert "Input: 1 image, 2 objects" in done.out


def test_split_also_selects_the_part_of_held_out_images(run_here):
    done = run_here("learn", "bull.whet", "--negatives", "set/test/images", "--held-out", "set", "--split", "train")
    assert "Using the part train of set" in done.err


def test_the_class_is_shown_and_labels_detections(folder, run_here):
    assert repr(load(folder / "bull.whet")).startswith("Detector(bull: ")
    assert load("face").class_name == "face"
    shown = run_here("inspect", "bull.whet").out
    assert "Class bull" in shown
    assert "1 image" in shown
    image = "set/test/images/test.png"
    (row, *_) = csv.DictReader(run_here("detect", "bull.whet", image, "-f", "csv").out.splitlines())
    assert row["label"] == "bull"
    assert json.loads(run_here("detect", "bull.whet", image, "--json").out)[0]["labels"][0] == "bull"
    categories = [{"id": 4, "name": "cow"}, {"id": 9, "name": "bull"}]
    truth = {"images": [{"id": 3, "file_name": "test.png"}], "annotations": [], "categories": categories}
    (folder / "truth.json").write_text(json.dumps(truth))
    found = json.loads(run_here("detect", "bull.whet", image, "-f", "coco", "--ids", "truth.json").out)
    assert {(one["image_id"], one["category_id"], one["category_name"]) for one in found} == {(3, 9, "bull")}
    bull_finder().save(folder / "plain.whet")
    assert run_here("detect", "plain.whet", image, "-f", "csv").out.startswith("path,x,y,width,height,score\n")


@pytest.fixture
def several(folder):
    """A model of two classes: bulls, and what an untrained copy of the same base takes for cows."""
    base = replace(bull_base(), provenance=Provenance().with_class("cow"))
    both = Detector({"bull": load(folder / "bull.whet").shapes(), "cow": Detector.from_base(base).shapes()})
    both.save(folder / "both.whet")
    return both


@pytest.mark.usefixtures("several")
def test_detect_labels_the_boxes_of_all_classes(run_here):
    image = "set/test/images/test.png"
    rows = list(csv.DictReader(run_here("detect", "both.whet", image, "--format", "csv").out.splitlines()))
    assert {row["label"] for row in rows} == {"bull", "cow"}
    assert len(rows) == 2 * len(bull_finder().detect(bull_scene(2)))
    coco = json.loads(run_here("detect", "both.whet", image, "--format", "coco").out)
    assert {(row["category_name"], row["category_id"]) for row in coco} == {("bull", 1), ("cow", 2)}
    assert run_here("detect", "both.whet:cow", image).out.count("cow ") == len(rows) // 2


@pytest.mark.slow
@pytest.mark.usefixtures("several")
def test_evaluate_measures_each_class_and_their_mean(run_here):
    done = run_here("evaluate", "both.whet", "set", "--out", "report")
    assert done.code == 0, done.err
    assert "class bull:" in done.out
    assert "mean average precision of 2 classes: " in done.out
    results = json.loads(run_here("evaluate", "both.whet", "set", "--json").out)
    precisions = [one["measures"]["average_precision"]["value"] for one in results["classes"].values()]
    assert results["mean_average_precision"] == sum(precisions) / 2
    assert results["classes"]["cow"]["objects"] == 1
    assert run_here("evaluate", "both.whet", "set", "--set-point", "x").code == 2


def test_one_of_several_classes_is_corrected_logged_and_unlearned(several, folder, run_here):
    image = "set/test/images/test.png"
    x1, y1, x2, y2 = several.select("cow").detect(bull_scene(2)).boxes[0].tolist()
    wrong = f"{image}:{x1},{y1},{x2 - x1},{y2 - y1}"
    done = run_here("learn", "both.whet", "--wrong", wrong)
    assert done.code == 1
    assert "several classes: bull, cow" in done.err
    assert run_here("learn", "both.whet:cow", "--wrong", wrong, "--force").code == 0
    after = load(folder / "both.whet")
    assert [len(shape.records) for shape in after.shapes()] == [0, 1]
    assert after.select("bull").to_bytes() == several.select("bull").to_bytes()
    assert "not object" in run_here("log", "both.whet").out
    assert run_here("unlearn", "both.whet:cow", "--all").code == 0
    assert (folder / "both.whet").read_bytes() == several.to_bytes()


@pytest.mark.usefixtures("several")
def test_inspect_lists_the_classes(run_here):
    done = run_here("inspect", "both.whet")
    assert "bull: 12 x 12 windows" in done.out
    assert set(json.loads(run_here("inspect", "both.whet", "--json").out)["classes"]) == {"bull", "cow"}
    assert run_here("inspect", "both.whet", "--draw", "x.png").code == 2
    assert "Class cow" in run_here("inspect", "both.whet:cow").out
