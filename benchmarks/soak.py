"""Decision "Long use".

Memory, file handles and threads while whet runs for long: `python -m benchmarks.soak --minutes 60`.

Three programs run side by side, each in a process of its own, and every round ends where it began:

- `python`: detect, learn a false positive, unlearn it (the bytes of the model are those before), track some frames;
- `commands`: `whet detect`, `learn`, `unlearn` (the file is the one before) and `watch --learn`, each a process of its
  own: their largest memory is reported, and what the process that starts them uses;
- `studio`: a server of `whet serve`; a client uploads images, labels a box, looks at the effect, and undoes it.

Resident memory, handles and threads are read from /proc every few seconds, so this needs Linux. Prints JSON: rounds,
errors, and for each program the median of the second and of the last quarter (the first one warms up caches) and the
worst of all. `--pause` leaves time for other programs. A round that fails ends all, with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image
from skimage import data

import whet
from whet.errors import WhetError
from whet.tracking import Tracker

SAMPLE_EVERY = 5.0  # seconds
COLUMNS = ("megabytes", "handles", "threads")


@dataclass
class Watched:
    """What one program used, and what it did. `pid` is the process that is looked at."""

    pid: int = 0
    rounds: int = 0
    failures: list[str] = field(default_factory=list)
    samples: list[tuple[float, int, int]] = field(default_factory=list)

    def sample(self) -> None:
        """Read memory, handles and threads of the process now."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii", errors="replace")
            handles = len(os.listdir(f"/proc/{self.pid}/fd"))
        except OSError:
            return
        facts = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        if "VmRSS" in facts:
            self.samples.append((int(facts["VmRSS"].split()[0]) / 1024, handles, int(facts["Threads"])))

    def summary(self) -> dict[str, Any]:
        """Rounds, failures, and the medians of the second and the last quarter."""
        quarter = max(1, len(self.samples) // 4)
        found: dict[str, Any] = {"rounds": self.rounds, "failures": self.failures[:10], "samples": len(self.samples)}
        for column, name in enumerate(COLUMNS):
            values = [one[column] for one in self.samples]
            if values:
                second, last = values[quarter : 2 * quarter] or values, values[-quarter:]
                medians = statistics.median(second), statistics.median(last)
                found[name] = {"second_quarter": medians[0], "last_quarter": medians[1], "worst": max(values)}
        return found


def photographs() -> list[np.ndarray]:
    """Photographs with faces and without, of about 640 x 480."""
    images = [data.astronaut(), data.coffee(), data.chelsea(), data.rocket()]
    return [np.asarray(Image.fromarray(one).resize((640, 480))) for one in images]


def frames(folder: Path, n: int = 8) -> Path:
    """A short video: the astronaut, moving."""
    folder.mkdir()
    for number in range(n):
        Image.fromarray(np.roll(data.astronaut()[:400, :400], 4 * number, axis=1)).save(folder / f"{number}.png")
    return folder


def python_round(detector: whet.Detector, images: list[np.ndarray], files: list[Path]) -> None:
    """Detect, learn, unlearn and track; raises RuntimeError if the bytes differ after it."""
    before = detector.to_bytes()
    for image in images:
        found = detector.detect(image, min_score=0.0)
        if len(found):
            learned = detector.learn(image, found[len(found) - 1], False)
            detector.detect(image)
            detector.unlearn(learned)
    tracker = Tracker(detector.copy())
    for path in files:
        tracker.update(path)
    if detector.to_bytes() != before:
        raise RuntimeError("the bytes differ after unlearn")


def use_python(folder: Path, until: float, pause: float, rounds: Synchronized[int]) -> None:
    """Rounds in this process until a time; writes `python.failed` and ends at a failure."""
    detector, images, files = whet.load("face"), photographs(), sorted((folder / "frames").iterdir())
    while time.monotonic() < until:
        try:
            python_round(detector, images, files)
        except (RuntimeError, OSError, WhetError) as error:
            (folder / "python.failed").write_text(str(error))
            return
        rounds.value += 1
        time.sleep(pause)


def command_round(folder: Path) -> None:
    """One round of commands; raises RuntimeError if a command fails or leaves something."""
    model = folder / "cli.whet"
    before, names = model.read_bytes(), sorted(os.listdir(folder))
    one_thread = ("--threads", "1")
    for arguments in (
        ("detect", "cli.whet", "0.png", "--json", *one_thread),
        ("learn", "cli.whet", "--wrong", "0.png:10,10,60,60", "--force", "-q", *one_thread),
        ("unlearn", "cli.whet", "--last", "1", "-q"),
        ("watch", "cli.whet", "frames", "--learn", "--save-as", "watched.whet", "--force", "-q"),
    ):
        command = [sys.executable, "-m", "whet", *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise RuntimeError(f"whet {' '.join(arguments)}: exit code {done.returncode}: {done.stderr[-300:]}")
    if model.read_bytes() != before:
        raise RuntimeError("the model file differs after unlearn")
    if sorted(os.listdir(folder)) != names:
        raise RuntimeError(f"left behind: {sorted({*os.listdir(folder)} - {*names})}")


def use_commands(folder: Path, until: float, pause: float, rounds: Synchronized[int]) -> None:
    """Rounds of commands until a time; writes `commands.failed` and ends at a failure.

    `commands.peak` has the most memory that a command has used, in megabytes.
    """
    while time.monotonic() < until:
        try:
            command_round(folder / "commands")
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            (folder / "commands.failed").write_text(str(error))
            return
        rounds.value += 1
        (folder / "commands.peak").write_text(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024))
        time.sleep(pause)


@contextmanager
def studio(folder: Path) -> Iterator[tuple[int, str]]:
    """A server of the studio over the photographs: its process and its address."""
    arguments = ("serve", "face", "photographs", "--port", "0", "--no-browser", "--threads", "1")
    with (
        (folder / "studio.log").open("wb") as log,
        subprocess.Popen([sys.executable, "-m", "whet", *arguments], cwd=folder, stderr=log) as run,
    ):
        try:
            deadline = time.monotonic() + 120
            while not (found := re.search(r"studio at (http\S+)", (folder / "studio.log").read_text())):
                if run.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"whet serve did not start: {(folder / 'studio.log').read_text()}")
                time.sleep(0.1)
            yield run.pid, found[1]
        finally:
            run.terminate()
            run.wait(30)


def studio_round(client: httpx.Client, photograph: bytes) -> None:
    """Upload, label a box of each image, look at the effect and undo it; raises RuntimeError if a call fails."""

    def answer(method: str, path: str, **options: object) -> dict[str, Any]:
        got = client.request(method, path, **options)  # type: ignore[arg-type]
        if got.status_code >= 400:
            raise RuntimeError(f"{method} {path}: {got.status_code} {got.text[:300]}")
        return dict(got.json())

    answer("POST", "/v1/vision/detection", files={"image": ("a.jpg", photograph)})
    before = answer("GET", "/api/state")
    for image in answer("GET", "/api/images")["images"]:
        labels = f"/api/images/{image['id']}/labels"
        answer("POST", labels, json={"boxes": [[20, 20, 90, 90]], "is_object": False})
        answer("GET", "/api/effect")
        answer("GET", f"/api/images/{image['id']}")
        answer("POST", "/api/undo", json={})
    if answer("GET", "/api/state")["n_corrections"] != before["n_corrections"]:
        raise RuntimeError("corrections differ after undo")


def use_studio(folder: Path, address: str, until: float, pause: float, rounds: Synchronized[int]) -> None:
    """Rounds of a client until a time; writes `studio.failed` and ends at a failure."""
    photograph = (folder / "photographs" / "0.jpg").read_bytes()
    with httpx.Client(base_url=address, timeout=600, headers={"X-Whet-Client": "soak"}) as client:
        while time.monotonic() < until:
            try:
                studio_round(client, photograph)
            except (RuntimeError, httpx.HTTPError) as error:
                (folder / "studio.failed").write_text(str(error))
                return
            rounds.value += 1
            time.sleep(pause)


def prepared(folder: Path) -> None:
    """Photographs, frames and a model."""
    for name in ("photographs", "commands"):
        (folder / name).mkdir()
    for number, photograph in enumerate(photographs()):
        Image.fromarray(photograph).save(folder / "photographs" / f"{number}.jpg", quality=92)
    Image.fromarray(photographs()[0]).save(folder / "commands" / "0.png")
    whet.load("face").save(folder / "commands" / "cli.whet")
    frames(folder / "frames")
    frames(folder / "commands" / "frames")
    whet.load("face").save(folder / "commands" / "watched.whet")


def soak(seconds: float, pause: float, say: Callable[[str], None]) -> dict[str, Any]:
    """Run all three for some seconds; what each used and did."""
    spawn = multiprocessing.get_context("spawn")
    watched = {name: Watched() for name in ("python", "commands", "studio")}
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where)
        prepared(folder)
        with studio(folder) as (server, address):
            until = time.monotonic() + seconds
            counts = {name: spawn.Value("q", 0) for name in watched}
            targets: dict[str, tuple[Callable[..., None], tuple[Any, ...]]] = {
                "python": (use_python, (folder,)),
                "commands": (use_commands, (folder,)),
                "studio": (use_studio, (folder, address)),
            }
            workers = {
                name: spawn.Process(target=target, args=(*first, until, pause, counts[name]))
                for name, (target, first) in targets.items()
            }
            for name, worker in workers.items():
                worker.start()
                watched[name].pid = worker.pid or 0
            watched["studio"].pid = server  # the client is not ours to measure
            while any(worker.is_alive() for worker in workers.values()):
                time.sleep(SAMPLE_EVERY)
                for name, one in watched.items():
                    one.rounds = counts[name].value
                    if workers[name].is_alive():
                        one.sample()
                if any((folder / f"{name}.failed").exists() for name in watched):
                    for worker in workers.values():
                        worker.terminate()
                left = max(0.0, until - time.monotonic())
                say(f"{left / 60:.0f} min left; rounds {', '.join(f'{n} {w.rounds}' for n, w in watched.items())}")
            for name, worker in workers.items():
                worker.join()
                failed = folder / f"{name}.failed"
                if failed.exists() or worker.exitcode not in (0, -signal.SIGTERM):
                    reason = failed.read_text() if failed.exists() else f"exit code {worker.exitcode}"
                    watched[name].failures.append(reason)
            summaries = {name: one.summary() for name, one in watched.items()}
            peak = folder / "commands.peak"
            summaries["commands"]["largest_command_megabytes"] = float(peak.read_text()) if peak.exists() else None
    return summaries


def main() -> int:
    """Run, and print JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between two rounds of a program")
    options = parser.parse_args()
    last = 0.0

    def say(text: str) -> None:
        nonlocal last
        if time.monotonic() > last + 60:
            last = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    programs = soak(60 * options.minutes, options.pause, say)
    print(json.dumps({"minutes": options.minutes, "pause": options.pause, "programs": programs}, indent=1))
    return int(any(one["failures"] for one in programs.values()))


if __name__ == "__main__":
    sys.exit(main())
