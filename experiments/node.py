"""Single nodes on faces: batch and online GSLDA as samples arrive. Fig. single_face of the paper.

Five sets of 2,000 faces and 2,000 non-faces, three to train and two to test. In each of three rotations two
training sets are used (the paper keeps the third for validation). The paper does not say how many samples the online
node starts from, so there are three starts; batch trains everything anew each time that more have come.
"""

from __future__ import annotations

import time
from collections import defaultdict
from copy import deepcopy
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments import figures
from experiments.datasets import faces24
from experiments.face_samples import WINDOW, face_sets, mirrored, non_face_sets
from experiments.registry import Size
from experiments.report import Progress, Report, Row
from whet.features.haar import HaarPool
from whet.features.training import train_weak_learners
from whet.training.stage import GreedyLDA, Node

RUNS = {"small": 1, "paper": 3}
N_WEAK = (30, 50, 100)
SET_SIZE = {"small": 500, "paper": 2000}
N_FEATURES = 10_000  # of the small size; the paper has all 162,336
MARKS = {"small": (250, 500, 1000, 2000), "paper": (500, 1000, 2000, 3000, 4000, 6000, 8000)}
STARTS = {"small": (250, 500), "paper": (500, 1000, 2000)}

Samples = tuple[NDArray[np.uint8], NDArray[np.bool_]]
Curves = dict[tuple[str, str, int, int], list[float]]


def run(size: Size, runs: int, seed: int, progress: Progress) -> Report:
    """Test errors and seconds of both, over runs and rotations."""
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
    """Patches with the faces first, and which are faces."""
    X = np.concatenate([*faces, *others])
    return X, np.arange(len(X)) < sum(map(len, faces))


def arrival(n_faces: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """A random order of faces (first half) and non-faces that takes them in turns; mirror images arrive together."""
    pairs = rng.permutation(n_faces // 2)
    faces = np.column_stack([2 * pairs, 2 * pairs + 1]).ravel()
    return np.column_stack([faces, n_faces + rng.permutation(n_faces)]).ravel()


def one_rotation(pool: HaarPool, train: Samples, test: Samples, size: Size, curves: Curves) -> None:
    """Batch at every mark, online from each start on; smaller nodes are the beginning of the largest."""
    X, y = train
    online: dict[tuple[int, int], Node] = {}
    spent: dict[tuple[int, int], float] = {}
    seen = 0
    for n in MARKS[size]:
        for (start, n_weak), node in online.items():
            begin = time.perf_counter()
            node.learn(X[seen:n], y[seen:n])
            spent[start, n_weak] += time.perf_counter() - begin
        begin = time.perf_counter()
        batch = nested_nodes(pool, X[:n], y[:n])
        seconds = time.perf_counter() - begin
        for n_weak in N_WEAK:
            note(curves, "batch", n_weak, n, batch[n_weak], seconds, test)
            if n in STARTS[size]:
                online[n, n_weak] = with_own_statistics(batch[n_weak])
                spent[n, n_weak] = seconds
        for (start, n_weak), node in online.items():
            note(curves, f"online from {start:,}", n_weak, n, node, spent[start, n_weak], test)
        seen = n


def note(curves: Curves, method: str, n_weak: int, n: int, node: Node, seconds: float, test: Samples) -> None:
    """Test error and seconds of one node after n samples."""
    curves["error", method, n_weak, n].append(float((node.predict(test[0]) != test[1]).mean()))
    curves["seconds", method, n_weak, n].append(seconds)


def nested_nodes(pool: HaarPool, X: NDArray[np.uint8], y: NDArray[np.bool_]) -> dict[int, Node]:
    """Nodes of all sizes from one training: forward search adds to what it has."""
    weak, responses = train_weak_learners(pool, X, y)
    learner = GreedyLDA()
    chosen = np.array(list(learner.rounds(responses, max(N_WEAK))))
    nodes = {}
    for n_weak in N_WEAK:
        first = chosen[:n_weak]
        features = pool.take(weak.feature[first])
        nodes[n_weak] = Node(features, weak.take(first), learner.vote(responses, first))
    return nodes


def with_own_statistics(node: Node) -> Node:
    """The same node, free to learn."""
    return replace(node, vote=deepcopy(node.vote))


def _gaps(report: Report, n_weak: int) -> str:
    last = max(row.setting["samples"] for row in report.rows)
    (batch,) = report.of("error", "batch", n_weak=n_weak, samples=last)
    parts = []
    for method in _online_methods(report):
        rows = report.of("error", method, n_weak=n_weak)
        first, final = rows[0], rows[-1]
        gap = 100 * (final.mean - batch.mean)
        parts.append(f"{method} goes from {first.mean:.2%} to {final.mean:.2%}, {gap:+.2f} points from batch")
    return f"{n_weak} weak learners, {last} samples: batch {batch.mean:.2%}; " + "; ".join(parts)


def _online_methods(report: Report) -> list[str]:
    return [m for m in dict.fromkeys(row.method for row in report.rows) if m.startswith("online")]


def draw(report: Report, out: Path) -> list[Path]:
    """Three panels as the paper's, the time, and a sheet of training faces."""
    figure, axes = figures.new_figure(1, 4, 16, 3.8)
    curves = [("batch", figures.RED)]
    curves += list(zip(_online_methods(report), (figures.GREEN, figures.BLUE, figures.PURPLE), strict=False))
    for panel, n_weak, letter in zip(axes[0], (*N_WEAK, N_WEAK[-1]), "abcd", strict=True):
        measure = "seconds" if letter == "d" else "error"
        for method, color in curves:
            figures.curve(panel, report.of(measure, method, n_weak=n_weak), "samples", method, color, "-o")
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
