import json

import cv2
import numpy as np
import pytest
from PIL import Image
from tests.cascades import textured
from tests.commands import check_message, whet, whet_here
from tests.samples import brighter_on_the_right

from whet.cli.options import ExitCode
from whet.detector.storage import load
from whet.models.gslda.cascade import Cascade
from whet.models.gslda.fitting import train_stage
from whet.models.gslda.haar import HaarPool
from whet.opencv import write_opencv

WINDOW = (8, 8)
WRONG_CALL = 2


def patches(n, seed):
    return brighter_on_the_right(n, WINDOW, seed)


@pytest.fixture
def folder(tmp_path):
    """A cascade file, crops of its object, and images without it, one of them cut short."""
    others = np.random.default_rng(1).integers(0, 230, (200, *WINDOW), dtype=np.uint8)
    samples = np.concatenate([patches(200, 0), others])
    nodes = [train_stage(HaarPool.from_window(WINDOW), samples, np.arange(400) < 200, n) for n in (8, 25)]
    write_opencv(Cascade(WINDOW, tuple(node.run() for node in nodes)), tmp_path / "object.xml")
    for name, made in (
        ("crops", patches(60, 5)),
        ("none", [textured((60, 70), np.random.default_rng(k)) for k in range(6)]),
    ):
        (tmp_path / name).mkdir()
        for number, image in enumerate(made):
            Image.fromarray(image).save(tmp_path / name / f"{number}.png")
    return tmp_path


@pytest.mark.slow
def test_an_opencv_cascade_is_adopted_corrected_and_exported_without_corrections(folder):
    done = whet("adopt", "object.xml", "-p", "crops", "-n", "none", "-o", "mine.whet", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    detector = load(folder / "mine.whet")
    assert (result["objects"], result["images"], result["stages"]) == (60, 6, 2)
    assert result["negatives"] == [stage.statistics[1].n for stage in detector.base.model.stages]
    assert result["on_reference_set"]["recall"] == detector.estimate.recall
    assert "width/height" not in done.stderr
    assert "as boxes enclose them" not in done.stderr
    image = textured((60, 70), np.random.default_rng(20))
    Image.fromarray(image).save(folder / "street.png")
    found = load(folder / "object.xml").detect(image)
    assert np.array_equal(found.boxes, detector.detect(image).boxes)  # as before
    x1, y1, x2, y2 = found.boxes[-1].tolist()  # the weakest
    wrong = f"street.png:{x1!r},{y1!r},{x2 - x1!r},{y2 - y1!r}"
    done = whet("learn", "mine.whet", "--wrong", wrong, "--force", cwd=folder)
    assert done.returncode == 0, done.stderr
    corrected = load(folder / "mine.whet")
    assert len(corrected.records) == 1
    assert found.boxes[-1].tolist() not in corrected.detect(image).boxes.tolist()
    done = whet("learn", "mine.whet", "--positives", "crops", cwd=folder)
    assert done.returncode == ExitCode.FAILED
    assert "do not follow from examples" in " ".join(done.stderr.split())
    done = whet("export", "mine.whet", "mine.xml", cwd=folder)
    assert done.returncode == ExitCode.FAILED
    assert "whet unlearn MODEL --all" in " ".join(done.stderr.split())
    assert whet("unlearn", "mine.whet", "--all", cwd=folder).returncode == 0
    done = whet("export", "mine.whet", "mine.xml", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert not cv2.CascadeClassifier(str(folder / "mine.xml")).empty()


@pytest.mark.slow
def test_boxes_of_another_shape_and_too_few_photographs_are_reported(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    for number, patch in enumerate(patches(60, 5)):
        Image.fromarray(np.pad(patch, ((4, 4), (0, 0)))).save(folder / "crops" / f"{number}.png")
    done = whet_here(monkeypatch, capsys, "adopt", "object.xml", "-p", "crops", "-n", "none", "-o", "mine.whet")
    assert done.code == 0, done.err
    assert "width/height of 0.5" in done.err
    assert "windows of 1 (8 x 8)" in done.err
    assert "photographs" not in done.err
    assert "weights and thresholds are unchanged" in done.out
    for number in range(20, 60):
        (folder / "crops" / f"{number}.png").unlink()
    call = ("object.xml", "-p", "crops", "-n", "none", "-o", "mine.whet", "--force")
    assert "fewer than 50 photographs" in whet_here(monkeypatch, capsys, "adopt", *call).err


@pytest.mark.slow
def test_objects_that_the_cascade_does_not_accept_are_reported(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    for number, patch in enumerate(patches(60, 5)):
        Image.fromarray(255 - patch).save(folder / "crops" / f"{number}.png")  # darker on the right
    done = whet_here(monkeypatch, capsys, "adopt", "object.xml", "-p", "crops", "-n", "none", "-o", "mine.whet")
    assert done.code == 0, done.err
    assert "of the held-out objects, as boxes enclose them" in done.err


@pytest.mark.slow
def test_what_cannot_be_adopted_is_said_and_nothing_is_written(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    calls = {
        ("-n", "none"): (WRONG_CALL, "use --annotations or --positives"),
        ("-p", "crops"): (ExitCode.FAILED, "image"),
        ("-p", "crops", "-n", "none", "-o", "object.xml"): (WRONG_CALL, "whet export"),
    }
    for call, (code, said) in calls.items():
        done = whet_here(monkeypatch, capsys, "adopt", "object.xml", "-o", "mine.whet", *call)
        assert (done.code, said in check_message(done.err, ["object", *call])) == (code, True), done.err
    (folder / "own.whet").write_bytes(b"any file")
    for own, needs_no_adoption in {"face": True, "own.whet": True, "none": False, "nowhere": False}.items():
        done = whet_here(monkeypatch, capsys, "adopt", own, "-p", "crops", "-o", "mine.whet")
        assert (done.code, f"got {own}; expected an OpenCV cascade" in " ".join(done.err.split())) == (WRONG_CALL, True)
        assert ("use whet learn" in " ".join(done.err.split())) == needs_no_adoption
    (folder / "none" / "cut.png").write_bytes(b"not an image")
    assert not (folder / "mine.whet").exists()
    done = whet_here(monkeypatch, capsys, "adopt", "object.xml", "-p", "crops", "-n", "none", "-o", "mine.whet")
    assert done.code == ExitCode.SOME_SKIPPED
    assert "cut.png" in done.err
    assert (folder / "mine.whet").exists()


def test_a_cascade_that_has_not_been_adopted_says_how_to(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    done = whet_here(monkeypatch, capsys, "learn", "object.xml", "-n", "none", "-o", "mine.whet")
    assert done.code == ExitCode.FAILED
    assert "whet adopt" in done.err


def test_an_export_is_an_xml_that_is_not_there_yet(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    before = (folder / "object.xml").read_bytes()
    for out, said in (("object.xml", "--force"), ("object.txt", "ends in .xml"), ("no/a.xml", "does not exist: no/")):
        done = whet_here(monkeypatch, capsys, "export", "object.xml", out)
        assert done.code == WRONG_CALL
        assert said in check_message(done.err, [out, "no"])
    assert (folder / "object.xml").read_bytes() == before
    done = whet_here(monkeypatch, capsys, "export", "object.xml", "copy.xml", "--json")
    assert json.loads(done.out)["stages"] == 2
    assert "either Haar stumps or LBP stumps" in whet_here(monkeypatch, capsys, "export", "face", "face.xml").err
    assert not (folder / "face.xml").exists()
