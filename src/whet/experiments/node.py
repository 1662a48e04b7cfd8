"""Single nodes on faces: batch and online GSLDA as samples arrive. Fig. single_face of the paper.

Five sets of 2,000 faces and 2,000 non-faces, three to train and two to test. In each of three rotations two
training sets are used (the paper keeps the third for validation). A quarter of their samples trains the online
node's stumps; batch trains everything anew each time that more have come.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.experiments import figures
from whet.experiments.face_samples import WINDOW, face_sets, mirrored, non_face_sets
from whet.experiments.registry import Size
from whet.experiments.report import Progress, Report, Row
from whet.features.haar import HaarPool
from whet.features.weak_training import train_weak_learners
from whet.io.datasets import faces24
from whet.training.learners import GreedyLDA
from whet.training.node import Node

RUNS = {"small": 1, "paper": 3}
N_WEAK = (30, 50, 100)
SET_SIZE = {"small": 500, "paper": 2000}
N_FEATURES = 10_000  # of the small size; the paper has all 162,336
SHARES = {"small": (0.25, 0.5, 1.0), "paper": (0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)}

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
        pool = HaarPool.of_window(WINDOW)
        if size == "small":
            pool = pool.sample(N_FEATURES, rng)
        for number, (a, b) in enumerate(combinations(range(3), 2)):
            X, y = joined([faces[a], faces[b]], [others[a], others[b]])
            order = arrival(len(X) // 2, rng)
            one_rotation(pool, (X[order], y[order]), test, SHARES[size], curves)
            progress((r + (number + 1) / 3) / runs)
    report.rows = [
        Row.of(measure, method, values, n_weak=n_weak, samples=samples)
        for (measure, method, n_weak, samples), values in curves.items()
    ]
    report.remarks = [_gap(report, n_weak) for n_weak in N_WEAK]
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


def one_rotation(pool: HaarPool, train: Samples, test: Samples, shares: tuple[float, ...], curves: Curves) -> None:
    """Batch at every share, online from the first share on; smaller nodes are the beginning of the largest."""
    X, y = train
    online: dict[int, Node] = {}
    online_seconds = dict.fromkeys(N_WEAK, 0.0)
    seen = 0
    for share in shares:
        n = round(share * len(X))
        start = time.perf_counter()
        batch = nested_nodes(pool, X[:n], y[:n])
        batch_seconds = time.perf_counter() - start
        for n_weak in N_WEAK:
            start = time.perf_counter()
            if n_weak not in online:
                online[n_weak] = nested_copy(batch[n_weak])
                online_seconds[n_weak] = batch_seconds
            else:
                online[n_weak].learn(X[seen:n], y[seen:n])
                online_seconds[n_weak] += time.perf_counter() - start
            for method, node, seconds in (
                ("batch", batch[n_weak], batch_seconds),
                ("online", online[n_weak], online_seconds[n_weak]),
            ):
                curves["error", method, n_weak, n].append(float((node.predict(test[0]) != test[1]).mean()))
                curves["seconds", method, n_weak, n].append(seconds)
        seen = n


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


def nested_copy(node: Node) -> Node:
    """The same node with statistics of its own."""
    from copy import deepcopy

    return replace(node, vote=deepcopy(node.vote))


def _gap(report: Report, n_weak: int) -> str:
    last = max(row.setting["samples"] for row in report.rows)
    ends = {m: report.of("error", m, n_weak=n_weak, samples=last)[0] for m in ("batch", "online")}
    start = report.of("error", "batch", n_weak=n_weak)[0]
    gap = 100 * (ends["online"].mean - ends["batch"].mean)
    return (
        f"{n_weak} weak learners: from {start.mean:.2%} at {start.setting['samples']} samples to batch "
        f"{ends['batch'].mean:.2%} and online {ends['online'].mean:.2%} at {last}; batch is ahead by {gap:+.2f} points"
    )


def draw(report: Report, out: Path) -> list[Path]:
    """Three panels as the paper's, the time, and a sheet of training faces."""
    figure, axes = figures.new_figure(1, 4, 16, 3.8)
    for i, n_weak in enumerate(N_WEAK):
        for method, color in (("batch", figures.RED), ("online", figures.BLUE)):
            rows = report.of("error", method, n_weak=n_weak)
            figures.curve(axes[0, i], rows, "samples", f"{method} GSLDA", color, "-o")
        axes[0, i].set_title(f"({'abc'[i]}) {n_weak} weak learners", fontsize=10)
        axes[0, i].set_ylabel("test error")
    for method, color in (("batch", figures.RED), ("online", figures.BLUE)):
        rows = report.of("seconds", method, n_weak=100)
        figures.curve(axes[0, 3], rows, "samples", f"{method} GSLDA", color, "-o")
    axes[0, 3].set_title("(d) seconds, 100 weak learners", fontsize=10)
    for panel in axes[0]:
        panel.set_xlabel("training samples")
        panel.set_ylim(0, None)
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
