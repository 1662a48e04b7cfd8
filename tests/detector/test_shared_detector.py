"""One detector and many threads, one file and many writers: nothing is lost, and nothing is half written."""

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tests.detectors import BULL, bull_file, bull_finder, bull_scene, content, false_positive, judged_finder

import whet
from whet.detector import edit
from whet.detector.storage import load
from whet.errors import ModelChangedError, ModelNameError

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _frozen(monkeypatch):
    monkeypatch.setattr("whet.detector.detector.time.time", lambda: 1_700_000_000)


def in_threads(*works):
    """Run functions at the same time; the first error is raised."""
    errors = []

    def run(work):
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error


def boxes(n):
    """So many boxes of the scene at which something can be learned."""
    rng = np.random.default_rng(4)
    corners = rng.uniform(2, 100, (n, 2)).round(1)
    return np.column_stack([corners, corners + 30])


def test_four_threads_with_ten_corrections_each_lose_none():
    shared, straight, places = judged_finder(), judged_finder(), boxes(40)
    straight.learn(bull_scene(), places, False)

    def learn(k):
        def work():
            for i in range(k, 40, 4):
                shared.learn(bull_scene(), places[i : i + 1], False)
                shared.detect(bull_scene(), max_detections=1)

        return work

    in_threads(*map(learn, range(4)))
    assert len(shared.records) == 40
    assert content(shared) == content(straight)


def test_threads_that_learn_unlearn_and_count_end_where_one_thread_does():
    shared, places = judged_finder(), boxes(12)
    kept = shared.learn(bull_scene(), places[:4], False)
    gone = shared.learn(bull_scene(), places[4:8], False)
    patches = np.random.default_rng(1).integers(0, 256, (40, 12, 12), dtype=np.uint8)

    def count():
        for patch in patches:
            shared.learn_patches(patch[None], True)

    def merge():
        for i in range(8, 12):
            other = judged_finder()
            other.learn(bull_scene(), places[i : i + 1], False)
            shared.merge(other)

    in_threads(count, merge, lambda: [shared.unlearn(record) for record in gone], lambda: shared.add(kept))
    straight = judged_finder()
    straight.learn_patches(patches, True)
    straight.learn(bull_scene(), np.concatenate([places[:4], places[8:]]), False)
    assert content(shared) == content(straight)


def test_a_stale_save_is_refused_and_leaves_the_file(tmp_path):
    path = bull_file(tmp_path)
    mine, theirs = load(path), load(path)
    theirs.learn(bull_scene(), BULL, True)
    theirs.save(path)
    after = path.read_bytes()
    mine.learn(bull_scene(2), BULL, True)
    with pytest.raises(ModelChangedError, match="another writer"):
        mine.save(path)
    assert path.read_bytes() == after
    assert os.listdir(tmp_path) == [path.name]
    mine.save(tmp_path / "other.whet")  # elsewhere it may be saved
    theirs.save(path)  # who wrote last may write again
    theirs.learn(bull_scene(3), BULL, True)
    theirs.save(path)


@pytest.mark.parametrize("name", ["bull.xml", "bull.XML", "bull"])
def test_a_name_that_load_takes_for_something_else_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelNameError, match=r"bull\.whet"):
        bull_finder().save(name)
    assert not os.listdir(tmp_path)
    bull_finder().save("./.bull")  # no bare name
    assert content(load("./.bull")) == content(bull_finder())


def test_a_link_is_the_file_that_it_points_to(tmp_path):
    path = bull_file(tmp_path)
    (tmp_path / "link.whet").symlink_to(path.name)
    mine, theirs = load(tmp_path / "link.whet"), load(path)
    theirs.learn(bull_scene(), BULL, True)
    theirs.save(path)
    mine.learn(bull_scene(2), BULL, True)
    with pytest.raises(ModelChangedError):
        mine.save(tmp_path / "link.whet")


def test_a_copy_of_a_loaded_detector_is_as_stale(tmp_path):
    path = bull_file(tmp_path)
    mine = load(path)
    copy = mine.copy()
    mine.learn(bull_scene(), BULL, True)
    mine.save(path)
    with pytest.raises(ModelChangedError):
        copy.save(path)


def test_a_file_that_is_gone_is_written_again(tmp_path):
    path = bull_file(tmp_path)
    mine = load(path)
    path.unlink()
    mine.save(path)
    assert load(path).base_id == mine.base_id


@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_saving_keeps_the_mode_of_the_file(mode, tmp_path):
    path = bull_file(tmp_path)
    path.chmod(mode)
    with edit(path) as detector:
        detector.learn(bull_scene(), BULL, True)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_an_edit_is_saved_unless_it_fails_or_changes_nothing(tmp_path):
    path = bull_file(tmp_path)
    before, inode = path.read_bytes(), path.stat().st_ino
    with edit(path):
        pass
    assert path.stat().st_ino == inode

    def fail():
        with edit(path) as detector:
            detector.learn(bull_scene(), BULL, True)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert path.read_bytes() == before
    with edit(path) as detector:
        detector.learn(bull_scene(), BULL, True)
        expected = content(detector)
    assert path.read_bytes() == expected != before
    with edit(path) as detector:
        detector.set_operating_point("mine", 3.0)
    assert load(path).operating_points == {"mine": 3.0}


def test_edits_can_be_nested_and_saved_inside(tmp_path):
    path = bull_file(tmp_path)
    bull_finder().save(tmp_path / "other.whet")
    with edit(path) as one, edit(tmp_path / "other.whet") as other:
        other.learn(bull_scene(), BULL, True)
        one.merge(other)
        one.save(path)
    assert load(path).records[0].id == load(tmp_path / "other.whet").records[0].id


def test_an_edit_does_not_overwrite_what_the_same_thread_saved_meanwhile(tmp_path):
    path = bull_file(tmp_path)
    other = load(path)
    other.learn(bull_scene(2), BULL, True)

    def meanwhile():
        with edit(path) as one:
            other.save(path)
            one.learn(bull_scene(), BULL, True)

    with pytest.raises(ModelChangedError):
        meanwhile()
    assert path.read_bytes() == content(other)


def test_threads_that_edit_one_file_lose_nothing(tmp_path):
    path, places = bull_file(tmp_path), boxes(12)

    def work(k):
        def learn():
            for i in range(k, 12, 3):
                with edit(path) as detector:
                    detector.learn(bull_scene(), places[i : i + 1], False)

        return learn

    in_threads(*map(work, range(3)))
    straight = bull_finder()
    straight.learn(bull_scene(), places, False)
    assert path.read_bytes() == content(straight)


def start(code, *arguments):
    environment = os.environ | {"PYTHONPATH": f"{Path(whet.__file__).parent.parent}{os.pathsep}{ROOT}"}
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], env=environment, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_four_processes_that_edit_one_file_lose_nothing(tmp_path):
    path = bull_file(tmp_path)
    np.save(tmp_path / "scene.npy", bull_scene())
    np.save(tmp_path / "boxes.npy", boxes(40))
    code = (
        "import sys, time, numpy as np; from whet.detector import edit\n"
        "time.time = lambda: 1_700_000_000\n"
        "path, folder, k = sys.argv[1], sys.argv[2], int(sys.argv[3])\n"
        "scene, boxes = np.load(folder + '/scene.npy'), np.load(folder + '/boxes.npy')\n"
        "for i in range(k, 40, 4):\n"
        "    with edit(path) as detector: detector.learn(scene, boxes[i : i + 1], False)\n"
    )
    for process in [start(code, path, tmp_path, k) for k in range(4)]:
        assert process.wait(timeout=300) == 0
    straight = bull_finder()
    straight.learn(bull_scene(), boxes(40), False)
    assert path.read_bytes() == content(straight)
    assert not list(tmp_path.glob(".*.tmp"))


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_saves_leaves_a_whole_file(tmp_path):
    path = bull_file(tmp_path)
    one, two = bull_finder(), bull_finder()
    two.learn(bull_scene(), false_positive(two), False)
    (tmp_path / "one.bin").write_bytes(content(one))
    (tmp_path / "two.bin").write_bytes(content(two))
    code = (
        "import sys; from whet.detector.detector import Detector; from pathlib import Path\n"
        "folder = Path(sys.argv[2])\n"
        "both = [Detector.from_bytes((folder / name).read_bytes()) for name in ('one.bin', 'two.bin')]\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    for detector in both: detector.files = {}; detector.save(sys.argv[1])\n"
    )
    rng = np.random.default_rng(0)
    for _ in range(6):
        process = start(code, path, tmp_path)
        assert process.stdout.readline() == "ready\n"
        time.sleep(float(rng.uniform(0, 0.06)))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        data = path.read_bytes()
        assert data in (content(one), content(two))
        load(path)
    with edit(path) as detector:  # and no lock is left
        detector.learn(bull_scene(2), BULL, True)
    assert len(load(path).records) >= 1
