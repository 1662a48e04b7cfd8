"""Whole cascades taught online, on MIT+CMU. Fig. cascade_face of the paper.

From 500, 1,000 and 5,000 mirrored faces each: a cascade trained in one batch, and the same one taught a million false
positives of its earlier stages, 5,000 new faces, or both; and a batch of 10,000. Each sample counts once. OpenCV's
frontal face cascades are judged on the same images by the same rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from whet.detector.taught import TaughtDetector

from experiments import figures, opencv_peers
from experiments.cascade_lessons import lesson_of_faces, lesson_of_false_positives
from experiments.datasets import faces24, negative_images
from experiments.face_samples import WINDOW, mirrored
from experiments.mit_cmu import Trial, faces_at
from experiments.paper_cascade import CONFIG, train
from experiments.registry import Size
from experiments.report import Progress, Report, Row
from whet.detector.base import Delta
from whet.features.haar import HaarPool

RUNS = {"small": 1, "paper": 3}
METHODS = ("batch", "+ negatives", "+ faces", "+ both")
# False positives in all 130 images together, at which faces are counted.
FALSE_POSITIVES = (0, 2, 5, 10, 15, 20, 26, 35, 50, 75, 100, 150, 200, 300)
SUMMARY = (10, 26, 50, 100, 200)
RUN = 20  # faces that follow each other in the file may be near-duplicates: they are drawn in such runs
HELD_OUT = 1000

Patches = NDArray[np.uint8]
Counts = dict[tuple[str, str, int, int], list[float]]


@dataclass(frozen=True)
class Scale:
    """How much of everything a size of the experiment has."""

    taught: tuple[int, ...]
    batch_only: tuple[int, ...]
    n_new_faces: int
    n_false_positives: int
    n_features: int
    n_negatives: int
    n_stages: int
    n_images: int


SCALES = {
    "small": Scale((500,), (), 2000, 40_000, 4000, 1500, 25, 600),
    "paper": Scale((500, 1000, 5000), (10_000,), 5000, 1_000_000, 10_000, 5000, 25, 1800),
}


@dataclass(frozen=True, eq=False)
class Material:
    """What one run has: mirrored faces to start from, new ones and held-out ones, images for both parts, features."""

    initial: Patches
    new: Patches
    held_out: Patches
    images: list[Path]
    new_images: list[Path]
    pool: HaarPool

    @classmethod
    def drawn(cls, scale: Scale, rng: np.random.Generator) -> Material:
        """Draw at random; no run of neighbouring faces and no image is in two parts."""
        n_initial = max((*scale.taught, *scale.batch_only)) // 2
        n_new = scale.n_new_faces // 2
        faces = faces24()
        runs = np.arange(len(faces) // RUN * RUN).reshape(-1, RUN)
        order = runs[rng.permutation(len(runs))].ravel()
        parts = np.split(order, np.cumsum([n_initial, -(-n_initial // RUN) * RUN - n_initial, n_new]))
        held_out = parts[3][RUN:][:HELD_OUT]
        paths = negative_images()
        drawn = [paths[i] for i in rng.permutation(len(paths))[: scale.n_images]]
        third = len(drawn) // 3
        pool = HaarPool.from_window(WINDOW).sample(scale.n_features, rng)
        initial, new = mirrored(faces[parts[0]]), mirrored(faces[parts[2]])
        return cls(initial, new, faces[held_out], drawn[third:], drawn[:third], pool)


def run(size: Size, runs: int, seed: int, progress: Progress) -> Report:
    """Faces found at given numbers of false positives, of all detectors, over the runs."""
    report, scale = Report("cascade", seed, runs, size), SCALES[size]
    trial = Trial.from_mit_cmu()
    counts: Counts = defaultdict(list)
    done, steps = 0, runs * (len(scale.taught) + len(scale.batch_only)) + 1
    for r in range(runs):
        material = Material.drawn(scale, np.random.default_rng(seed + r))
        for n in (*scale.taught, *scale.batch_only):
            for method, detector in detectors(material, scale, n, seed + r):
                note(counts, method, n, detector, trial, material.held_out)
            done += 1
            progress(done / steps)
    report.rows = [
        Row.from_values(measure, method, values, initial=initial)
        if not measure.startswith("faces")
        else Row.from_values(measure, method, values, initial=initial, false_positives=at)
        for (measure, method, initial, at), values in counts.items()
    ]
    report.remarks = [*remarks(report, scale), *add_peers(report, trial)]
    progress(1.0)
    return report


def detectors(material: Material, scale: Scale, n: int, seed: int) -> Iterator[tuple[str, TaughtDetector]]:
    """The batch cascade from n faces, and the same one taught in three ways where the paper does that."""
    # As many negatives as faces in the largest, as the paper has it; it does not say for the small ones.
    config = replace(CONFIG, max_stages=scale.n_stages, negatives_per_stage=max(scale.n_negatives, n), seed=seed)
    base = train(material.pool, material.initial[:n], material.images, config)
    yield "batch", TaughtDetector(base)
    if n in scale.batch_only:
        return
    negatives = lesson_of_false_positives(base, material.new_images, scale.n_false_positives, seed)
    faces = lesson_of_faces(base, material.new)
    lessons: dict[str, Delta] = {"+ negatives": negatives, "+ faces": faces, "+ both": negatives + faces}
    for method, delta in lessons.items():
        yield method, TaughtDetector(base, delta)


def note(counts: Counts, method: str, n: int, detector: TaughtDetector, trial: Trial, held_out: Patches) -> None:
    """Faces at each number of false positives, and what explains them."""
    cascade = detector.cascade()
    curve = trial.run(cascade).curve
    for at, faces in zip(FALSE_POSITIVES, faces_at(curve, FALSE_POSITIVES), strict=True):
        counts["faces", method, n, at].append(faces)
    counts["negatives taught", method, n, 0].append(sum(negatives for _, negatives in detector.learned.counts))
    counts["stages", method, n, 0].append(len(cascade.stages))
    counts["weak learners", method, n, 0].append(cascade.n_weak)
    counts["held-out faces accepted", method, n, 0].append(float(cascade.accepts(held_out).mean()))
    counts["most faces", method, n, 0].append(int(curve.found[-1]))
    counts["most false positives", method, n, 0].append(int(curve.false_positives[-1]))


def add_peers(report: Report, trial: Trial) -> list[str]:
    """OpenCV's cascades as rows of the report; a remark where there are none."""
    try:
        peers = opencv_peers.run_peers(trial)
    except opencv_peers.NoPeersError as error:
        return [f"no peers: {error}"]
    for peer in peers:
        for at, faces in zip(FALSE_POSITIVES, peer.faces_at(FALSE_POSITIVES), strict=True):
            report.rows.append(Row.from_values("faces", peer.name, [faces], false_positives=at))
    return [
        f"OpenCV's {peer.name}, in whichever setting is best at each: {_listed(peer.faces_at(SUMMARY))}"
        for peer in peers
    ]


def remarks(report: Report, scale: Scale) -> list[str]:
    """A line for each detector, and whether the order is the paper's."""
    lines = [f"faces of {report.name} at {', '.join(map(str, SUMMARY))} false positives, mean of {report.runs} runs"]
    for n in (*scale.taught, *scale.batch_only):
        for method in METHODS:
            rows = [row for at in SUMMARY for row in report.of("faces", method, initial=n, false_positives=at)]
            if rows:
                lines.append(f"{n:,} faces, {method}: {_listed([row.mean for row in rows])}")
        if n in scale.taught:
            best = sorted(METHODS, key=lambda method: -level(report, method, n))
            lines.append(f"{n:,} faces: {' > '.join(f'{m} {level(report, m, n):.0f}' for m in best)} on average")
    return lines


def level(report: Report, method: str, n: int) -> float:
    """Faces found, averaged over the summary's numbers of false positives."""
    rows = [row for at in SUMMARY for row in report.of("faces", method, initial=n, false_positives=at)]
    return float(np.mean([row.mean for row in rows]))


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.0f}" for value in values)


def draw(report: Report, out: Path) -> list[Path]:
    """A panel for each number of initial faces, as the paper's."""
    sizes = [row.setting["initial"] for row in report.of("most faces", "+ both")]
    batch_only = [
        row.setting["initial"] for row in report.of("most faces", "batch") if row.setting["initial"] not in sizes
    ]
    figure, axes = figures.new_figure(1, len(sizes), 5.2 * len(sizes), 4.4, sharey=True)
    colors = dict(zip(METHODS, (figures.RED, figures.ORANGE, figures.BLUE, figures.GREEN), strict=True))
    for panel, n, letter in zip(axes[0], sizes, "abcdefgh", strict=False):
        for method, color in colors.items():
            figures.curve(panel, report.of("faces", method, initial=n), "false_positives", method, color, "-o")
        for other in batch_only if n == sizes[-1] else []:
            rows = report.of("faces", "batch", initial=other)
            figures.curve(panel, rows, "false_positives", f"batch of {other:,}", figures.PURPLE, "-s")
        for name, style in zip(opencv_peers.NAMES, ("-", "--", ":"), strict=True):
            figures.curve(
                panel, report.of("faces", name), "false_positives", f"OpenCV {name[12:]}", figures.GREY, style
            )
        panel.set_title(f"({letter}) {n:,} initial faces", fontsize=10)
        panel.set_xlabel("false positives in 130 images")
        panel.grid(alpha=0.3)
    axes[0, 0].set_ylabel("faces found, of 511")
    axes[0, -1].legend(fontsize=8, loc="lower right")
    return [figures.save(figure, out / "cascade-roc.png")]
