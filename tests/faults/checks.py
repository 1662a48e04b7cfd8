"""A change that is cut off at any file operation leaves the model before it or the model after it, whole."""

import errno

import pytest

from tests.faults.campaign import (
    concurrent_writers,
    crash_points,
    failing_writes,
    killed_trainings,
    operations,
    random_kills,
)
from tests.faults.scenarios import SCENARIOS, TRAININGS


@pytest.mark.parametrize("name", ["edit", "unlearn", "train (checkpoint)"])
def test_killed_at_every_file_operation(name):
    """`python -m tests.faults` runs all scenarios: learn, unlearn, merge, save, edit, watch and checkpoints."""
    results = list(crash_points([name]))
    assert {one.outcome.kind for one in results} == {"crash"}
    assert [(one.operation, one.loss) for one in results if one.loss] == []


@pytest.mark.parametrize("name", ["edit", "train (checkpoint)"])
def test_every_write_fails(name):
    """The error is reported, with the name of the file, and nothing has changed; or nothing was needed of it."""
    results = list(failing_writes([name], errors=(errno.ENOSPC,)))
    assert [(one.operation, one.fault, one.loss, one.outcome.text) for one in results if one.loss] == []
    assert {one.outcome.kind for one in results} <= {"accepted", "refused"}
    assert "refused" in {one.outcome.kind for one in results}


@pytest.mark.parametrize("name", ["learn", "refit", "merge of samples"])
def test_killed_at_random_moments(name):
    results = list(random_kills(name, 6))
    assert "crash" in {one.outcome.kind for one in results}
    assert [(one.operation, one.loss) for one in results if one.loss] == []


@pytest.mark.parametrize("name", TRAININGS)
def test_a_training_that_is_killed_and_resumed_ends_with_the_same_bytes(name):
    results = list(killed_trainings(name, 3))
    assert "crash" in {one.outcome.kind for one in results}
    assert [(one.operation, one.loss) for one in results if one.loss] == []


def test_the_operations_of_a_change_are_all_seen():
    """What is not counted is not tried: a save opens, writes, flushes, syncs, closes and renames."""
    names, states = operations(SCENARIOS["save"], failing=True)
    assert {"open", "write", "flush", "fsync", "close file", "replace", "fchmod"} <= set(names)
    assert len(states) == 2


@pytest.mark.parametrize("n", [2, 4, 8])
def test_concurrent_writers_lose_and_double_nothing(n):
    done = concurrent_writers(n, corrections=2)
    assert (done.lost, done.doubled) == (0, 0)
