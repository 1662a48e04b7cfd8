import json

import numpy as np
import pytest
from PIL import Image
from tests.commands import check_message
from tests.detectors import BULL, base, bull_finder, bull_scene, content, false_positive

from whet.cli.options import ExitCode
from whet.detector.detector import Detector
from whet.detector.storage import load

WRONG = false_positive(bull_finder())


def learned(*corrections):
    detector = bull_finder()
    for seed, box, label in corrections:
        detector.learn(bull_scene(seed), box, label, name=f"scene {seed}.png")
    return detector


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two copies of a model that have learned apart, a third that contradicts the first, and one of another base."""
    monkeypatch.setattr("time.time", lambda: 1.7e9)
    learned((1, WRONG, False), (2, BULL, True)).save(tmp_path / "door.whet")
    learned((2, BULL, True), (3, BULL, True)).save(tmp_path / "yard.whet")
    learned((1, WRONG, True)).save(tmp_path / "other.whet")
    Detector.from_base(base()).save(tmp_path / "stranger.whet")
    return tmp_path


def test_the_merged_model_is_one_that_has_seen_both(folder, run_here):
    done = run_here("merge", "door.whet", "yard.whet", "-o", "both.whet", "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert [source["corrections"] for source in result["sources"]] == [2, 2]
    assert (result["merged"]["corrections"], result["shared"]) == (3, 1)
    one = learned((3, BULL, True), (1, WRONG, False), (2, BULL, True))
    assert (folder / "both.whet").read_bytes() == content(one)
    assert run_here("merge", "yard.whet", "door.whet", "-o", "yard.whet").code == 0
    assert (folder / "yard.whet").read_bytes() == content(one)
    assert done.err == ""


def test_contradictions_are_reported(run_here):
    result = json.loads(run_here("merge", "door.whet", "other.whet", "-o", "both.whet", "--json").out)
    assert {record["id"] for record in result["unsatisfied"]} == {r.id for r in load("both.whet").unsatisfied}
    assert result["unsatisfied"]
    done = run_here("merge", "door.whet", "other.whet", "-o", "both.whet", "--force")
    assert all(record["id"][:8] in done.out for record in result["unsatisfied"])


def test_samples_without_records_may_count_twice_and_a_warning_says_so(folder, run_here):
    counted = bull_finder()
    counted.learn_patches(np.random.default_rng(0).integers(0, 256, (3, 12, 12), np.uint8), True)
    for name in ("a.whet", "b.whet"):
        counted.save(folder / name)
    done = run_here("merge", "a.whet", "b.whet", "-o", "c.whet")
    assert "twice" in done.err
    assert load("c.whet").n_examples == (6, 0)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("door.whet", "stranger.whet", "-o", "x.whet"), ExitCode.FAILED, "stranger.whet"),
        (("door.whet", "stranger.whet", "-o", "door.whet"), ExitCode.FAILED, "stranger.whet"),
        (("door.whet", "./door.whet", "-o", "x.whet"), 2, "twice"),
        (("door.whet", "yard.whet"), 2, "--out"),
        (("door.whet", "yard.whet", "-o", "stranger.whet"), 2, "--force"),
        (("door.whet", "nowhere.whet", "-o", "x.whet"), ExitCode.DATA_MISSING, "nowhere.whet"),
    ],
)
def test_an_error_names_its_cause_and_a_remedy_and_changes_nothing(folder, run_here, arguments, code, says):
    files = {path: path.read_bytes() for path in folder.iterdir()}
    done = run_here("merge", *arguments)
    assert done.code == code, done.err
    assert says in check_message(done.err, arguments)
    assert files == {path: path.read_bytes() for path in folder.iterdir()}


def test_sites_are_merged_listed_and_taken_out_again(folder, run_here):
    Image.fromarray(bull_scene(1)).save("1.png")
    Image.fromarray(bull_scene(2)).save("2.png")
    for seed, site in ((1, "north"), (2, "south")):
        bull_finder().save(folder / f"{site}.whet")
        arguments = ("learn", f"{site}.whet", "--missed", f"{seed}.png:40,30,30,30", "--site", site, "--force")
        assert run_here(*arguments).code == 0
    assert run_here("merge", "north.whet", "south.whet", "-o", "all.whet").code == 0
    listed = run_here("log", "all.whet").out
    assert "site" in listed.splitlines()[0]
    assert "north" in listed
    assert {row["site"] for row in json.loads(run_here("log", "all.whet", "--json").out)} == {"north", "south"}
    done = run_here("unlearn", "all.whet", "--site", "north")
    assert done.code == 0, done.err
    assert (folder / "all.whet").read_bytes() == (folder / "south.whet").read_bytes()
    done = run_here("unlearn", "all.whet", "--site", "north")
    assert done.code == ExitCode.FAILED
    assert "south" in check_message(done.err, ["north"])
    assert "site" not in run_here("log", "door.whet").out.splitlines()[0]
    done = run_here("learn", "south.whet", "--missed", "1.png:40,30,30,30", "--site", " x")
    assert done.code == 2
    assert "site" in done.err
