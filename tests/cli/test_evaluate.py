import json
import re

import numpy as np
import pytest
from PIL import Image
from tests.commands import check_message, whet
from tests.detectors import bull_finder, bull_scene, judged_finder

from whet.cli.options import ExitCode
from whet.detector.storage import load
from whet.errors import MissingExtraError
from whet.evaluation.evaluation import evaluate_detections

BULLS = np.array([[40.0, 30.0, 70.0, 60.0], [120.0, 70.0, 170.0, 120.0]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two scenes with two bulls each, and boxes; one box is outside of its image."""
    folder = tmp_path_factory.mktemp("evaluated")
    bull_finder().save(folder / "bull.whet")
    rows = ["path,x,y,w,h,label"]
    for seed in (1, 2):
        Image.fromarray(bull_scene(seed)).save(folder / f"Stier {seed}.png")
        rows += [f"Stier {seed}.png,40,30,30,30,bull", f"Stier {seed}.png,120,70,50,50,bull"]
    (folder / "truths.csv").write_text("\n".join(rows) + "\n")
    (folder / "outside.csv").write_text("\n".join([*rows, "Stier 1.png,500,500,30,30,bull"]) + "\n")
    return folder


@pytest.mark.slow
def test_numbers_are_those_of_the_library_and_images_show_them(folder, tmp_path):
    done = whet("evaluate", "bull.whet", "truths.csv", "--out", tmp_path / "report", "--min-score", 15, cwd=folder)
    assert done.returncode == 0, done.stderr
    detector = load(folder / "bull.whet")
    found = [detector.detect(bull_scene(seed), min_score=-np.inf) for seed in (1, 2)]
    expected = evaluate_detections([(each.boxes, each.scores) for each in found], [(BULLS, None)] * 2)
    result = json.loads((tmp_path / "report" / "evaluation.json").read_text())
    measures = {name: one["value"] for name, one in result["measures"].items()}
    false_positives = [int((each.scores > 15).sum()) - 2 for each in found]
    assert measures["recall"] == 1.0
    assert result["false_positives"] == sum(false_positives)
    assert measures["false_positives_per_image"] == sum(false_positives) / 2
    assert measures["precision"] == 4 / (4 + sum(false_positives))
    assert measures["average_precision"] == expected.average_precision
    assert measures["log_average_miss_rate"] == expected.log_average_miss_rate
    assert "2 images, 4 objects, minimum score 15" in done.stdout
    assert "4 of 4 objects found" in done.stdout
    assert "too narrow" in done.stdout
    assert {path.name for path in (tmp_path / "report").iterdir()} == {
        "evaluation.json",
        "roc.png",
        "precision-recall.png",
        "false-positives.png",
    }
    sheet = np.asarray(Image.open(tmp_path / "report" / "false-positives.png"))
    assert (sheet == (250, 150, 0)).all(axis=2).any()


def test_more_false_positives_than_estimated_are_named_with_the_command_that_sets_the_score(folder, run_here):
    judged_finder().save(folder / "judged.whet")
    done = run_here("evaluate", "judged.whet", "truths.csv")
    assert "9.5 false positives per image, where the model estimates 0.75" in done.out
    line = next(line for line in done.out.splitlines() if line.startswith("  whet evaluate "))
    done = run_here(*line.split()[1:])
    assert "Stored operating point 'default'" in done.out
    done = run_here("evaluate", "judged.whet", "truths.csv")
    assert "estimates" not in done.out
    assert "estimates" not in run_here("evaluate", "bull.whet", "truths.csv").out  # a model without an estimate


def test_objects_that_no_score_finds_are_counted_where_thresholds_are_the_limit(folder, run_here):
    for i in range(8):
        Image.new("L", (200, 150), 20 * i).save(folder / f"flat{i}.png")
    flat = "".join(f"flat{i}.png,40,30,60,60,bull\n" for i in range(8))
    (folder / "flat.csv").write_text((folder / "truths.csv").read_text() + flat)
    done = run_here("evaluate", "face", "flat.csv")
    assert "Not found at any score: 12 objects. The thresholds of the model let no more than 0.6 false" in done.out
    assert json.loads(run_here("evaluate", "face", "flat.csv", "--json").out)["lowest_score"]["missed"] == 12
    assert "Not found at any score" not in run_here("evaluate", "bull.whet", "flat.csv").out  # many false positives


def test_a_box_outside_and_a_corrupt_image_are_left_out_and_named(folder, run_here, tmp_path):
    done = run_here("evaluate", "bull.whet", "outside.csv", "--json", "--draw", tmp_path / "drawn")
    assert done.code == ExitCode.SOME_SKIPPED
    assert json.loads(done.out)["objects"] == 4
    assert "outside the 200 x 150 image" in done.err
    assert {path.name for path in (tmp_path / "drawn").iterdir()} == {"Stier 1.png", "Stier 2.png"}
    Image.fromarray(bull_scene(1)).save(folder / "cut.jpg")
    for name in ("cut.jpg", "cut.png"):  # the end of a JPEG is missed only when its pixels are read
        data = (folder / name.replace("cut.png", "Stier 1.png")).read_bytes()
        (folder / name).write_bytes(data[: len(data) // 2])
        (folder / "cut.csv").write_text(f"{name},40,30,30,30,bull\nStier 2.png,40,30,30,30,bull\n")
        done = run_here("evaluate", "bull.whet", "cut.csv", "--json", "--quiet")
        assert done.code == ExitCode.SOME_SKIPPED
        assert name in done.err
        result = json.loads(done.out)
        assert result["images"] == 1
        assert name in result["skipped"][0]
        assert result["measures"]["average_precision"]["low"] is None


def test_kinds_of_errors_are_counted_and_advice_follows(folder, run_here):
    """One box is of another class, and one object has no bull."""
    rows = ["path,x,y,w,h,label", "Stier 1.png,40,30,30,30,bull", "Stier 1.png,120,70,50,50,cow"]
    rows += ["Stier 2.png,10,100,30,30,bull", "Stier 2.png,40,30,30,30,bull", "Stier 2.png,120,70,50,50,bull"]
    (folder / "mixed.csv").write_text("\n".join(rows) + "\n")
    options = ("evaluate", "bull.whet", "mixed.csv", "--class", "bull", "--min-score", 15)
    result = json.loads(run_here(*options, "--json").out)
    kinds = {one["kind"]: one for one in result["errors"]["kinds"]}
    assert kinds["other class"]["false_positives"] == 1
    assert sum(one["missed"] for one in kinds.values()) == result["missed"] == 1
    assert sum(one["false_positives"] for one in kinds.values()) == result["false_positives"]
    assert result["errors"]["box_fit"]["n"] >= 3
    assert result["advice"]
    shown = run_here(*options).out
    assert re.search(r"other class +1 +-", shown)
    assert "what would help most" in shown


def test_a_good_detector_gets_no_advice(run_here):
    done = run_here("evaluate", "bull.whet", "truths.csv", "--min-score", 15, "--json")
    result = json.loads(done.out)
    assert result["measures"]["average_precision"]["value"] > 0.8
    assert result["advice"] == []


def test_neither_drawings_nor_reports_replace_images(run_here, tmp_path):
    for name in ("a.png", "misses.png"):
        Image.fromarray(bull_scene(1)).save(tmp_path / name)
        (tmp_path / "one.csv").write_text(f"{name},40,30,30,30,bull\n")
        before = (tmp_path / name).read_bytes()
        done = run_here(
            "evaluate", "bull.whet", tmp_path / "one.csv", "--draw" if name == "a.png" else "--out", tmp_path
        )
        assert done.code == ExitCode.FAILED
        assert name in check_message(done.err, [name])
        assert (tmp_path / name).read_bytes() == before


def test_an_operating_point_is_stored(folder, run_here, tmp_path):
    before = (folder / "bull.whet").read_bytes()
    options = ("--set-point", "careful", "--false-positives", 0.5, "--save-as", tmp_path / "pointed.whet")
    done = run_here("evaluate", "bull.whet", "truths.csv", *options)
    assert done.code == 0, done.err
    assert "operating point 'careful'" in done.out
    assert (folder / "bull.whet").read_bytes() == before
    pointed = load(tmp_path / "pointed.whet")
    found = [pointed.detect(bull_scene(seed), min_score="careful") for seed in (1, 2)]
    assert sum(map(len, found)) - 4 <= 1


def test_numbers_come_without_matplotlib(run_here, monkeypatch, tmp_path):
    def missing():
        raise MissingExtraError("matplotlib", "plots")

    monkeypatch.setattr("whet.plots.figure.check_installed", missing)
    done = run_here("evaluate", "bull.whet", "truths.csv", "--out", tmp_path)
    assert done.code == 0
    assert "matplotlib" in done.err
    assert {path.name for path in tmp_path.iterdir()} == {"evaluation.json", "false-positives.png"}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("bull.whet", "nowhere.csv"), ExitCode.DATA_MISSING, "nowhere.csv"),
        (("bull.whet", "empty"), ExitCode.DATA_MISSING, "empty"),
        (("bull.whet", "notes"), ExitCode.FAILED, "notes"),
        (("bull.whet", "truths.csv", "--class", "cow"), ExitCode.FAILED, "bull"),
        (("bull.whet", "truths.csv", "--split", "val"), ExitCode.FAILED, "val"),
        (("bull.whet", "truths.csv", "--min-score", "bold"), 2, "bold"),
        (("bull.whet", "truths.csv", "--save-as", "x.whet"), 2, "--set-point"),
        (("face", "truths.csv", "--set-point", "mine"), 2, "--save-as FILE"),
        (("nobody", "truths.csv"), ExitCode.DATA_MISSING, "nobody"),
    ],
)
def test_an_error_names_its_cause_and_a_remedy(folder, run_here, arguments, code, says):
    for name in ("empty", "notes"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "notes" / "todo.txt").write_text("annotate")
    done = run_here("evaluate", *arguments)
    assert done.code == code, done.err
    assert says in check_message(done.err, arguments)
