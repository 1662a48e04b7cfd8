"""Interrupted changes, in a process of their own: they fork, and the process of the tests has threads."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import studio

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_change_that_is_cut_off_leaves_the_model_before_or_after_it():
    command = [sys.executable, "-m", "pytest", "-n", "0", "tests/faults/checks.py"]
    done = subprocess.run(command, cwd=ROOT, timeout=900, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not studio.is_available(), reason="strace is not installed, or may not trace")
def test_a_project_whose_process_is_killed_or_whose_disk_is_full_has_what_was_acknowledged():
    """`python -m tests.faults` strikes at every system call."""
    results = list(studio.interruptions(every=11, errors=("ENOSPC",)))
    assert {one.fault for one in results} == {"killed", "ENOSPC"}
    assert "crash" in {one.outcome.kind for one in results}
    assert [(one.operation, one.fault, one.loss) for one in results if one.loss] == []
    assert [one.outcome.text for one in results if one.outcome.kind == "uncaught"] == []
    refused = [one.outcome.text for one in results if one.outcome.kind == "refused"]
    assert refused
    assert all(studio.PROJECT in text for text in refused)
