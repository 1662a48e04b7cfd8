"""A training that is stopped, however rudely, ends with the detector of one that was not."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from experiments.boosting import Boosting
from experiments.patches import prepare_patches
from tests.crosses import CONFIG, WINDOW, crosses, detector_bytes, pool, positives, train_cascade, write_images

from whet.errors import CheckpointError
from whet.models.gslda.haar import HaarPool
from whet.parallel.workers import Threads
from whet.training.progress import Checkpoint, CheckpointWarning, FitFinished, FitProgress, Mining, Resumed

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


class StoppedError(Exception):
    pass


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("negatives"))


def trained(images, config=CONFIG, callback=lambda _: None, **options):
    _, nodes, result = train_cascade(pool(), positives(), images, config, callback, **options)
    return detector_bytes(nodes), result


def stop_at(moment):
    def callback(event):
        if moment(event):
            raise StoppedError

    return callback


def start(folder, checkpoint, out, threads, kill_at_write=0):
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-m", "tests.crosses", *map(str, (folder, checkpoint, out, threads, kill_at_write))]
    return subprocess.Popen(command, env=env, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.slow
def test_killed_at_random_moments_and_resumed_it_ends_with_the_same_bytes(images, tmp_path):
    rng = np.random.default_rng()  # other moments each time: the message below has what is needed to look into it
    checkpoint, out = tmp_path / "run.checkpoint", tmp_path / "detector"
    undisturbed, _ = trained(images, replace(CONFIG, early_exits=True), workers=Threads(1))
    moments = []
    for number in range(6):
        process = start(images[0].parent, checkpoint, out, threads=1 + number % 2)
        n_lines, delay = int(rng.integers(1, 40)), rng.uniform(0, 0.1)
        lines = [process.stdout.readline() for _ in range(n_lines)]
        time.sleep(delay)
        process.send_signal(signal.SIGKILL if number % 2 else signal.SIGINT)
        _, errors = process.communicate(timeout=120)
        moments.append((lines[-1], delay, process.returncode, errors[-300:]))
    process = start(images[0].parent, checkpoint, out, threads=2)
    said, errors = process.communicate(timeout=300)
    assert process.returncode == 0, (moments, errors)
    assert "resumed from a checkpoint" in said
    assert out.read_bytes() == undisturbed, moments
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".tmp"] == []


@pytest.mark.slow
@pytest.mark.parametrize("kill_at_write", [1, 4])
def test_killed_between_writing_a_checkpoint_and_moving_it_into_place(images, tmp_path, kill_at_write):
    checkpoint, out = tmp_path / "run.checkpoint", tmp_path / "detector"
    process = start(images[0].parent, checkpoint, out, 1, kill_at_write)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    assert any(path.suffix == ".tmp" for path in tmp_path.iterdir())
    events = []
    resumed, _ = trained(images, replace(CONFIG, early_exits=True), events.append, checkpoint=checkpoint)
    assert resumed == trained(images, replace(CONFIG, early_exits=True))[0]
    assert isinstance(events[0], Resumed) == (kill_at_write > 1)
    assert not any(path.suffix == ".tmp" for path in tmp_path.iterdir())


@pytest.mark.parametrize("learner", [None, Boosting(asymmetry=2.0)])
@pytest.mark.parametrize(
    "moment",
    [
        lambda event: isinstance(event, FitProgress) and event.stage == 1,
        lambda event: isinstance(event, Mining) and event.stage == 2 and event.held_out,
        lambda event: isinstance(event, Mining) and event.stage == 2 and not event.held_out,
        lambda event: isinstance(event, FitFinished) and event.stage == 1,
    ],
)
def test_stopped_in_every_phase(images, tmp_path, moment, learner):
    config = replace(CONFIG, max_stages=3)
    with pytest.raises(StoppedError):
        trained(images, config, stop_at(moment), checkpoint=tmp_path / "checkpoint", learner=learner)
    events = []
    resumed, result = trained(images, config, events.append, checkpoint=tmp_path / "checkpoint", learner=learner)
    undisturbed, expected = trained(images, config, learner=learner)
    assert resumed == undisturbed
    assert (result.stop_reason, result.false_positive_rate) == (expected.stop_reason, expected.false_positive_rate)
    assert isinstance(events[0], Resumed)
    assert events[0].stage >= 1
    assert [event.stage for event in events if isinstance(event, FitFinished)] == list(range(events[0].stage, 3))


def test_a_resumed_stage_learns_as_a_trained_one(images, tmp_path):
    config = replace(CONFIG, max_stages=2, early_exits=True)
    _, nodes, _ = train_cascade(pool(), positives(), images, config, checkpoint=tmp_path / "checkpoint")
    _, again, _ = train_cascade(pool(), positives(), images, config, checkpoint=tmp_path / "checkpoint")
    for ours, theirs in zip(nodes, again, strict=True):
        np.testing.assert_array_equal(ours.rejection.z, theirs.rejection.z)
    new = crosses(5, np.random.default_rng(2)), np.ones(5, dtype=np.bool_)
    learned = [[stage.learn(*new) for stage in stages] for stages in (nodes, again)]
    assert detector_bytes(learned[0]) == detector_bytes(learned[1]) != detector_bytes(nodes)


def test_a_finished_training_is_there_at_once_and_can_go_on(images, tmp_path):
    checkpoint, events = tmp_path / "checkpoint", []
    short, _ = trained(images, replace(CONFIG, max_stages=2), checkpoint=checkpoint)
    again, _ = trained(images, replace(CONFIG, max_stages=2), events.append, checkpoint=checkpoint)
    assert again == short
    assert [type(event) for event in events] == [Resumed]
    longer, _ = trained(images, replace(CONFIG, max_stages=4), checkpoint=checkpoint, workers=Threads(1))
    assert longer == trained(images, replace(CONFIG, max_stages=4))[0] != short
    with pytest.raises(CheckpointError, match=r"has 4 stages, max_stages is 2"):
        trained(images, replace(CONFIG, max_stages=2), checkpoint=checkpoint)


@pytest.fixture(scope="module")
def checkpoint(images, tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoints") / "run.checkpoint"
    trained(images, replace(CONFIG, max_stages=1), checkpoint=path)
    return path


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"config": replace(CONFIG, seed=6)}, r"seed is 6, the checkpoint has 5"),
        ({"config": replace(CONFIG, min_detection_rate=0.98)}, r"min_detection_rate is 0\.98"),
        ({"config": replace(CONFIG, max_weak_learners=7)}, r"max_weak_learners is 7, the checkpoint has \(4, 10, 20\)"),
        ({"learner": Boosting()}, r"learner is Boosting"),
        ({"positives": crosses(500, np.random.default_rng(2))}, r"positives is 500 patches"),
        (
            {"family": HaarPool.from_window(WINDOW).sample(1500, np.random.default_rng(9))},
            r"features is 1500 of HaarPool",
        ),
        ({"fewer": 1}, r"images is 7 files, \w+, the checkpoint has 8 files"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused_and_says_what_differs(images, checkpoint, change, says):
    before = checkpoint.read_bytes()
    with pytest.raises(CheckpointError, match=says):
        train_cascade(
            change.get("family", pool()),
            change.get("positives", positives()),
            images[change.get("fewer", 0) :],
            change.get("config", CONFIG),
            learner=change.get("learner"),
            checkpoint=checkpoint,
        )
    assert checkpoint.read_bytes() == before


def test_a_folder_of_images_may_move(images, checkpoint, tmp_path):
    moved = [Path(shutil.copy(path, tmp_path)) for path in images]
    events = []
    trained(moved, replace(CONFIG, max_stages=1), events.append, checkpoint=checkpoint)
    assert [type(event) for event in events] == [Resumed]


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "text"])
def test_a_damaged_checkpoint_says_so(images, checkpoint, tmp_path, damage):
    data = bytearray(checkpoint.read_bytes())
    data[-1000] ^= 4
    path = tmp_path / "damaged"
    path.write_bytes({"cut": data[:-200], "flipped": data, "empty": b"", "text": b"not a checkpoint" * 99}[damage])
    with pytest.raises(CheckpointError, match=r"damaged .*delete it to start again"):
        trained(images, checkpoint=path)


@pytest.mark.parametrize("notes", [{}, {"weak_stages": []}, {"weak_stages": [], "stalled": None, "more": 1}])
def test_a_checkpoint_with_other_notes_is_refused(images, checkpoint, notes, tmp_path):
    path = Path(shutil.copy(checkpoint, tmp_path))
    file = Checkpoint(path, prepare_patches(pool(), positives(), images, CONFIG).fingerprint())
    state = file.load(["weak_stages", "stalled"])
    state.notes = notes
    file.save(state)
    with pytest.raises(CheckpointError, match=r"damaged .*notes.*delete it to start again"):
        trained(images, checkpoint=path)


def test_another_file_is_no_checkpoint(images, tmp_path):
    from safetensors.numpy import save_file

    save_file({"weights": np.zeros(3)}, tmp_path / "other")
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        trained(images, checkpoint=tmp_path / "other")


def test_a_place_that_cannot_be_written_is_an_error_before_the_first_stage(images, tmp_path):
    events = []
    with pytest.raises(CheckpointError, match=r"cannot write the checkpoint .*choose another file"):
        trained(images, CONFIG, events.append, checkpoint=tmp_path / "nowhere" / "checkpoint")
    assert not events


def test_a_full_disk_later_loses_the_net_but_not_the_training(images, tmp_path):
    """The limit on the size of files stands for the disk: a write fails in its midst, with an OSError."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    checkpoint, config = tmp_path / "checkpoint", replace(CONFIG, max_stages=2)

    def fill_the_disk(event):
        if isinstance(event, FitProgress):
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))

    try:
        with pytest.warns(CheckpointWarning, match="cannot write the checkpoint"):
            survived, _ = trained(images, config, fill_the_disk, checkpoint=checkpoint)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert survived == trained(images, config)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error", CheckpointWarning)
        assert trained(images, config, checkpoint=checkpoint)[0] == survived
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
