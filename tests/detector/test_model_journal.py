import pytest
from tests.detectors import BULL, bull_finder, bull_scene, content, false_positive

from whet.detector.journal import (
    Journal,
    check_agreement,
    journal_beside,
    not_learned,
    save_anew,
    save_learned,
    save_unlearned,
)
from whet.errors import JournalError


@pytest.fixture
def taught():
    """A detector, what it learned first, and what later."""
    finder = bull_finder()
    first = finder.learn(bull_scene(), BULL, [True], weight=3)
    return finder, first, finder.learn(bull_scene(), false_positive(finder), [False], weight=7)


def test_a_journal_that_is_ahead_is_noticed_and_one_that_is_behind_is_not(taught, tmp_path):
    finder, first, later = taught
    assert not_learned(finder, [*first, *later]) == not_learned(finder, first) == not_learned(finder, []) == 0
    assert not_learned(bull_finder(), [*first, *later]) == 1 + len(later)
    finder.unlearn(later)
    assert not_learned(finder, [*first, *later]) == len(later)
    assert not_learned(finder, [*first, *first]) == 1
    journal = Journal(tmp_path / "j.jsonl")
    journal.add_learned([*first, *later])
    with pytest.raises(JournalError, match=f"--last {len(later)} --journal-only"):
        check_agreement(finder, journal, "bull.whet")


def test_where_one_of_the_two_files_cannot_be_written_the_other_is_as_it_was(taught, tmp_path):
    finder, first, later = taught
    journal = journal_beside(tmp_path / "bull.whet")
    with pytest.raises(OSError, match="does not exist"):
        save_learned(finder, tmp_path / "nowhere" / "bull.whet", journal, first)
    assert not journal.path.exists()
    save_learned(finder, tmp_path / "bull.whet", journal, [*first, *later])
    before, lines = (tmp_path / "bull.whet").read_bytes(), journal.path.read_bytes()
    with pytest.raises(OSError, match="does not exist"):
        save_learned(finder, tmp_path / "nowhere" / "bull.whet", journal, first)
    with pytest.raises(OSError, match="does not exist"):
        save_anew(finder, tmp_path / "nowhere" / "bull.whet", journal, first)
    assert journal.path.read_bytes() == lines
    with pytest.raises(JournalError, match="cannot be written to"):
        save_learned(bull_finder(), tmp_path / "bull.whet", Journal(tmp_path / "nowhere" / "j.jsonl"), first)
    assert (tmp_path / "bull.whet").read_bytes() == before
    finder.unlearn(later)
    with pytest.raises(OSError, match="does not exist"):
        save_unlearned(finder, tmp_path / "nowhere" / "bull.whet", journal, later)
    assert journal.path.read_bytes() == lines
    with pytest.raises(JournalError, match="not in this journal"):
        save_unlearned(finder, tmp_path / "bull.whet", journal, [*later, *later])
    assert (tmp_path / "bull.whet").read_bytes() == before
    save_unlearned(finder, tmp_path / "bull.whet", journal, later)
    assert (tmp_path / "bull.whet").read_bytes() == content(finder)
    assert journal.learned() == first


def test_the_journal_keeps_the_order_in_which_was_learned(taught, tmp_path):
    _, (one,), (two, *_) = taught
    journal = Journal(tmp_path / "j.jsonl")
    journal.add_learned([one, two, one])
    assert journal.learned() == [one, two, one]
    journal.add_unlearned([one])
    assert journal.learned() == [one, two]
    journal.add_learned([one])
    assert journal.learned() == [one, two, one]
