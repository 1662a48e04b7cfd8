"""Tracking, beyond the paper: the bundled face detector tracks the faces of both videos, and learns from its tracks.

One setting for both videos, the default of `whet watch --learn`. Its parameters were chosen on synthetic video
(`experiments.drifting_faces`); the test videos are only evaluated. The tracker gets no box of the face. Peers by the
same rule: OpenCV's cascades (the strongest window of a frame), and OpenCV's trackers, which start from the true box of
the first frame. Rates are given for boxes as a user gets them (`as reported`: by `whet watch`, whose boxes are higher
than the annotated ones), for windows, and for the face around a window as the annotations have it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.claims import Claim, Finding, listed, verdict
from experiments.datasets import FIRST, FaceVideo, face_video
from experiments.opencv_peers import TRACKERS, VIDEO_CASCADES, NoPeersError, strongest_windows, tracked_boxes
from experiments.report import Report, Row, Run
from experiments.single_stage import FACE_OFFSET, IOU, BestWindows, overlaps
from experiments.table import Size
from whet.detector.storage import load
from whet.images.boxes import BoxOffset
from whet.images.detections import group_windows
from whet.io.image_files import read_grey
from whet.plots import figure as figures
from whet.tracking.tracker import SelfTraining, TrackedFrame, Tracker

N_FRAMES = {"small": 40, "paper": None}
RATE, REPORTED, PEERS = "frames in which the face is found", "as reported", "peers"
# A face is found if the IoU of its box with the true one is above this.
IOUS = (0.3, IOU)
BEST = "tracks and learns"
MODES: dict[str, SelfTraining | None] = {
    "tracks": None,
    BEST: SelfTraining(),
}
ALONE = "detector alone"

GreyImage = NDArray[np.uint8]


ONCE = ()


def parts(size: Size) -> list[str]:  # noqa: ARG001 - both sizes have both videos
    """A part for each video and mode, and for the peers."""
    return [f"{name}, {mode}" for name in FIRST for mode in (*MODES, PEERS)]


def measure(run: Run) -> None:
    """Detection rates of one mode, or of the peers, on one video; deterministic, so one run is enough."""
    name, _, mode = run.part.partition(", ")
    video = face_video(name)
    images = [read_grey(path) for path in video.paths[: N_FRAMES[run.size]]]
    if mode == PEERS:
        note_peers(run, video, images)
    else:
        note_mode(run, video, images, mode, MODES[mode])


def note_mode(
    run: Run, video: FaceVideo, images: Sequence[GreyImage], mode: str, self_training: SelfTraining | None
) -> None:
    """Track through a video in one mode; the first mode also adds the detector alone."""
    detector = load("face")
    tracker = Tracker(detector, learn=self_training is not None, self_training=self_training or SelfTraining())
    best, alone, frames = track_all(tracker, images)
    reported = detector.box_offset
    note_rates(run, video, mode, best, reported)
    if self_training is None:
        note_rates(run, video, ALONE, alone, reported)
        return
    run.note("updates learned", mode, sum(frame.n_learned for frame in frames), video=video.name)
    run.note("updates rolled back", mode, sum(frame.n_rolled_back for frame in frames), video=video.name)


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


def note_rates(run: Run, video: FaceVideo, method: str, best: BestWindows, reported: BoxOffset | None = None) -> None:
    """The share of frames in which the face is found: with boxes as reported to a user, as windows, and as faces."""
    truths = video.truths[: len(best.scores)]
    boxes = {"face": FACE_OFFSET, "window": BoxOffset(), REPORTED: reported}
    for convention, offset in boxes.items():
        if offset is None:
            continue
        shared = overlaps(offset.boxes(best.windows), truths)
        for iou in IOUS:
            run.note(RATE, method, float((shared > iou).mean()), video=video.name, box=convention, iou=iou)


def note_peers(run: Run, video: FaceVideo, images: Sequence[GreyImage]) -> None:
    """OpenCV's cascades, whose windows are what they report, and its trackers; nothing if it is not installed."""
    truths = video.truths[: len(images)]
    try:
        for name in VIDEO_CASCADES:
            note_rates(run, video, f"OpenCV {name}", strongest_windows(name, images), BoxOffset())
        for name in TRACKERS:
            shared = overlaps(tracked_boxes(name, images, truths[0]), truths)
            for iou in IOUS:
                setting = {"video": video.name, "box": REPORTED, "iou": iou}
                run.note(RATE, f"OpenCV Tracker{name}", float((shared > iou).mean()), **setting)
    except NoPeersError as error:
        logging.getLogger(__name__).warning("OpenCV is not evaluated: %s", error)


def rate(report: Report, method: str, video: str, box: str = REPORTED, iou: float = IOU) -> Row:
    """The share of frames in which a method finds the face."""
    return report.one(RATE, method, video=video, box=box, iou=iou)


def learning_helps(report: Report) -> Finding:
    """Tracking with and without learning, by the boxes that a user gets."""
    parts, better = [], []
    for video in FIRST:
        for iou in IOUS:
            modes = [rate(report, mode, video, iou=iou).mean for mode in ("tracks", BEST)]
            better.append(modes[1] >= modes[0])
            parts.append(f"{video}, IoU above {iou}: {modes[0]:.1%} and {modes[1]:.1%}")
    return Finding(verdict(*better), "tracking, and with learning, " + listed(parts))


def better_than_cascades(report: Report) -> Finding:
    """The tracker against the better of OpenCV's cascades in its better convention, at the looser and the usual IoU."""
    parts, better = [], []
    for video in FIRST:
        for iou in IOUS:
            ours = max(rate(report, BEST, video, box, iou).mean for box in (REPORTED, "face"))
            theirs = max(
                rate(report, f"OpenCV {name}", video, box, iou).mean
                for name in VIDEO_CASCADES
                for box in ("window", "face")
            )
            better.append(ours > theirs)
            parts.append(f"{video}, IoU above {iou}: {ours:.1%} and {theirs:.1%}")
    return Finding(verdict(*better), "whet and OpenCV, each in its better box, " + listed(parts))


CLAIMS = (
    Claim(
        "beyond the paper",
        "The bundled detector finds a tracked face more often if it learns from its track.",
        "No fewer frames with boxes as `whet watch` reports them, at IoU above 0.3 and above 0.5, on both videos.",
        learning_helps,
    ),
    Claim(
        "beyond the paper",
        "The tracker finds the face more often than OpenCV's cascades.",
        "More frames, each in the better of its box conventions, at IoU above 0.3 and above 0.5, on both videos.",
        better_than_cascades,
    ),
)


def draw(report: Report, out: Path) -> list[Path]:
    """Bars of all modes and peers on both videos, by the boxes that a user gets."""
    figure, axes = figures.new_figure(1, len(FIRST), 12, 4.2)
    for panel, video in zip(axes[0], FIRST, strict=True):
        rows = report.select(RATE, "tracks", video=video, box=REPORTED)
        methods = list(dict.fromkeys(row.method for row in report.rows if row.measure == RATE))[::-1]
        for iou, color, height in ((IOUS[0], figures.GREY, 0.2), (IOUS[1], figures.BLUE, -0.2)):
            rows = [
                row for method in methods for row in report.select(RATE, method, video=video, box=REPORTED, iou=iou)
            ]
            panel.barh(
                np.arange(len(rows)) + height, [r.mean for r in rows], 0.38, color=color, label=f"IoU above {iou}"
            )
        panel.set_yticks(range(len(rows)), [row.method for row in rows])
        panel.set_title(video, fontsize=10)
        panel.set_xlabel("share of frames in which the face is found")
        panel.set_xlim(0, 1)
        panel.legend(fontsize=8)
        panel.grid(alpha=0.3, axis="x")
    return [figures.save(figure, out / "tracking-rates.png")]
