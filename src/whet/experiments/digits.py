"""The demo: digits 3 against 5 of scikit-learn, from 20 samples to all, one at a time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.experiments import figures
from whet.experiments.report import Progress, silent
from whet.learn.gslda import GSLDA
from whet.learn.online_gslda import OnlineGSLDA

N_FIRST = 20
N_WEAK = 24
SIDE = 8


@dataclass(frozen=True, eq=False)
class Story:
    """What happened: errors after each sample, and what the classifier looks at."""

    n_seen: NDArray[np.intp]
    errors: NDArray[np.float64]
    seconds_per_update: float
    batch_error: float
    weights: NDArray[np.float64]
    mean_difference: NDArray[np.float64]
    unlearning_is_exact: bool

    def summary(self) -> str:
        """A few lines for the terminal."""
        return "\n".join(
            [
                f"trained on {self.n_seen[0]} digits:                      error {self.errors[0]:.1%}",
                f"taught {self.n_seen[-1] - self.n_seen[0]} more, {1e6 * self.seconds_per_update:.0f} µs each: "
                f"       error {self.errors[-1]:.1%}",
                f"trained on all {self.n_seen[-1]} at once:              error {self.batch_error:.1%}",
                f"unlearned again, equal to the start to the last bit: {'yes' if self.unlearning_is_exact else 'NO'}",
            ]
        )


def run(seed: int = 0, progress: Progress = silent) -> Story:
    """Train on a few digits, then learn the others online; half of the digits are for testing only."""
    X, y = _threes_and_fives()
    order = np.random.default_rng(seed).permutation(len(X))
    test, first, stream = np.split(order, [len(X) // 2, len(X) // 2 + N_FIRST])
    model = OnlineGSLDA(N_WEAK).fit(X[first], y[first])
    coef_at_start = model.coef_
    errors = [_error(model, X[test], y[test])]
    seconds = 0.0
    for count, i in enumerate(stream, start=1):
        start = time.perf_counter()
        model.update(X[i], y[i])
        seconds += time.perf_counter() - start
        errors.append(_error(model, X[test], y[test]))
        progress(count / len(stream))
    weights = np.zeros(SIDE * SIDE)
    stumps = model.weak_learners_
    np.add.at(weights, stumps.feature, model.coef_ * np.sign(getattr(stumps, "polarity", 1)))
    batch = GSLDA(N_WEAK).fit(X[np.r_[first, stream]], y[np.r_[first, stream]])
    model.unlearn(X[stream], y[stream])
    return Story(
        n_seen=N_FIRST + np.arange(len(errors)),
        errors=np.array(errors),
        seconds_per_update=seconds / len(stream),
        batch_error=_error(batch, X[test], y[test]),
        weights=weights.reshape(SIDE, SIDE),
        mean_difference=(X[y == 3].mean(axis=0) - X[y == 5].mean(axis=0)).reshape(SIDE, SIDE),
        unlearning_is_exact=bool(np.array_equal(model.coef_, coef_at_start)),
    )


def _threes_and_fives() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    chosen = np.isin(bunch.target, (3, 5))
    return bunch.data[chosen], bunch.target[chosen]


def _error(model: GSLDA, X: NDArray[np.float64], y: NDArray[np.int64]) -> float:
    return float((model.predict(X) != y).mean())


def draw(story: Story, out: Path) -> Path:
    """What the classifier looks at, and its error falling as digits arrive."""
    out.mkdir(parents=True, exist_ok=True)
    figure, ((left, middle, right),) = figures.new_figure(1, 3, 13, 4, width_ratios=[1, 1, 1.6])
    for axes, picture, title in (
        (left, story.mean_difference, "mean 3 minus mean 5"),
        (middle, story.weights, f"weights of the {N_WEAK} selected stumps\n(red speaks for 5, blue for 3)"),
    ):
        bound = abs(picture).max()
        axes.imshow(picture, cmap="RdBu" if axes is left else "RdBu_r", vmin=-bound, vmax=bound)
        axes.set_title(title, fontsize=10)
        axes.set_xticks([])
        axes.set_yticks([])
    right.plot(story.n_seen, story.errors, color=figures.BLUE, label="online, one digit at a time")
    right.axhline(story.batch_error, color=figures.RED, linestyle="--", label="batch, all digits at once")
    right.set_xlabel("digits seen")
    right.set_ylabel("test error")
    right.set_ylim(0, None)
    right.legend(fontsize=9)
    right.grid(alpha=0.3)
    return figures.save(figure, out / "digits.png")
