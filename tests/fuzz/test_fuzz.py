"""Hostile files through every reader, with fixed seeds: each is read, or refused by name. `make fuzz` has no end.

The harness forks. So it runs in a process of its own: that of the tests has threads, whose locks a child would inherit.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.harness import campaign, isolated
from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).parents[2]
CASES = {
    **{"models": 80, "opencv": 60, "annotations": 80, "images": 80},
    **{"video": 20, "checkpoints": 30, "settings": 30, "projects": 60, "requests": 100},
}
LONGEST = 300  # seconds


def in_a_process(*arguments):
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, timeout=LONGEST, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_a_hostile_file_is_read_or_refused_by_name(name, tmp_path):
    if not TARGETS[name].seeds():
        pytest.skip("an optional package is missing")
    out = tmp_path / "numbers.json"
    options = "--target", name, "--cases", str(CASES[name]), "--out", str(out), "--findings", str(tmp_path / "findings")
    in_a_process("-m", "tests.fuzz", *options)
    numbers = json.loads(out.read_text())["targets"][name]
    assert numbers["cases"] == CASES[name]
    assert [numbers[kind] for kind in ("crash", "hang", "uncaught")] == [0, 0, 0]
    assert numbers["accepted"] > 0  # else nothing is tried in depth
    assert numbers["refused"] > 0


def planted(seed):
    if seed == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    if seed == 2:
        while True:
            pass
    if seed == 3:
        return str(len(bytearray(2**33)))
    if seed == 4:
        raise KeyError("no name")
    return "accepted"


def check_planted():
    found = list(campaign(planted, range(6), batch=10, seconds=0.5))
    assert [one.kind for one in found] == ["accepted", "crash", "hang", "uncaught", "uncaught", "accepted"], found
    assert found[1].text == "SIGSEGV"
    assert "MemoryError" in found[3].text
    assert "no name" in found[4].text
    assert isolated(lambda: "refused\nwhy").text == "why"


@pytest.mark.slow
def test_the_harness_tells_what_went_wrong():
    """A crash, a hang, memory without end and an error without a name are found, and the next case goes on."""
    in_a_process("-c", "from tests.fuzz.test_fuzz import check_planted; check_planted()")


def test_equal_seeds_are_equal_cases():
    assert TARGETS["settings"].case(5) == TARGETS["settings"].case(5) != TARGETS["settings"].case(6)


@pytest.mark.slow
@pytest.mark.skipif(not TARGETS["requests"].seeds(), reason="the studio's packages are missing")
def test_sound_requests_are_carried_out():
    in_a_process("-c", "from tests.fuzz.http import check_sound_requests; check_sound_requests()")
