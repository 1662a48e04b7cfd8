import csv
import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from tests.commands import check_message, whet, whet_here
from tests.detectors import bull_finder, bull_scene

from whet.cli.detect import Format, _Results
from whet.cli.options import ExitCode
from whet.detector.storage import load
from whet.evaluation.runs import detect_many
from whet.io.detection_files import PIECEMEAL, Layout, pieces


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a model, two images (one below, with a name that is not ASCII) and a file that is none."""
    folder = tmp_path_factory.mktemp("shots")
    bull_finder().save(folder / "bull.whet")
    (folder / "images" / "below").mkdir(parents=True)
    Image.fromarray(bull_scene(1)).save(folder / "images" / "a2.png")
    Image.fromarray(bull_scene(2)).save(folder / "images" / "below" / "größe 10.png")
    (folder / "images" / "notes.txt").write_text("no image")
    return folder


@pytest.mark.slow
def test_text_csv_and_json_tell_what_the_library_finds(folder):
    boxes = load(folder / "bull.whet").detect(folder / "images" / "a2.png")
    done = whet("detect", "bull.whet", "images", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)
    assert (first["image"], second["image"]) == ("images/a2.png", "images/below/größe 10.png")
    assert np.array_equal(first["boxes"], boxes.boxes)
    assert np.array_equal(first["scores"], boxes.scores)
    text = whet("detect", "bull.whet", "images/a2.png", "--max-detections", 1, cwd=folder).stdout
    x1, y1, x2, y2 = boxes.boxes[0]
    assert text.startswith(f"images/a2.png: {x2 - x1:.0f} x {y2 - y1:.0f} at ({x1:.0f}, {y1:.0f}) scores ")
    rows = whet("detect", "bull.whet", "images/*.png", "-f", "csv", cwd=folder).stdout.splitlines()
    assert rows[0] == "path,x,y,width,height,score"
    assert len(rows) == 1 + len(boxes)


@pytest.mark.slow
def test_a_model_with_a_reference_set_gives_probabilities(folder, tmp_path):
    from whet.demo.faces_digits import drawn_scene

    Image.fromarray(drawn_scene()).save(tmp_path / "street.png")
    found = load("face").detect(tmp_path / "street.png")
    own, rows, coco = (whet("detect", "face", "street.png", "-f", f, cwd=tmp_path) for f in ("json", "csv", "coco"))
    (image,) = json.loads(own.stdout)
    np.testing.assert_allclose(image["probabilities"], found.probabilities)
    assert len(found) > 0
    table = list(csv.DictReader(rows.stdout.splitlines()))
    np.testing.assert_allclose([float(row["probability"]) for row in table], found.probabilities)
    np.testing.assert_allclose([row["probability"] for row in json.loads(coco.stdout)], found.probabilities)
    assert {row["file_name"] for row in json.loads(coco.stdout)} == {"street.png"}
    assert (
        "probabilities" not in json.loads(whet("detect", "bull.whet", "images/a2.png", "--json", cwd=folder).stdout)[0]
    )


@pytest.mark.slow
def test_coco_results_are_read_by_pycocotools(folder, tmp_path):
    from pycocotools.coco import COCO

    truth = {
        "images": [{"id": 7, "file_name": "a2.png", "width": 200, "height": 150}],
        "annotations": [],
        "categories": [{"id": 1, "name": "bull"}],
    }
    (tmp_path / "truth.json").write_text(json.dumps(truth))
    options = ("--format", "coco", "--ids", tmp_path / "truth.json", "--out", tmp_path / "found.json")
    done = whet("detect", "bull.whet", "images/a2.png", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "found.json") in done.stderr
    results = COCO(str(tmp_path / "truth.json")).loadRes(str(tmp_path / "found.json"))
    boxes = load(folder / "bull.whet").detect(folder / "images" / "a2.png").boxes
    found = [(x, y, x + w, y + h) for x, y, w, h in (a["bbox"] for a in results.loadAnns(results.getAnnIds(7)))]
    assert np.allclose(found, boxes)
    done = whet("detect", "bull.whet", "images", "-f", "coco", "--ids", tmp_path / "truth.json", cwd=folder)
    assert done.returncode == ExitCode.FAILED
    assert "größe 10.png" in done.stderr


def test_names_from_standard_input_and_drawn_images(run_here, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stdin", io.StringIO("images/a2.png\nimages/below/größe 10.png\n"))
    done = run_here("detect", "bull.whet", "-", "--draw", tmp_path / "drawn", "--quiet")
    assert done.code == 0, done.err
    assert done.err == ""
    drawn = np.asarray(Image.open(tmp_path / "drawn" / "größe 10.png"))
    assert drawn.shape == (150, 200, 3)
    assert (drawn == (40, 190, 80)).all(axis=2).any()


@pytest.mark.slow
def test_drawings_neither_replace_images_nor_each_other(folder, tmp_path):
    image = (folder / "images" / "a2.png").read_bytes()
    (tmp_path / "x").mkdir()
    for name in ("a.png", "a-2.png", "x/a.png"):
        (tmp_path / name).write_bytes(image)
    done = whet("detect", folder / "bull.whet", "a.png", "x", "--draw", ".", cwd=tmp_path)
    assert done.returncode == ExitCode.FAILED
    assert "a.png" in check_message(done.stderr, ["a.png"])
    assert (tmp_path / "a.png").read_bytes() == image
    done = whet("detect", folder / "bull.whet", "a.png", "a-2.png", "x", "--draw", "drawn", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "drawn").iterdir()} == {"a.png", "a-2.png", "a-3.png"}


@pytest.mark.slow
def test_names_that_are_no_text_come_in_and_go_out_as_they_are(folder, tmp_path):
    name = b"gr\xf6\xdfe.png"  # Latin-1
    try:
        (tmp_path / os.fsdecode(name)).write_bytes((folder / "images" / "a2.png").read_bytes())
    except OSError:
        pytest.skip("file names are UTF-8 here")
    strict = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}
    command = [sys.executable, "-m", "whet", "detect", folder / "bull.whet"]
    for layout in ("text", "csv"):
        done = subprocess.run(
            [*command, "-", "-f", layout], input=name, capture_output=True, cwd=tmp_path, check=False, env=strict
        )
        assert done.returncode == 0, done.stderr
        assert name in done.stdout
        file = [*command, ".", "-q", "-f", layout, "--out", "out"]
        assert subprocess.run(file, cwd=tmp_path, check=False, env=strict).returncode == 0
        assert (tmp_path / "out").read_bytes() == done.stdout


def test_what_is_found_is_reported_as_it_comes_and_the_windows_behind_it_are_let_go(folder):
    results = _Results(None, lambda _: None)
    paths = sorted((folder / "images").glob("**/*.png"))
    found = list(results.detections(detect_many(load(folder / "bull.whet"), paths)))
    assert results.n_boxes == sum(len(boxes) for _, boxes in found) > 0
    assert all(len(boxes.windows) == 0 for _, boxes in found)
    for layout in PIECEMEAL:
        waiting = iter(found)
        come = pieces(waiting, layout)
        assert str(paths[0]) in next(come)
        assert next(waiting)[0] == paths[1]  # which nothing has asked for yet


@pytest.mark.slow
def test_a_bar_is_for_terminals_and_keeps_out_of_the_results(folder):
    command = [sys.executable, "-m", "whet", "detect", "bull.whet", "images", "-f", "csv"]
    plain = subprocess.run(command, cwd=folder, capture_output=True, check=True)
    assert plain.stderr == b""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    shown = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=theirs, check=True)
    os.close(theirs)
    assert b"detect" in os.read(ours, 100_000)
    os.close(ours)
    assert shown.stdout == plain.stdout


def test_a_corrupt_image_among_good_ones_is_skipped_and_named(folder, run_here, tmp_path):
    (tmp_path / "cut.png").write_bytes((folder / "images" / "a2.png").read_bytes()[:300])
    done = run_here("detect", "bull.whet", "images", tmp_path / "cut.png", "--json")
    assert done.code == ExitCode.SOME_SKIPPED
    assert len(json.loads(done.out)) == 2
    assert "skipped 1 of 3 images" in done.err
    assert "cut.png" in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("face", "nowhere.png"), ExitCode.DATA_MISSING, "nowhere.png"),
        (("face", "*.nothing"), ExitCode.DATA_MISSING, "*.nothing"),
        (("face", "empty"), ExitCode.DATA_MISSING, "empty"),
        (("nobody", "images"), ExitCode.DATA_MISSING, "nobody"),
        (("images/notes.txt", "images"), ExitCode.FAILED, "notes.txt"),
        (("bull.whet", "images/notes.txt"), ExitCode.FAILED, "notes.txt"),
        (("bull.whet", "images", "--min-score", "bold"), 2, "bold"),
        (("bull.whet", "images", "--min-size", "1"), 2, "--min-size 1"),
        (("bull.whet", "images", "--scale-factor", "1"), 2, "--scale-factor 1"),
        (("bull.whet", "images", "--out", "nowhere/boxes.txt"), ExitCode.FAILED, "nowhere"),
        (("bull.whet", "images", "--format", "csv", "--ids", "truth.json"), 2, "--format coco"),
        (("bull.whet", "images", "--format", "csv", "--json"), 2, "--json"),
    ],
)
def test_an_error_names_its_cause_and_a_remedy(folder, monkeypatch, capsys, arguments, code, says):
    (folder / "empty").mkdir(exist_ok=True)
    monkeypatch.chdir(folder)
    done = whet_here(monkeypatch, capsys, "detect", *arguments)
    assert done.code == code, done.err
    assert says in check_message(done.err, arguments)


def test_formats_are_those_of_the_library():
    assert [one.value for one in Format] == [one.value for one in Layout]


@pytest.mark.slow
def test_a_detection_imports_neither_scikit_learn_nor_what_starts_slowly(folder):
    code = (
        "import sys\n"
        "from whet.cli.main import main\n"
        "sys.argv = ['whet', 'detect', 'bull.whet', 'images/a2.png', '--quiet']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'sklearn', 'scipy.stats', 'scipy.linalg', 'matplotlib', 'rich'} & set(sys.modules)))\n"
        "import scipy.linalg.cython_blas"  # not hidden for good
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder)
    assert done.stdout.endswith("[]\n")


@pytest.mark.slow
def test_a_command_ends_without_looking_for_garbage():
    code = (
        "import atexit, gc\n"
        "from whet.cli.output import start\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 10_000))\n"  # after what comes later
        "start(quiet=True)\n"
        "print(gc.get_freeze_count() > 10_000)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


@pytest.mark.parametrize(
    ("name", "begins"), [("boxes.json", "["), ("boxes.csv", "path,"), ("boxes.txt", "images/a2.png")]
)
def test_the_suffix_of_the_output_file_is_its_format(run_here, tmp_path, name, begins):
    done = run_here("detect", "bull.whet", "images/a2.png", "--out", tmp_path / name)
    assert done.code == 0, done.err
    assert (tmp_path / name).read_text().startswith(begins)
