"""Choice of the default ridge, by cross-validation on training samples only, never on a test set.

USPS digits 3 against 5: in each of five folds of the training set, 30 % of the other folds train the weak
learners and the rest arrives online; and the same without the stream, for which the ridge matters most.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.datasets import usps_pair
from experiments.report import Progress, Report, Row, Size, draw_curve
from experiments.usps import split
from whet.estimators.online_gslda import OnlineGSLDA
from whet.plots import figure as figures

RUNS = {"small": 1, "paper": 10}
RIDGES = (1e-6, 0.1, 1.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
SIZES = (25, 50, 100, 150)
FOLDS = 5
METHODS = ("offline", "online", "online, re-selected")


def run(size: Size, runs: int, seed: int, progress: Progress) -> Report:
    """Errors on the held-out folds, one value a run."""
    report = Report("ridge", seed, runs, size)
    digits = usps_pair()
    X, y = digits.X_train, digits.y_train
    errors: dict[tuple[str, float, int], list[float]] = {}
    for r in range(runs):
        rng = np.random.default_rng(seed + r)
        folds = np.array_split(rng.permutation(len(X)), FOLDS)
        for number, held_out in enumerate(folds):
            others = np.setdiff1d(np.arange(len(X)), held_out)
            first, stream = (others[part] for part in split(len(others), 0.3, rng))
            for ridge in RIDGES:
                for n_weak in SIZES:
                    model = OnlineGSLDA(n_weak, ridge=ridge, n_reserve=X.shape[1]).fit(X[first], y[first])
                    for method in METHODS:
                        if method == "online":
                            model.partial_fit(X[stream], y[stream])
                        if method == "online, re-selected":
                            model.reselect()
                        wrong = (model.predict(X[held_out]) != y[held_out]).sum()
                        values = errors.setdefault((method, ridge, n_weak), [0.0] * runs)
                        values[r] += float(wrong) / len(X)
            progress((r + (number + 1) / FOLDS) / runs)
    report.rows = [
        Row.from_values("error", method, values, ridge=ridge, n_weak=n_weak)
        for (method, ridge, n_weak), values in errors.items()
    ]
    report.remarks = [_mean_over_sizes(report, method) for method in METHODS]
    return report


def _mean_over_sizes(report: Report, method: str) -> str:
    means = {ridge: np.mean([row.mean for row in report.select("error", method, ridge=ridge)]) for ridge in RIDGES}
    return f"{method}, mean over {SIZES} weak learners: " + ", ".join(f"{r:g}: {m:.2%}" for r, m in means.items())


def draw(report: Report, out: Path) -> list[Path]:
    """Error against the ridge, a panel for each method."""
    figure, axes = figures.new_figure(1, len(METHODS), 12, 3.8, sharey=True)
    for panel, method in zip(axes[0], METHODS, strict=True):
        for n_weak, color in zip(SIZES, (figures.BLUE, figures.GREEN, figures.ORANGE, figures.RED), strict=True):
            rows = report.select("error", method, n_weak=n_weak)
            draw_curve(panel, rows, "ridge", f"{n_weak} weak learners", color, "-o")
        panel.set_xscale("log")
        panel.set_xlabel("ridge")
        panel.set_title(method, fontsize=10)
        panel.set_ylim(0, 0.2)
        panel.grid(alpha=0.3)
    axes[0, 0].set_ylabel("cross-validated error")
    axes[0, 0].legend(fontsize=8)
    return [figures.save(figure, out / "ridge-cross-validation.png")]
