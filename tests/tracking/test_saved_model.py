"""The file of a tracker's detector: small however long the stream is, and shared with other writers."""

import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from tests.detectors import bull_finder, bull_scene, content, detector

import whet
from whet.detector import edit
from whet.errors import ModelChangedError, ModelFileError
from whet.tracking.session import SavedModel
from whet.tracking.tracker import SelfTraining, Tracker, tracked_records

EAGER = SelfTraining(learn_min_score=-np.inf, every=1, share=0.01, kept=0.04, guarded=False)  # four are kept
WRONG = [[20, 20, 32, 32]]


def frame(number):
    return np.roll(bull_scene(), number, axis=1)


def learning_tracker(model, **changes):
    return Tracker(model, learn=True, self_training=replace(EAGER, **changes))


def ids(records):
    return {record.id for record in records}


def run(tracker, file, numbers):
    """Save after every frame."""
    for number in numbers:
        tracker.update(frame(number))
        file.save(tracker)
    return tracker


@pytest.fixture
def path(tmp_path):
    return tmp_path / "learned.whet"


@pytest.fixture
def shared(path):
    """A model that is changed in place, with a correction in it."""
    model = bull_finder()
    model.learn(bull_scene(2), WRONG, False)
    model.save(path)
    return path


def test_the_file_has_what_the_tracker_keeps_and_all_can_be_unlearned(path):
    tracker = run(learning_tracker(bull_finder()), SavedModel(path), range(6))
    saved = whet.load(path)
    assert content(saved) == content(tracker.detector)
    assert ids(saved.records) == ids(tracker.kept)
    saved.unlearn(saved.records)
    assert content(saved) == content(bull_finder())


def test_the_file_of_a_long_stream_stays_small(path):
    file = SavedModel(path)
    tracker = run(learning_tracker(bull_finder()), file, range(5))
    size = path.stat().st_size
    run(tracker, file, range(5, 25))
    assert path.stat().st_size < 1.2 * size
    assert sum(record.is_object for record in whet.load(path).records) == 4
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_the_next_session_takes_over_the_memory_of_the_last(shared):
    first = run(learning_tracker(whet.load(shared)), SavedModel(shared, in_place=True), range(4))
    second = learning_tracker(whet.load(shared))
    assert ids(second.kept) == ids(first.kept)
    run(second, SavedModel(shared, in_place=True), range(10, 16))
    records = whet.load(shared).records
    assert ids(records) & ids(first.kept) == set()
    assert sum(record.is_object for record in records) == 4
    assert [record.is_object for record in records if record.kind == "correction"] == [False]


def test_corrections_of_others_stay_and_reach_the_running_tracker(shared):
    file, tracker = SavedModel(shared, in_place=True), learning_tracker(whet.load(shared))
    run(tracker, file, range(2))
    with edit(shared) as other:
        new = other.learn(bull_scene(3), WRONG, False)
        other.learn_patches(np.stack([bull_scene()[:12, :12]]), True)
    run(tracker, file, range(2, 8))
    saved = whet.load(shared)
    assert ids(new) <= ids(saved.records)
    assert saved.only.total.counts[0][0] == 1 + sum(record.weight for record in tracker.kept if record.is_object)
    assert content(saved) == content(tracker.detector)


def test_what_someone_else_unlearned_is_not_learned_again(shared):
    file, tracker = SavedModel(shared, in_place=True), learning_tracker(whet.load(shared))
    run(tracker, file, range(3))
    out = tracker.kept[0]
    with edit(shared) as other:
        other.unlearn(out)
    run(tracker, file, [3])
    assert out.id not in ids(whet.load(shared).records) | ids(tracker.kept)
    assert ids(tracker.kept) == ids(tracked_records(whet.load(shared).records))


def test_a_file_that_is_to_be_replaced_is_replaced_unless_someone_wrote_it_since(path):
    learned = bull_finder()
    learned.learn(bull_scene(2), WRONG, False)
    learned.save(path)
    run(learning_tracker(bull_finder()), SavedModel(path), [0])
    assert not [record for record in whet.load(path).records if record.kind == "correction"]
    path.unlink()
    file = SavedModel(path)
    learned.save(path)  # after the session began
    run(learning_tracker(bull_finder()), file, [0])
    assert ids(learned.records) < ids(whet.load(path).records)


def test_a_file_that_was_taken_away_is_written_again(path):
    file = SavedModel(path)
    tracker = run(learning_tracker(bull_finder()), file, range(2))
    path.unlink()
    run(tracker, file, [2])
    assert content(whet.load(path)) == content(tracker.detector)


def test_another_model_in_its_place_is_left_alone(path):
    file = SavedModel(path)
    tracker = run(learning_tracker(bull_finder()), file, [0])
    detector().save(path)
    before = path.read_bytes()
    with pytest.raises(ModelChangedError, match="another model"):
        file.save(tracker)
    path.write_bytes(b"no model at all")
    with pytest.raises(ModelFileError, match=r"learned\.whet"):
        file.save(tracker)
    assert before != path.read_bytes() == b"no model at all"


SESSION = """
import sys, numpy as np
from pathlib import Path
from tests.tracking.test_saved_model import learning_tracker, frame
import whet
from whet.tracking.session import SavedModel

path, first = Path(sys.argv[1]), int(sys.argv[2])
tracker, file = learning_tracker(whet.load(path)), SavedModel(path, in_place=True)
file.start(tracker)
print("ready", flush=True)
sys.stdin.readline()
for number in range(first, first + 12):
    tracker.update(frame(number))
    file.save(tracker)
print(" ".join(record.id for record in tracker.kept))
"""


@pytest.mark.slow
def test_two_processes_on_one_file_lose_nothing(shared):
    """Both save after each of 12 frames, while this process corrects the model."""
    command = [sys.executable, "-c", SESSION, str(shared)]
    runs = [
        subprocess.Popen([*command, first], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for first in ("0", "50")
    ]
    corrected = ids(whet.load(shared).records)
    for one in runs:
        assert one.stdout.readline() == "ready\n"
    for one in runs:
        one.stdin.write("\n")
        one.stdin.flush()
    for seed in (3, 4, 5):
        with edit(shared) as other:
            corrected |= set(other.learn(bull_scene(seed), WRONG, False).ids)
        time.sleep(0.05)
    kept = [set(one.communicate(timeout=120)[0].split()) for one in runs]
    assert [one.returncode for one in runs] == [0, 0]
    assert all(len(one) >= 4 for one in kept)
    assert not kept[0] & kept[1]
    assert ids(whet.load(shared).records) == corrected | kept[0] | kept[1]
