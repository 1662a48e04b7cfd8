"""Beyond the paper: the face detector that comes with whet follows the faces of both videos, and learns as it goes.

One setting for both videos, the default of `whet watch --learn`. All its numbers were chosen on made-up footage
(`experiments.drifting_faces`); the videos are only reported on. Nobody tells it where the face is. Peers by
the same rule: OpenCV's cascades, the strongest window of a frame, in whichever convention of boxes is better for them;
and OpenCV's trackers, which are given the true box of the first frame.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments import figures
from experiments.face_tracks import FRAME, IOU, Boxes, Track, overlaps
from experiments.face_videos import FIRST, FaceVideo, face_video
from experiments.opencv_peers import NoPeersError
from experiments.registry import Size
from experiments.report import Progress, Report, Row
from experiments.video_peers import CASCADES, TRACKERS, strongest_windows, tracked
from whet.cascade.boxes import BoxOffset
from whet.cascade.detect import grouped
from whet.detector.detector import load
from whet.io.images import read_grey
from whet.tracking.tracker import SelfTraining, TrackedFrame, Tracker

RUNS = {"small": 1, "paper": 1}
N_FRAMES = {"small": 40, "paper": None}
BEST = "follows and learns"
MODES: dict[str, SelfTraining | None] = {
    "follows": None,
    BEST: SelfTraining(),
    "follows, learns other windows too": SelfTraining(others=3),
}
ALONE = "detector alone"

GreyImage = NDArray[np.uint8]


def run(size: Size, runs: int, seed: int, progress: Progress) -> Report:
    """Detection rates of all modes and peers; nothing is random, so that one run says all."""
    report = Report("watching", seed, runs, size)
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
    """Watch a video in one mode; what the detector alone would have said comes with the first."""
    tracker = Tracker(load("face"), learn=self_training is not None, self_training=self_training or SelfTraining())
    track, alone, looks = tracked_model(tracker, images)
    note(report, video, mode, track)
    if self_training is None:
        note(report, video, ALONE, alone)
        return
    for what, values in (
        ("lessons", [tracked.n_learned for tracked in looks]),
        ("taken back", [tracked.n_rolled_back for tracked in looks]),
    ):
        report.rows.append(Row.from_values(what, mode, [float(sum(values))], video=video.name))


def tracked_model(tracker: Tracker, images: Sequence[GreyImage]) -> tuple[Track, Track, list[TrackedFrame]]:
    """The followed window of each frame, the best detection of each frame, and all looks."""
    looks = [tracker.update(image) for image in images]
    nothing = np.full(4, np.nan)
    followed = [nothing if tracked.track is None else tracked.track.box for tracked in looks]
    alone = []
    for tracked in looks:
        groups = None if tracked.track is None else grouped(tracked.track.fired)
        alone.append(nothing if groups is None or not len(groups.scores) else groups.boxes[0])
    scores = np.array([-np.inf if tracked.track is None else tracked.track.score for tracked in looks])
    return Track(np.array(followed), scores), Track(np.array(alone), scores), looks


def note(report: Report, video: FaceVideo, method: str, track: Track) -> None:
    """The detection rate with framed and with raw windows."""
    truths = video.truths[: len(track.scores)]
    for convention, frame in (("framed", FRAME), ("raw", BoxOffset())):
        rate = track.rate(truths, frame)
        report.rows.append(Row.from_values("detection rate", method, [rate], video=video.name, box=convention))


def report_peers(report: Report, video: FaceVideo, images: Sequence[GreyImage]) -> None:
    """OpenCV's cascades and trackers, where it is installed."""
    truths = video.truths[: len(images)]
    try:
        for name in CASCADES:
            note(report, video, f"OpenCV {name}", strongest_windows(name, images))
        for name in TRACKERS:
            boxes: Boxes = tracked(name, images, truths[0])
            rate = float((overlaps(boxes, truths) > IOU).mean())
            told = "the first one is given"
            report.rows.append(
                Row.from_values("detection rate", f"OpenCV Tracker{name}", [rate], video=video.name, box=told)
            )
    except NoPeersError as error:
        report.remarks.append(f"{video.name}: without OpenCV's peers: {error}")


def _summary(report: Report, name: str) -> str:
    methods = dict.fromkeys(row.method for row in report.rows)
    best: Callable[[str], float] = lambda method: _rate(report, method, name)  # noqa: E731
    return f"{name}: " + "; ".join(f"{method} {best(method):.1%}" for method in methods)


def _rate(report: Report, method: str, name: str) -> float:
    """Ours as framed; a peer in whichever convention is better for it."""
    rows = report.of("detection rate", method, video=name)
    peers = method.startswith("OpenCV")
    return max((row.mean for row in rows if peers or row.setting["box"] == "framed"), default=0.0)


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
    return [figures.save(figure, out / "watching-rates.png")]
