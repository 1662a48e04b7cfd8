import json

import pytest
from tests.commands import check_message, whet_here
from tests.detectors import BULL, base, bull_finder, bull_scene, content, false_positive

from whet.cli.options import ExitCode
from whet.detector.detector import Detector
from whet.detector.journal import Journal


@pytest.fixture
def folder(tmp_path):
    """Two copies of a model that have learned apart, each with its journal, and a model of another base."""
    for name, box, label in (("door", false_positive(bull_finder()), False), ("yard", BULL, True)):
        detector = bull_finder()
        entries = detector.learn(bull_scene(), box, [label], weight=7)
        detector.save(tmp_path / f"{name}.whet")
        Journal(tmp_path / f"{name}.whet.journal.jsonl").add_learned(entries)
    Detector(base()).save(tmp_path / "stranger.whet")
    return tmp_path


@pytest.fixture
def run_here(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    return lambda *arguments: whet_here(monkeypatch, capsys, *arguments)


def test_the_merged_model_has_learned_all_and_its_journal_says_what(folder, run_here):
    done = run_here("merge", "door.whet", "yard.whet", "-o", "both.whet")
    assert done.code == 0, done.err
    assert "yard.whet: learned weight 7 positive, 0 negative" in done.out
    assert "learned weight 7 positive, 7 negative" in done.out.splitlines()[-1]
    assert done.err == ""
    entries = Journal(folder / "both.whet.journal.jsonl").learned()
    both = bull_finder()
    both.relearn(entries)
    assert (folder / "both.whet").read_bytes() == content(both)
    assert run_here("unlearn", "both.whet").code == 0
    assert (folder / "both.whet").read_bytes() == content(bull_finder())


def test_what_two_models_learned_before_they_were_copied_apart_is_told(folder, run_here):
    for end in (".whet", ".whet.journal.jsonl"):
        (folder / f"copy{end}").write_bytes((folder / f"door{end}").read_bytes())
    n = len(Journal(folder / "door.whet.journal.jsonl").learned())
    done = run_here("merge", "door.whet", "copy.whet", "yard.whet", "-o", "door.whet", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["duplicate_records"] == n
    assert json.loads(done.out)["merged"] == {"model": "door.whet", "learned_positives": 7, "learned_negatives": 14}
    assert len(Journal(folder / "door.whet.journal.jsonl").learned()) == 2 * n + 1
    assert "counted more than once" in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("door.whet", "stranger.whet", "-o", "x.whet"), ExitCode.FAILED, "stranger.whet"),
        (("door.whet", "./door.whet", "-o", "x.whet"), 2, "twice"),
        (("door.whet", "yard.whet"), 2, "--out"),
        (("door.whet", "yard.whet", "-o", "stranger.whet"), 2, "--force"),
        (("door.whet", "nowhere.whet", "-o", "x.whet"), ExitCode.FAILED, "nowhere.whet"),
    ],
)
def test_an_error_names_its_cause_and_a_remedy_and_changes_nothing(folder, run_here, arguments, code, says):
    files = {path: path.read_bytes() for path in folder.iterdir()}
    done = run_here("merge", *arguments)
    assert done.code == code, done.err
    assert says in check_message(done.err, arguments)
    assert files == {path: path.read_bytes() for path in folder.iterdir()}
