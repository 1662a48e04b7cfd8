import json

import pytest
from PIL import Image
from tests.commands import check_message
from tests.detectors import BULL, bull_finder, bull_scene, content, false_positive, still_there

from whet.cli.options import ExitCode
from whet.detector.storage import load


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A model that has learned a false positive and, later, a bull."""
    detector = bull_finder()
    for seconds, image, box, label in ((10, 1, false_positive(detector), False), (20, 2, BULL, True)):
        monkeypatch.setattr("time.time", lambda now=seconds: now)
        detector.learn(bull_scene(image), box, label, name=f"scene {image}.png")
    detector.save(tmp_path / "bull.whet")
    Image.fromarray(bull_scene(1)).save(tmp_path / "renamed.png")
    Image.fromarray(bull_scene(3)).save(tmp_path / "scene 3.png")
    return tmp_path


def test_the_last_correction_is_taken_out_as_a_whole(folder, run_here):
    newest, oldest = load("bull.whet").records
    assert len(oldest) > 1  # it has several windows
    assert run_here("unlearn", "bull.whet", "--last", 1).code == 0
    assert [record.id for record in load("bull.whet").records] == [oldest.id]
    assert newest.is_object
    assert run_here("unlearn", "bull.whet", "--last", 1).code == 0
    assert (folder / "bull.whet").read_bytes() == content(bull_finder())
    assert still_there(load("bull.whet"), false_positive(bull_finder()))


def test_what_remains_is_what_would_have_been_learned_without(folder, run_here):
    alone = bull_finder()
    newest, oldest = load("bull.whet").records
    alone.add([oldest])
    done = run_here("unlearn", "bull.whet", "--id", newest.id[:8].upper(), "--id", newest.id, "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert ([record["id"] for record in result["unlearned"]], result["remaining"]) == ([newest.id], 1)
    assert (folder / "bull.whet").read_bytes() == content(alone)


@pytest.mark.parametrize("image", ["renamed.png", "elsewhere/scene 1.png"])
def test_an_image_is_known_by_its_pixels_or_else_by_its_name(folder, run_here, image):
    before = (folder / "bull.whet").read_bytes()
    assert run_here("unlearn", "bull.whet", "--image", image, "-o", "less.whet").code == 0
    assert [record.name for record in load("less.whet").records] == ["scene 2.png"]
    assert (folder / "bull.whet").read_bytes() == before


def test_all_is_the_base(folder, run_here):
    assert run_here("unlearn", "bull.whet", "--all", "-q").out == ""
    assert (folder / "bull.whet").read_bytes() == content(bull_finder())


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("bull.whet",), 2, "--last"),
        (("bull.whet", "--last", "1", "--all"), 2, "--last"),
        (("bull.whet", "--last", "3"), 2, "3"),
        (("bull.whet", "--id", "abc"), ExitCode.FAILED, "abc"),
        (("bull.whet", "--id", "ffffffffffff"), ExitCode.FAILED, "whet log"),
        (("bull.whet", "--image", "scene 3.png"), ExitCode.FAILED, "scene 3.png"),
        (("face", "--all"), 2, "--out"),
        (("nowhere.whet", "--all"), ExitCode.DATA_MISSING, "nowhere.whet"),
        (("bull.whet", "--all", "-o", "scene 3.png"), 2, "--force"),
        (("bull.whet", "--all", "-o", "new"), 2, "new.whet"),
    ],
)
def test_an_error_names_its_cause_and_a_remedy_and_changes_nothing(folder, run_here, arguments, code, says):
    files = {path: path.read_bytes() for path in folder.iterdir()}
    done = run_here("unlearn", *arguments)
    assert done.code == code, done.err
    assert says in check_message(done.err, arguments)
    assert files == {path: path.read_bytes() for path in folder.iterdir()}
