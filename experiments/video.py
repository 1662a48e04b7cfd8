"""Single-stage face detectors on two videos that learn from their own detections. Table tabross of the paper.

200 weak learners in one stage, trained on 1,000 mirrored faces and 10,000 bootstrapped non-faces. The best window of
each frame (scale factor 1.2, step 1) is a face that is *found* if its IoU with the true box is above 0.5. Online GSLDA
learns that window as a face before the next frame, correct or not.

The rule was fixed before any frame of these videos was looked at: windows of all sizes, all annotated frames, the
window itself as the box (`raw`), and the crop of training faces that made-up video chose (`experiments.video_rule`).
What was tried afterwards is an appendix: the face around the window as the box (`offset`), and windows from 40 pixels
on in the 501 frames that the paper counts. `david` has 471 annotated frames here; the paper evaluates 661.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from experiments.claims import Claim, Finding, difference, listed, percent, verdict
from experiments.datasets import FIRST, FIRST_OF_PAPER, FaceVideo, face_video
from experiments.face_samples import WINDOW
from experiments.report import Report, Row, Run, draw_curve
from experiments.single_stage import (
    ADABOOST,
    ASYMBOOST,
    FROZEN,
    GSLDA,
    IOU,
    PLAIN,
    RIDGED,
    BestWindows,
    Bootstrapped,
    Boxes,
    GreyImage,
    GuardedLearning,
    Samples,
    StageSettings,
    best_windows,
    bootstrapped,
    learn_always,
    overlaps,
    sampled_pool,
    self_trained,
    stage_windows,
    train_stages,
)
from experiments.table import Size
from whet.evaluation.evaluation import Label, match
from whet.images.boxes import BoxOffset, box_iou
from whet.images.detections import FiredWindows
from whet.images.pyramid import Pyramid
from whet.io.image_files import read_grey
from whet.models.gslda.cascade import LearningStage, Stage, TrainedStage
from whet.plots import figure as figures
from whet.plots.drawing import FALSE_POSITIVE, FOUND, draw_boxes, save_image

SETTINGS = {"small": StageSettings(n_features=2000, n_mined=1500), "paper": StageSettings(n_features=10_000)}
EVERY = {"small": 24, "paper": 1}  # step between the frames of a video that are used
EVALUATE_EVERY = {"small": 1, "paper": 4}  # step between evaluated frames; online GSLDA learns from all
CURVES_EVERY = {"small": 4, "paper": 8}  # step between the frames of a curve
OGSLDA, GUARDED = "OGSLDA", ", guarded"
OFFLINE = (ADABOOST, ASYMBOOST, GSLDA, ADABOOST + FROZEN, ASYMBOOST + FROZEN, GSLDA + RIDGED)
PAPER = {
    ADABOOST: {"david": 0.578, "trellis": 0.353},
    ASYMBOOST: {"david": 0.687, "trellis": 0.375},
    GSLDA: {"david": 0.703, "trellis": 0.485},
    OGSLDA: {"david": 0.831, "trellis": 0.621},
}
SMALLEST = 40.0
RATE, NARROW_RATE = "detection rate", "detection rate, faces from 40 pixels in the paper's frames"
BELOW_CURVE = "1 - AUC on held-out samples"
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
ONCE = ()


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


def parts(size: Size) -> tuple[str, ...]:  # noqa: ARG001 - one training serves both videos
    """All of a seed at once."""
    return ("stages",)


def measure(run: Run) -> None:
    """Train the stages of one seed, and run them on both videos."""
    footage = [Footage.from_name(name, EVERY[run.size]) for name in FIRST]
    settings = SETTINGS[run.size]
    pool = sampled_pool(settings, run.seed)
    samples = bootstrapped(settings, pool, run.seed)
    stages = train_stages(settings, pool, samples.train)
    note_held_out(run, stages, samples.held_out)
    for one in footage:
        run.note("frames with a true box", "all", len(one.images), video=one.video.name)
        found = rule_windows(run, stages, one, samples)
        for method, best in found.items():
            note_rates(run, RATE, one.every(EVALUATE_EVERY[run.size]), method, best)
        narrow = one.as_in_paper
        for method, best in narrow_windows(run, stages, narrow).items():
            note_rates(run, NARROW_RATE, narrow.every(EVALUATE_EVERY[run.size]), method, best)
        if run.is_first:
            evaluated = one.every(EVALUATE_EVERY[run.size])
            image = sheet(evaluated.video, evaluated.images, {method: found[method].windows for method in PAPER})
            save_image(image, run.out / f"video-{one.video.name}.png")


def note_held_out(run: Run, stages: Mapping[str, TrainedStage], held_out: Samples) -> None:
    """The area above each stage's ROC curve on held-out faces and false positives."""
    from sklearn.metrics import roc_auc_score

    for method, stage in stages.items():
        run.note(BELOW_CURVE, method, 1 - roc_auc_score(held_out.is_face, stage.run().score(held_out.patches)))


def rule_windows(
    run: Run, stages: dict[str, TrainedStage], one: Footage, samples: Bootstrapped
) -> dict[str, BestWindows]:
    """The best windows of the evaluated frames by each stage, offline and online; notes the curves."""
    step, curves_every = EVALUATE_EVERY[run.size], CURVES_EVERY[run.size]
    offline, before, own = TopWindows(curves_every), TopWindows(curves_every), TopWindows(curves_every)
    found = {method: best_windows(stages[method], one.every(step).images) for method in OFFLINE}
    best, online = self_trained(stages[GSLDA], one.images, on_frame=before)
    found[OGSLDA] = best.every(step)
    found[OGSLDA + RIDGED] = self_trained(stages[GSLDA + RIDGED], one.images)[0].every(step)
    guard = GuardedLearning(_learning(stages[GSLDA]), samples.held_out)
    found[OGSLDA + GUARDED] = self_trained(stages[GSLDA], one.images, guard)[0].every(step)
    run.note("windows learned", OGSLDA + GUARDED, guard.learned, video=one.video.name)
    run.note("windows refused by the guard", OGSLDA + GUARDED, guard.refused, video=one.video.name)
    for number in range(0, len(one.images), curves_every):
        pyramid = Pyramid.from_image(one.images[number], WINDOW)
        offline(number, stages[GSLDA].run(), pyramid)
        own(number, online.run(), pyramid)
    for method, top in ((GSLDA, offline), (OWN, own), (BEFORE, before)):
        shares = faces_at(top.windows, one.video.truths, BoxOffset())
        for n, share in zip(FALSE_POSITIVES, shares, strict=True):
            run.note("faces found", method, share, video=one.video.name, false_positives=n)
    return found


def narrow_windows(run: Run, stages: dict[str, TrainedStage], one: Footage) -> dict[str, BestWindows]:
    """As `rule_windows`, of the paper's four methods, for windows from `SMALLEST` pixels on."""
    step = EVALUATE_EVERY[run.size]
    images = one.every(step).images
    found = {m: best_windows(stages[m], images, min_size=SMALLEST) for m in (ADABOOST, ASYMBOOST, GSLDA)}
    best, _ = self_trained(stages[GSLDA], one.images, learn_always, min_size=SMALLEST)
    return found | {OGSLDA: best.every(step)}


def _learning(stage: TrainedStage) -> LearningStage:
    assert isinstance(stage, LearningStage)
    return stage


def note_rates(run: Run, measure: str, one: Footage, method: str, best: BestWindows) -> None:
    """The detection rate of a method with the window as the box, and with the face around it."""
    for convention, offset in (("raw", BoxOffset()), ("offset", SETTINGS[run.size].box_offset)):
        run.note(measure, method, best.rate(one.video.truths, offset), video=one.video.name, box=convention)


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


def rate(report: Report, method: str, video: str, box: str = "raw", measure: str = RATE) -> Row:
    """The detection rate of a method on a video."""
    return report.one(measure, method, video=video, box=box)


def _order(report: Report, better: str, worse: Sequence[str]) -> tuple[list[str], list[bool]]:
    """Whether a method is clearly above others, on each video."""
    parts, clear = [], []
    for video in FIRST:
        for other in worse:
            gap = difference(rate(report, better, video), rate(report, other, video))
            clear.append(gap.mean > 0 and gap.is_clear)
            parts.append(f"{video}, {better} minus {other}: {gap}")
    return parts, clear


_TRIED = (
    "The crop, the smallest window and the box convention are not in the paper; they move all rates by tens of points "
    "(appendix: faces as boxes, windows from 40 pixels on). The faces, the non-faces and 190 frames of david differ "
    "too."
)


def adaboost_is_worst(report: Report) -> Finding:
    """AdaBoost against AsymBoost and GSLDA."""
    orders = [_order(report, better, (ADABOOST,)) for better in (ASYMBOOST, GSLDA)]
    parts, clear = [part for more, _ in orders for part in more], [one for _, more in orders for one in more]
    frozen = [difference(rate(report, ADABOOST, v), rate(report, ADABOOST + FROZEN, v)) for v in FIRST]
    tried = f"Retrained stumps, as published, change AdaBoost by {', '.join(map(str, frozen))} on david and trellis."
    return Finding(verdict(*clear), listed(parts), f"{tried} {_TRIED}")


def online_is_best(report: Report) -> Finding:
    """OGSLDA against all others."""
    parts, clear = _order(report, OGSLDA, (GSLDA, ASYMBOOST, ADABOOST))
    guarded = [f"{v}: {percent(rate(report, OGSLDA + GUARDED, v))} with the guard" for v in FIRST]
    return Finding(verdict(*clear), listed([*parts, *guarded]), _TRIED)


def table_is_near(report: Report) -> Finding:
    """All eight rates of the table."""
    parts, near = [], []
    for video in FIRST:
        frames = report.one("frames with a true box", "all", video=video).mean
        of_methods = []
        for method, paper in PAPER.items():
            row = rate(report, method, video)
            near.append(abs(row.mean - paper[video]) <= 0.1)
            of_methods.append(f"{method} {percent(row)} ({100 * paper[video]:.1f})")
        parts.append(f"{video}, {frames:.0f} frames: " + ", ".join(of_methods))
    appendix = [
        f"{video} {percent(rate(report, OGSLDA, video, box, measure))}"
        for measure, box in ((RATE, "offset"), (NARROW_RATE, "offset"))
        for video in FIRST
    ]
    tried = f"{_TRIED} OGSLDA with faces as boxes, all sizes and from 40 pixels on: {', '.join(appendix)}."
    return Finding(verdict(*near), listed(parts), tried)


def updated_curve_is_above(report: Report) -> Finding:
    """The curves of GSLDA and OGSLDA."""
    parts, above = [], []
    for video in FIRST:
        for method in (OWN, BEFORE):
            pairs = [(report.one("faces found", method, video=video, false_positives=n), n) for n in FALSE_POSITIVES]
            gains = [
                row.mean - report.one("faces found", GSLDA, video=video, false_positives=n).mean for row, n in pairs
            ]
            above.append(min(gains) > 0)
            parts.append(f"{video}, {method}: {100 * min(gains):+.1f} to {100 * max(gains):+.1f} points")
    tried = "The paper scores frames that the detector has learned; before it learns them, the gain is smaller."
    return Finding(verdict(*above), "over GSLDA, " + listed(parts), tried)


def greedy_beats_boosting(report: Report) -> Finding:
    """Held-out samples: GSLDA against AdaBoost, and the variants of both."""
    base = report.one(BELOW_CURVE, ADABOOST)
    gap = difference(base, report.one(BELOW_CURVE, GSLDA))
    methods = (ADABOOST, ASYMBOOST, GSLDA, ADABOOST + FROZEN, ASYMBOOST + FROZEN, GSLDA + RIDGED, GSLDA + PLAIN)
    parts = [f"{method} {percent(report.one(BELOW_CURVE, method), 2)}" for method in methods]
    tried = "Retrained stumps close most of the gap that frozen ones show."
    return Finding(verdict(gap.mean > 0 and gap.is_clear), f"{listed(parts)}; AdaBoost minus GSLDA {gap}", tried)


def guard_removes_drift(report: Report) -> Finding:
    """The worst run with and without the guard."""
    parts, better = [], []
    for video in FIRST:
        plain, guarded = rate(report, OGSLDA, video), rate(report, OGSLDA + GUARDED, video)
        worst = min(plain.values.values()), min(guarded.values.values())
        better.append(worst[1] >= worst[0])
        parts.append(
            f"{video}: worst run {100 * worst[0]:.1f} % and {100 * worst[1]:.1f} % guarded, mean {percent(plain)} and "
            f"{percent(guarded)}"
        )
    tried = "The guard also refuses right windows of faces that look unlike the training faces, and so learns less."
    return Finding(verdict(*better), listed(parts), tried)


CLAIMS = (
    Claim(
        "Table tabross",
        "AdaBoost is the worst of the four detectors, because the training data are skewed.",
        "AsymBoost and GSLDA above AdaBoost on both videos, by the rule (paired over seeds, p < 0.05).",
        adaboost_is_worst,
    ),
    Claim(
        "Table tabross",
        "Online GSLDA is the best of the four detectors.",
        "Above GSLDA, AsymBoost and AdaBoost on both videos, by the rule (paired over seeds, p < 0.05).",
        online_is_best,
    ),
    Claim(
        "Table tabross",
        "Detection rates on david and trellis, of four detectors.",
        "Each of the eight rates within 10 points of the paper's (in parentheses). Of david, 471 frames are annotated "
        "here; the paper evaluates 661.",
        table_is_near,
    ),
    Claim(
        "Fig. davidROC",
        "Updating the model increases the overall performance: its ROC curve is above that of offline GSLDA.",
        "More faces found at every number of false positives, in frames it has learned and before it learns them.",
        updated_curve_is_above,
    ),
    Claim(
        "Section 1",
        "GSLDA outperforms AdaBoost on highly imbalanced data.",
        "1 - AUC on held-out samples below that of AdaBoost with retrained stumps (paired over seeds, p < 0.05).",
        greedy_beats_boosting,
    ),
    Claim(
        "beyond the paper",
        "A guard on held-out samples limits drift: the worst run gets no worse.",
        "The worst run with the guard is no worse than without, on both videos.",
        guard_removes_drift,
    ),
)


def draw(report: Report, out: Path) -> list[Path]:
    """Rates of all methods, and the curves of both videos."""
    figure, axes = figures.new_figure(2, len(FIRST), 12, 8.4)
    methods = [*OFFLINE, OGSLDA, OGSLDA + RIDGED, OGSLDA + GUARDED]
    for top, bottom, name in zip(*axes, FIRST, strict=True):
        for box, color, height in (("raw", figures.BLUE, 0.2), ("offset", figures.GREY, -0.2)):
            rows = [row for method in methods[::-1] for row in report.select(RATE, method, video=name, box=box)]
            places = np.arange(len(rows)) + height
            label = "window as box (the rule)" if box == "raw" else "face as box"
            top.barh(places, [r.mean for r in rows], 0.38, xerr=[r.std for r in rows], color=color, label=label)
        top.set_yticks(range(len(methods)), methods[::-1])
        top.set_xlabel("share of frames in which the face is found")
        for method, color in ((GSLDA, figures.RED), (OWN, figures.GREEN), (BEFORE, figures.BLUE)):
            rows = report.select("faces found", method, video=name)
            draw_curve(bottom, rows, "false_positives", method, color, "-o")
        bottom.set_xscale("log")
        bottom.set_xlabel("false positives in all frames scored")
        bottom.set_ylabel("faces found")
        for panel in (top, bottom):
            panel.set_title(name, fontsize=10)
            panel.legend(fontsize=8)
            panel.grid(alpha=0.3)
    return [figures.save(figure, out / "video-rates.png")]


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
