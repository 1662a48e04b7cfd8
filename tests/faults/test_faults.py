"""Interrupted changes, in a process of their own: they fork, and the process of the tests has threads."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_change_that_is_cut_off_leaves_the_model_before_or_after_it():
    command = [sys.executable, "-m", "pytest", "-n", "0", "tests/faults/checks.py"]
    done = subprocess.run(command, cwd=ROOT, timeout=900, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
