"""Tracking, beyond the paper: the bundled face detector tracks the faces of both videos, and learns from its tracks.

One setting for both videos, the default of `whet watch --learn`. Its parameters were chosen on synthetic video
(`experiments.drifting_faces`); the test videos are only evaluated. The tracker gets no box of the face. Peers by the
same rule: OpenCV's cascades (the strongest window of a frame, in the better box convention), and OpenCV's trackers,
which start from the true box of the first frame.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.datasets import FIRST, FaceVideo, face_video
from experiments.opencv_peers import TRACKERS, VIDEO_CASCADES, NoPeersError, strongest_windows, tracked_boxes
from experiments.report import Progress, Report, Row, Size
from experiments.single_stage import FACE_OFFSET, IOU, BestWindows, overlaps
from whet.cascade.boxes import BoxOffset
from whet.cascade.detect import group_windows
from whet.detector.storage import load
from whet.io.images import read_grey
from whet.plots import figure as figures
from whet.tracking.self_training import SelfTraining
from whet.tracking.tracker import TrackedFrame, Tracker

RUNS = {"small": 1, "paper": 1}
N_FRAMES = {"small": 40, "paper": None}
BEST = "tracks and learns"
MODES: dict[str, SelfTraining | None] = {
    "tracks": None,
    BEST: SelfTraining(),
}
ALONE = "detector alone"

GreyImage = NDArray[np.uint8]


def run(size: Size, runs: int, seed: int, progress: Progress) -> Report:
    """Detection rates of all modes and peers; deterministic, so one run is enough."""
    report = Report("tracking", seed, runs, size)
    videos = [face_video(name) for name in FIRST]
    for number, video in enumerate(videos):
        images = [read_grey(path) for path in video.paths[: N_FRAMES[size]]]
        for part, (mode, self_training) in enumerate(MODES.items()):
            report_mode(report, video, images, mode, self_training)
            progress((number + (part + 1) / (len(MODES) + 1)) / len(videos))
        report_peers(report, video, images)
        progress((number + 1) / len(videos))
    report.remarks += [_summary(report, video.name) for video in videos]
    return report


def report_mode(
    report: Report, video: FaceVideo, images: Sequence[GreyImage], mode: str, self_training: SelfTraining | None
) -> None:
    """Track through a video in one mode; the first mode also adds the detector alone."""
    tracker = Tracker(load("face"), learn=self_training is not None, self_training=self_training or SelfTraining())
    best, alone, frames = track_all(tracker, images)
    note(report, video, mode, best)
    if self_training is None:
        note(report, video, ALONE, alone)
        return
    for what, values in (
        ("updates learned", [frame.n_learned for frame in frames]),
        ("updates rolled back", [frame.n_rolled_back for frame in frames]),
    ):
        report.rows.append(Row.from_values(what, mode, [float(sum(values))], video=video.name))


def track_all(tracker: Tracker, images: Sequence[GreyImage]) -> tuple[BestWindows, BestWindows, list[TrackedFrame]]:
    """The tracked window of each frame, the best detection of each frame, and all tracked frames."""
    frames = [tracker.update(image) for image in images]
    nothing = np.full(4, np.nan)
    tracked = [nothing if frame.track is None else frame.track.box for frame in frames]
    alone = []
    for frame in frames:
        groups = None if frame.track is None else group_windows(frame.track.fired)
        alone.append(nothing if groups is None or not len(groups.scores) else groups.boxes[0])
    scores = np.array([-np.inf if frame.track is None else frame.track.score for frame in frames])
    return BestWindows(np.array(tracked), scores), BestWindows(np.array(alone), scores), frames


def note(report: Report, video: FaceVideo, method: str, best: BestWindows) -> None:
    """Add the detection rate with and without box offset."""
    truths = video.truths[: len(best.scores)]
    for convention, offset in (("offset", FACE_OFFSET), ("raw", BoxOffset())):
        rate = best.rate(truths, offset)
        report.rows.append(Row.from_values("detection rate", method, [rate], video=video.name, box=convention))


def report_peers(report: Report, video: FaceVideo, images: Sequence[GreyImage]) -> None:
    """Add OpenCV's cascades and trackers, if it is installed."""
    truths = video.truths[: len(images)]
    try:
        for name in VIDEO_CASCADES:
            note(report, video, f"OpenCV {name}", strongest_windows(name, images))
        for name in TRACKERS:
            boxes = tracked_boxes(name, images, truths[0])
            rate = float((overlaps(boxes, truths) > IOU).mean())
            setting = {"video": video.name, "box": "starts from the first true box"}
            report.rows.append(Row.from_values("detection rate", f"OpenCV Tracker{name}", [rate], **setting))
    except NoPeersError as error:
        report.remarks.append(f"{video.name}: OpenCV was not evaluated: {error}")


def _summary(report: Report, name: str) -> str:
    methods = dict.fromkeys(row.method for row in report.rows)
    best: Callable[[str], float] = lambda method: _rate(report, method, name)  # noqa: E731
    return f"{name}: " + "; ".join(f"{method} {best(method):.1%}" for method in methods)


def _rate(report: Report, method: str, name: str) -> float:
    """With box offset; for a peer, in the better convention."""
    rows = report.select("detection rate", method, video=name)
    peers = method.startswith("OpenCV")
    return max((row.mean for row in rows if peers or row.setting["box"] == "offset"), default=0.0)


def draw(report: Report, out: Path) -> list[Path]:
    """Bars of all modes and peers on both videos."""
    figure, axes = figures.new_figure(1, len(FIRST), 11, 4.2)
    methods = list(dict.fromkeys(row.method for row in report.rows))
    for panel, name in zip(axes[0], FIRST, strict=True):
        rates = [_rate(report, method, name) for method in methods]
        colors = [figures.GREY if method.startswith("OpenCV") else figures.BLUE for method in methods]
        panel.barh(methods[::-1], rates[::-1], color=colors[::-1])
        panel.set_title(name, fontsize=10)
        panel.set_xlabel("share of frames in which the face is found")
        panel.set_xlim(0, 1)
        panel.grid(alpha=0.3, axis="x")
    return [figures.save(figure, out / "tracking-rates.png")]
