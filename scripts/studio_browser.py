"""A studio in a process of its own and the system's Chromium: for end-to-end tests, benchmarks and recordings."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import httpx

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
# Chromium runs as root in containers, where its sandbox cannot; and it must not call anybody.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
START_TIMEOUT = 240.0  # seconds; the first start compiles the kernels


def missing() -> str | None:
    """What is not installed to drive a browser, and how to install it; None if everything is there."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "playwright is not installed; run `make setup`"
    return None if chromium() else "Chromium is not installed; run `make packages`"


def chromium() -> str | None:
    """The path of the system's Chromium."""
    return next((found for name in CHROMIUM if (found := shutil.which(name))), None)


@contextmanager
def browser() -> Iterator[Any]:
    """A headless Chromium of Playwright."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        try:
            yield running
        finally:
            running.close()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


class Studio:
    """`whet serve` in a process of its own; it can be killed and started again with the same project and address."""

    def __init__(self, *inputs: str | Path, project: Path, options: tuple[str, ...] = ()) -> None:
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self._command = [sys.executable, "-m", "whet", "serve", *map(str, inputs)]
        self._command += ["--project", str(project), "--port", str(self.port), "--no-browser", *options]
        self._log = project.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None
        self.client = httpx.Client(base_url=self.address, timeout=60, headers={"X-Whet-Client": "a program"})

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.stop()

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        end = time.monotonic() + START_TIMEOUT
        while time.monotonic() < end:
            if self._process.poll() is not None:
                break
            try:
                if httpx.get(f"{self.address}/api/state", timeout=60).is_success:
                    return
            except httpx.TransportError:
                time.sleep(0.05)
        raise RuntimeError(f"whet serve did not start:\n{self._log.read_text(errors='replace')}")

    def kill(self) -> None:
        """Kill the server without a warning (`kill -9`)."""
        os.kill(self.pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def stop(self) -> None:
        """Stop the server as Ctrl-C does."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def get(self, path: str, **query: object) -> Any:  # noqa: ANN401 - JSON
        """The JSON of a request."""
        answer = self.client.get(path, params={name: str(value) for name, value in query.items()})
        answer.raise_for_status()
        return answer.json()

    def ids(self) -> dict[str, str]:
        """The id of each image, by its name."""
        return {row["name"]: row["id"] for row in self.get("/api/images", limit=1000)["images"]}
