import json

import pytest
from PIL import Image
from tests.commands import whet_here
from tests.detectors import BULL, bull_finder, bull_scene, content, false_positive

from whet.cli.options import ExitCode
from whet.detector.detector import load
from whet.detector.journal import Journal


@pytest.fixture
def folder(tmp_path):
    """A model that has learned a false positive and then a bull, and its journal."""
    detector = bull_finder()
    entries = detector.learn(bull_scene(), false_positive(detector), [False], weight=7)
    entries += detector.learn(bull_scene(2), BULL, [True], weight=3)
    detector.save(tmp_path / "bull.whet")
    Journal(tmp_path / "bull.whet.journal.jsonl").add_learned(entries)
    Image.fromarray(bull_scene(2)).save(tmp_path / "scene 2.png")
    Image.fromarray(bull_scene(3)).save(tmp_path / "scene 3.png")
    return tmp_path


@pytest.fixture
def run_here(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    return lambda *arguments: whet_here(monkeypatch, capsys, *arguments)


def test_entries_are_listed_with_numbers_and_taken_out_by_them(folder, run_here):
    journal = Journal(folder / "bull.whet.journal.jsonl")
    entries = journal.learned()
    rows = run_here("unlearn", "bull.whet", "--list").out.splitlines()
    assert len(rows) == 1 + len(entries)
    assert rows[-1].split()[0] == str(len(entries))
    assert rows[-1].split()[1] == entries[-1].image[:10]
    assert rows[-1].split()[-2:] == ["object", "3"]
    listed = json.loads(run_here("unlearn", "bull.whet", "--list", "--json", "--last", 1).out)
    assert [(row["number"], row["is_object"]) for row in listed] == [(len(entries), True)]
    done = run_here("unlearn", "bull.whet", "--entries", f"1-{len(entries) - 1}")
    assert done.code == 0, done.err
    assert "cannot be taken out" in done.out
    assert load(folder / "bull.whet").learned == (3, 0)
    assert journal.learned() == entries[-1:]


def test_with_out_the_first_model_and_its_journal_stay(folder, run_here):
    model, journal = folder / "bull.whet", Journal(folder / "bull.whet.journal.jsonl")
    before, entries = model.read_bytes(), journal.learned()
    done = run_here("unlearn", "bull.whet", "--image", "scene 2.png", "-o", "less.whet", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["unlearned"] == 1
    assert (model.read_bytes(), journal.learned()) == (before, entries)
    assert Journal(folder / "less.whet.journal.jsonl").learned() == entries[:-1]
    assert run_here("unlearn", "less.whet", folder / "less.whet.journal.jsonl").code == 0
    assert (folder / "less.whet").read_bytes() == content(bull_finder())


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("bull.whet", "nowhere.jsonl"), 2, "nowhere.jsonl"),
        (("face",), 2, "name the journal"),
        (("bull.whet", "--entries", "0"), 2, "such as 3,5-8"),
        (("bull.whet", "--entries", "1-999"), 2, "numbered from 1"),
        (("bull.whet", "--last", "999"), 2, "there are"),
        (("bull.whet", "--last", "1", "--entries", "1"), 2, "choose one"),
        (("bull.whet", "--image", "scene 3.png"), ExitCode.FAILED, "nothing was learned from scene 3.png"),
        (("bull.whet", "scene 3.png"), ExitCode.FAILED, "scene 3.png, line 1"),
        (("base.whet", "bull.whet.journal.jsonl"), ExitCode.FAILED, "that base.whet has not learned"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_changed(folder, run_here, arguments, code, says):
    bull_finder().save(folder / "base.whet")
    files = {path: path.read_bytes() for path in folder.iterdir()}
    done = run_here("unlearn", *arguments)
    assert done.code == code, done.err
    assert says in " ".join(done.err.replace("│", " ").split())
    assert files == {path: path.read_bytes() for path in folder.iterdir()}


def test_a_line_that_was_cut_short_is_taken_off_by_the_command_that_the_error_names(folder, run_here):
    model, journal = folder / "bull.whet", folder / "bull.whet.journal.jsonl"
    whole, learned = journal.read_bytes(), model.read_bytes()
    assert "nothing to repair" in run_here("unlearn", "bull.whet", "--repair").out
    assert run_here("unlearn", "bull.whet", "--repair", "--quiet").out == ""
    done = run_here("unlearn", "bull.whet", "--repair", "--last", "3", "--journal-only")
    assert done.code == 2
    assert "got --last, --journal-only with --repair" in " ".join(done.err.replace("│", " ").split())
    # The machine stopped in the middle of one more line: the model has not learned it.
    journal.write_bytes(whole + whole.splitlines()[-1][:50])
    done = run_here("learn", "bull.whet", "-n", "scene 3.png")
    assert done.code == ExitCode.FAILED
    assert "whet unlearn MODEL bull.whet.journal.jsonl --repair" in done.err
    assert run_here("unlearn", "bull.whet", "--list").code == ExitCode.FAILED
    done = run_here("unlearn", "bull.whet", "bull.whet.journal.jsonl", "--repair")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith('took off bull.whet.journal.jsonl: {"base_id"')
    assert (journal.read_bytes(), model.read_bytes()) == (whole, learned)
    # In the middle of many lines: those that are whole are told next.
    journal.write_bytes(whole + whole[:-20])
    done = run_here("unlearn", "bull.whet", "--repair")
    assert done.code == ExitCode.FAILED
    assert "took off" in done.out
    assert f"--last {whole.count(b'{') - 1} --journal-only" in done.err
