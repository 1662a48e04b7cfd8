"""Whole cascades that learn online, on MIT+CMU. Fig. cascade_face of the paper.

Starting from 500, 1,000 and 5,000 mirrored faces: a cascade trained in one batch, and the same cascade after it learned
a million false positives of its earlier stages, 5,000 new faces, or both; and a batch of 10,000. Each sample counts
once. OpenCV's frontal face cascades are evaluated on the same images by the same rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments import opencv_peers
from experiments.cascade_training import CascadeSettings, count_faces, count_false_positives, train
from experiments.datasets import faces24, negative_images
from experiments.face_samples import WINDOW, mirrored
from experiments.mit_cmu import Trial, faces_at
from experiments.report import Progress, Report, Row, Size, draw_curve
from whet.detector.detector import Detector
from whet.features.haar import HaarPool
from whet.plots import figure as figures

RUNS = {"small": 1, "paper": 3}
METHODS = ("batch", "+ negatives", "+ faces", "+ both")
# Numbers of false positives in all 130 images at which faces are counted.
FALSE_POSITIVES = (0, 2, 5, 10, 15, 20, 26, 35, 50, 75, 100, 150, 200, 300)
SUMMARY = (10, 26, 50, 100, 200)
RUN = 20  # neighbouring faces in the file may be near-duplicates: they are drawn in runs of this length
HELD_OUT = 1000

Patches = NDArray[np.uint8]
Counts = dict[tuple[str, str, int, int], list[float]]


@dataclass(frozen=True)
class Scale:
    """Numbers of samples, features, stages and images of the small and the paper's size."""

    initial: tuple[int, ...]
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
    """The data of one run: initial, new and held-out faces, images for training and for learning, features."""

    initial: Patches
    new: Patches
    held_out: Patches
    images: list[Path]
    new_images: list[Path]
    pool: HaarPool

    @classmethod
    def drawn(cls, scale: Scale, rng: np.random.Generator) -> Material:
        """Draw at random; the parts share no run of neighbouring faces and no image."""
        n_initial = max((*scale.initial, *scale.batch_only)) // 2
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
    """Faces found at given numbers of false positives, for all detectors and runs."""
    report, scale = Report("cascade", seed, runs, size), SCALES[size]
    trial = Trial.from_mit_cmu()
    counts: Counts = defaultdict(list)
    done, steps = 0, runs * (len(scale.initial) + len(scale.batch_only)) + 1
    for r in range(runs):
        material = Material.drawn(scale, np.random.default_rng(seed + r))
        for n in (*scale.initial, *scale.batch_only):
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


def detectors(material: Material, scale: Scale, n: int, seed: int) -> Iterator[tuple[str, Detector]]:
    """The batch cascade from n faces, and the same cascade after learning in the paper's three ways."""
    # The paper has as many negatives as faces in the largest cascade, and gives no number for the smaller ones.
    settings = CascadeSettings(scale.n_stages, n_negatives=max(scale.n_negatives, n), seed=seed)
    base = train(material.pool, material.initial[:n], material.images, settings)
    yield "batch", Detector(base)
    if n in scale.batch_only:
        return
    negatives = count_false_positives(base, material.new_images, scale.n_false_positives, seed)
    faces = count_faces(base, material.new)
    for method, delta in (("+ negatives", negatives), ("+ faces", faces), ("+ both", negatives + faces)):
        yield method, Detector(base, delta)


def note(counts: Counts, method: str, n: int, detector: Detector, trial: Trial, held_out: Patches) -> None:
    """Add the faces at each number of false positives, and the numbers that explain them."""
    cascade = detector.cascade
    curve = trial.run(cascade).curve
    for at, faces in zip(FALSE_POSITIVES, faces_at(curve, FALSE_POSITIVES), strict=True):
        counts["faces", method, n, at].append(faces)
    counts["negatives learned", method, n, 0].append(sum(negatives for _, negatives in detector.delta.counts))
    counts["stages", method, n, 0].append(len(cascade.stages))
    counts["weak learners", method, n, 0].append(cascade.n_weak)
    counts["held-out faces accepted", method, n, 0].append(float(cascade.accepts(held_out).mean()))
    counts["most faces", method, n, 0].append(int(curve.found[-1]))
    counts["most false positives", method, n, 0].append(int(curve.false_positives[-1]))


def add_peers(report: Report, trial: Trial) -> list[str]:
    """Add OpenCV's cascades to the report; a remark if OpenCV is not installed."""
    try:
        peers = opencv_peers.run_peers(trial)
    except opencv_peers.NoPeersError as error:
        return [f"no peers: {error}"]
    for peer in peers:
        for at, faces in zip(FALSE_POSITIVES, peer.faces_at(FALSE_POSITIVES), strict=True):
            report.rows.append(Row.from_values("faces", peer.name, [faces], false_positives=at))
    return [f"OpenCV's {peer.name}, best setting at each number: {_listed(peer.faces_at(SUMMARY))}" for peer in peers]


def remarks(report: Report, scale: Scale) -> list[str]:
    """A line for each detector, and the order of the methods."""
    lines = [f"faces of {report.name} at {', '.join(map(str, SUMMARY))} false positives, mean of {report.runs} runs"]
    for n in (*scale.initial, *scale.batch_only):
        for method in METHODS:
            rows = [row for at in SUMMARY for row in report.select("faces", method, initial=n, false_positives=at)]
            if rows:
                lines.append(f"{n:,} faces, {method}: {_listed([row.mean for row in rows])}")
        if n in scale.initial:
            best = sorted(METHODS, key=lambda method: -level(report, method, n))
            lines.append(f"{n:,} faces: {' > '.join(f'{m} {level(report, m, n):.0f}' for m in best)} on average")
    return lines


def level(report: Report, method: str, n: int) -> float:
    """Faces found, averaged over the summary's numbers of false positives."""
    rows = [row for at in SUMMARY for row in report.select("faces", method, initial=n, false_positives=at)]
    return float(np.mean([row.mean for row in rows]))


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.0f}" for value in values)


def draw(report: Report, out: Path) -> list[Path]:
    """A panel for each number of initial faces, as in the paper."""
    sizes = [row.setting["initial"] for row in report.select("most faces", "+ both")]
    batch_only = [
        row.setting["initial"] for row in report.select("most faces", "batch") if row.setting["initial"] not in sizes
    ]
    figure, axes = figures.new_figure(1, len(sizes), 5.2 * len(sizes), 4.4, sharey=True)
    colors = dict(zip(METHODS, (figures.RED, figures.ORANGE, figures.BLUE, figures.GREEN), strict=True))
    for panel, n, letter in zip(axes[0], sizes, "abcdefgh", strict=False):
        for method, color in colors.items():
            draw_curve(panel, report.select("faces", method, initial=n), "false_positives", method, color, "-o")
        for other in batch_only if n == sizes[-1] else []:
            rows = report.select("faces", "batch", initial=other)
            draw_curve(panel, rows, "false_positives", f"batch of {other:,}", figures.PURPLE, "-s")
        for name, style in zip(opencv_peers.NAMES, ("-", "--", ":"), strict=True):
            draw_curve(
                panel, report.select("faces", name), "false_positives", f"OpenCV {name[12:]}", figures.GREY, style
            )
        panel.set_title(f"({letter}) {n:,} initial faces", fontsize=10)
        panel.set_xlabel("false positives in 130 images")
        panel.grid(alpha=0.3)
    axes[0, 0].set_ylabel("faces found, of 511")
    axes[0, -1].legend(fontsize=8, loc="lower right")
    return [figures.save(figure, out / "cascade-roc.png")]
