"""Commands on a cluster: the files and answers of the same commands on threads."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest
from tests.cluster.processes import scheduler, workers
from tests.commands import whet
from tests.drawn_sets import QUICK, van_set
from tests.remote_store import http_store

pytest.importorskip("distributed", reason="a cluster needs pip install 'whet[dask]'")
psutil = pytest.importorskip("psutil")  # comes with distributed
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vans")
    van_set(folder, n=24)
    return folder


@pytest.fixture(scope="module")
def address():
    with scheduler() as address, workers(address, 2):
        yield address


def done(*arguments, cwd):
    ended = whet(*arguments, cwd=cwd)
    assert ended.returncode == 0, ended.stderr
    return ended


def test_models_and_answers_do_not_depend_on_where_a_command_runs(folder, address):
    train = ("train", "vans.csv", "--negatives", "textures", *QUICK)
    files = []
    places = {"vans": ("--force",), "far": ("--scheduler", address), "near": ("--workers", 1)}
    for name, place in places.items():
        ended = done(*train, "--out", f"{name}.whet", *place, cwd=folder)
        files.append((folder / f"{name}.whet").read_bytes())
        assert ("cluster: " in ended.stderr) == (name != "vans")
    assert len(set(files)) == 1
    learn = ("learn", "vans.whet", "--negatives", "textures", "--annotations", "vans.csv", "--json", "--dry-run")
    commands = [learn, ("evaluate", "vans.whet", "vans.csv", "--json"), ("detect", "vans.whet", "vans", "--json")]
    for command in commands:
        alone, together = (
            re.sub(r'"time": "[^"]*"', "", done(*command, *place, cwd=folder).stdout)
            for place in ((), ("--scheduler", address))
        )
        assert alone == together, command


def test_workers_read_from_a_store(folder, address):
    pytest.importorskip("aiohttp", reason="a store needs pip install 'whet[remote]'")
    local = ("train", "vans.csv", *QUICK, "--force")
    done(*local, "--negatives", "textures", "--out", "local.whet", cwd=folder)
    with http_store(folder) as (url, asked):
        places = ("--images", url, "--negatives", f"{url}/textures", "--scheduler", address)
        done(*local, *places, "--out", "remote.whet", cwd=folder)
        assert asked
    assert base_id(folder / "local.whet") == base_id(folder / "remote.whet")


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for a group of processes there")
@pytest.mark.parametrize("seconds", [(0.0, 0.7), (1.5, 1.7)])
def test_ctrl_c_while_a_local_cluster_starts_prints_no_traceback(folder, tmp_path, seconds):
    command = [*(sys.executable, "-m", "whet", "train"), folder / "vans.csv", "--workers", "2"]
    command += ["--config", folder / QUICK[1]]
    with subprocess.Popen(
        [*map(str, command), "--out", str(tmp_path / "vans.whet")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a test in the background ignores it
    ) as process:
        try:
            parent, last = psutil.Process(process.pid), time.monotonic() + 60
            while not parent.children() and time.monotonic() < last:  # the first process of the cluster
                time.sleep(0.05)
            begun = time.monotonic()
            for moment in seconds:
                time.sleep(max(begun + moment - time.monotonic(), 0))
                os.killpg(process.pid, signal.SIGINT)
            said, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert "Traceback" not in said
    assert process.returncode == 130, said


def base_id(path):
    import whet as package

    return package.load(path).base_id
