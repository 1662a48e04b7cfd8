"""USPS digits 3 against 5: batch, offline and online GSLDA, and online boosting. Figs. USPS1 and USPS2.

A share of the training samples trains the weak learners; the rest arrives one sample at a time. Errors are on the test
set, on which no parameter is chosen. The ridge is 1e-6, close to the paper's unregularised LDA and still solvable;
curves with whet's default ridge are added.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.datasets import DigitPair, usps_pair
from experiments.report import Progress, Report, Row, Size, draw_curve
from whet.estimators.baselines import OnlineBoosting
from whet.estimators.gslda import GSLDA
from whet.estimators.online_gslda import OnlineGSLDA
from whet.lda.discriminant import DEFAULT_RIDGE
from whet.plots import figure as figures

RUNS = {"small": 3, "paper": 10}
SHARES = (0.3, 0.5, 0.7)
GRID = {"small": (10, 25, 50, 100, 150, 200), "paper": (5, 10, 15, 20, 25, *range(30, 201, 10))}
# Figure USPS2: batch is trained again after this number of arrivals, and its time is scaled to every arrival.
RETRAIN_EVERY = {"small": 20, "paper": 1}
PAPER_RIDGE = 1e-6

Curves = dict[tuple[str, str, tuple[tuple[str, Any], ...]], list[float]]


def run(size: Size, runs: int, seed: int, progress: Progress) -> Report:
    """All curves of both figures."""
    report = Report("usps", seed, runs, size)
    digits = usps_pair()
    curves: Curves = defaultdict(list)
    parts = [partial(curves_by_size, digits, share, size) for share in SHARES]
    parts += [partial(curves_by_arrival, digits, n_weak, size) for n_weak in (25, 100)]
    batch_by_size(digits, GRID[size], curves)
    for r in range(runs):
        for number, part in enumerate(parts):
            part(np.random.default_rng([seed + r, number]), curves)
            progress((r + (number + 1) / len(parts)) / runs)
    report.rows = [
        Row.from_values(measure, method, values, **dict(key)) for (measure, method, key), values in curves.items()
    ]
    report.remarks = remarks(report)
    return report


def add(curves: Curves, measure: str, method: str, value: float, **setting: object) -> None:
    """Add one value of one run."""
    curves[measure, method, tuple(setting.items())].append(value)


def error_of(model: GSLDA, digits: DigitPair) -> float:
    """Error rate on the test samples."""
    return float((model.predict(digits.X_test) != digits.y_test).mean())


def batch_by_size(digits: DigitPair, grid: Sequence[int], curves: Curves) -> None:
    """Batch GSLDA on all training samples: deterministic, so one run."""
    for n_weak in grid:
        for name, ridge in (("batch", PAPER_RIDGE), ("batch, default ridge", DEFAULT_RIDGE)):
            model = GSLDA(n_weak, ridge=ridge).fit(digits.X_train, digits.y_train)
            add(curves, "error", name, error_of(model, digits), n_weak=n_weak)


def curves_by_size(digits: DigitPair, share: float, size: Size, rng: np.random.Generator, curves: Curves) -> None:
    """Figure USPS1: error against the number of weak learners, from one initial share."""
    first, stream = split(len(digits.X_train), share, rng)
    for n_weak in GRID[size]:
        setting = {"share": share, "n_weak": n_weak}
        for suffix, ridge in (("", PAPER_RIDGE), (", default ridge", DEFAULT_RIDGE)):
            n_features = digits.X_train.shape[1]
            model = OnlineGSLDA(n_weak, ridge=ridge, n_reserve=n_features).fit(
                digits.X_train[first], digits.y_train[first]
            )
            add(curves, "error", f"offline{suffix}", error_of(model, digits), **setting)
            for i in stream:
                model.update(digits.X_train[i], digits.y_train[i])
            add(curves, "error", f"online{suffix}", error_of(model, digits), **setting)
            add(curves, "error", f"online, re-selected{suffix}", error_of(model.reselect(), digits), **setting)
    boosting = OnlineBoosting(max(GRID[size])).fit(digits.X_train[first], digits.y_train[first])
    boosting.partial_fit(digits.X_train[stream], digits.y_train[stream])
    says_yes = boosting.staged_decision_function(digits.X_test) > 0
    for n_weak in GRID[size]:
        error = float((says_yes[:, n_weak - 1] != digits.y_test).mean())
        add(curves, "error", "online boosting", error, share=share, n_weak=n_weak)


def curves_by_arrival(digits: DigitPair, n_weak: int, size: Size, rng: np.random.Generator, curves: Curves) -> None:
    """Figure USPS2: error and total time against the share of the data that has arrived, from 30 %."""
    X, y = digits.X_train, digits.y_train
    first, stream = split(len(X), SHARES[0], rng)
    order = np.concatenate([first, stream])
    marks = {round(len(X) * tenth / 10): tenth / 10 for tenth in range(3, 11)}
    start = time.perf_counter()
    online = OnlineGSLDA(n_weak, ridge=PAPER_RIDGE).fit(X[first], y[first])
    seconds = {"online": time.perf_counter() - start, "batch": 0.0}
    for seen in range(len(first), len(X) + 1):
        if seen > len(first):
            start = time.perf_counter()
            online.update(X[order[seen - 1]], y[order[seen - 1]])
            seconds["online"] += time.perf_counter() - start
        on_schedule = (seen - len(first)) % RETRAIN_EVERY[size] == 0
        if seen in marks or on_schedule:
            start = time.perf_counter()
            batch = GSLDA(n_weak, ridge=PAPER_RIDGE).fit(X[order[:seen]], y[order[:seen]])
            if on_schedule:
                seconds["batch"] += (time.perf_counter() - start) * RETRAIN_EVERY[size]
        if seen in marks:
            for name, model in (("online", online), ("batch", batch)):
                setting = {"n_weak": n_weak, "share_seen": marks[seen]}
                add(curves, "error as samples arrive", name, error_of(model, digits), **setting)
                add(curves, "seconds as samples arrive", name, seconds[name], **setting)


def split(n: int, share: float, rng: np.random.Generator) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Indices of the initial share and of the stream, in a random order."""
    order = rng.permutation(n)
    n_first = round(share * n)
    return order[:n_first], order[n_first:]


def remarks(report: Report) -> list[str]:
    """The comparisons that the paper makes, in percentage points."""
    return [line for share in SHARES for line in (_against_peers(report, share), _best_and_last(report, share))]


def _curve(report: Report, method: str, **setting: object) -> dict[int, float]:
    return {row.setting["n_weak"]: 100 * row.mean for row in report.select("error", method, **setting)}


def _against_peers(report: Report, share: float) -> str:
    batch = _curve(report, "batch")
    online = _curve(report, "online", share=share)
    boosting = _curve(report, "online boosting", share=share)
    sizes = [n for n in batch if 50 <= n <= 150]
    to_batch = [online[n] - batch[n] for n in sizes]
    to_boosting = [online[n] - boosting[n] for n in sizes]
    return (
        f"from {share:.0%}, 50 to 150 weak learners: online minus batch {min(to_batch):+.2f} to {max(to_batch):+.2f}, "
        f"mean {np.mean(to_batch):+.2f}; online minus online boosting {min(to_boosting):+.2f} to "
        f"{max(to_boosting):+.2f}, mean {np.mean(to_boosting):+.2f}"
    )


def _best_and_last(report: Report, share: float) -> str:
    methods = ("offline", "online", "online, re-selected", "online, default ridge", "online boosting")
    parts = []
    for method in methods:
        curve = _curve(report, method, share=share)
        parts.append(f"{method} {min(curve.values()):.1f} % / {curve[max(curve)]:.1f} %")
    return f"from {share:.0%}, least error / error with most weak learners: " + "; ".join(parts)


def draw(report: Report, out: Path) -> list[Path]:
    """Figures USPS1 and USPS2."""
    return [
        _draw_by_size(report, out / "usps-weak-learners.png"),
        _draw_by_arrival(report, out / "usps-arrival.png"),
    ]


def _draw_by_size(report: Report, path: Path) -> Path:
    figure, axes = figures.new_figure(2, 3, 13, 8, sharex=True)
    for column, share in enumerate(SHARES):
        top, bottom = axes[:, column]
        curves = (
            (f"offline on {share:.0%} alone", "offline", figures.GREY, "-s"),
            ("online", "online", figures.BLUE, "-o"),
            ("online, re-selected", "online, re-selected", figures.PURPLE, "-^"),
            (f"online, default ridge {DEFAULT_RIDGE:g}", "online, default ridge", figures.GREEN, "--"),
        )
        draw_curve(top, report.select("error", "batch"), "n_weak", "batch on all", figures.RED, "-")
        for label, method, color, style in curves:
            draw_curve(top, report.select("error", method, share=share), "n_weak", label, color, style)
        top.set_ylim(0.03, 0.16)
        top.set_title(f"({'abc'[column]}) {share:.0%} at the start", fontsize=10)
        for label, method, color in (
            ("online boosting", "online boosting", figures.ORANGE),
            ("online GSLDA", "online", figures.BLUE),
        ):
            draw_curve(bottom, report.select("error", method, share=share), "n_weak", label, color, "-o")
        bottom.set_ylim(0.03, 0.2)
        bottom.set_title(f"({'def'[column]}) {share:.0%} at the start", fontsize=10)
        bottom.set_xlabel("weak learners")
        for panel in (top, bottom):
            panel.set_ylabel("test error")
            panel.legend(fontsize=8)
            panel.grid(alpha=0.3)
    return figures.save(figure, path)


def _draw_by_arrival(report: Report, path: Path) -> Path:
    figure, axes = figures.new_figure(1, 4, 16, 3.8)
    for i, n_weak in enumerate((25, 100)):
        for j, measure in enumerate(("error as samples arrive", "seconds as samples arrive")):
            panel = axes[0, 2 * i + j]
            for method, color in (("batch", figures.RED), ("online", figures.BLUE)):
                rows = report.select(measure, method, n_weak=n_weak)
                draw_curve(panel, rows, "share_seen", method, color, "-o")
            panel.set_title(f"({'abcd'[2 * i + j]}) {n_weak} weak learners", fontsize=10)
            panel.set_xlabel("share of the training data")
            panel.set_ylabel("test error" if j == 0 else "seconds so far")
            if j == 1:
                panel.set_yscale("log")
            panel.legend(fontsize=8)
            panel.grid(alpha=0.3)
    return figures.save(figure, path)
