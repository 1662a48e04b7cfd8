"""Files are written as a whole or not at all, keep their mode, and have one writer at a time."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import whet
from whet.errors import ModelChangedError
from whet.io import files
from whet.io.files import locked, write_atomically


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664])
def test_the_mode_of_a_file_is_kept(mode, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(mode)
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == mode


def test_a_new_file_has_the_default_mode(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "a", b"new")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_nothing_else(step, tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(files.os if step == "fsync" else Path, step, fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_directory_or_none_is_named(tmp_path):
    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path, b"")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        write_atomically(tmp_path / "none" / "a", b"")


def test_threads_hold_the_lock_one_after_the_other(tmp_path):
    path, inside, most = tmp_path / "a", [], []

    def work():
        for _ in range(10):
            with locked(path):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.001)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 40
    assert os.listdir(tmp_path) == []


def test_a_thread_can_take_its_lock_again_and_still_keeps_others_out(tmp_path):
    refused = []

    def other():
        try:
            with locked(tmp_path / "a", wait=0.05):
                pass
        except ModelChangedError as error:
            refused.append(str(error))

    with locked(tmp_path / "a"):
        with locked(tmp_path / "b"), locked(tmp_path / "a"):
            pass
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(refused) == 1
    assert "another writer" in refused[0]
    with locked(tmp_path / "a", wait=0):
        pass


def test_an_error_releases_the_lock(tmp_path):
    with pytest.raises(KeyError), locked(tmp_path / "a"):
        raise KeyError
    with locked(tmp_path / "a", wait=0):
        pass


def test_where_nothing_can_be_locked_the_block_runs(tmp_path, monkeypatch):
    done = []
    with locked(tmp_path / "none" / "a"):
        done.append(1)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with locked(tmp_path / "a"):
        done.append(2)
    with pytest.raises(OSError, match="mine"), locked(tmp_path / "a"):
        raise OSError("mine")
    assert done == [1, 2]


def test_a_process_that_is_killed_leaves_no_lock(tmp_path):
    code = (
        "import sys, os, signal; from pathlib import Path; from whet.io.files import locked\n"
        "with locked(Path(sys.argv[1])): os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(whet.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a")], env=environment, check=False)
    assert done.returncode == -9
    with locked(tmp_path / "a", wait=0):
        pass
