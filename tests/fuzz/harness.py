"""Hostile inputs in processes of their own: a signal, a hang or an error without a name is a finding, not the end."""

import faulthandler
import os
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

# Seconds of the processor for a case, and how many times as long it may wait for a busy machine.
SECONDS = 20
WAITING = 30
HANGS = (signal.SIGPROF, signal.SIGALRM)
MEGABYTES = 2000
# What may come of an input; everything else is a finding.
FINE = ("accepted", "refused")


class Outcome(NamedTuple):
    """What came of a case: `accepted` or `refused`, or else `uncaught`, `crash` or `hang`, with its cause.

    `seconds` are those of the processor, `megabytes` what the process needed at most beyond its start.
    """

    seed: int
    kind: str
    text: str
    seconds: float
    megabytes: float

    @property
    def is_fine(self) -> bool:
        """The input was read, or refused by name."""
        return self.kind in FINE


def campaign(
    work: Callable[[int], str], seeds: Iterable[int], *, batch: int = 1, seconds: float = SECONDS
) -> Iterator[Outcome]:
    """What comes of `work` with each seed, `batch` of them in one process; where it dies, another one goes on."""
    waiting = list(seeds)
    while waiting:
        done = list(_in_process(work, waiting[:batch], seconds))
        yield from done
        waiting = waiting[len(done) :]


def isolated(work: Callable[[], str], seconds: float = SECONDS) -> Outcome:
    """What comes of one call in a process of its own."""
    (outcome,) = campaign(lambda _: work(), [0], seconds=seconds)
    return outcome


def _in_process(work: Callable[[int], str], seeds: list[int], seconds: float) -> Iterator[Outcome]:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _answer(work, seeds, writing, seconds)
    os.close(writing)
    n = 0
    with open(reading, "rb") as pipe:
        before = float(pipe.read(8) or 0)
        while n < len(seeds) and (size := pipe.read(8)):
            kind, passed, more, text = pipe.read(int(size, 16)).decode(errors="replace").split("\n", 3)
            yield Outcome(seeds[n], kind, text, float(passed), float(more))
            n += 1
    if n == len(seeds):  # threads of a library may keep it from its end
        os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    if n < len(seeds):  # it died in this case
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        cause = signal.Signals(number).name if number else f"exit code {os.waitstatus_to_exitcode(status)}"
        more = max(usage.ru_maxrss / 1024 - before, 0.0)
        kind = "hang" if number in HANGS else "crash"
        yield Outcome(seeds[n], kind, cause, usage.ru_utime + usage.ru_stime, more)


def _answer(work: Callable[[int], str], seeds: list[int], writing: int, seconds: float) -> None:
    """The child, which never returns. An alarm that nobody handles ends it even inside of compiled code."""
    faulthandler.disable()
    for number in (*HANGS, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGESIZE") + MEGABYTES * 2**20
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    before = resident()  # less than that of its parent: pages of files are mapped again when they are read
    os.write(writing, f"{before:8.1f}".encode())
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    for seed in seeds:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, WAITING * seconds)
        start = time.process_time()
        try:
            kind, _, text = work(seed).partition("\n")
        except BaseException:
            kind, text = "uncaught", traceback.format_exc()[-8000:]
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        more = max(most_resident() - before, 0.0)
        answer = f"{kind}\n{time.process_time() - start}\n{more}\n{text}".encode(errors="replace")
        os.write(writing, f"{len(answer):08x}".encode() + answer)
    os._exit(0)


def most_resident() -> float:
    """Megabytes of this process at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def resident() -> float:
    """Megabytes of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20
