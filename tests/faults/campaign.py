"""Kill a process at every file operation of a change, let every one fail, and let many processes write at once."""

import errno
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.detectors import bull_scene
from tests.faults.injection import Injection
from tests.faults.scenarios import NOW, SCENARIOS, TRAININGS, Scenario, one_box, sound
from tests.fuzz.harness import Outcome, isolated, most_resident, resident
from whet.detector import edit
from whet.detector.storage import load

ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS)


@dataclass(frozen=True)
class Result:
    """One interrupted change: where, what came of the process, and what is wrong with the file after it, or nothing."""

    scenario: str
    operation: str
    fault: str
    outcome: Outcome
    loss: str = ""


def operations(scenario: Scenario, *, failing: bool) -> tuple[list[str], set[str]]:
    """The names of a change's file operations, and all contents that its file has on the way."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        scenario.prepare()
        states = {scenario.content()}

        def act() -> str:
            seen: list[str] = []
            injection = Injection(error=0 if failing else None, replaced=lambda: seen.append(scenario.content()))
            injection.install()
            assert _acted(scenario) == 0
            return "\n".join(["accepted", ",".join(seen), *injection.names])

        outcome = isolated(act, seconds=120)
        assert outcome.kind == "accepted", outcome.text
        seen, *names = outcome.text.split("\n")
        return names, states | set(seen.split(",")) | scenario.ended_early()


def _acted(scenario: Scenario) -> int:
    """Act; the exit code."""
    try:
        scenario.act()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def interrupted(scenario: Scenario, at: int, name: str, states: set[str], error: int | None, torn: bool) -> Result:
    """Interrupt a change at one operation, and look at what is left."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        scenario.prepare()
        before = scenario.content()

        def act() -> str:
            Injection(at, error, torn).install()
            try:
                return f"{'refused' if _acted(scenario) else 'accepted'}\n"
            except Exception as fault:  # of a call of Python, which names the file
                if scenario.file not in str(fault):
                    raise
                return f"refused\n{fault}"

        outcome = isolated(act, seconds=120)
        loss = _loss(scenario, states, before, outcome)
    fault = "killed" if error is None else errno.errorcode[error]
    return Result(scenario.name, name, f"{fault}, torn" if torn else fault, outcome, loss)


def _loss(scenario: Scenario, states: set[str], before: str, outcome: Outcome) -> str:
    """What is wrong with the file after an interruption; empty if nothing is."""
    if not Path(scenario.file).exists():
        return "the file is gone"
    try:
        now = scenario.content()
    except Exception as fault:
        return f"the file does not load: {fault}"
    if now not in states:
        return "the file is neither the one before nor the one after"
    if outcome.kind == "accepted" and now == before:
        return "the change is reported, but not there"
    if outcome.kind == "refused" and now != before and len(states) == 2:
        return "the change is there, but an error is reported"
    if not _strays():
        return ""
    scenario.prepare()  # the next change works, and removes what was left
    next_change = isolated(lambda: f"{'refused' if _acted(scenario) else 'accepted'}\n", seconds=120)
    return "" if next_change.kind == "accepted" and not _strays() else f"left behind: {_strays()}, {next_change.text}"


def _strays() -> list[str]:
    return [name for name in os.listdir() if name.endswith(".tmp")]


def crash_points(names: list[str] | None = None, every: int = 1) -> Iterator[Result]:
    """Kill the process at every operation (or every so many), and in the middle of every write."""
    for scenario in (SCENARIOS[name] for name in names or SCENARIOS):
        steps, states = operations(scenario, failing=False)
        for at, name in list(enumerate(steps, start=1))[::every]:
            yield interrupted(scenario, at, name, states, None, torn=False)
            if name == "write":
                yield interrupted(scenario, at, name, states, None, torn=True)


def failing_writes(names: list[str] | None = None, errors: tuple[int, ...] = ERRORS) -> Iterator[Result]:
    """Let every operation that changes something fail, with every error."""
    for scenario in (SCENARIOS[name] for name in names or SCENARIOS):
        steps, states = operations(scenario, failing=True)
        for at, name in enumerate(steps, start=1):
            for error in errors:
                yield interrupted(scenario, at, name, states, error, torn=False)
                if name == "write":
                    yield interrupted(scenario, at, name, states, error, torn=True)


def random_kills(name: str, n: int, seed: int = 0) -> Iterator[Result]:
    """Kill a change at a random moment, so many times, and look at what is left."""
    scenario = SCENARIOS[name]
    _, states = operations(scenario, failing=False)
    longest, rng = _seconds(scenario), np.random.default_rng(seed)
    for delay in rng.uniform(0, longest, n).tolist():
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            scenario.prepare()
            before = scenario.content()
            outcome = _killed_after(scenario, delay)
            yield Result(name, f"after {delay:.3f} s", "killed", outcome, _loss(scenario, states, before, outcome))


def killed_trainings(name: str, n: int, seed: int = 0) -> Iterator[Result]:
    """Kill a training at random moments, so many times; resumed to its end, it gives the bytes of an undisturbed one.

    A kill comes after a part of the time that a whole training takes, so in any of its rounds.
    """
    scenario = TRAININGS[name]
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        scenario.prepare()
        isolated(lambda: f"accepted\n{_acted(scenario)}", seconds=120)
        whole = scenario.content()
    longest, rng, left = _seconds(scenario), np.random.default_rng(seed), n
    while left > 0:
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            scenario.prepare()
            while left > 0 and not Path(scenario.file).exists():
                delay, left = rng.uniform(0, longest), left - 1
                outcome = _killed_after(scenario, delay)
                loss = f"the training ends with {outcome.text}" if outcome.kind == "refused" else ""
                if Path(scenario.file).exists() and scenario.content() != whole:
                    loss = "the detector is another one"
                yield Result(name, f"after {delay:.3f} s", "killed", outcome, loss)


def _seconds(scenario: Scenario) -> float:
    """How long a change takes."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        scenario.prepare()
        start = time.perf_counter()
        isolated(lambda: f"accepted\n{_acted(scenario)}", seconds=120)
        return time.perf_counter() - start


def _killed_after(scenario: Scenario, delay: float) -> Outcome:
    def act() -> str:
        killer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL))
        killer.start()
        said = "refused" if _acted(scenario) else "accepted"
        killer.cancel()
        return f"{said}\n"

    return isolated(act, seconds=120)


class Concurrent(NamedTuple):
    """Corrections that concurrent processes lost or doubled; the seconds of all, and the megabytes of the largest."""

    lost: int
    doubled: int
    seconds: float
    megabytes: float


def concurrent_writers(n: int, corrections: int = 4) -> Concurrent:
    """Processes that learn and unlearn in one file at once."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path("a.whet").write_bytes(sound(0))
        start, children = time.perf_counter(), []
        for writer in range(n):
            child = os.fork()
            if not child:
                try:
                    before = resident()
                    _write(writer, corrections)
                    Path(f"memory-{writer}").write_text(str(most_resident() - before))
                    os._exit(0)
                finally:
                    os._exit(1)
            children.append(child)
        failed = sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children)
        more = max(float(path.read_text()) for path in Path().glob("memory-*"))
        names = [record.name for record in load(Path("a.whet").resolve()).records]
        expected = {f"{writer}-{number}" for writer in range(n) for number in range(corrections)}
        lost = len(expected - set(names)) + failed
        doubled = len(names) - len(set(names)) + len(set(names) - expected)
        return Concurrent(lost, doubled, time.perf_counter() - start, more)


def _write(writer: int, corrections: int) -> None:
    time.time = lambda: float(NOW)
    for number in range(corrections):
        with edit("a.whet") as detector:
            extra = detector.learn(bull_scene(2), one_box(50 + writer * corrections + number), False, name="gone")
        with edit("a.whet") as detector:
            detector.unlearn(extra)
            detector.learn(bull_scene(), one_box(writer * corrections + number), False, name=f"{writer}-{number}")
