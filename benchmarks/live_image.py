"""Decision "The live page is the studio's".

The cost of the live image of `whet watch --show`: frames per second without it, with it, and with a viewer.

    python -m benchmarks.live_image

The three modes alternate on the same frames (those of `david`, 320 x 240, or synthetic ones), one thread each. The
viewer is a separate process that reads the stream and the numbers. Ratios compare each turn with the turn without a
page next to it, in wall-clock time and in processor seconds of the tracking process; the result is the median of all
turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import whet
from benchmarks.tracking import GreyImages, images
from whet.io.video import VideoFrame
from whet.plots.drawing import draw_tracked_frame
from whet.tracking.session import FrameCallback, Session
from whet.tracking.tracker import Tracker
from whet.web.api import make_app
from whet.web.live import WatchedVideo, as_jpeg
from whet.web.server import StudioServer
from whet.web.studio import Studio
from whet.web.workspace import Workspace

MODES = ("without", "shown", "viewed")
VIEWER = """
import sys, threading, urllib.request
address, n = sys.argv[1], 0
threading.Thread(target=lambda: urllib.request.urlopen(address + "api/events").read(), daemon=True).start()
for line in urllib.request.urlopen(address + "api/video/stream.mjpg"):
    n += line.startswith(b"Content-Length")
    if n == 1 and line.startswith(b"Content-Length"):
        print("started", flush=True)
print(n)
"""


@contextmanager
def viewed(address: str) -> Iterator[subprocess.Popen[str]]:
    """A viewer that has received its first image."""
    with subprocess.Popen([sys.executable, "-c", VIEWER, address], stdout=subprocess.PIPE, text=True) as viewer:
        assert viewer.stdout is not None
        viewer.stdout.readline()
        yield viewer


def one_turn(frames: GreyImages, mode: str) -> dict[str, float]:
    tracker, sinks = Tracker(whet.load("face"), threads=1), list[FrameCallback]()
    coming = [VideoFrame(number, number / 25, image) for number, image in enumerate(frames)]
    viewer = None
    with ExitStack() as stack:
        first = tracker.update(frames[0])
        if mode != "without":
            folder = Path(stack.enter_context(TemporaryDirectory()))
            workspace = Workspace.open(folder / "watch.studio", tracker.detector.copy(), name="face")
            video = WatchedVideo(workspace.events, "frames")
            studio = stack.enter_context(Studio(workspace, video=video))
            server = stack.enter_context(StudioServer(make_app(studio)))
            video.show(coming[0], first)
            sinks.append(video.show)
        if mode == "viewed":
            viewer = stack.enter_context(viewed(server.address))
        begin, on_the_clock = time.process_time(), time.perf_counter()
        Session(tracker, tuple(sinks)).run(coming)
        seconds, passed = time.process_time() - begin, time.perf_counter() - on_the_clock
        if mode != "without":
            video.close()
        seen = 0 if viewer is None else int(viewer.communicate()[0])
    return {"clock": passed / len(frames), "processor": seconds / len(frames), "images_a_second": seen / passed}


def drawing(shape: tuple[int, int, int]) -> float:
    """Milliseconds to draw and encode one image, half of it noise."""
    image = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    image[:, : shape[1] // 2] = 128
    tracked = Tracker(whet.load("face")).update(np.zeros((60, 80), np.uint8))
    times = []
    for _ in range(20):
        begin = time.thread_time()
        as_jpeg(image, lambda pixels, scale: draw_tracked_frame(pixels, tracked, scale))
        times.append(time.thread_time() - begin)
    return 1e3 * statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--turns", type=int, default=6)
    options = parser.parse_args()
    frames = images(options.frames)
    one_turn(frames[:5], "viewed")
    turns = []
    for turn in range(options.turns):
        order = MODES if turn % 2 == 0 else MODES[::-1]
        turns.append({mode: one_turn(frames, mode) for mode in order})
        print(f"turn {turn + 1} of {options.turns}", file=sys.stderr)
    report: dict[str, object] = {"frames": len(frames), "turns": options.turns}
    for mode in MODES:
        report[mode] = {
            "frames_a_second": 1 / statistics.median(turn[mode]["clock"] for turn in turns),
            "processor_ms_a_frame": 1e3 * statistics.median(turn[mode]["processor"] for turn in turns),
            "images_a_second": statistics.median(turn[mode]["images_a_second"] for turn in turns),
            **{
                f"{clock}_ratio": statistics.median(turn[mode][clock] / turn["without"][clock] for turn in turns)
                for clock in ("clock", "processor")
            },
        }
    report["drawing_ms"] = {f"{w}x{h}": drawing((h, w, 3)) for w, h in ((320, 240), (640, 480), (1920, 1080))}
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
