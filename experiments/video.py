"""Single-node face detectors on two videos: the paper's headline, learning from one's own detections. Table tabross.

200 weak learners in one node, 1,000 mirrored faces and 10,000 bootstrapped non-faces; the best window of each frame,
factor 1.2, step 1, is right where it has more than half in common with the true box. Online GSLDA is taught that window
as a face before the next frame, right or wrong. Windows show the inner part of a face, and the face around their eyes
is reported, for all methods (`Recipe.frame`).

The paper names neither the smallest window nor the frames of `trellis`, so there are two readings: windows of all sizes
in all frames; and faces of at least 40 pixels, a sixth of a frame's height, in the frames that the paper's count means.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments import figures
from experiments.face_samples import WINDOW
from experiments.face_tracks import Boxes, Track, followed
from experiments.face_videos import FIRST, FIRST_OF_PAPER, FaceVideo, face_video
from experiments.node import with_own_statistics
from experiments.node_windows import Levels
from experiments.registry import Size
from experiments.report import Progress, Report, Row
from experiments.video_curves import FALSE_POSITIVES, Hearing, faces_at
from experiments.video_nodes import Recipe, bootstrapped, pool_of, train_nodes
from experiments.video_sheet import sheet
from whet.cascade.boxes import BoxOffset
from whet.io.images import read_grey
from whet.plots.drawing import save_image
from whet.training.stage import Node

RUNS = {"small": 1, "paper": 10}
RECIPES = {"small": Recipe(n_features=3000, n_mined=3000), "paper": Recipe(n_features=10_000)}
EVERY = {"small": 12, "paper": 1}  # frames of a video that are used at all
JUDGED = {"small": 1, "paper": 2}  # frames that detectors are judged by; online GSLDA learns from all
CURVES_EVERY = {"small": 4, "paper": 6}  # frames of which a curve is made
PAPER = {
    "AdaBoost": {"david": 0.578, "trellis": 0.353},
    "AsymBoost": {"david": 0.687, "trellis": 0.375},
    "GSLDA": {"david": 0.703, "trellis": 0.485},
    "OGSLDA": {"david": 0.831, "trellis": 0.621},
}
SMALLEST = 40.0
RATE, NARROW_RATE = "detection rate", "detection rate, faces from 40 pixels in the paper's frames"
OWN, BEFORE = "OGSLDA, frames it has learned", "OGSLDA, before it learned them"

Values = dict[tuple[str, str, tuple[tuple[str, object], ...]], list[float]]


@dataclass(frozen=True, eq=False)
class Footage:
    """A video with its frames in memory."""

    video: FaceVideo
    images: tuple[NDArray[np.uint8], ...]

    @classmethod
    def from_name(cls, name: str, every: int) -> Footage:
        """Read every so many frames."""
        video = face_video(name).every(every)
        return cls(video, tuple(read_grey(path) for path in video.paths))

    def every(self, step: int) -> Footage:
        """Every `step`-th frame."""
        return Footage(self.video.every(step), self.images[::step])

    @property
    def as_in_paper(self) -> Footage:
        """The frames that the paper has."""
        first = np.searchsorted(self.video.numbers, FIRST_OF_PAPER.get(self.video.name, 0))
        return Footage(self.video[first:], self.images[first:])


@dataclass
class VideoReport(Report):
    """A report that also knows the boxes (n, 4) of each frame, by video and method, of the first run."""

    boxes: dict[tuple[str, str], Boxes] = field(default_factory=dict)
    footage: tuple[Footage, ...] = ()


def run(size: Size, runs: int, seed: int, progress: Progress) -> VideoReport:
    """Detection rates and curves of the four methods, over runs."""
    report = VideoReport(
        "video", seed, runs, size, footage=tuple(Footage.from_name(name, EVERY[size]) for name in FIRST)
    )
    values: Values = defaultdict(list)
    for r in range(runs):
        recipe = RECIPES[size]
        pool = pool_of(recipe, seed + r)
        nodes = train_nodes(recipe, pool, bootstrapped(recipe, pool, seed + r))
        progress((r + 0.4) / runs)
        for one in report.footage:
            for method, track in paper_tracks(nodes, one, size, values).items():
                note(report, values, one.every(JUDGED[size]), method, track, RATE)
            narrow = one.as_in_paper
            for method, track in narrow_tracks(nodes, narrow, JUDGED[size]).items():
                note(report, values, narrow.every(JUDGED[size]), method, track, NARROW_RATE)
        progress((r + 1) / runs)
    report.rows = [
        Row.from_values(measure, method, of_runs, **dict(setting))
        for (measure, method, setting), of_runs in values.items()
    ]
    report.remarks += [_summary(report, one.video.name, rate) for rate in (RATE, NARROW_RATE) for one in report.footage]
    return report


def paper_tracks(nodes: dict[str, Node], one: Footage, size: Size, values: Values) -> dict[str, Track]:
    """The best windows of the judged frames by each node and by online GSLDA; curves go to `values`."""
    judged, curves_every = JUDGED[size], CURVES_EVERY[size]
    offline, before, own = Hearing(curves_every), Hearing(curves_every), Hearing(curves_every)
    tracks = {method: followed(node, one.every(judged).images) for method, node in nodes.items()}
    online = with_own_statistics(nodes["GSLDA"])
    tracks["OGSLDA"] = followed(online, one.images, learn=True, hear=before).every(judged)
    for number in range(0, len(one.images), curves_every):
        levels = Levels.from_image(one.images[number], WINDOW)
        offline(number, nodes["GSLDA"].stage(), levels)
        own(number, online.stage(), levels)
    for method, hearing in (("GSLDA", offline), (OWN, own), (BEFORE, before)):
        shares = faces_at(hearing.windows, one.video.truths, RECIPES[size].frame)
        for n, found in zip(FALSE_POSITIVES, shares, strict=True):
            setting = ("video", one.video.name), ("false_positives", n), ("frames", len(hearing.windows))
            values["faces found", method, setting].append(found)
    return tracks


def narrow_tracks(nodes: dict[str, Node], one: Footage, judged: int) -> dict[str, Track]:
    """As `paper_tracks`, of windows from `SMALLEST` pixels on, without curves."""
    images = one.every(judged).images
    tracks = {method: followed(node, images, min_size=SMALLEST) for method, node in nodes.items()}
    online = with_own_statistics(nodes["GSLDA"])
    return tracks | {"OGSLDA": followed(online, one.images, learn=True, min_size=SMALLEST).every(judged)}


def note(report: VideoReport, values: Values, one: Footage, method: str, track: Track, measure: str) -> None:
    """The detection rate of a method with framed and with raw windows; the first boxes of all are kept."""
    face = RECIPES[report.size].frame
    for convention, frame in (("framed", face), ("raw", BoxOffset())):
        setting = ("video", one.video.name), ("box", convention)
        values[measure, method, setting].append(track.rate(one.video.truths, frame))
    report.boxes.setdefault((one.video.name, method), face.boxes(track.windows))


def _summary(report: VideoReport, name: str, rate: str) -> str:
    methods = dict.fromkeys(row.method for row in report.rows if row.measure == rate)
    parts = []
    for method in methods:
        rows = report.of(rate, method, video=name)
        parts.append(f"{method} {rows[0].mean:.1%} ± {100 * rows[0].std:.1f} (paper {PAPER[method][name]:.1%})")
    return f"{rate}, {name}: " + "; ".join(parts)


def draw(report: Report, out: Path) -> list[Path]:
    """The curves of both videos, and a sheet of frames for each."""
    figure, axes = figures.new_figure(1, len(FIRST), 11, 4.2)
    for panel, name in zip(axes[0], FIRST, strict=True):
        for method, color in (("GSLDA", figures.RED), (OWN, figures.GREEN), (BEFORE, figures.BLUE)):
            rows = report.of("faces found", method, video=name)
            figures.curve(panel, rows, "false_positives", method, color, "-o")
        panel.set_xscale("log")
        panel.set_title(name, fontsize=10)
        panel.set_xlabel("false positives in all frames scored")
        panel.set_ylabel("faces found")
        panel.legend(fontsize=8)
        panel.grid(alpha=0.3)
    files = [figures.save(figure, out / "video-roc.png")]
    if isinstance(report, VideoReport):
        for one in report.footage:
            judged = one.every(JUDGED[report.size])
            boxes = {method: report.boxes[one.video.name, method] for method in PAPER}
            image = sheet(judged.video, judged.images, boxes)
            files.append(save_image(image, out / f"video-{one.video.name}.png"))
    return files
