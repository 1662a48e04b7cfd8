"""Training time against the number of weak learners. Fig. gslda_cpu of the paper.

Batch GSLDA on 5,000 + 5,000 and on 10,000 + 10,000 patches, and online GSLDA from 5,000 + 5,000 plus one million
new patches: features evaluated, statistics updated, coefficients solved.
"""

from __future__ import annotations

import time
from collections import defaultdict
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments import figures
from experiments.datasets import faces24, negative_images
from experiments.face_samples import WINDOW, mirrored
from experiments.node import joined
from experiments.registry import Size
from experiments.report import Progress, Report, Row
from whet.features.haar import HaarPool
from whet.features.responses import BitResponses
from whet.features.training import train_weak_learners
from whet.features.weak_learners import Stumps, Subsets
from whet.training.negatives import windows_of_images
from whet.training.stage import GreedyLDA, Node, train_stage

RUNS = {"small": 1, "paper": 1}
N_WEAK = (10, 50, 100, 150, 200)
N_HALF = {"small": (500, 1000), "paper": (5000, 10_000)}
N_STREAM = {"small": 20_000, "paper": 1_000_000}
N_FEATURES = 10_000  # of the small size; the paper has all 162,336
CHUNK = 50_000

Seconds = dict[tuple[str, int], list[float]]


def run(size: Size, runs: int, seed: int, progress: Progress) -> Report:
    """Seconds of batch training on two sizes, and of the smaller one with the stream added."""
    report = Report("node-time", seed, runs, size)
    seconds: Seconds = defaultdict(list)
    exact = []
    _warm_up()
    for r in range(runs):
        rng = np.random.default_rng(seed + r)
        pool = HaarPool.from_window(WINDOW)
        if size == "small":
            pool = pool.sample(N_FEATURES, rng)
        smaller, larger = N_HALF[size]
        nodes = timed_batch(pool, smaller, rng, seconds)
        progress((r + 0.1) / runs)
        timed_batch(pool, larger, rng, seconds)
        progress((r + 0.3) / runs)
        after_batch = partial(_later, progress, r, runs)
        exact.append(timed_stream(nodes, N_STREAM[size], rng, seconds, after_batch))
        for n_weak in N_WEAK:
            start = seconds[f"batch, {smaller:,} + {smaller:,}", n_weak][-1]
            more = seconds["the stream alone", n_weak][-1]
            seconds[f"online, {smaller:,} + {smaller:,} and {N_STREAM[size]:,} more", n_weak].append(start + more)
    report.rows = [Row.from_values("seconds", method, values, n_weak=n) for (method, n), values in seconds.items()]
    report.remarks = [f"online statistics equal those of all patches at once, to the last bit: {all(exact)}"]
    return report


def _warm_up() -> None:
    """Compile the kernels, or load them from the cache, before anything is timed."""
    patches = np.random.default_rng(0).integers(0, 256, (100, *WINDOW), dtype=np.uint8)
    is_positive = np.arange(100) < 50
    node = train_stage(HaarPool.from_window(WINDOW).take(slice(None, None, 100)), patches, is_positive, 3)
    node.learn(patches, is_positive)


def _later(progress: Progress, r: int, runs: int, share: float) -> None:
    progress((r + 0.3 + 0.7 * share) / runs)


def timed_batch(pool: HaarPool, half: int, rng: np.random.Generator, seconds: Seconds) -> dict[int, Node]:
    """Train once, and note when each number of weak learners was reached."""
    faces = mirrored(faces24()[: -(-half // 2)])[:half]
    X, y = joined([faces], [windows_of_images(negative_images(), half, WINDOW, rng)])
    start = time.perf_counter()
    weak, responses = train_weak_learners(pool, X, y)
    learner = GreedyLDA()
    nodes: dict[int, Node] = {}
    chosen: list[int] = []
    for j, number in zip(learner.rounds(responses, max(N_WEAK)), count(1)):
        chosen.append(j)
        if number in N_WEAK:
            reached = time.perf_counter() - start
            solve = time.perf_counter()
            nodes[number] = _node(pool, weak, responses, learner, np.array(chosen))
            solving = time.perf_counter() - solve
            seconds[f"batch, {half:,} + {half:,}", number].append(reached + solving)
            start += solving  # what solving a smaller node took is not part of a larger one's time
    return nodes


def _node(
    pool: HaarPool, weak: Stumps | Subsets, responses: BitResponses, learner: GreedyLDA, chosen: NDArray[np.intp]
) -> Node:
    node = Node(pool.take(weak.feature[chosen]), weak.take(chosen), learner.vote(responses, chosen))
    assert node.vote.coef.size == len(chosen)
    return node


def timed_stream(
    nodes: dict[int, Node], n: int, rng: np.random.Generator, seconds: Seconds, progress: Progress
) -> bool:
    """Teach every node the same n non-faces, chunk by chunk; tell whether the result is that of one batch.

    The oracle counts the largest node's responses with NumPy's own integers, all chunks together.
    """
    paths = [negative_images()[i] for i in rng.permutation(len(negative_images()))]
    n_chunks = -(-n // CHUNK)
    largest = nodes[max(nodes)]
    C = np.array(largest.vote.negative.C)  # type: ignore[union-attr]
    spent = dict.fromkeys(nodes, 0.0)
    done = 0
    while done < n:
        images = paths[done // CHUNK :: n_chunks]  # a chunk has images of its own
        X = windows_of_images(images, min(CHUNK, n - done), WINDOW, rng)
        negatives = np.zeros(len(X), dtype=np.bool_)
        H = largest.respond(X).astype(np.float32)  # whole numbers below 2^24: exact in any order
        C += (H.T @ H).astype(np.int64)
        for n_weak, node in nodes.items():
            start = time.perf_counter()
            node.learn(X, negatives)
            assert node.vote.coef.size == n_weak
            spent[n_weak] += time.perf_counter() - start
        done += len(X)
        progress(done / n)
    for n_weak, value in spent.items():
        seconds["the stream alone", n_weak].append(value)
    return np.array_equal(C, largest.vote.negative.C)  # type: ignore[union-attr]


def draw(report: Report, out: Path) -> list[Path]:
    """One panel, as the paper's."""
    figure, axes = figures.new_figure(1, 1, 6, 4)
    methods = list(dict.fromkeys(row.method for row in report.rows if row.method != "the stream alone"))
    for method, color in zip(methods, (figures.ORANGE, figures.RED, figures.BLUE), strict=True):
        figures.curve(axes[0, 0], report.of("seconds", method), "n_weak", method, color, "-o")
    axes[0, 0].set_xlabel("weak learners")
    axes[0, 0].set_ylabel("seconds")
    axes[0, 0].set_ylim(0, None)
    axes[0, 0].legend(fontsize=8)
    axes[0, 0].grid(alpha=0.3)
    return [figures.save(figure, out / "node-time-seconds.png")]
