"""`python -m experiments` as a user meets it: a real process."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from experiments.report import EXPERIMENTS
from tests.commands import run

from whet.cli.options import ExitCode


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_help_names_every_experiment(name):
    assert name in run("experiments", "--help").stdout


@pytest.mark.slow
def test_toy_writes_numbers_and_figures(tmp_path):
    done = run("experiments", "toy", "--runs", 2, "--out", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed == json.loads((tmp_path / "toy.json").read_text())
    assert printed["seeds"] == [0, 1]
    assert {"command", "seeds", "versions", "seconds", "results"} <= set(printed)
    assert {"method", "setting", "mean", "std"} <= set(printed["results"][0])
    assert len(list(tmp_path.glob("toy-*.png"))) == 3


@pytest.mark.slow
def test_missing_data_has_an_exit_code_of_its_own(tmp_path):
    away = {key: value for key, value in os.environ.items() if key != "WHET_DATA"}
    done = run(
        "experiments",
        "usps",
        "--out",
        tmp_path,
        env=away | {"XDG_CACHE_HOME": str(tmp_path), "PIP_NO_INDEX": "1"},
    )
    assert done.returncode == ExitCode.DATA_MISSING
    assert "USPS" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    done = run("experiments", "toy", "--runs", 1, "--out", tmp_path / "file")
    assert done.returncode == ExitCode.FAILED
    assert done.stderr.strip().splitlines()[-1].startswith("whet:")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_ctrl_c_leaves_no_half_written_file(tmp_path):
    command = [sys.executable, "-m", "experiments", "toy", "--runs", "100000", "--out", str(tmp_path)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Tests that run in the background of a shell ignore Ctrl-C, and so would their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        time.sleep(4)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert not list(tmp_path.iterdir())


def test_a_wrong_call_is_exit_code_2_and_says_what_is_known():
    done = run("experiments", "nothing")
    assert done.returncode == 2
    assert "toy" in done.stderr
    assert "Traceback" not in done.stderr
