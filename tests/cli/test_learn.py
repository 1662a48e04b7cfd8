import json
import signal
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from tests.commands import whet, whet_here
from tests.detectors import bull_finder, bull_scene

from whet.cli.options import CTRL_C, ExitCode
from whet.detector.detector import load
from whet.detector.journal import Journal
from whet.detector.reporting import Frame

TRUTHS = "path,x,y,w,h,label\n" + "".join(
    f"scene {seed}.png,40,30,30,30,bull\nscene {seed}.png,120,70,50,50,bull\n" for seed in (1, 2)
)


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


def test_what_is_learned_from_annotations_is_told_journalled_and_taken_out_to_the_same_bytes(folder):
    original = (folder / "bull.whet").read_bytes()
    done = whet("learn", "bull.whet", "--annotations", "truths.csv", "--held-out", "held.csv", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["shown"] == {"images": 2, "objects": 4}
    assert told["taught"]["objects"] == 4
    assert told["taught"]["false_positives"] > 0
    before, after = (told["on_shown"][name] for name in ("before", "after"))
    assert after["missed"] + after["false_positives"] < before["missed"] + before["false_positives"]
    assert told["on_held_out"]["after"]["objects"] == 2
    assert max(told["degrees_turned"]) > 0
    journal = Journal(folder / "bull.whet.journal.jsonl")
    assert told["journal"] == "bull.whet.journal.jsonl"
    assert len(journal.learned()) == told["taught"]["windows"]
    taught = bull_finder()
    taught.relearn(journal.learned())
    taught.save(folder / "again.whet")
    assert (folder / "again.whet").read_bytes() == (folder / "bull.whet").read_bytes() != original
    done = whet("unlearn", "bull.whet", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "cannot be taken out" in done.stdout
    assert (folder / "bull.whet").read_bytes() == original
    assert journal.learned() == []


def test_crops_and_empty_images_teach_and_what_cannot_be_used_is_named(folder):
    original = (folder / "bull.whet").read_bytes()
    options = ("--positives", "Stücke", "--negatives", "none/*.png", "-o", "taught.whet", "--weight", 5)
    done = whet("learn", "bull.whet", *options, cwd=folder)
    assert done.returncode == ExitCode.SOME_SKIPPED, done.stderr
    assert "Traceback" not in done.stderr
    assert "skipped 1 of 4 images" in done.stderr
    assert "cut.png" in done.stderr
    assert "1 box that fits no window" in done.stderr
    assert "winzig.png" in done.stderr
    assert "wrote taught.whet" in done.stdout
    assert (folder / "bull.whet").read_bytes() == original
    assert not (folder / "bull.whet.journal.jsonl").exists()
    entries = Journal(folder / "taught.whet.journal.jsonl").learned()
    assert sum(entry.weight for entry in entries if entry.is_object) == 5
    assert sum(entry.weight for entry in entries if not entry.is_object) % 5 == 0
    assert load(folder / "taught.whet").learned[0] == 5


def test_one_is_told_as_one(run_here):
    done = run_here("learn", "bull.whet", "-p", "Stücke/größe.png", "--weight", 1, "--dry-run")
    assert "learned: 1 object and 0 false positives, by 1 window that counts 1 time\n" in done.out, done


def test_a_copy_takes_its_journal_along_and_leaves_the_first_alone(folder, run_here):
    assert run_here("learn", "bull.whet", "-n", "none/wall.png", "-q").code == 0
    first = Journal(folder / "bull.whet.journal.jsonl").learned()
    assert run_here("learn", "bull.whet", "-p", "Stücke/größe.png", "-o", "copy.whet", "-q").code == 0
    both = Journal(folder / "copy.whet.journal.jsonl").learned()
    assert both[: len(first)] == first
    assert [entry.is_object for entry in both[len(first) :]] == [True]
    assert run_here("unlearn", "copy.whet", "--image", "Stücke/größe.png").code == 0
    assert (folder / "copy.whet").read_bytes() == (folder / "bull.whet").read_bytes()


def test_nothing_is_written_in_a_dry_run_or_where_nothing_was_learned(folder, run_here):
    Image.fromarray(np.full((40, 40), 90, np.uint8)).save(folder / "flat.png")
    files = sorted(folder.iterdir())
    done = run_here("learn", "bull.whet", "-n", "none/wall.png", "--dry-run")
    assert (done.code, done.out.splitlines()[-1]) == (0, "nothing was written")
    done = run_here("learn", "bull.whet", "-n", "flat.png")
    assert done.code == 0
    assert "learned nothing" in done.out
    assert sorted(folder.iterdir()) == files


def test_a_journal_that_is_ahead_of_its_model_is_noticed_and_can_be_settled(folder, run_here):
    original = (folder / "bull.whet").read_bytes()
    assert run_here("learn", "bull.whet", "-n", "none/wall.png", "-q").code == 0
    n = len(Journal(folder / "bull.whet.journal.jsonl").learned())
    (folder / "bull.whet").write_bytes(original)  # as if the machine had stopped between the two files
    done = run_here("learn", "bull.whet", "-n", "none/wall.png")
    assert done.code == ExitCode.FAILED
    assert f"--last {n} --journal-only" in done.err
    assert run_here("unlearn", "bull.whet", "--last", n, "--journal-only").code == 0
    assert run_here("learn", "bull.whet", "-n", "none/wall.png", "-q").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("bull.whet",), 2, "nothing to learn from"),
        (("face", "-n", "none"), 2, "-o FILE"),
        (("nowhere.whet", "-n", "none"), ExitCode.FAILED, "there is no file nowhere.whet"),
        (("bull.whet", "-n", "nowhere"), ExitCode.DATA_MISSING, "no such file or directory: nowhere"),
        (("bull.whet", "-n", "empty"), ExitCode.DATA_MISSING, "found no image in empty"),
        (("bull.whet", "-n", "none/cut.png"), ExitCode.DATA_MISSING, "cut.png"),
        (("bull.whet", "-n", "scene 1.png", "-p", "scene 1.png"), ExitCode.FAILED, "take it out of one"),
        (("bull.whet", "-n", "scene 1.png", "-a", "truths.csv"), ExitCode.FAILED, "take it out of one"),
        (("bull.whet", "-a", "nowhere.csv"), ExitCode.DATA_MISSING, "no such file or directory: nowhere.csv"),
        (("bull.whet", "-n", "none", "--held-out", "no.csv"), ExitCode.DATA_MISSING, "no such file or directory: no.csv"),
        (("bull.whet", "-a", "truths.csv", "--class", "cow"), ExitCode.FAILED, "unknown class 'cow'"),
        (("bull.whet", "-n", "none", "--threshold", "bold"), 2, "there is no operating point 'bold'"),
        (("bull.whet", "-n", "none", "-o", "other.whet"), 2, "other.whet is there already"),
        (("bull.whet", "-n", "none", "-o", "gone.whet"), 2, "gone.whet.journal.jsonl is there already"),
        (("bull.whet", "-n", "none", "-o", "nowhere/x.whet"), 2, "nowhere/x.whet cannot be written"),
        (("bull.whet", "-n", "none", "--journal", "j", "--no-journal"), 2, "choose one"),
        (("bull.whet", "-n", "none", "--weight", "0"), 2, "--weight"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_changed(folder, run_here, arguments, code, says):
    (folder / "empty").mkdir()
    bull_finder().save(folder / "other.whet")
    (folder / "gone.whet.journal.jsonl").write_text("")
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = run_here("learn", *arguments)
    assert done.code == code, done.err
    assert says in " ".join(done.err.replace("│", " ").split())
    assert files == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_images_that_are_both_learned_and_held_out_are_told(folder, run_here):
    (folder / "half.csv").write_text("scene 1.png,40,30,30,30,bull\nscene 3.png,40,30,30,30,bull\n")
    options = ("--dry-run", "--quiet", "--held-out")
    done = run_here("learn", "bull.whet", "-a", "truths.csv", *options, "half.csv")
    assert done.code == 0
    assert "1 of 2 images of --held-out are learned from, too (scene 1.png)" in done.err
    assert run_here("learn", "bull.whet", "-a", "truths.csv", *options, "held.csv").err == ""


def test_what_is_left_out_of_the_images_held_out_is_told_by_the_exit_code(folder, run_here):
    held = (folder / "held.csv").read_text()
    for number, row in enumerate(("missing.png,1,2,30,40,bull\n", "scene 3.png,1\n", "none/cut.png,1,2,30,40,bull\n")):
        (folder / f"{number}.csv").write_text(held + row)
        done = run_here("learn", "bull.whet", "-a", "truths.csv", "--dry-run", "--held-out", f"{number}.csv")
        assert done.code == ExitCode.SOME_SKIPPED, done
        assert "held out, 1 image with 2 objects" in done.out


def test_crops_without_the_margin_that_a_detector_looks_at_are_told(folder, run_here):
    bull_finder(frame=Frame(0.1, 0.1, 0.9, 0.9)).save(folder / "wide.whet")
    options = ("-p", "Stücke/größe.png", "--weight", 1, "--dry-run")
    done = run_here("learn", "wide.whet", *options)
    assert "1 image ends where its object ends, and this detector looks at 1.25 times as much" in done.err
    assert run_here("learn", "bull.whet", *options).err == ""
    assert run_here("learn", "wide.whet", "-a", "truths.csv", "--weight", 1, "--dry-run").err == ""


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
    assert errors.decode().strip() == "whet: stopped; nothing was changed"
    assert (folder / "bull.whet").read_bytes() == original
    assert not (folder / "bull.whet.journal.jsonl").exists()


@pytest.fixture
def run_here(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    return lambda *arguments: whet_here(monkeypatch, capsys, *arguments)
