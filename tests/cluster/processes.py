"""A real Dask cluster for tests: a scheduler and workers as processes of this machine, on loopback."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager

HERE = "127.0.0.1"


@contextmanager
def scheduler():
    """A running scheduler without workers; yields its address."""
    with _process("scheduler", "--host", HERE, "--port", 0, "--no-dashboard") as process:
        for line in process.stderr:
            found = re.search(r"Scheduler at:\s+(tcp://\S+)", line)
            if found:
                break
        else:
            raise RuntimeError(process.stderr.read())
        yield found[1]


@contextmanager
def workers(address, n=1, *options, environment=None):
    """More workers of a scheduler, one thread each; a nanny starts those again that die."""
    with ExitStack() as stack:
        for _ in range(n):
            stack.enter_context(
                _process(
                    *("worker", address, "--host", HERE, "--nthreads", 1, "--no-dashboard"),
                    *options,
                    environment=environment,
                    silent=True,
                )
            )
        yield


@contextmanager
def _process(*arguments, environment=None, silent=False):
    process = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_" + arguments[0], *map(str, arguments[1:])],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL if silent else subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **(environment or {})},
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the nanny and its worker
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def worker_processes(client):
    """Numbers of the worker processes."""
    return sorted(client.run(os.getpid).values())


def kill_one(client):
    """Kill the first worker, as the kernel does when memory runs out, and wait until it is gone."""
    number = worker_processes(client)[0]
    os.kill(number, signal.SIGKILL)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    raise TimeoutError(number)
