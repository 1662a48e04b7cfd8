"""A watcher's detector and journal on disk: always in agreement, and small however long the stream is."""

from dataclasses import replace

import numpy as np
import pytest
from tests.detectors import bull_finder, bull_scene, content

import whet
from whet.detector.model_journal import check_agreement, journal_beside
from whet.tracking.session import WatchedModel
from whet.tracking.tracker import Lessons, Watcher

EAGER = Lessons(
    gate=-np.inf, every=1, share=0.01, remembered=0.04, others=1, most_lost=2.0, most_accepted=np.inf
)  # four lessons are remembered
IMAGES = [bull_scene(seed) for seed in (1, 2, 3)]


def watched(n, file, watcher=None):
    """A watcher that saves after every frame."""
    watcher = watcher or Watcher(bull_finder(), learn=True, lessons=EAGER)
    for number in range(n):
        watcher.look(IMAGES[number % 3])
        file.save(watcher.detector, watcher.remembered)
        check_agreement(whet.load(file.path), file.journal, "the model")
    return watcher


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "taught.safetensors"
    return WatchedModel(path, journal_beside(path))


def test_what_the_journal_has_can_all_be_unlearned(file):
    watched(6, file)
    detector, entries = whet.load(file.path), file.journal.learned()
    assert detector.learned[0] > 0
    detector.unlearn(entries)
    assert content(detector) == content(bull_finder())


def test_the_journal_of_a_long_stream_stays_small(file):
    watcher = watched(5, file)
    size = file.journal.path.stat().st_size
    watched(25, file, watcher)
    assert file.journal.path.stat().st_size < 1.2 * size
    assert file.journal.learned() == watcher.remembered
    assert sum(entry.is_object for entry in watcher.remembered) == 4
    assert sorted(path.name for path in file.path.parent.iterdir()) == [file.path.name, file.journal.path.name]


def test_lines_that_were_there_stay_as_they_are(tmp_path):
    path = tmp_path / "taught.safetensors"
    detector, journal = bull_finder(), journal_beside(path)
    mine = detector.learn(IMAGES[0], [[20, 20, 32, 32]], [False])
    journal.add_learned([*mine, *mine])
    journal.add_unlearned(mine)
    before = journal.path.read_bytes()
    file = WatchedModel(path, journal, along=None)
    watcher = watched(6, file, Watcher(detector, learn=True, lessons=EAGER))
    assert journal.path.read_bytes().startswith(before)
    assert journal.learned() == [*mine, *watcher.remembered]


def test_what_comes_along_is_in_the_new_journal(tmp_path):
    path, detector = tmp_path / "taught.safetensors", bull_finder()
    mine = detector.learn(IMAGES[0], [[20, 20, 32, 32]], [False])
    file = WatchedModel(path, journal_beside(path), along=tuple(mine))
    watcher = watched(2, file, Watcher(detector, learn=True, lessons=EAGER))
    assert file.journal.learned() == [*mine, *watcher.remembered]


def test_a_model_that_cannot_be_written_leaves_the_journal_as_it_was(file):
    watcher = watched(2, file)
    before = file.journal.path.read_bytes()
    watcher.look(IMAGES[2])
    broken = WatchedModel(file.path.parent, file.journal, along=None)  # a folder
    with pytest.raises(IsADirectoryError):
        broken.save(watcher.detector, watcher.remembered)
    assert file.journal.path.read_bytes() == before


def test_without_a_journal_there_is_none_and_one_that_is_empty_is_taken_away(file):
    file.journal.path.write_text("of a model that is replaced\n")
    WatchedModel(file.path, along=None).save(bull_finder(), [])
    assert file.journal.path.exists()
    file.save(bull_finder(), [])
    assert not file.journal.path.exists()


def test_nothing_remembered_is_an_empty_memory():
    watcher = Watcher(bull_finder(), learn=True, lessons=replace(EAGER, gate=np.inf))
    watcher.look(IMAGES[0])
    assert watcher.remembered == []
