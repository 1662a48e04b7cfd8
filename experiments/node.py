"""Single stages ("nodes" in the paper) on faces: batch and online GSLDA as samples arrive. Fig. single_face.

Five sets of 2,000 faces and 2,000 non-faces, three to train and two to test. Each of three rotations uses two training
sets (the paper keeps the third for validation). The paper does not give the number of samples that the online stage
starts from, so there are three starts. Batch training starts again each time that samples have arrived.
"""

from __future__ import annotations

import time
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.datasets import faces24
from experiments.face_samples import WINDOW, face_sets, mirrored, non_face_sets
from experiments.report import Progress, Report, Row, Size, draw_curve
from whet.cascade.stage import LearningStage
from whet.features.haar import HaarPool
from whet.features.training import train_weak_learners
from whet.plots import figure as figures
from whet.training.stage import GreedyLDA

RUNS = {"small": 1, "paper": 3}
N_WEAK = (30, 50, 100)
SET_SIZE = {"small": 500, "paper": 2000}
N_FEATURES = 10_000  # of the small size; the paper has all 162,336
MARKS = {"small": (250, 500, 1000, 2000), "paper": (500, 1000, 2000, 3000, 4000, 6000, 8000)}
STARTS = {"small": (250, 500), "paper": (500, 1000, 2000)}

Samples = tuple[NDArray[np.uint8], NDArray[np.bool_]]
Curves = dict[tuple[str, str, int, int], list[float]]


def run(size: Size, runs: int, seed: int, progress: Progress) -> Report:
    """Test errors and seconds of batch and online training, over runs and rotations."""
    report = Report("node", seed, runs, size)
    curves: Curves = defaultdict(list)
    for r in range(runs):
        rng = np.random.default_rng(seed + r)
        faces = face_sets(5, SET_SIZE[size], rng)
        others = non_face_sets(5, SET_SIZE[size], rng)
        test = joined(faces[3:], others[3:])
        pool = HaarPool.from_window(WINDOW)
        if size == "small":
            pool = pool.sample(N_FEATURES, rng)
        for number, (a, b) in enumerate(combinations(range(3), 2)):
            X, y = joined([faces[a], faces[b]], [others[a], others[b]])
            order = arrival(len(X) // 2, rng)
            one_rotation(pool, (X[order], y[order]), test, size, curves)
            progress((r + (number + 1) / 3) / runs)
    report.rows = [
        Row.from_values(measure, method, values, n_weak=n_weak, samples=samples)
        for (measure, method, n_weak, samples), values in curves.items()
    ]
    report.remarks = [_gaps(report, n_weak) for n_weak in N_WEAK]
    return report


def joined(faces: list[NDArray[np.uint8]], others: list[NDArray[np.uint8]]) -> Samples:
    """Patches, faces first, and which of them are faces."""
    X = np.concatenate([*faces, *others])
    return X, np.arange(len(X)) < sum(map(len, faces))


def arrival(n_faces: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """A random order in which faces (first half) and non-faces alternate; mirror images arrive together."""
    pairs = rng.permutation(n_faces // 2)
    faces = np.column_stack([2 * pairs, 2 * pairs + 1]).ravel()
    return np.column_stack([faces, n_faces + rng.permutation(n_faces)]).ravel()


def one_rotation(pool: HaarPool, train: Samples, test: Samples, size: Size, curves: Curves) -> None:
    """Batch at every mark, online from each start on; smaller stages are the beginning of the largest one."""
    X, y = train
    online: dict[tuple[int, int], LearningStage] = {}
    spent: dict[tuple[int, int], float] = {}
    seen = 0
    for n in MARKS[size]:
        for (start, n_weak), stage in online.items():
            begin = time.perf_counter()
            online[start, n_weak] = stage.learn(X[seen:n], y[seen:n])
            spent[start, n_weak] += time.perf_counter() - begin
        begin = time.perf_counter()
        batch = nested_stages(pool, X[:n], y[:n])
        seconds = time.perf_counter() - begin
        for n_weak in N_WEAK:
            note(curves, "batch", n_weak, n, batch[n_weak], seconds, test)
            if n in STARTS[size]:
                online[n, n_weak] = batch[n_weak]
                spent[n, n_weak] = seconds
        for (start, n_weak), stage in online.items():
            note(curves, f"online from {start:,}", n_weak, n, stage, spent[start, n_weak], test)
        seen = n


def note(curves: Curves, method: str, n_weak: int, n: int, stage: LearningStage, seconds: float, test: Samples) -> None:
    """Add the test error and the seconds of one stage after n samples."""
    curves["error", method, n_weak, n].append(float(((stage.run().score(test[0]) > 0) != test[1]).mean()))
    curves["seconds", method, n_weak, n].append(seconds)


def nested_stages(pool: HaarPool, X: NDArray[np.uint8], y: NDArray[np.bool_]) -> dict[int, LearningStage]:
    """Stages of all sizes from one training: forward search only adds weak learners."""
    weak, responses = train_weak_learners(pool, X, y)
    learner = GreedyLDA()
    chosen = np.array(list(learner.rounds(responses, max(N_WEAK))))
    stages = {}
    for n_weak in N_WEAK:
        first = chosen[:n_weak]
        features = pool.take(weak.feature[first])
        vote = learner.vote(responses, first)
        stages[n_weak] = LearningStage.from_discriminant(features, weak.take(first), vote)
    return stages


def _gaps(report: Report, n_weak: int) -> str:
    last = max(row.setting["samples"] for row in report.rows)
    (batch,) = report.select("error", "batch", n_weak=n_weak, samples=last)
    parts = []
    for method in _online_methods(report):
        rows = report.select("error", method, n_weak=n_weak)
        first, final = rows[0], rows[-1]
        gap = 100 * (final.mean - batch.mean)
        parts.append(f"{method} goes from {first.mean:.2%} to {final.mean:.2%}, {gap:+.2f} points from batch")
    return f"{n_weak} weak learners, {last} samples: batch {batch.mean:.2%}; " + "; ".join(parts)


def _online_methods(report: Report) -> list[str]:
    return [m for m in dict.fromkeys(row.method for row in report.rows) if m.startswith("online")]


def draw(report: Report, out: Path) -> list[Path]:
    """The three panels of the paper, the time, and a sheet of training faces."""
    figure, axes = figures.new_figure(1, 4, 16, 3.8)
    curves = [("batch", figures.RED)]
    curves += list(zip(_online_methods(report), (figures.GREEN, figures.BLUE, figures.PURPLE), strict=False))
    for panel, n_weak, letter in zip(axes[0], (*N_WEAK, N_WEAK[-1]), "abcd", strict=True):
        measure = "seconds" if letter == "d" else "error"
        for method, color in curves:
            draw_curve(panel, report.select(measure, method, n_weak=n_weak), "samples", method, color, "-o")
        panel.set_title(f"({letter}) {n_weak} weak learners", fontsize=10)
        panel.set_ylabel("seconds of training" if letter == "d" else "test error")
        panel.set_xlabel("training samples")
        panel.legend(fontsize=8)
        panel.grid(alpha=0.3)
    return [figures.save(figure, out / "node-errors.png"), _draw_faces(report.seed, out / "node-faces.png")]


def _draw_faces(seed: int, path: Path) -> Path:
    faces = faces24()
    chosen = mirrored(faces[np.random.default_rng(seed).choice(len(faces), 60, replace=False)])
    rows = [np.concatenate(list(chosen[start : start + 20]), axis=1) for start in range(0, 120, 20)]
    figure, axes = figures.new_figure(1, 1, 10, 3.1)
    axes[0, 0].imshow(np.concatenate(rows), cmap="gray")
    axes[0, 0].set_axis_off()
    return figures.save(figure, path)
