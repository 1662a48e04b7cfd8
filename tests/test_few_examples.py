"""The comparison by number of training boxes: choice of images, records, summary, table and figure."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks.few_examples import (
    Run,
    all_records,
    choose_images,
    core_time,
    in_fork,
    planned,
    read_records,
    same_with_more_time,
    summary,
    trees_within,
)
from benchmarks.hog_peers import dataset_xml, padded_boxes, suppressed, unpadded
from benchmarks.yolo_peer import checked_weights, write_data
from PIL import Image
from scripts.few_examples_figure import draw, lines_of
from scripts.results_tables import ROOT, few_examples_table

from whet.io.annotations.annotation import AnnotatedImage


def image(name, n_boxes, n_ignored=0):
    n = n_boxes + n_ignored
    boxes = np.tile([[2.0, 3.0, 12.0, 9.0]], (n, 1))
    return AnnotatedImage(Path(name), (40, 60), boxes, ("car",) * n, np.arange(n) >= n_boxes)


def n_objects(images):
    return sum(len(each.objects) for each in images)


# Choice of images


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", [1, 10, 37, 100])
def test_the_number_of_boxes_is_reached_exactly_where_images_allow_it(n, seed):
    images = [image(f"{i}.png", 1 + i % 4) for i in range(120)]
    assert n_objects(choose_images(images, n, seed)) == n


def test_images_stay_whole_and_none_is_chosen_twice():
    images = [image(f"{i}.png", 3) for i in range(30)]
    chosen = choose_images(images, 10, seed=0)
    assert n_objects(chosen) == 9
    assert len({each.path for each in chosen}) == len(chosen) == 3
    assert n_objects(choose_images(images, 11, seed=0)) == 12, "one more image comes closer"


def test_images_without_boxes_are_all_given_but_not_those_with_ignored_regions_only():
    images = [image("a.png", 1), image("b.png", 0), image("c.png", 0), image("d.png", 0, n_ignored=2)]
    assert [each.path.name for each in choose_images(images, 1, seed=0)] == ["a.png", "b.png", "c.png"]


def test_seeds_choose_other_images_and_repeat_themselves():
    images = [image(f"{i}.png", 1) for i in range(100)]
    first, again, other = ({each.path for each in choose_images(images, 20, seed)} for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_all_boxes_are_taken_where_a_set_has_hardly_enough():
    images = [image(f"{i}.png", 1) for i in range(95)]
    assert n_objects(choose_images(images, 100, seed=0)) == 95


# Runs and records


def test_numbers_that_a_set_cannot_reach_are_left_out_and_short_limits_come_first():
    runs = list(planned(["plates", "cats"], [20, 100, 150], 1, [10, 1], ["whet"], {"plates": 138, "cats": 48}.get))
    assert [(run.set, run.boxes) for run in runs if run.minutes == 1] == [
        ("plates", 20), ("plates", 100), ("plates", 150), ("cats", 20)
    ]  # fmt: skip
    assert [run.minutes for run in runs] == sorted(run.minutes for run in runs)


def test_a_detector_without_training_runs_once_and_on_its_set_only():
    runs = list(planned(["inria_person", "cats"], [20], 3, [1], ["opencv-people"], lambda _: 48))
    assert runs == [Run("inria_person", 0, 0, 0.0, "opencv-people")]
    assert not list(planned(["cats"], [20], 3, [1], ["opencv-people"], lambda _: 48))


def record(precision=None, status="trained", **changes):
    values = {"set": "plates", "boxes": 20, "seed": 0, "minutes": 1.0, "method": "whet", "status": status}
    if precision is not None:
        values |= {"average_precision": precision, "core_seconds": 30.0, "is_limited": False}
    return values | changes


def test_more_time_is_not_measured_again_where_it_changes_nothing():
    run = Run("plates", 20, 0, 10.0, "whet")
    assert same_with_more_time(run, [record(0.7)])["minutes"] == 10
    assert same_with_more_time(run, [record(status="refused")])["status"] == "refused"
    assert same_with_more_time(run, [record(0.7, is_limited=True)]) is None
    assert same_with_more_time(run, [record(status="time limit")]) is None
    assert same_with_more_time(run, [record(0.7, seed=1), record(0.7, method="dlib")]) is None
    assert same_with_more_time(Run("plates", 20, 0, 0.5, "whet"), [record(0.7)]) is None


def test_an_interrupted_run_continues_after_its_last_whole_line(tmp_path, monkeypatch):
    file = tmp_path / "runs.jsonl"
    file.write_text(json.dumps(record(0.7)) + "\n" + '{"set": "pla')
    calls = []

    def fake(run, *_):
        calls.append(run)
        return record(0.9, seed=run.seed)

    monkeypatch.setattr("benchmarks.few_examples.in_process", fake)
    runs = [Run("plates", 20, seed, 1.0, "whet") for seed in (0, 1)]
    assert [each["average_precision"] for each in all_records(runs, 1, file)] == [0.7, 0.9]
    assert calls == runs[1:]
    assert len(read_records(file)) == 2
    all_records(runs, 1, file)
    assert len(calls) == 1


@pytest.mark.slow
def test_a_training_over_its_limit_is_killed_inside_of_compiled_code():
    code = (
        "from benchmarks.few_examples import limit_core_seconds\n"
        "limit_core_seconds(0.2)\n"
        "sum(range(10**12))\n"
    )  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=120, check=False)
    assert done.returncode == -signal.SIGPROF


def test_a_step_over_its_limit_ends_without_the_run_and_its_time_counts():
    before = core_time()
    assert in_fork(lambda: sum(range(10**12)), core_seconds=0.2) is None
    assert core_time() - before > 0.15
    assert in_fork(lambda: 1.5, core_seconds=10) == 1.5
    assert in_fork(lambda: 1.5, core_seconds=-1) is None


def test_trees_are_halved_until_the_expected_time_fits():
    assert trees_within(lambda trees: trees / 100, 120) == 1024
    assert trees_within(lambda trees: trees / 5, 120) == 512
    assert trees_within(lambda _: 1e9, 120) == 64


# Summary, table and figure

RECORDS = [
    *(record(value, seed=seed) for seed, value in enumerate((0.7, 0.8, 0.9))),
    record(0.5, method="dlib"),
    record(0.5, method="dlib", minutes=10.0) | {"same_as_minutes": 1.0},
    record(status="time limit", method="dlib", seed=1),
    record(status="refused", boxes=10),
    record(0.6, set="inria_person", boxes=0, minutes=0.0, method="opencv-people"),
]


def test_a_summary_has_mean_and_range_and_counts_runs_without_a_detector():
    rows = {(row["boxes"], row["method"]): row for row in summary(RECORDS) if row["minutes"] < 10}
    ours = rows[20, "whet"]
    assert (ours["mean"], ours["low"], ours["high"], ours["trained"], ours["runs"]) == (0.8, 0.7, 0.9, 3, 3)
    assert (rows[20, "dlib"]["trained"], rows[20, "dlib"]["faults"]) == (1, ["time limit"])
    assert rows[10, "whet"]["faults"] == ["refused"]
    assert "mean" not in rows[10, "whet"]


def test_the_table_says_why_a_cell_has_no_number():
    table = few_examples_table(summary(RECORDS))
    assert table.header == ("objects", "method", "limit", "10 boxes", "20 boxes")
    assert table.rows == (
        ("people (INRIA)", "OpenCV people detector", "as shipped", "0.60", "0.60"),
        ("number plates", "whet", "1 min", "refused", "0.80 (0.70 to 0.90)"),
        ("number plates", "dlib", "1 min", "", "0.50, 1 of 2 runs"),
        ("number plates", "dlib", "10 min", "", "same"),
    )


def test_the_figure_has_only_points_that_were_measured(tmp_path):
    rows = summary(RECORDS)
    assert {key: [row["boxes"] for row in line] for key, line in lines_of(rows, "plates").items()} == {
        ("whet", 1.0): [20],
        ("dlib", 1.0): [20],
        ("dlib", 10.0): [20],
    }
    assert Image.open(draw(rows, tmp_path / "figure.png")).width > 200


# Data for other trainers


def test_boxes_with_context_are_turned_back():
    boxes = np.array([[10.0, 20, 70, 50], [0, 0, 5, 90]])
    np.testing.assert_allclose(unpadded(padded_boxes(boxes)), boxes, atol=1e-9)
    assert unpadded(np.empty((0, 4))).shape == (0, 4)


def test_boxes_of_another_shape_are_ignored_in_dlib_training():
    boxes = np.array([[0.0, 0, 10, 10], [20, 20, 30, 30], [0, 0, 40, 4]])
    one = AnnotatedImage(Path("a.png"), (40, 60), boxes, ("car",) * 3, np.array([False, True, False]))
    text = dataset_xml([Path("a&b.bmp")], [one], boxes[:2], 0.6)
    assert text.count("<box") == 3
    assert text.count("ignore=") == 2
    assert "a&amp;b.bmp" in text


def test_suppression_keeps_the_best_of_each_object():
    boxes = np.array([[0.0, 0, 10, 10], [1, 0, 11, 10], [50, 0, 60, 10]])
    found, scores = suppressed(boxes, np.array([1.0, 2.0, 0.5]))
    assert found.tolist() == boxes[[1, 2]].tolist()
    assert scores.tolist() == [2.0, 0.5]


def test_yolo_data_have_one_scale_and_no_ignored_region(tmp_path):
    Image.new("RGB", (60, 40), (200, 0, 0)).save(tmp_path / "a.png")
    boxes = np.array([[0.0, 0, 20, 20], [30, 0, 60, 40]])
    one = AnnotatedImage(tmp_path / "a.png", (40, 60), boxes, ("car",) * 2, np.array([False, True]))
    write_data([one], 80, tmp_path)
    pixels = np.array(Image.open(tmp_path / "images" / "0.png"))
    assert pixels.shape == (80, 80, 3)
    assert pixels[10, 10].tolist() == [200, 0, 0]
    assert pixels[10, 40].tolist() == [114] * 3
    assert (tmp_path / "labels" / "0.txt").read_text() == "0 0.125000 0.125000 0.250000 0.250000"


def test_only_known_weights_are_loaded(tmp_path):
    (tmp_path / "yolov8n.pt").write_bytes(b"anything")
    with pytest.raises(SystemExit, match="SHA-256"):
        checked_weights(tmp_path / "yolov8n.pt")
    with pytest.raises(SystemExit, match="--weights"):
        checked_weights(None)
