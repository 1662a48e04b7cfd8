"""Hostile files through every reader, with fixed seeds: each is read, or refused by name. `make fuzz` has no end."""

import pytest

from tests.fuzz.harness import campaign, isolated
from tests.fuzz.targets import TARGETS

CASES = {"models": 80, "opencv": 60, "annotations": 80, "images": 80, "video": 20, "checkpoints": 30, "settings": 30}


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_a_hostile_file_is_read_or_refused_by_name(name):
    target = TARGETS[name]
    if not target.seeds():
        pytest.skip("an optional package is missing")
    for data in target.seeds():
        assert target.run(data) in ("accepted", "refused")  # warm: children share what is compiled
    outcomes = list(campaign(lambda seed: target.run(target.case(seed)), range(CASES[name]), batch=20))
    assert len(outcomes) == CASES[name]
    assert [(one.seed, one.kind, one.text) for one in outcomes if not one.is_fine] == []
    assert {one.kind for one in outcomes} == {"accepted", "refused"}  # else nothing is tried in depth


def test_the_harness_tells_what_went_wrong():
    """A crash, a hang, memory without end and an error without a name are found, and the next case goes on."""

    def work(seed):
        import os
        import signal

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

    found = list(campaign(work, range(6), batch=10, seconds=0.5))
    assert [one.kind for one in found] == ["accepted", "crash", "hang", "uncaught", "uncaught", "accepted"]
    assert found[1].text == "SIGSEGV"
    assert "MemoryError" in found[3].text
    assert "no name" in found[4].text
    assert isolated(lambda: "refused\nwhy").text == "why"


def test_equal_seeds_are_equal_cases():
    assert TARGETS["settings"].case(5) == TARGETS["settings"].case(5) != TARGETS["settings"].case(6)
