import json
import os
import shlex
import signal
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from tests.commands import check_message, whet
from tests.detectors import BULL, bull_finder, bull_scene, false_positive, still_there

from whet.cli.learn import MAX_WRONG
from whet.cli.options import CTRL_C, ExitCode
from whet.detector import edit
from whet.detector.storage import load
from whet.images.boxes import BoxOffset, box_iou

TRUTHS = "path,x,y,w,h,label\n" + "".join(
    f"scene {seed}.png,40,30,30,30,bull\nscene {seed}.png,120,70,50,50,bull\n" for seed in (1, 2)
)
# A false positive in scene 1, and the bull that the detector finds in scene 3.
WRONG = "scene 1.png:22.4,46.5,20.7,20.7"
BULL_3 = "scene 3.png:120,70,50,50"


@pytest.fixture
def folder(tmp_path):
    """A model, two annotated scenes and one held out, crops (one too small), and images without a bull."""
    bull_finder().save(tmp_path / "bull.whet")
    for seed in (1, 2, 3):
        Image.fromarray(bull_scene(seed)).save(tmp_path / f"scene {seed}.png")
    (tmp_path / "truths.csv").write_text(TRUTHS)
    (tmp_path / "held.csv").write_text("scene 3.png,40,30,30,30,bull\nscene 3.png,120,70,50,50,bull\n")
    (tmp_path / "Stücke").mkdir()
    Image.fromarray(bull_scene(3)[70:120, 120:170]).save(tmp_path / "Stücke" / "größe.png")
    Image.fromarray(bull_scene(3)[:6, :6]).save(tmp_path / "Stücke" / "winzig.png")
    (tmp_path / "none").mkdir()
    Image.fromarray(bull_scene(3)[:, :110][70:]).save(tmp_path / "none" / "wall.png")
    (tmp_path / "none" / "cut.png").write_bytes((tmp_path / "scene 1.png").read_bytes()[:400])
    return tmp_path


def kinds(path):
    return sorted((record.kind, record.is_object) for record in load(path).records)


@pytest.mark.slow
def test_a_box_is_corrected_in_one_command_and_undone_by_the_command_that_it_prints(folder):
    original = (folder / "bull.whet").read_bytes()
    box = false_positive(bull_finder())
    done = whet("learn", "bull.whet", "--wrong", WRONG, "--note", "a wall", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    (record,) = load(folder / "bull.whet").records
    assert (result["learned"]["new"], result["unsatisfied"]) == ([record.id], [])
    assert (record.name, record.note, record.is_object) == ("scene 1.png", "a wall", False)
    assert still_there(bull_finder(), box)
    assert not still_there(load(folder / "bull.whet"), box)
    _, *undo = result["undo"].split()
    assert whet(*undo, cwd=folder).returncode == 0
    assert (folder / "bull.whet").read_bytes() == original


@pytest.mark.slow
def test_what_remains_is_listed_with_the_command_that_corrects_it(folder, run_here):
    data = pytest.importorskip("skimage.data")
    Image.fromarray(data.astronaut()[::2, ::2]).save(folder / "photograph.png")
    options = ("--min-score", "one false positive per image", "--site", "door")
    done = run_here("learn", "face", "--negatives", "photograph.png", "--out", "here.whet", *options)
    assert done.code == 0, done.err
    assert "1 false positive remains" in done.out
    for _ in range(5):
        line = next((line for line in done.out.splitlines() if line.startswith("  whet learn ")), None)
        if line is None:
            break
        _, *command = shlex.split(line)
        assert command[:2] == ["learn", "here.whet"]
        done = run_here(*command)
        assert done.code == 0, done.err
        assert "Wrote here.whet" in done.out
    assert "remain" not in done.out
    assert {record.site for record in load("here.whet").records} == {"door"}


@pytest.mark.slow
def test_eight_commands_at_once_lose_nothing(folder):
    boxes = [f"scene {1 + k % 3}.png:{10 + 17 * k},{20 + 9 * k},24,24" for k in range(8)]
    command = [sys.executable, "-m", "whet", "learn", "bull.whet", "--quiet", "--threads", "1", "--wrong"]
    running = [subprocess.Popen([*command, box], cwd=folder) for box in boxes]
    assert [process.wait(timeout=300) for process in running] == [0] * 8
    assert len(load(folder / "bull.whet").records) == 8
    together = load(folder / "bull.whet").as_trained()
    together.add(load(folder / "bull.whet").records)
    assert together.to_bytes() == (folder / "bull.whet").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["edit", "replace"])
def test_a_process_that_is_killed_between_load_and_save_leaves_the_old_file(folder, moment):
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from whet.detector import storage\n"
        "def die(*_):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        + ("Path.replace = die\n" if moment == "replace" else "storage._write = die\n")
        + "from whet.cli.main import main\n"
        f"sys.argv = ['whet', 'learn', 'bull.whet', '--wrong', {WRONG!r}]\n"
        "main()\n"
    )
    original = (folder / "bull.whet").read_bytes()
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (folder / "bull.whet").read_bytes() == original
    assert whet("learn", "bull.whet", "--wrong", WRONG, cwd=folder).returncode == 0


def test_commands_and_python_write_the_same_history(folder, run_here, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1.7e9)
    (folder / "copy.whet").write_bytes((folder / "bull.whet").read_bytes())
    assert run_here("learn", "bull.whet", "--wrong", "scene 1.png:22,46,21,21", "--note", "a wall").code == 0
    assert run_here("learn", "bull.whet", "--missed", "scene 2.png:40,30,30,30").code == 0
    with edit(folder / "copy.whet") as detector:
        detector.learn("scene 2.png", BULL, True)
        detector.learn("scene 1.png", [[22, 46, 43, 67]], False, note="a wall")
    assert (folder / "copy.whet").read_bytes() == (folder / "bull.whet").read_bytes()


def test_annotations_correct_objects_and_what_the_base_detects_beside_them(folder, run_here):
    done = run_here("learn", "bull.whet", "--annotations", "truths.csv", "--json", "--force", "-o", "new.whet")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert result["input"] == {"images": 2, "objects": 4}
    found = [len(bull_finder().detect(bull_scene(seed))) for seed in (1, 2)]
    assert result["learned"]["objects"] == 4
    assert result["learned"]["false_positives"] == sum(found) - 4
    before, after = (result["on_input"][name] for name in ("before", "after"))
    assert after["false_positives"] < before["false_positives"]
    assert {record["kind"] for record in result["unsatisfied"]} <= {"object", "not object"}
    # What was learned before does not change which boxes are corrected.
    assert run_here("learn", "bull.whet", "-n", "none/wall.png", "-q").code == 0
    assert run_here("learn", "bull.whet", "-a", "truths.csv", "-q", "--force").code == 0
    ids = {record.id for record in load(folder / "bull.whet").records}
    assert ids > {record.id for record in load(folder / "new.whet").records} == set(result["learned"]["new"])


def test_a_detection_that_a_correction_brings_is_named_with_the_command_that_corrects_it(folder, run_here):
    """Where nothing was detected, a missed object brings detections of things like it."""
    call = ("learn", "bull.whet", "--missed", "scene 1.png:89,46,54,54", "--force")
    before = load(folder / "bull.whet").detect(folder / "scene 1.png").boxes
    result = json.loads(run_here(*call, "--out", "new.whet", "--json").out)
    after = load(folder / "new.whet").detect(folder / "scene 1.png").boxes
    new = np.array([one["box"] for one in result["new_detections"]]).reshape(-1, 4)
    marked = np.array([[89.0, 46.0, 143.0, 100.0]])
    is_new = ~(box_iou(after, before) >= 0.5).any(axis=1) & ~(box_iou(after, marked) >= 0.25).any(axis=1)
    assert len(new) > 0
    assert sorted(map(tuple, new)) == sorted(map(tuple, after[is_new]))
    text = run_here(*call).out
    assert text.count("New in scene 1.png") == min(len(new), MAX_WRONG)
    assert "may be wrong" in text
    assert "--wrong 'scene 1.png:" in text


def test_what_is_known_already_changes_nothing(folder, run_here):
    assert run_here("learn", "bull.whet", "--wrong", WRONG, "-q").code == 0
    before = (folder / "bull.whet").read_bytes()
    done = run_here("learn", "bull.whet", "--wrong", WRONG, "--json")
    assert (done.code, json.loads(done.out)["learned"]["new"]) == (0, [])
    assert (folder / "bull.whet").read_bytes() == before


@pytest.mark.parametrize("layout", ["csv", "coco", "json"])
def test_detections_that_are_marked_as_wrong_are_corrected_and_the_others_change_nothing(folder, run_here, layout):
    assert run_here("detect", "bull.whet", "scene 1.png", "none/wall.png", "-f", layout, "-o", "found").code == 0
    boxes = bull_finder().detect(bull_scene()).boxes
    if layout == "csv":
        head, *rows = (folder / "found").read_text().splitlines()
        marks = ["", "no", "yes", *["0"] * (len(rows) - 3)]
        (folder / "found").write_text("\n".join([f"{head},wrong", *map(",".join, zip(rows, marks, strict=True))]))
    else:
        rows = json.loads((folder / "found").read_text())
        if layout == "coco":
            rows[2]["wrong"], rows[3]["wrong"] = True, False
        else:
            rows[0]["wrong"] = [i == 2 for i in range(len(boxes))]
        (folder / "found").write_text(json.dumps(rows))
    done = run_here("learn", "bull.whet", "--detections", "found")
    assert done.code == 0, done.err
    (record,) = load(folder / "bull.whet").records
    assert not record.is_object
    np.testing.assert_allclose(record.box, boxes[2], atol=1e-9)
    assert not still_there(load(folder / "bull.whet"), boxes[2:3])


def test_crops_count_as_examples_and_what_cannot_be_used_is_named(folder, run_here):
    original = (folder / "bull.whet").read_bytes()
    options = ("--positives", "Stücke", "--negatives", "none/*.png", "-o", "taught.whet", "--weight", 5)
    done = run_here("learn", "bull.whet", *options)
    assert done.code == ExitCode.SOME_SKIPPED, done.err
    assert all(name in done.err for name in ("cut.png", "winzig.png"))
    assert (folder / "bull.whet").read_bytes() == original
    taught = load(folder / "taught.whet")
    assert taught.n_examples == (5, 0)
    assert taught.only.counts is None
    (example,) = (record for record in taught.records if record.kind == "example")
    assert (example.is_object, example.weight, example.name) == (True, 5, "größe.png")
    assert run_here("unlearn", "taught.whet", "--all").code == 0
    assert (folder / "taught.whet").read_bytes() == original


def test_a_shell_may_expand_the_images_of_each_option(folder, run_here):
    for seed in (1, 2):
        Image.fromarray(bull_scene(seed)[:, :110][70:]).save(folder / f"wall {seed}.png")
    walls = ("none/wall.png", "wall 1.png", "wall 2.png")
    apart = [part for wall in walls for part in ("-n", wall)]
    assert run_here("learn", "bull.whet", *apart, "-q", "-o", "apart.whet").code == 0
    assert run_here("learn", "--negatives", *walls, "bull.whet", "-q", "-o", "after.whet").code == 0
    calls = ("-n", *walls, "-p", "Stücke/größe.png", "Stücke/größe.png")
    assert run_here("learn", "bull.whet", *calls, "-q", "-o", "both.whet").code == 0
    assert {record.name for record in load("apart.whet").records} == {"wall.png", "wall 1.png", "wall 2.png"}
    ids = {name: {record.id for record in load(f"{name}.whet").records} for name in ("apart", "after", "both")}
    assert ids["apart"] == ids["after"] < ids["both"]
    assert len(ids["both"] - ids["apart"]) == 1


def test_results_that_get_worse_are_not_written_without_force(folder, run_here):
    original = (folder / "bull.whet").read_bytes()
    call = ("learn", "bull.whet", "--wrong", BULL_3, "--held-out", "held.csv")
    done = run_here(*call)
    assert done.code == ExitCode.WORSE, done.err
    assert "recall" in done.err
    assert (folder / "bull.whet").read_bytes() == original
    assert run_here(*call, "--dry-run").code == 0
    assert run_here(*call, "--force").code == 0
    assert kinds("bull.whet") == [("correction", False)]


@pytest.mark.slow
def test_the_reference_set_in_the_model_estimates_and_decides(folder, run_here, monkeypatch):
    from whet.demo.faces_digits import drawn_scene

    Image.fromarray(drawn_scene()).save(folder / "street.png")
    boxes = load("face").detect(folder / "street.png").boxes
    marks = [part for x1, y1, x2, y2 in boxes for part in ("--wrong", f"street.png:{x1},{y1},{x2 - x1},{y2 - y1}")]
    done = run_here("learn", "face", *marks, "--json", "-o", "mine.whet")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    estimate = result["estimate"]
    assert abs(estimate["before"]["recall"] - estimate["after"]["recall"]) < 0.01
    assert len(load("mine.whet").detect(folder / "street.png")) == 0
    monkeypatch.setattr("whet.detector.base.ESTIMATED_RECALL", -1.0)
    done = run_here("learn", "face", *marks, "-o", "again.whet")
    assert done.code == ExitCode.WORSE
    assert not (folder / "again.whet").exists()


def test_nothing_is_written_in_a_dry_run_or_where_nothing_was_learned(folder, run_here):
    Image.fromarray(np.full((40, 40), 90, np.uint8)).save(folder / "flat.png")
    files = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    for call in (("-n", "none/wall.png", "--dry-run"), ("-n", "flat.png")):
        done = run_here("learn", "bull.whet", *call)
        assert done.code == 0
        assert "Nothing written" in done.out
        assert files == {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("bull.whet",), 2, "--wrong"),
        (("face", "-n", "none"), 2, "--out FILE"),
        (("nowhere.whet", "-n", "none"), ExitCode.DATA_MISSING, "nowhere.whet"),
        (("bull.whet", "-n", "nowhere"), ExitCode.DATA_MISSING, "nowhere"),
        (("bull.whet", "-n", "empty"), ExitCode.DATA_MISSING, "empty"),
        (("bull.whet", "-n", "none/cut.png"), ExitCode.FAILED, "cut.png"),
        (("bull.whet", "-n", "scene 1.png", "-p", "scene 1.png"), ExitCode.FAILED, "scene 1.png"),
        (("bull.whet", "-n", "scene 1.png", "-a", "truths.csv"), ExitCode.FAILED, "scene 1.png"),
        (("bull.whet", "-n", "scene 1.png", "--missed", "scene 1.png:40,30,30,30"), ExitCode.FAILED, "scene 1.png"),
        (("bull.whet", "--wrong", "scene 1.png"), 2, "IMAGE:x,y,w,h"),
        (("bull.whet", "--wrong", "scene 1.png:1,2,3"), 2, "IMAGE:x,y,w,h"),
        (("bull.whet", "--missed", "scene 1.png:1,2,0,5"), 2, "IMAGE:x,y,w,h"),
        (("bull.whet", "--missed", "nowhere.png:1,2,30,30"), ExitCode.DATA_MISSING, "nowhere.png"),
        (("bull.whet", "--detections", "truths.csv"), ExitCode.FAILED, "wrong"),
        (("bull.whet", "--detections", "nowhere.csv"), ExitCode.DATA_MISSING, "nowhere.csv"),
        (("bull.whet", "-a", "nowhere.csv"), ExitCode.DATA_MISSING, "nowhere.csv"),
        (("bull.whet", "-n", "none", "--held-out", "no.csv"), ExitCode.DATA_MISSING, "no.csv"),
        (("bull.whet", "-a", "truths.csv", "--class", "cow"), ExitCode.FAILED, "cow"),
        (("bull.whet", "-a", "none"), ExitCode.FAILED, "--negatives"),
        (("bull.whet", "-n", "none", "--min-score", "bold"), 2, "bold"),
        (("bull.whet", "-n", "none", "-o", "other.whet"), 2, "other.whet already exists"),
        (("bull.whet", "-n", "none", "-o", "nowhere/x.whet"), 2, "does not exist: nowhere/"),
        (("bull.whet", "-p", "Stücke", "--weight", "0"), 2, "--weight"),
        (("bull.whet", "-n", "none", "--weight", "3"), 2, "--positives"),
        (("bull.whet", "-n", "none", "--site", ""), 2, "--site"),
        (("bull.whet", "-n", "none", "truths.csv"), 2, "truths.csv"),
    ],
)
def test_an_error_names_its_cause_and_a_remedy_and_changes_nothing(folder, run_here, arguments, code, says):
    (folder / "empty").mkdir()
    bull_finder().save(folder / "other.whet")
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = run_here("learn", *arguments)
    assert done.code == code, done.err
    if says != "truths.csv":  # an argument too much is Typer's own message
        assert says in check_message(done.err, arguments)
    assert files == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_boxes_that_fit_no_window_are_skipped_and_the_others_are_learned(run_here):
    done = run_here("learn", "bull.whet", "--wrong", WRONG, "--missed", "scene 1.png:0,0,200,4")
    assert done.code == ExitCode.SOME_SKIPPED
    assert "scene 1.png" in done.err
    assert kinds("bull.whet") == [("correction", False)]


def test_a_box_that_is_refused_is_the_reason_why_nothing_was_learned(run_here):
    done = run_here("learn", "bull.whet", "--missed", "scene 1.png:0,0,200,4")
    assert done.code == ExitCode.SOME_SKIPPED
    (line,) = (line for line in done.out.splitlines() if line.startswith("Learned nothing"))
    assert "1 box fits no window" in line
    assert "scene 1.png" in line


def test_a_false_positive_where_nothing_is_detected_gets_a_hint(run_here):
    done = run_here("learn", "bull.whet", "--wrong", "scene 1.png:150,10,15,15", "--dry-run")
    assert done.code == 0, done.err
    assert "detects nothing near 1 box" in done.err
    assert "Nothing is detected at 1 box: nothing changes there" in done.out
    assert "150,10,15,15" in done.err
    for _ in range(2):  # the second time, the correction holds already
        assert "detects nothing" not in run_here("learn", "bull.whet", "--wrong", WRONG).err


def test_exported_corrections_are_no_annotations(run_here):
    assert run_here("learn", "bull.whet", "--wrong", WRONG).code == 0
    assert run_here("export-corrections", "bull.whet", "-o", "out.json").code == 0
    done = run_here("learn", "bull.whet", "-a", "out.json")
    assert done.code == ExitCode.FAILED
    assert "whet merge" in check_message(done.err, ["out.json"])


def test_an_image_may_have_colons_in_its_name(folder, run_here):
    name = "at 12:30:05.png"
    try:
        (folder / name).write_bytes((folder / "scene 1.png").read_bytes())
    except OSError:
        pytest.skip("no colons in file names here")
    assert run_here("learn", "bull.whet", "--wrong", f"{name}:22,46,21,21").code == 0
    assert [record.name for record in load("bull.whet").records] == [name]


@pytest.mark.slow
def test_images_that_are_both_learned_and_held_out_are_reported(folder, run_here):
    (folder / "half.csv").write_text("scene 1.png,40,30,30,30,bull\nscene 3.png,40,30,30,30,bull\n")
    options = ("--dry-run", "--quiet", "--held-out")
    for learned in (("-a", "truths.csv"), ("--wrong", WRONG)):
        done = run_here("learn", "bull.whet", *learned, *options, "half.csv")
        assert "1 of 2 held-out images" in done.err
        assert "held-out images" not in run_here("learn", "bull.whet", *learned, *options, "held.csv").err


@pytest.mark.slow
def test_what_is_left_out_of_the_images_held_out_is_reported_by_the_exit_code(folder, run_here):
    held = (folder / "held.csv").read_text()
    for number, row in enumerate(("missing.png,1,2,30,40,bull\n", "scene 3.png,1\n", "none/cut.png,1,2,30,40,bull\n")):
        (folder / f"{number}.csv").write_text(held + row)
        done = run_here("learn", "bull.whet", "-a", "truths.csv", "--dry-run", "--held-out", f"{number}.csv")
        assert done.code == ExitCode.SOME_SKIPPED, done
        assert "(1 image, 2 objects)" in done.out


def test_crops_without_the_margin_that_a_detector_looks_at_are_reported(folder, run_here):
    bull_finder(offset=BoxOffset(0.1, 0.1, 0.9, 0.9)).save(folder / "wide.whet")
    options = ("-p", "Stücke/größe.png", "--dry-run")
    assert "1.25" in run_here("learn", "wide.whet", *options).err
    assert run_here("learn", "bull.whet", *options).err == ""
    assert "1.25" not in run_here("learn", "wide.whet", "-a", "truths.csv", "--dry-run").err


@pytest.mark.slow
def test_ctrl_c_changes_nothing_and_says_so(folder):
    original = (folder / "bull.whet").read_bytes()
    process = subprocess.Popen(
        [sys.executable, "-m", "whet", "learn", "bull.whet", "--negatives", "-", "-q"],
        cwd=folder,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Tests that run in the background of a shell ignore Ctrl-C, and so would their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        # More than a pipe holds: once it is written, the process is past its start, and waits for the rest.
        process.stdin.write(b"none/wall.png\n" * 20_000)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == CTRL_C, errors
    assert b"nothing was changed" in errors
    assert (folder / "bull.whet").read_bytes() == original
    assert {path.suffix for path in folder.iterdir() if path.is_file()} == {".whet", ".png", ".csv"}
    assert os.listdir(folder / "none")
