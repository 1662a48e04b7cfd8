"""Training time of a stage against the number of weak learners. Fig. gslda_cpu of the paper.

Batch GSLDA on 5,000 + 5,000 and on 10,000 + 10,000 patches, and online GSLDA from 5,000 + 5,000 plus one million new
patches. Online time includes features, statistics and coefficients.
"""

from __future__ import annotations

import time
from collections import defaultdict
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.datasets import faces24, negative_images
from experiments.face_samples import WINDOW, mirrored
from experiments.node import joined
from experiments.report import Progress, Report, Row, Size, draw_curve
from whet.cascade.stage import LearningStage
from whet.features.haar import HaarPool
from whet.features.integral import IntegralStack
from whet.features.responses import BitResponses
from whet.features.training import train_weak_learners
from whet.features.weak_learners import Stumps, Subsets
from whet.plots import figure as figures
from whet.training.negatives import windows_of_images
from whet.training.stage import GreedyLDA, train_stage

RUNS = {"small": 1, "paper": 1}
N_WEAK = (10, 50, 100, 150, 200)
N_HALF = {"small": (500, 1000), "paper": (5000, 10_000)}
N_STREAM = {"small": 20_000, "paper": 1_000_000}
N_FEATURES = 10_000  # of the small size; the paper has all 162,336
CHUNK = 50_000

Seconds = dict[tuple[str, int], list[float]]


def run(size: Size, runs: int, seed: int, progress: Progress) -> Report:
    """Seconds of batch training on two sizes, and of the smaller one plus the stream."""
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
        stages = timed_batch(pool, smaller, rng, seconds)
        progress((r + 0.1) / runs)
        timed_batch(pool, larger, rng, seconds)
        progress((r + 0.3) / runs)
        after_batch = partial(_later, progress, r, runs)
        exact.append(timed_stream(stages, N_STREAM[size], rng, seconds, after_batch))
        for n_weak in N_WEAK:
            start = seconds[f"batch, {smaller:,} + {smaller:,}", n_weak][-1]
            more = seconds["the stream alone", n_weak][-1]
            seconds[f"online, {smaller:,} + {smaller:,} and {N_STREAM[size]:,} more", n_weak].append(start + more)
    report.rows = [Row.from_values("seconds", method, values, n_weak=n) for (method, n), values in seconds.items()]
    report.remarks = [f"online statistics equal those of all patches at once, to the last bit: {all(exact)}"]
    return report


def _warm_up() -> None:
    """Compile the kernels, or load them from the cache, before the timing."""
    patches = np.random.default_rng(0).integers(0, 256, (100, *WINDOW), dtype=np.uint8)
    is_positive = np.arange(100) < 50
    stage = train_stage(HaarPool.from_window(WINDOW).take(slice(None, None, 100)), patches, is_positive, 3)
    if isinstance(stage, LearningStage):
        stage.learn(patches, is_positive).run()


def _later(progress: Progress, r: int, runs: int, share: float) -> None:
    progress((r + 0.3 + 0.7 * share) / runs)


def timed_batch(pool: HaarPool, half: int, rng: np.random.Generator, seconds: Seconds) -> dict[int, LearningStage]:
    """Train once, and record the time at which each number of weak learners was reached."""
    faces = mirrored(faces24()[: -(-half // 2)])[:half]
    X, y = joined([faces], [windows_of_images(negative_images(), half, WINDOW, rng)])
    start = time.perf_counter()
    weak, responses = train_weak_learners(pool, X, y)
    learner = GreedyLDA()
    stages: dict[int, LearningStage] = {}
    chosen: list[int] = []
    for j, number in zip(learner.rounds(responses, max(N_WEAK)), count(1)):
        chosen.append(j)
        if number in N_WEAK:
            reached = time.perf_counter() - start
            solve = time.perf_counter()
            stages[number] = _stage(pool, weak, responses, learner, np.array(chosen))
            solving = time.perf_counter() - solve
            seconds[f"batch, {half:,} + {half:,}", number].append(reached + solving)
            start += solving  # the time to solve a smaller stage is not part of a larger one's
    return stages


def _stage(
    pool: HaarPool, weak: Stumps | Subsets, responses: BitResponses, learner: GreedyLDA, chosen: NDArray[np.intp]
) -> LearningStage:
    vote = learner.vote(responses, chosen)
    stage = LearningStage.from_discriminant(pool.take(weak.feature[chosen]), weak.take(chosen), vote)
    assert stage.run().coef.size == len(chosen)
    return stage


def timed_stream(
    stages: dict[int, LearningStage], n: int, rng: np.random.Generator, seconds: Seconds, progress: Progress
) -> bool:
    """Every stage learns the same n non-faces in chunks; returns whether the result equals that of one batch.

    The reference counts the responses of the largest stage with NumPy's own integers, all chunks together.
    """
    paths = [negative_images()[i] for i in rng.permutation(len(negative_images()))]
    n_chunks = -(-n // CHUNK)
    stages = dict(stages)
    largest = max(stages)
    C = np.array(stages[largest].negative.C)
    spent = dict.fromkeys(stages, 0.0)
    done = 0
    while done < n:
        images = paths[done // CHUNK :: n_chunks]  # every chunk has its own images
        X = windows_of_images(images, min(CHUNK, n - done), WINDOW, rng)
        negatives = np.zeros(len(X), dtype=np.bool_)
        # Whole numbers below 2^24: exact in any order.
        H = stages[largest].run().respond(IntegralStack.from_patches(X)).T.astype(np.float32)
        C += (H.T @ H).astype(np.int64)
        for n_weak, stage in stages.items():
            start = time.perf_counter()
            stages[n_weak] = stage.learn(X, negatives)
            assert stages[n_weak].run().coef.size == n_weak
            spent[n_weak] += time.perf_counter() - start
        done += len(X)
        progress(done / n)
    for n_weak, value in spent.items():
        seconds["the stream alone", n_weak].append(value)
    return np.array_equal(C, stages[largest].negative.C)


def draw(report: Report, out: Path) -> list[Path]:
    """One panel, as in the paper."""
    figure, axes = figures.new_figure(1, 1, 6, 4)
    methods = list(dict.fromkeys(row.method for row in report.rows if row.method != "the stream alone"))
    for method, color in zip(methods, (figures.ORANGE, figures.RED, figures.BLUE), strict=True):
        draw_curve(axes[0, 0], report.select("seconds", method), "n_weak", method, color, "-o")
    axes[0, 0].set_xlabel("weak learners")
    axes[0, 0].set_ylabel("seconds")
    axes[0, 0].set_ylim(0, None)
    axes[0, 0].legend(fontsize=8)
    axes[0, 0].grid(alpha=0.3)
    return [figures.save(figure, out / "node-time-seconds.png")]
