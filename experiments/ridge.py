"""Choice of the default ridge, by cross-validation on training samples only, never on a test set.

USPS digits 3 against 5: in each of five folds of the training set, 30 % of the other folds train the weak
learners and the rest arrives online; and the same without the stream, for which the ridge matters most.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from pathlib import Path

import numpy as np

from experiments.claims import Claim, Finding, listed, verdict
from experiments.datasets import usps_pair
from experiments.report import Report, Run, draw_curve
from experiments.table import Size
from experiments.usps import split
from whet.estimators.online_gslda import OnlineGSLDA
from whet.lda.discriminant import DEFAULT_RIDGE
from whet.plots import figure as figures

RIDGES = (1e-6, 0.1, 1.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
SIZES = (25, 50, 100, 150)
FOLDS = 5
METHODS = ("offline", "online", "online, re-selected")
ONCE = ()


def parts(size: Size) -> tuple[str, ...]:  # noqa: ARG001 - both sizes have the same folds
    """All folds at once."""
    return ("folds",)


def measure(run: Run) -> None:
    """Errors on the held-out folds."""
    digits, rng = usps_pair(), run.rng
    X, y = digits.X_train, digits.y_train
    errors: dict[tuple[str, float, int], float] = defaultdict(float)
    for held_out in np.array_split(rng.permutation(len(X)), FOLDS):
        others = np.setdiff1d(np.arange(len(X)), held_out)
        first, stream = (others[part] for part in split(len(others), 0.3, rng))
        for ridge, n_weak in product(RIDGES, SIZES):
            model = OnlineGSLDA(n_weak, ridge=ridge, n_reserve=X.shape[1]).fit(X[first], y[first])
            for method in METHODS:
                if method == "online":
                    model.partial_fit(X[stream], y[stream])
                if method == "online, re-selected":
                    model.reselect()
                errors[method, ridge, n_weak] += float((model.predict(X[held_out]) != y[held_out]).sum()) / len(X)
    for (method, ridge, n_weak), error in errors.items():
        run.note("error", method, error, ridge=ridge, n_weak=n_weak)


def mean_error(report: Report, method: str, ridge: float) -> float:
    """Mean over the numbers of weak learners."""
    return float(np.mean([report.one("error", method, ridge=ridge, n_weak=n).mean for n in SIZES]))


def default_is_near_the_best(report: Report) -> Finding:
    """The default against the best ridge and against almost none."""
    parts, near = [], []
    for method in METHODS:
        errors = {ridge: mean_error(report, method, ridge) for ridge in RIDGES}
        best = min(errors, key=lambda ridge: errors[ridge])
        near.append(errors[DEFAULT_RIDGE] <= errors[best] + 0.01)
        parts.append(
            f"{method}: {100 * errors[DEFAULT_RIDGE]:.2f} % with {DEFAULT_RIDGE:g}, {100 * errors[best]:.2f} % with "
            "the "
            f"best ({best:g}), {100 * errors[RIDGES[0]]:.2f} % with {RIDGES[0]:g}"
        )
    return Finding(verdict(*near), listed(parts))


CLAIMS = (
    Claim(
        "beyond the paper",
        "The default ridge of 20 is near the best one; the paper has none.",
        "Cross-validated error within 1 point of that of the best ridge, offline, online and re-selected.",
        default_is_near_the_best,
    ),
)


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
