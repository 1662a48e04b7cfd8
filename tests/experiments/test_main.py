"""`python -m experiments` as a user meets it: a real process."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from experiments.__main__ import Name
from experiments.report import module_of
from experiments.table import BY_NAME, EXPERIMENTS
from tests.commands import run

from whet.cli.options import ExitCode


def test_the_command_and_its_help_have_every_experiment_of_the_table():
    assert [name.value for name in Name] == [*BY_NAME, "all", "page"]
    said = run("experiments", "--help").stdout
    assert all(f"  {entry.name} " in said for entry in EXPERIMENTS)


@pytest.mark.parametrize("entry", EXPERIMENTS, ids=lambda entry: entry.name)
def test_every_experiment_has_claims_with_criteria_and_parts(entry):
    module = module_of(entry)
    assert module.CLAIMS
    assert all(claim.says.endswith(".") and claim.criterion.endswith(".") for claim in module.CLAIMS)
    names = [*module.ONCE, *module.parts("paper")]
    assert len({*names}) == len(names) > 0


@pytest.mark.slow
def test_all_runs_without_data_and_the_page_says_what_is_missing(tmp_path):
    """CI-like: no data sets and no network. What needs data is skipped."""
    away = {key: value for key, value in os.environ.items() if key != "WHET_DATA"}
    env = away | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PIP_NO_INDEX": "1"}
    done = run("experiments", "all", "--runs", 1, "--out", tmp_path / "out", env=env)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "out" / "paper.html").read_text()
    assert "skipped: needs david, trellis" in page
    assert page.count("data:image/png;base64,") >= 4
    assert sorted(path.stem for path in (tmp_path / "out").glob("*.json")) == ["complexity", "toy"]


@pytest.mark.slow
def test_toy_writes_numbers_and_figures(tmp_path):
    done = run("experiments", "toy", "--runs", 2, "--out", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed == json.loads((tmp_path / "toy.json").read_text())
    assert printed["seeds"] == [0, 1]
    assert {"command", "seeds", "versions", "machine", "seconds", "claims", "results"} <= set(printed)
    assert {"method", "setting", "mean", "std", "values"} <= set(printed["results"][0])
    assert {claim["verdict"] for claim in printed["claims"]} <= {"reproduced", "partly", "not", "not measured"}
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
def test_ctrl_c_leaves_whole_files_and_the_next_run_continues(tmp_path):
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
        parts, deadline = tmp_path / "parts" / "toy-small", time.monotonic() + 120
        while time.monotonic() < deadline and not list(parts.glob("*.json")):
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert all(json.loads(path.read_text())["notes"] for path in parts.glob("*.json"))
    assert list(parts.glob("*.json"))
    assert not list(tmp_path.rglob("*.part*"))


def test_a_wrong_call_is_exit_code_2_and_says_what_is_known():
    done = run("experiments", "nothing")
    assert done.returncode == 2
    assert "toy" in done.stderr
    assert "Traceback" not in done.stderr
