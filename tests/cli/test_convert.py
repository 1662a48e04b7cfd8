"""`whet convert` as a user meets it: a real process."""

import json
import subprocess
import sys

import pytest
from tests.commands import check_message
from tests.io.annotations.sets import save_image

from whet.cli.inputs import SKIPPED_KINDS
from whet.cli.options import ExitCode
from whet.io.annotations.annotation import ProblemKind
from whet.io.annotations.formats import FORMATS, read_annotations

pytestmark = pytest.mark.slow  # each test starts a process or several


def convert(folder, *arguments):
    command = [sys.executable, "-m", "whet", "convert", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def last_line(done):
    assert "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


@pytest.fixture
def folder(tmp_path):
    save_image(tmp_path / "bilder" / "größe 1.png")
    save_image(tmp_path / "bilder" / "b.png")
    rows = "bilder/größe 1.png,10,20,100,40,car\nbilder/b.png,5,5,20,30,car\nbilder/b.png,40,5,20,30,dog\n"
    (tmp_path / "good.csv").write_text(rows)
    (tmp_path / "bad.csv").write_text(rows + "gone.png,1,2,3,4,car\nbilder/b.png,1,2,0,0,dog\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.md").write_text("annotate")
    return tmp_path


def test_kinds_that_are_skipped_are_those_of_the_library():
    assert set(SKIPPED_KINDS) <= {str(kind) for kind in ProblemKind}


def test_a_good_file_is_converted_and_summed_up(folder):
    done = convert(folder, "good.csv", "set.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Wrote set.json: 2 images, 3 boxes: car 2, dog 1 (from csv)\n"
    assert read_annotations(folder / "set.json").counts == {"car": 2, "dog": 1}


def test_what_is_left_out_is_reported_and_has_an_exit_code(folder):
    done = convert(folder, "bad.csv", "yolo", "--to", "yolo")
    assert done.returncode == ExitCode.SOME_SKIPPED
    assert done.stdout == "Wrote yolo: 2 images, 3 boxes: car 2, dog 1; 1 image missing, 1 box dropped (from csv)\n"
    assert done.stderr.endswith(
        "bad.csv:4: image not found: 'gone.png'\n"
        "bad.csv:5: box (1, 2, 1, 2) in b.png: width or height is not positive; dropped\n"
    )
    assert read_annotations(folder / "yolo").counts == {"car": 2, "dog": 1}


def test_json_is_for_programs_and_quiet_is_quiet(folder):
    done = convert(folder, "bad.csv", "voc", "--to", "voc", "--json", "--quiet")
    result = json.loads(done.stdout)
    assert done.stderr == ""
    assert (result["format"], result["boxes"], result["classes"]) == ("csv", 3, {"car": 2, "dog": 1})
    assert [problem["line"] for problem in result["problems"]] == [4, 5]


def test_quiet_tells_only_what_was_left_out(folder):
    done = convert(folder, "good.csv", "quiet.json", "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = convert(folder, "bad.csv", "left.json", "-q")
    assert (done.returncode, done.stdout) == (ExitCode.SOME_SKIPPED, "")
    assert len(done.stderr.splitlines()) == 2


def test_one_class_goes_to_info_dat_and_back(folder):
    assert convert(folder, "good.csv", "cv", "--to", "opencv", "--class", "car").returncode == 0
    assert convert(folder, "cv", "back.csv").returncode == 0
    assert read_annotations(folder / "back.csv").n_boxes == 2


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere", "a.json"], ExitCode.DATA_MISSING, "nowhere"),
        (["empty", "a.json"], ExitCode.DATA_MISSING, "empty"),
        (["notes", "a.json"], 1, ", ".join(FORMATS)),
        (["good.csv", "a.json", "--class", "cat"], 1, "car (2 boxes), dog (1 box)"),
        (["good.csv", "cv", "--to", "opencv"], 1, "--class"),
        (["good.csv", "bad.csv"], 1, "--force"),
        (["good.csv", "somewhere"], 1, "--to"),
        (["good.csv", "a.json", "--split", "val"], 1, "val"),
    ],
)
def test_an_error_names_its_cause_and_a_remedy(folder, arguments, code, message):
    done = convert(folder, *arguments)
    assert done.returncode == code, done.stderr
    assert last_line(done).startswith("whet: ")
    assert message in check_message(done.stderr, [*arguments, "info.dat"])


def test_images_are_found_next_to_the_annotations_too(folder):
    assert convert(folder, "good.csv", "a.json", "--images", "empty").returncode == 0


@pytest.mark.parametrize("to", [name for name, known in FORMATS.items() if known.is_directory])
def test_force_replaces_what_was_written_and_nothing_else(folder, to):
    assert convert(folder, "good.csv", "set", "--to", to, "-q").returncode == 0
    assert last_line(convert(folder, "good.csv", "set", "--to", to)).endswith("or choose another path")
    (folder / "one.csv").write_text("bilder/b.png,5,5,20,30,car\n")
    assert convert(folder, "one.csv", "set", "--to", to, "--force").returncode == 0
    again = read_annotations(folder / "set", to)
    assert (len(again), again.n_boxes) == (1, 1)
    (folder / "set" / "mine.txt").write_text("keep")
    files = {path: path.read_bytes() for path in (folder / "set").rglob("*") if path.is_file()}
    done = convert(folder, "good.csv", "set", "--to", to, "--force")
    assert done.returncode == ExitCode.FAILED
    assert "set holds mine.txt, which whet did not write; nothing was overwritten" in last_line(done)
    assert files == {path: path.read_bytes() for path in (folder / "set").rglob("*") if path.is_file()}


def test_images_of_the_source_are_not_replaced(folder):
    assert convert(folder, "good.csv", "set", "--to", "yolo").returncode == 0
    done = convert(folder, "set", "set", "--to", "voc", "--force")
    assert done.returncode == ExitCode.FAILED
    assert "is inside the output directory set" in last_line(done)
    assert read_annotations(folder / "set").n_boxes == 3


def test_a_list_of_backgrounds_beside_info_dat_is_kept(folder):
    (folder / "bg.txt").write_text("bilder/b.png\n")
    done = convert(folder, "good.csv", "cars.dat", "--class", "car")
    assert done.returncode == ExitCode.FAILED
    assert last_line(done).startswith("whet: bg.txt already exists")


def test_images_that_are_nowhere_are_missing_data(folder):
    (folder / "lost.csv").write_text("x.png,1,2,3,4\n")
    done = convert(folder, "lost.csv", "a.json")
    assert done.returncode == ExitCode.DATA_MISSING
    assert last_line(done).startswith("whet: none of the 1 annotated images can be read; searched .: image not found")
    assert not (folder / "a.json").exists()
