"""Commands on a cluster: the files and answers of the same commands on threads."""

import re

import pytest
from tests.cluster.processes import scheduler, workers
from tests.commands import whet
from tests.drawn_sets import QUICK, van_set
from tests.remote_store import http_store

pytest.importorskip("distributed", reason="a cluster needs pip install 'whet[dask]'")
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


def base_id(path):
    import whet as package

    return package.load(path).base_id
