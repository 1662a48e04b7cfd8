"""A project of the studio whose process is killed, or whose disk fails, at every system call of a correction.

SQLite writes by itself, so Python's calls are not enough: `strace` strikes at the calls of the kernel that change the
project's files. The process acknowledges each change on its standard output; what it acknowledged must be there.

`python -m tests.faults.studio FOLDER` is that process: it labels a box, labels another one, undoes the second, and
redoes it. A change that a failing disk refused is tried once more: one failure must not stop the next change.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.faults.campaign import Result
from tests.faults.scenarios import NOW
from tests.fuzz.harness import Outcome
from tests.web.studios import opened
from whet.errors import CannotWriteError, WhetError
from whet.web import page_state
from whet.web.labelling import Labeller
from whet.web.workspace import Workspace

PROJECT = "bull.studio"
MEMORY = "memory"  # file with the most kilobytes of the process
FILES = (PROJECT, f"{PROJECT}-wal", f"{PROJECT}-shm", f"{PROJECT}-journal")
CALLS = ("pwrite64", "write", "fdatasync", "fsync", "ftruncate", "unlink", "openat")
ERRORS = ("ENOSPC", "EIO", "EROFS")
REFUSED = 3  # exit code of an error with a name
LONGEST = 300  # seconds
AGAIN = "tried again after: "
BOXES = ([(2.0, 2.0, 32.0, 32.0)], [(40.0, 5.0, 70.0, 35.0)])


def is_available() -> bool:
    """Whether strace is there and may trace."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True).returncode == 0


def content(workspace: Workspace) -> str:
    """What a project holds: the labels of its state, its history, and the bytes of its model."""
    model = hashlib.sha256(workspace.detector.to_bytes()).hexdigest()
    tree = page_state.history_view(workspace)
    return json.dumps([sorted(workspace.record_ids()), tree.current, len(tree.nodes), model])


def act(folder: Path) -> None:
    """Four changes; each is acknowledged with what the project holds after it. What is refused is tried once more."""

    def make(change: Callable[[], object]) -> None:
        try:
            change()
        except CannotWriteError as error:
            print(f"{AGAIN}{error}", flush=True)
            change()
        note()
        print(content(workspace), flush=True)

    def note() -> None:
        """What the process needed at most so far; for its parent, the kernel counts from the campaign's memory on."""
        lines = Path("/proc/self/status").read_text().splitlines()
        (folder / MEMORY).write_text(next(line.split()[1] for line in lines if line.startswith("VmHWM")))

    time.time = lambda: float(NOW)  # labels know when they were made
    with Workspace.open(folder / PROJECT, None, name="bull", threads=1) as workspace:
        image = next(iter(workspace.gallery)).id
        labeller = Labeller(workspace)
        make(lambda: None)
        for boxes in BOXES:
            make(partial(labeller.label, image, boxes, False))
        make(workspace.undo)
        make(workspace.redo)


def prepared(folder: Path) -> Path:
    """A project with two images and a model, in a folder of its own."""
    folder.mkdir()
    with opened(folder, n=2):
        pass
    return folder


class Traced(NamedTuple):
    """What came of the process: its exit code and output, seconds of the processor and of the clock, megabytes."""

    returncode: int
    stdout: str
    stderr: str
    seconds: float
    elapsed: float
    megabytes: float


def traced(folder: Path, inject: str = "", log: str = os.devnull) -> Traced:
    """The process, with a fault injected into the calls on the project's files."""
    paths = [part for name in FILES for part in ("-P", str(folder / name))]
    faults = ["-e", f"inject={inject}"] if inject else []
    command = [
        "timeout",
        "-k",
        "10",
        str(LONGEST),
        "strace",
        "-f",
        "-qq",
        "-o",
        log,
        *paths,
        "-e",
        f"trace={','.join(CALLS)}",
        *faults,
    ]
    child = [sys.executable, "-W", "ignore", "-m", "tests.faults.studio", str(folder)]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        begun = time.monotonic()
        process = subprocess.Popen([*command, *child], stdout=out, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        noted = folder / MEMORY
        megabytes = int(noted.read_text()) / 1024 if noted.exists() else 0.0
        seconds, elapsed = usage.ru_utime + usage.ru_stime, time.monotonic() - begun
        return Traced(process.returncode, out.read(), errors.read(), seconds, elapsed, megabytes)


def counted(folder: Path) -> tuple[dict[str, int], list[str]]:
    """How often each call is made, and all contents on the way."""
    with tempfile.TemporaryDirectory() as other:
        log = Path(other) / "calls"
        done = traced(folder, log=str(log))
        assert done.returncode == 0, done.stderr
        lines = log.read_text().splitlines()
    counts = {name: sum(f" {name}(" in f" {line.split(maxsplit=1)[-1]}" for line in lines) for name in CALLS}
    return {name: n for name, n in counts.items() if n}, done.stdout.splitlines()


def interruptions(every: int = 1, errors: tuple[str, ...] = ERRORS, *, kills: bool = True) -> Iterator[Result]:
    """Kill the process at every call (or every so many), and let every call fail with every error."""
    faults = (*(("killed",) if kills else ()), *errors)
    with tempfile.TemporaryDirectory() as where:
        sound = prepared(Path(where) / "sound")
        with_log = Path(where) / "counted"
        shutil.copytree(sound, with_log)
        counts, states = counted(with_log)
        number = 0
        for call, n in counts.items():
            for at in range(1, n + 1):
                number += 1
                if number % every:
                    continue
                for fault in faults:
                    folder = Path(where) / "struck"
                    shutil.copytree(sound, folder)
                    how = "signal=KILL" if fault == "killed" else f"error={fault}"
                    done = traced(folder, f"{call}:{how}:when={at}")
                    yield Result("studio", call, fault, _outcome(done, fault), _loss(folder, done, states))
                    shutil.rmtree(folder)


def _outcome(done: Traced, fault: str) -> Outcome:
    used = done.seconds, done.megabytes
    if done.returncode in (0, REFUSED):
        refusals = [line.removeprefix(AGAIN) for line in done.stdout.splitlines() if line.startswith(AGAIN)]
        text = "\n".join([*refusals, *done.stderr.splitlines()])
        return Outcome(0, "refused" if text else "accepted", text, *used)
    if fault == "killed" and done.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL) and done.elapsed < LONGEST:
        return Outcome(0, "crash", "SIGKILL", *used)
    if done.elapsed >= LONGEST:
        return Outcome(0, "hang", f"not done after {LONGEST} s", *used)
    return Outcome(0, "uncaught", done.stderr.strip()[-500:], *used)


def _loss(folder: Path, done: Traced, states: list[str]) -> str:
    """What is wrong with the project after an interruption; empty if nothing is."""
    acknowledged = [line for line in done.stdout.splitlines() if not line.startswith(AGAIN)]
    try:
        with Workspace.open(folder / PROJECT, None, name="bull", threads=1) as workspace:
            now = content(workspace)
    except WhetError as error:
        return f"the project does not open: {error}"
    n = len(acknowledged)
    if done.returncode == 0 and n < len(states):
        return "ended without all changes"
    if acknowledged != states[:n]:
        return "acknowledged something else than without a fault"
    # The state that was acknowledged last, or the one after it, whose acknowledgement was cut off.
    if now not in states[max(n - 1, 0) : n + 1]:
        return f"after {n} acknowledgements the project holds another state"
    if done.returncode == REFUSED and n and now != states[n - 1]:
        return "the change is there, but an error is reported"
    return ""


if __name__ == "__main__":
    try:
        act(Path(sys.argv[1]))
    except (WhetError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(REFUSED)
