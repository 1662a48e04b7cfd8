"""Single-stage face detectors on two videos that learn from their own detections. Table tabross of the paper.

200 weak learners in one stage, trained on 1,000 mirrored faces and 10,000 bootstrapped non-faces. The best window of
each frame (scale factor 1.2, step 1) is correct if its IoU with the true box is above 0.5. Online GSLDA learns that
window as a face before the next frame, correct or not. Windows cover the inner part of a face; for all methods, the
face around the window is reported (`StageSettings.box_offset`).

The paper gives neither the smallest window nor the frames of `trellis`. So two variants are measured: windows of all
sizes in all frames; and faces of at least 40 pixels, a sixth of a frame's height, in the paper's number of frames.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from experiments.datasets import FIRST, FIRST_OF_PAPER, FaceVideo, face_video
from experiments.face_samples import WINDOW
from experiments.report import Progress, Report, Row, Size, draw_curve
from experiments.single_stage import (
    IOU,
    BestWindows,
    Boxes,
    GreyImage,
    StageSettings,
    best_windows,
    bootstrapped,
    overlaps,
    sampled_pool,
    self_trained,
    stage_windows,
    train_stages,
)
from whet.cascade.boxes import BoxOffset, box_iou
from whet.cascade.detections import FiredWindows
from whet.cascade.pyramid import Pyramid
from whet.cascade.stage import LearningStage, Stage, TrainedStage
from whet.evaluation.matching import Label, match
from whet.io.images import read_grey
from whet.plots import figure as figures
from whet.plots.drawing import FALSE_POSITIVE, FOUND, draw_boxes, save_image

RUNS = {"small": 1, "paper": 10}
SETTINGS = {"small": StageSettings(n_features=3000, n_mined=3000), "paper": StageSettings(n_features=10_000)}
EVERY = {"small": 12, "paper": 1}  # step between the frames of a video that are used
EVALUATE_EVERY = {"small": 1, "paper": 2}  # step between evaluated frames; online GSLDA learns from all
CURVES_EVERY = {"small": 4, "paper": 6}  # step between the frames of a curve
PAPER = {
    "AdaBoost": {"david": 0.578, "trellis": 0.353},
    "AsymBoost": {"david": 0.687, "trellis": 0.375},
    "GSLDA": {"david": 0.703, "trellis": 0.485},
    "OGSLDA": {"david": 0.831, "trellis": 0.621},
}
SMALLEST = 40.0
RATE, NARROW_RATE = "detection rate", "detection rate, faces from 40 pixels in the paper's frames"
OWN, BEFORE = "OGSLDA, frames it has learned", "OGSLDA, before it learned them"
# Numbers of false positives in a video at which a curve is read.
FALSE_POSITIVES = (1, 2, 5, 10, 20, 50, 100, 200, 400)
# Thresholds of a curve, as the mean number of windows left in a frame, from strict to lax.
WINDOWS_A_FRAME = np.geomspace(0.05, 200, 40)
# Windows of a frame beyond this rank are not used: the laxest threshold leaves a fifth of that.
KEPT = 1000
# Frames of the paper's figure; of `david`, 150 and 250 have no true box here, and `trellis` begins later in the paper.
SHEET_FRAMES = {
    "david": (350, 409, 450, 494, 592),
    "trellis": tuple(number + FIRST_OF_PAPER["trellis"] - 1 for number in (50, 85, 182, 231, 287, 386, 457)),
}
TRUTH = (250, 250, 250)

Values = dict[tuple[str, str, tuple[tuple[str, object], ...]], list[float]]


@dataclass(frozen=True, eq=False)
class Footage:
    """A video with its frames in memory."""

    video: FaceVideo
    images: tuple[NDArray[np.uint8], ...]

    @classmethod
    def from_name(cls, name: str, every: int) -> Footage:
        """Read every `every`-th frame."""
        video = face_video(name).every(every)
        return cls(video, tuple(read_grey(path) for path in video.paths))

    def every(self, step: int) -> Footage:
        """Every `step`-th frame."""
        return Footage(self.video.every(step), self.images[::step])

    @property
    def as_in_paper(self) -> Footage:
        """The frames of the paper."""
        first = np.searchsorted(self.video.numbers, FIRST_OF_PAPER.get(self.video.name, 0))
        return Footage(self.video[first:], self.images[first:])


@dataclass
class VideoReport(Report):
    """A report with the boxes (n, 4) of each frame by video and method, of the first run."""

    boxes: dict[tuple[str, str], Boxes] = field(default_factory=dict)
    footage: tuple[Footage, ...] = ()


def run(size: Size, runs: int, seed: int, progress: Progress) -> VideoReport:
    """Detection rates and curves of the four methods, over the runs."""
    report = VideoReport(
        "video", seed, runs, size, footage=tuple(Footage.from_name(name, EVERY[size]) for name in FIRST)
    )
    values: Values = defaultdict(list)
    for r in range(runs):
        settings = SETTINGS[size]
        pool = sampled_pool(settings, seed + r)
        stages = train_stages(settings, pool, bootstrapped(settings, pool, seed + r))
        progress((r + 0.4) / runs)
        for one in report.footage:
            for method, best in paper_windows(stages, one, size, values).items():
                note(report, values, one.every(EVALUATE_EVERY[size]), method, best, RATE)
            narrow = one.as_in_paper
            for method, best in narrow_windows(stages, narrow, EVALUATE_EVERY[size]).items():
                note(report, values, narrow.every(EVALUATE_EVERY[size]), method, best, NARROW_RATE)
        progress((r + 1) / runs)
    report.rows = [
        Row.from_values(measure, method, of_runs, **dict(setting))
        for (measure, method, setting), of_runs in values.items()
    ]
    report.remarks += [_summary(report, one.video.name, rate) for rate in (RATE, NARROW_RATE) for one in report.footage]
    return report


def paper_windows(stages: dict[str, TrainedStage], one: Footage, size: Size, values: Values) -> dict[str, BestWindows]:
    """The best windows of the evaluated frames by each stage and by online GSLDA; adds the curves to `values`."""
    step, curves_every = EVALUATE_EVERY[size], CURVES_EVERY[size]
    offline, before, own = TopWindows(curves_every), TopWindows(curves_every), TopWindows(curves_every)
    found = {method: best_windows(stage, one.every(step).images) for method, stage in stages.items()}
    best, online = self_trained(_gslda(stages), one.images, on_frame=before)
    found["OGSLDA"] = best.every(step)
    for number in range(0, len(one.images), curves_every):
        pyramid = Pyramid.from_image(one.images[number], WINDOW)
        offline(number, stages["GSLDA"].run(), pyramid)
        own(number, online.run(), pyramid)
    for method, top in (("GSLDA", offline), (OWN, own), (BEFORE, before)):
        shares = faces_at(top.windows, one.video.truths, SETTINGS[size].box_offset)
        for n, share in zip(FALSE_POSITIVES, shares, strict=True):
            setting = ("video", one.video.name), ("false_positives", n), ("frames", len(top.windows))
            values["faces found", method, setting].append(share)
    return found


def narrow_windows(stages: dict[str, TrainedStage], one: Footage, step: int) -> dict[str, BestWindows]:
    """As `paper_windows`, for windows from `SMALLEST` pixels on, without curves."""
    images = one.every(step).images
    found = {method: best_windows(stage, images, min_size=SMALLEST) for method, stage in stages.items()}
    best, _ = self_trained(_gslda(stages), one.images, min_size=SMALLEST)
    return found | {"OGSLDA": best.every(step)}


def _gslda(stages: dict[str, TrainedStage]) -> LearningStage:
    stage = stages["GSLDA"]
    assert isinstance(stage, LearningStage)
    return stage


def note(report: VideoReport, values: Values, one: Footage, method: str, best: BestWindows, measure: str) -> None:
    """Add the detection rate of a method with and without box offset; keep the boxes of the first run."""
    face = SETTINGS[report.size].box_offset
    for convention, offset in (("offset", face), ("raw", BoxOffset())):
        setting = ("video", one.video.name), ("box", convention)
        values[measure, method, setting].append(best.rate(one.video.truths, offset))
    report.boxes.setdefault((one.video.name, method), face.boxes(best.windows))


def _summary(report: VideoReport, name: str, rate: str) -> str:
    methods = dict.fromkeys(row.method for row in report.rows if row.measure == rate)
    parts = []
    for method in methods:
        rows = report.select(rate, method, video=name)
        parts.append(f"{method} {rows[0].mean:.1%} ± {100 * rows[0].std:.1f} (paper {PAPER[method][name]:.1%})")
    return f"{rate}, {name}: " + "; ".join(parts)


@dataclass(eq=False)
class TopWindows:
    """Collects the windows of the highest margins in every `step`-th frame."""

    step: int = 1
    windows: dict[int, FiredWindows] = field(default_factory=dict)

    def __call__(self, number: int, stage: Stage, pyramid: Pyramid) -> None:
        """Score one frame."""
        if number % self.step:
            return
        found = stage_windows(stage, pyramid, self._lowest(number))
        self.windows[number] = found.take(np.argsort(-found.scores, kind="stable")[:KEPT])

    def _lowest(self, number: int) -> float:
        """A margin with enough windows above it, from the frame before."""
        before = self.windows.get(number - self.step)
        if before is None or len(before) < KEPT:
            return -1e3
        return float(before.scores[-1] - 0.2 * (before.scores[0] - before.scores[-1]))


def faces_at(
    windows: dict[int, FiredWindows], truths: Boxes, offset: BoxOffset, false_positives: Sequence[int] = FALSE_POSITIVES
) -> list[float]:
    """The largest share of faces found, over all thresholds, with at most each number of false positives.

    Windows above a threshold are grouped as by Viola and Jones, so every threshold has its own groups. False positives
    are counted in the frames of `windows`.
    """
    pooled = np.sort(np.concatenate([found.scores for found in windows.values()]))[::-1]
    ranks = np.unique((WINDOWS_A_FRAME * len(windows)).astype(int).clip(0, len(pooled) - 1))
    points = [_point(windows, truths, offset, float(pooled[rank])) for rank in ranks]
    return [max((found for found, wrong in points if wrong <= n), default=0.0) for n in false_positives]


def _point(windows: dict[int, FiredWindows], truths: Boxes, offset: BoxOffset, threshold: float) -> tuple[float, int]:
    """Share of faces found and number of false positives at one threshold."""
    right = wrong = 0
    for number, found in windows.items():
        above = found.scores > threshold
        if not above.any():
            continue
        boxes, scores = group_means(found.boxes[above], found.scores[above] - threshold)
        labels = match(offset.boxes(boxes), scores, truths[number : number + 1]).labels
        right, wrong = right + int((labels == Label.TRUE).sum()), wrong + int((labels == Label.FALSE).sum())
    return right / len(windows), wrong


def group_means(boxes: Boxes, scores: NDArray[np.float64], iou: float = 0.3) -> tuple[Boxes, NDArray[np.float64]]:
    """Mean boxes and summed scores of windows that overlap directly or in chains, as Viola and Jones (2001) do.

    >>> boxes = np.array([[0, 0, 10, 10], [2, 0, 12, 10], [50, 0, 60, 10]], dtype=np.float64)
    >>> group_means(boxes, np.array([1.0, 3.0, 2.0]))[1]
    array([4., 2.])
    """
    _, group = connected_components(box_iou(boxes, boxes) >= iou, directed=False)
    sums = np.bincount(group, scores).astype(np.float64)
    means = np.stack([np.bincount(group, column) for column in boxes.T], axis=-1) / np.bincount(group)[:, None]
    order = np.lexsort((means[:, 1], means[:, 0], -sums))
    return means[order], sums[order]


def draw(report: Report, out: Path) -> list[Path]:
    """The curves of both videos, and a sheet of frames of each."""
    figure, axes = figures.new_figure(1, len(FIRST), 11, 4.2)
    for panel, name in zip(axes[0], FIRST, strict=True):
        for method, color in (("GSLDA", figures.RED), (OWN, figures.GREEN), (BEFORE, figures.BLUE)):
            rows = report.select("faces found", method, video=name)
            draw_curve(panel, rows, "false_positives", method, color, "-o")
        panel.set_xscale("log")
        panel.set_title(name, fontsize=10)
        panel.set_xlabel("false positives in all frames scored")
        panel.set_ylabel("faces found")
        panel.legend(fontsize=8)
        panel.grid(alpha=0.3)
    files = [figures.save(figure, out / "video-roc.png")]
    if isinstance(report, VideoReport):
        for one in report.footage:
            evaluated = one.every(EVALUATE_EVERY[report.size])
            boxes = {method: report.boxes[one.video.name, method] for method in PAPER}
            image = sheet(evaluated.video, evaluated.images, boxes)
            files.append(save_image(image, out / f"video-{one.video.name}.png"))
    return files


def sheet(video: FaceVideo, images: Sequence[GreyImage], boxes: Mapping[str, Boxes]) -> GreyImage:
    """A column for each frame of the paper's figure (or the nearest one), a row for each method.

    Boxes are green if correct and orange if not, true boxes white.
    """
    distance = np.abs(np.subtract.outer(SHEET_FRAMES.get(video.name, video.numbers[:1]), video.numbers))
    columns = distance.argmin(axis=1).tolist()
    rows = [
        np.concatenate([_cell(images[i], of_method[i], video.truths[i]) for i in columns], axis=1)
        for of_method in boxes.values()
    ]
    return np.concatenate(rows)


def _cell(image: GreyImage, box: NDArray[np.float64], truth: NDArray[np.float64]) -> GreyImage:
    drawn = draw_boxes(image, truth[None], TRUTH, width=1)
    if not np.isfinite(box).all():
        return drawn
    is_correct = overlaps(box[None], truth[None])[0] > IOU
    return draw_boxes(drawn, box[None], FOUND if is_correct else FALSE_POSITIVE, width=3)
