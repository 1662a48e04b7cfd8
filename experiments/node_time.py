"""Training time of a stage against the number of weak learners. Fig. gslda_cpu of the paper.

Batch GSLDA on 5,000 + 5,000 and on 10,000 + 10,000 patches, and online GSLDA from 5,000 + 5,000 plus one million new
patches. Online time includes features, statistics and coefficients. Times are processor times of all threads, so that
other work on the machine does not count.
"""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.claims import Claim, Finding, listed, verdict
from experiments.datasets import faces24, negative_images
from experiments.face_samples import WINDOW, mirrored
from experiments.node import joined
from experiments.random_windows import windows_of_images
from experiments.report import Report, Run, draw_curve
from experiments.table import Size
from whet.models.gslda.candidates import Responses
from whet.models.gslda.cascade import LearningStage
from whet.models.gslda.fitting import GreedyLDA, train_stage
from whet.models.gslda.haar import HaarPool
from whet.models.gslda.integral import IntegralStack
from whet.models.gslda.weak_learners import Stumps, Subsets
from whet.models.gslda.weak_training import train_weak_learners
from whet.plots import figure as figures

N_WEAK = (10, 50, 100, 150, 200)
N_HALF = {"small": (500, 1000), "paper": (5000, 10_000)}
N_STREAM = {"small": 20_000, "paper": 1_000_000}
N_FEATURES = 5000  # of the small size; the paper has all 162,336
CHUNK = 50_000
SECONDS, STREAM = "processor seconds", "the stream alone"
EXACT = "online statistics equal those of all patches at once"
ONCE = ()


def parts(size: Size) -> tuple[str, ...]:  # noqa: ARG001 - the stream needs the stages of the batch
    """All at once."""
    return ("all",)


def measure(run: Run) -> None:
    """Processor seconds of batch training on two sizes, and of the smaller one plus the stream."""
    _warm_up()
    rng = run.rng
    pool = HaarPool.from_window(WINDOW)
    if run.size == "small":
        pool = pool.sample(N_FEATURES, rng)
    smaller, larger = N_HALF[run.size]
    seconds: dict[tuple[str, int], float] = {}
    stages = timed_batch(pool, smaller, rng, seconds)
    timed_batch(pool, larger, rng, seconds)
    is_exact = timed_stream(stages, N_STREAM[run.size], rng, seconds)
    for n_weak in N_WEAK:
        start = seconds[_batch(smaller), n_weak]
        seconds[_online(smaller, N_STREAM[run.size]), n_weak] = start + seconds[STREAM, n_weak]
    for (method, n_weak), value in seconds.items():
        run.note(SECONDS, method, value, n_weak=n_weak)
    run.note(EXACT, "online", float(is_exact))


def _batch(half: int) -> str:
    return f"batch, {half:,} + {half:,}"


def _online(half: int, stream: int) -> str:
    return f"online, {half:,} + {half:,} and {stream:,} more"


def _warm_up() -> None:
    """Compile the kernels, or load them from the cache, before the timing."""
    patches = np.random.default_rng(0).integers(0, 256, (100, *WINDOW), dtype=np.uint8)
    is_positive = np.arange(100) < 50
    stage = train_stage(HaarPool.from_window(WINDOW).take(slice(None, None, 100)), patches, is_positive, 3)
    if isinstance(stage, LearningStage):
        stage.learn(patches, is_positive).run()


def timed_batch(
    pool: HaarPool, half: int, rng: np.random.Generator, seconds: dict[tuple[str, int], float]
) -> dict[int, LearningStage]:
    """Train once, and record the time at which each number of weak learners was reached."""
    faces = mirrored(faces24()[: -(-half // 2)])[:half]
    X, y = joined([faces], [windows_of_images(negative_images(), half, WINDOW, rng)])
    start = time.process_time()
    weak, responses = train_weak_learners(pool, X, y)
    learner = GreedyLDA()
    stages: dict[int, LearningStage] = {}
    chosen: list[int] = []
    for j, number in zip(learner.rounds(responses, max(N_WEAK)), count(1)):
        chosen.append(j)
        if number in N_WEAK:
            reached = time.process_time() - start
            solve = time.process_time()
            stages[number] = _stage(pool, weak, responses, learner, np.array(chosen))
            solving = time.process_time() - solve
            seconds[_batch(half), number] = reached + solving
            start += solving  # the time to solve a smaller stage is not part of a larger one's
    return stages


def _stage(
    pool: HaarPool, weak: Stumps | Subsets, responses: Responses, learner: GreedyLDA, chosen: NDArray[np.intp]
) -> LearningStage:
    vote = learner.vote(responses, chosen)
    stage = LearningStage.from_discriminant(pool.take(weak.feature[chosen]), weak.take(chosen), vote)
    assert stage.run().coef.size == len(chosen)
    return stage


def timed_stream(
    stages: dict[int, LearningStage], n: int, rng: np.random.Generator, seconds: dict[tuple[str, int], float]
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
            start = time.process_time()
            stages[n_weak] = stage.learn(X, negatives)
            assert stages[n_weak].run().coef.size == n_weak
            spent[n_weak] += time.process_time() - start
        done += len(X)
    for n_weak, value in spent.items():
        seconds[STREAM, n_weak] = value
    return np.array_equal(C, stages[largest].negative.C)


def _sizes(report: Report) -> tuple[int, int, int]:
    size = "paper" if report.size == "paper" else "small"
    return (*N_HALF[size], N_STREAM[size])


def stream_is_cheap(report: Report) -> Finding:
    """The stream against the batch that it starts from and the larger batch."""
    smaller, larger, n = _sizes(report)
    start, twice = (report.one(SECONDS, _batch(half), n_weak=200).mean for half in (smaller, larger))
    stream = report.one(SECONDS, STREAM, n_weak=200).mean
    measured = (
        f"200 weak learners: batch of {smaller:,} + {smaller:,} {start:.1f} s, {n:,} patches more {stream:.1f} s, "
        f"batch of {larger:,} + {larger:,} {twice:.1f} s; {1e6 * stream / n:.1f} microseconds a patch"
    )
    return Finding(verdict(start + stream < twice, stream < start), measured)


def grows_faster_in_batch(report: Report) -> Finding:
    """Growth of the time from few to many weak learners."""
    smaller, larger, _ = _sizes(report)
    growth = {}
    for method in (_batch(smaller), _batch(larger), STREAM):
        few, many = (report.one(SECONDS, method, n_weak=n).mean for n in (N_WEAK[0], N_WEAK[-1]))
        growth[method] = many - few
    parts = [f"{method}: {seconds:+.1f} s" for method, seconds in growth.items()]
    slower = [growth[_batch(half)] > growth[STREAM] for half in (smaller, larger)]
    return Finding(verdict(*slower), f"from {N_WEAK[0]} to {N_WEAK[-1]} weak learners, " + listed(parts))


def same_scatter(report: Report) -> Finding:
    """Whether the statistics are equal to the last bit."""
    row = report.one(EXACT, "online")
    return Finding(verdict(row.mean == 1.0), "to the last bit" if row.mean == 1.0 else "not to the last bit")


CLAIMS = (
    Claim(
        "Fig. gslda_cpu",
        "A million new patches increase the training time only slightly.",
        "Batch of 5,000 + 5,000 plus the stream takes less than a batch of 10,000 + 10,000, and the stream less than "
        "the batch it starts from, with 200 weak learners.",
        stream_is_cheap,
    ),
    Claim(
        "Fig. gslda_cpu",
        "Online learning is much faster than batch training as the number of weak learners grows.",
        "From 10 to 200 weak learners the time of each batch grows by more than that of the stream.",
        grows_faster_in_batch,
    ),
    Claim(
        "Section 2",
        "Online GSLDA builds the same scatter matrices as batch GSLDA on the same data.",
        "Co-occurrence counts of 200 weak learners after the stream equal those of all patches at once.",
        same_scatter,
    ),
)


def draw(report: Report, out: Path) -> list[Path]:
    """One panel, as in the paper."""
    figure, axes = figures.new_figure(1, 1, 6, 4)
    smaller, larger, n = _sizes(report)
    methods = (_batch(smaller), _batch(larger), _online(smaller, n))
    for method, color in zip(methods, (figures.ORANGE, figures.RED, figures.BLUE), strict=True):
        draw_curve(axes[0, 0], report.select(SECONDS, method), "n_weak", method, color, "-o")
    axes[0, 0].set_xlabel("weak learners")
    axes[0, 0].set_ylabel("processor seconds")
    axes[0, 0].set_ylim(0, None)
    axes[0, 0].legend(fontsize=8)
    axes[0, 0].grid(alpha=0.3)
    return [figures.save(figure, out / "node-time-seconds.png")]
