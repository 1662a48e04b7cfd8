"""A tracker's detector and journal on disk: always in agreement, and small however long the stream is."""

from dataclasses import replace

import numpy as np
import pytest
from tests.detectors import bull_finder, bull_scene, content

import whet
from whet.detector.journal import check_agreement, journal_beside
from whet.tracking.session import SavedModel
from whet.tracking.tracker import SelfTraining, Tracker

EAGER = SelfTraining(
    learn_above=-np.inf, every=1, share=0.01, kept=0.04, others=1, max_lost=2.0, max_accepted=np.inf
)  # four updates are kept
IMAGES = [bull_scene(seed) for seed in (1, 2, 3)]


def tracked_model(n, file, tracker=None):
    """A tracker that saves after every frame."""
    tracker = tracker or Tracker(bull_finder(), learn=True, self_training=EAGER)
    for number in range(n):
        tracker.update(IMAGES[number % 3])
        file.save(tracker.detector, tracker.kept)
        check_agreement(whet.load(file.path), file.journal, "the model")
    return tracker


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "learned.whet"
    return SavedModel(path, journal_beside(path))


def test_what_the_journal_has_can_all_be_unlearned(file):
    tracked_model(6, file)
    detector, records = whet.load(file.path), file.journal.learned()
    assert detector.learned[0] > 0
    detector.unlearn(records)
    assert content(detector) == content(bull_finder())


def test_the_journal_of_a_long_stream_stays_small(file):
    tracker = tracked_model(5, file)
    size = file.journal.path.stat().st_size
    tracked_model(25, file, tracker)
    assert file.journal.path.stat().st_size < 1.2 * size
    assert file.journal.learned() == tracker.kept
    assert sum(record.is_object for record in tracker.kept) == 4
    assert sorted(path.name for path in file.path.parent.iterdir()) == [file.path.name, file.journal.path.name]


def test_lines_that_were_there_stay_as_they_are(tmp_path):
    path = tmp_path / "learned.whet"
    detector, journal = bull_finder(), journal_beside(path)
    mine = detector.learn(IMAGES[0], [[20, 20, 32, 32]], [False])
    journal.add_learned([*mine, *mine])
    journal.add_unlearned(mine)
    before = journal.path.read_bytes()
    file = SavedModel(path, journal, inherited=None)
    tracker = tracked_model(6, file, Tracker(detector, learn=True, self_training=EAGER))
    assert journal.path.read_bytes().startswith(before)
    assert journal.learned() == [*mine, *tracker.kept]


def test_inherited_records_are_in_the_new_journal(tmp_path):
    path, detector = tmp_path / "learned.whet", bull_finder()
    mine = detector.learn(IMAGES[0], [[20, 20, 32, 32]], [False])
    file = SavedModel(path, journal_beside(path), inherited=tuple(mine))
    tracker = tracked_model(2, file, Tracker(detector, learn=True, self_training=EAGER))
    assert file.journal.learned() == [*mine, *tracker.kept]


def test_a_model_that_cannot_be_written_leaves_the_journal_as_it_was(file):
    tracker = tracked_model(2, file)
    before = file.journal.path.read_bytes()
    tracker.update(IMAGES[2])
    broken = SavedModel(file.path.parent, file.journal, inherited=None)  # a folder
    with pytest.raises(IsADirectoryError):
        broken.save(tracker.detector, tracker.kept)
    assert file.journal.path.read_bytes() == before


def test_without_a_journal_there_is_none_and_one_that_is_empty_is_taken_away(file):
    file.journal.path.write_text("of a model that is replaced\n")
    SavedModel(file.path, inherited=None).save(bull_finder(), [])
    assert file.journal.path.exists()
    file.save(bull_finder(), [])
    assert not file.journal.path.exists()


def test_without_updates_nothing_is_kept():
    tracker = Tracker(bull_finder(), learn=True, self_training=replace(EAGER, learn_above=np.inf))
    tracker.update(IMAGES[0])
    assert tracker.kept == []
