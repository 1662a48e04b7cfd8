"""Time and memory of training and of one update against the orders that the paper states. No data are needed.

Patches are noise with a brighter part in the positives. A batch is timed against the numbers of samples N, of features
M and of weak learners T: the paper has O(MN log N + MNT + MT^3). An update is timed against T, O(T^2), and against the
number of samples seen so far. Times are processor times. Memory is counted in the arrays of a learning stage: the paper
has 3T^2 + 2T numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.claims import Claim, Finding, listed, verdict
from experiments.report import Report, Run, draw_curve
from experiments.table import Size
from whet.estimators.online_gslda import OnlineGSLDA
from whet.models.gslda.fitting import GreedyLDA
from whet.models.gslda.haar import HaarPool
from whet.models.gslda.weak_training import train_weak_learners
from whet.plots import figure as figures

WINDOW = (24, 24)
UPDATED = (25, 50, 100, 200, 400)
SEEN = {"small": (1000, 20_000), "paper": (1000, 10_000, 100_000)}
N_UPDATES = {"small": 200, "paper": 1000}
# Numbers of samples, features and weak learners; each is varied with the middle ones of the others.
GRIDS: dict[str, dict[str, tuple[int, ...]]] = {
    "small": {"N": (1000, 2000, 4000), "M": (1000, 2000, 4000), "T": (25, 50, 100)},
    "paper": {"N": (2000, 4000, 8000, 16_000), "M": (5000, 10_000, 20_000, 40_000), "T": (25, 50, 100, 200)},
}
MIDDLE = 1
TURNS = 3  # the least of these is noted
ONCE = ("memory",)


def parts(size: Size) -> tuple[str, ...]:  # noqa: ARG001 - both sizes have the same parts
    """Updates, and batches."""
    return ("update", "batch")


def measure(run: Run) -> None:
    """One part."""
    {"memory": memory, "update": updates, "batch": batches}[run.part](run)


def least_seconds(work: Callable[[], object], turns: int = TURNS) -> float:
    """The least processor time of a call, of all threads: other work on the machine does not count."""
    times = []
    for _ in range(turns):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def samples_of_two_classes(rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """2,000 samples, every second one positive and a little larger."""
    y = (np.arange(2000) % 2).astype(np.int64)
    return rng.normal(size=(len(y), max(UPDATED))) + np.outer(y, rng.uniform(0, 0.3, max(UPDATED))), y


def memory(run: Run) -> None:
    """The numbers that a model holds while it learns: the same whatever the samples are."""
    X, y = samples_of_two_classes(run.rng)
    for n_weak in UPDATED:
        model = OnlineGSLDA(n_weak).fit(X[:1000, :n_weak], y[:1000])
        most = 0
        for x, label in zip(X[:5, :n_weak], y.tolist(), strict=False):
            model.update(x, label)
            _ = model.coef_  # derived when asked for, from what is then in memory
            most = max(most, array_bytes(model._discriminant))
        run.note("numbers in memory", "online", most / 8, n_weak=n_weak)


def updates(run: Run) -> None:
    """Seconds of one update by the number of weak learners and by the samples seen."""
    X, y = samples_of_two_classes(run.rng)
    n = N_UPDATES[run.size]
    for n_weak in UPDATED:
        samples = np.ascontiguousarray(X[:, :n_weak])
        model = OnlineGSLDA(n_weak).fit(samples[:1000], y[:1000])
        run.note("seconds of an update", "online", update_seconds(model, samples[:n], y[:n]), n_weak=n_weak)
    samples = np.ascontiguousarray(X[:, :200])
    for seen in SEEN[run.size]:
        model = OnlineGSLDA(200).fit(samples[:1000], y[:1000])
        model.partial_fit(np.resize(samples, (seen, 200)), np.resize(y, seen))
        run.note("seconds after samples", "online", update_seconds(model, samples[:n], y[:n]), seen=seen)


def update_seconds(model: OnlineGSLDA, X: NDArray[np.float64], y: NDArray[np.int64]) -> float:
    """Seconds to learn one sample, coefficients and threshold included."""
    labels = y.tolist()

    def learn() -> None:
        for x, label in zip(X, labels, strict=True):
            model.update(x, label)
            _ = model.coef_, model.intercept_  # derived when asked for

    learn()  # compiled before the timing
    return least_seconds(learn) / len(X)


def array_bytes(thing: object) -> int:
    """Bytes of all arrays that an object holds, each counted once.

    >>> array_bytes({"a": np.zeros(3), "b": [np.zeros(2)]})
    40
    """
    seen: set[int] = set()

    def count(part: object) -> int:
        if id(part) in seen:
            return 0
        seen.add(id(part))
        if isinstance(part, np.ndarray):
            return part.nbytes
        if isinstance(part, dict):
            return sum(map(count, part.values()))
        if isinstance(part, list | tuple):
            return sum(map(count, part))
        slots = [getattr(part, name, None) for name in getattr(type(part), "__slots__", ())]
        return sum(map(count, slots)) + sum(map(count, getattr(part, "__dict__", {}).values()))

    return count(thing)


def batches(run: Run) -> None:
    """Seconds of training stumps and of selection, by samples, features and weak learners."""
    rng, grids = run.rng, GRIDS[run.size]
    middle = {name: values[MIDDLE] for name, values in grids.items()}
    pools = HaarPool.from_window(WINDOW).sample(max(grids["M"]), rng)
    patches, is_positive = noise(max(grids["N"]), rng)
    train(pools.take(slice(50)), patches[:200], is_positive[:200], 2)  # compiled before the timing
    for name, values in grids.items():
        for value in values:
            size = middle | {name: value}
            pool = pools.take(slice(size["M"]))
            samples = patches[: size["N"]], is_positive[: size["N"]]
            seconds = least_seconds(partial(train, pool, *samples, size["T"]), 2)
            run.note("seconds of a batch", name, seconds, value=value)


def noise(n: int, rng: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Patches (n, 24, 24), every second one positive and a little brighter in its upper half."""
    patches = rng.integers(0, 200, (n, *WINDOW), dtype=np.uint8)
    is_positive = np.arange(n) % 2 == 0
    patches[is_positive, :12] += rng.integers(0, 30, (12, 24), dtype=np.uint8)
    return patches, is_positive


def train(pool: HaarPool, patches: NDArray[np.uint8], is_positive: NDArray[np.bool_], n_weak: int) -> None:
    """Greedy sparse LDA in one batch."""
    _, responses = train_weak_learners(pool, patches, is_positive, balanced=False)
    learner = GreedyLDA()
    chosen = np.array(list(learner.rounds(responses, n_weak)))
    learner.vote(responses, chosen).refresh()


def exponent(points: dict[float, float]) -> float:
    """Slope of the time in the number, both logarithmic.

    >>> round(exponent({10: 1.0, 20: 4.0, 40: 16.0}), 6)
    2.0
    """
    x, y = np.log(list(points.keys())), np.log(list(points.values()))
    return float(np.polyfit(x, y, 1)[0])


def update_order(report: Report) -> Finding:
    """Exponent of T over the three largest numbers, and the growth with samples seen."""
    seconds = {n: report.one("seconds of an update", "online", n_weak=n).mean for n in UPDATED}
    slope = exponent({n: seconds[n] for n in UPDATED[2:]})
    seen = {row.setting["seen"]: row.mean for row in report.select("seconds after samples", "online")}
    if not seen:
        raise LookupError("updates after many samples were not timed")
    ratio = seen[max(seen)] / seen[min(seen)]
    measured = (
        f"T^{slope:.2f} from {UPDATED[2]} to {UPDATED[-1]} weak learners; after {max(seen):,} samples {ratio:.2f} "
        f"times as long as after {min(seen):,}"
    )
    return Finding(verdict(slope <= 2.2, ratio <= 1.5), measured)


def update_time(report: Report) -> Finding:
    """Milliseconds with 200 weak learners."""
    row = report.one("seconds of an update", "online", n_weak=200)
    return Finding(verdict(row.mean < 1.5e-3), f"{1e3 * row.mean:.3f} ms on one core")


def batch_order(report: Report) -> Finding:
    """Exponents of N, M and T."""
    slopes = {}
    for name in ("N", "M", "T"):
        rows = report.select("seconds of a batch", name)
        if len(rows) < 2:
            raise LookupError(f"batches of different {name} were not timed")
        slopes[name] = exponent({row.setting["value"]: row.mean for row in rows})
    measured = ", ".join(f"{name}^{slope:.2f}" for name, slope in slopes.items())
    return Finding(verdict(slopes["N"] <= 1.2, slopes["M"] <= 1.2, slopes["T"] <= 3.2), measured)


def memory_order(report: Report) -> Finding:
    """Numbers held against 3T^2 + 2T."""
    held = {n: report.one("numbers in memory", "online", n_weak=n).mean for n in UPDATED[2:]}
    stated = {n: 3 * n * n + 2 * n for n in held}
    parts = [f"T = {n}: {held[n]:,.0f}, stated {stated[n]:,}" for n in held]
    slope = exponent({float(n): numbers for n, numbers in held.items()})
    tried = (
        "Beside the statistics of both classes and the inverse, whet keeps the Cholesky factor of the last fresh "
        "solve: "
        "a fourth matrix, which the check of every update needs."
    )
    within = all(held[n] <= 1.1 * stated[n] for n in held)
    return Finding(verdict(slope <= 2.05, within), listed([*parts, f"T^{slope:.2f}"]), tried)


CLAIMS = (
    Claim(
        "Section 2, complexity",
        "Inserting a sample takes O(T^2), whatever the number of samples seen.",
        "Exponent of T at most 2.2 from 100 to 400 weak learners; at most 1.5 times as long after a hundredfold "
        "stream.",
        update_order,
    ),
    Claim(
        "Section 3, after Fig. gslda_cpu",
        "An update of 200 weak learners takes less than 1.5 ms.",
        "Below 1.5 ms, coefficients and threshold included.",
        update_time,
    ),
    Claim(
        "Section 2, complexity",
        "Batch training takes O(MN log N + MNT + MT^3).",
        "Exponents at most 1.2 in N, 1.2 in M and 3.2 in T.",
        batch_order,
    ),
    Claim(
        "Section 2, memory",
        "The extra memory of online GSLDA is at most 3T^2 + 2T numbers.",
        "Exponent of T at most 2.05, and at most 1.1 times the stated number, with 100, 200 and 400 weak learners.",
        memory_order,
    ),
)


def draw(report: Report, out: Path) -> list[Path]:
    """Seconds of an update and of a batch, on logarithmic axes."""
    figure, axes = figures.new_figure(1, 2, 10, 3.8)
    left, right = axes[0]
    draw_curve(left, report.select("seconds of an update", "online"), "n_weak", "measured", figures.BLUE, "-o")
    rows = report.select("seconds of an update", "online", n_weak=UPDATED[-1])
    for row in rows:
        stated = [row.mean * (n / UPDATED[-1]) ** 2 for n in UPDATED]
        left.plot(UPDATED, stated, "--", color=figures.GREY, label="proportional to T^2")
    left.set_xlabel("weak learners T")
    left.set_ylabel("seconds of an update")
    for name, color in zip("NMT", (figures.BLUE, figures.GREEN, figures.ORANGE), strict=True):
        draw_curve(right, report.select("seconds of a batch", name), "value", f"by {name}", color, "-o")
    right.set_xlabel("samples N, features M, weak learners T")
    right.set_ylabel("seconds of a batch")
    for panel in (left, right):
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.legend(fontsize=8)
        panel.grid(alpha=0.3, which="both")
    return [figures.save(figure, out / "complexity-orders.png")]
