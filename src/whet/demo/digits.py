"""Demo: learn the digits 3 and 5 of scikit-learn online, from 20 samples to all, one at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.estimators.gslda import GSLDA
from whet.estimators.online_gslda import OnlineGSLDA
from whet.features.weak_learners import Stumps
from whet.plots.figure import BLUE, RED, new_figure, save

N_FIRST = 20
N_WEAK = 24
N_ORDERS = 20
SIDE = 8

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class DigitDemo:
    """Test errors over several random orders of the digits."""

    n_seen: NDArray[np.intp]
    errors: Floats  # (orders, samples seen)
    seconds_per_update: float
    batch_errors: Floats  # (orders,)
    weights: Floats  # of the pixels, in the last order
    mean_difference: Floats
    unlearning_is_exact: bool

    def summary(self) -> str:
        """Lines for the terminal."""
        n_new = self.n_seen[-1] - self.n_seen[0]
        rows = (
            (f"trained on {self.n_seen[0]} digits", f"test error {self.errors[:, 0].mean():6.1%}"),
            (f"{n_new} more learned one by one", f"test error {self.errors[:, -1].mean():6.1%}"),
            (f"trained on all {self.n_seen[-1]} at once", f"test error {self.batch_errors.mean():6.1%}"),
            ("time per update", f"{1e6 * self.seconds_per_update:.0f} microseconds"),
            ("original weights after unlearning, bit for bit", "yes" if self.unlearning_is_exact else "NO"),
        )
        return "\n".join(f"{what:<46}  {value}" for what, value in rows)


def run(seed: int = 0, progress: Callable[[float], None] = lambda _: None) -> DigitDemo:
    """Train on a few digits, then learn the others online; half of the digits are the test set."""
    X, y = _threes_and_fives()
    OnlineGSLDA(2).fit(X, y).update(X[0], y[0])  # compiles before anything is timed
    errors, batch_errors, seconds, exact = [], [], 0.0, []
    for number in range(N_ORDERS):
        order = np.random.default_rng([seed, number]).permutation(len(X))
        test, first, stream = np.split(order, [len(X) // 2, len(X) // 2 + N_FIRST])
        model = OnlineGSLDA(N_WEAK).fit(X[first], y[first])
        coef_at_start = model.coef_
        curve = [_error(model, X[test], y[test])]
        for i in stream:
            start = time.perf_counter()
            model.update(X[i], y[i])
            seconds += time.perf_counter() - start
            curve.append(_error(model, X[test], y[test]))
        weights = _pixel_weights(model)
        errors.append(curve)
        seen = np.concatenate([first, stream])
        batch_errors.append(_error(GSLDA(N_WEAK).fit(X[seen], y[seen]), X[test], y[test]))
        exact.append(np.array_equal(model.unlearn(X[stream], y[stream]).coef_, coef_at_start))
        progress((number + 1) / N_ORDERS)
    return DigitDemo(
        n_seen=N_FIRST + np.arange(len(curve)),
        errors=np.array(errors),
        seconds_per_update=seconds / (N_ORDERS * len(stream)),
        batch_errors=np.array(batch_errors),
        weights=weights,
        mean_difference=(X[y == 5].mean(axis=0) - X[y == 3].mean(axis=0)).reshape(SIDE, SIDE),
        unlearning_is_exact=all(exact),
    )


def _threes_and_fives() -> tuple[Floats, NDArray[np.int64]]:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    chosen = np.isin(bunch.target, (3, 5))
    return bunch.data[chosen], bunch.target[chosen]


def _pixel_weights(model: GSLDA) -> Floats:
    """Weight of each pixel; positive if a bright pixel votes for 5."""
    stumps = model.weak_learners_
    assert isinstance(stumps, Stumps)
    weights = np.zeros(SIDE * SIDE)
    np.add.at(weights, stumps.feature, model.coef_ * stumps.polarity)
    return weights.reshape(SIDE, SIDE)


def _error(model: GSLDA, X: Floats, y: NDArray[np.int64]) -> float:
    return float((model.predict(X) != y).mean())


def draw(demo: DigitDemo, out: Path) -> Path:
    """Draw the weights of the classifier, and its test error against the number of digits seen."""
    figure, ((left, middle, right),) = new_figure(1, 3, 13, 4, width_ratios=[1, 1, 1.6])
    for axes, image, title in (
        (left, demo.mean_difference, "mean 5 minus mean 3"),
        (middle, demo.weights, f"weights of the {N_WEAK} selected stumps\n(bright pixel: red votes 5, blue votes 3)"),
    ):
        bound = abs(image).max()
        axes.imshow(image, cmap="RdBu_r", vmin=-bound, vmax=bound)
        axes.set_title(title, fontsize=10)
        axes.set_xticks([])
        axes.set_yticks([])
    mean, spread = demo.errors.mean(axis=0), demo.errors.std(axis=0)
    right.plot(demo.n_seen, mean, color=BLUE, label="online, one digit at a time")
    right.fill_between(demo.n_seen, mean - spread, mean + spread, color=BLUE, alpha=0.15, linewidth=0)
    right.axhline(demo.batch_errors.mean(), color=RED, linestyle="--", label="batch, all digits at once")
    right.set_title(f"mean and standard deviation, {N_ORDERS} random orders", fontsize=10)
    right.set_xlabel("digits seen")
    right.set_ylabel("test error")
    right.set_ylim(0, None)
    right.legend(fontsize=9)
    right.grid(alpha=0.3)
    return save(figure, out / "digits.png")
