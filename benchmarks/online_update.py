"""Decision "One rank-one update per sample".

One more sample: OnlineGSLDA against what else can learn from it. `python -m benchmarks.online_update`.

Every contestant sees the same stream of binary responses, correlated as stumps on images are. `whet update`
includes new coefficients and threshold, which are read after every sample. `whet partial_fit` is the same through
scikit-learn's interface, whose arguments are checked, once as it is called and once with the coefficients read, which
it derives anew from the statistics.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
from collections.abc import Callable

import numpy as np
from experiments.report import versions
from numpy.typing import NDArray
from river import ensemble
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import SGDClassifier

from benchmarks.measuring import summary, take_turns
from whet.estimators import OnlineGSLDA

N_START = 2000
BLOCK = 1000
Samples = tuple[NDArray[np.float64], NDArray[np.int64]]


def stream(size: int, n: int, seed: int = 0) -> Samples:
    """Responses (n, size) of zeros and ones that share a few causes, and labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    causes = rng.normal(size=(n, 8)) + 0.6 * y[:, None]
    values = causes @ rng.normal(size=(8, size)) + rng.normal(size=(n, size))
    return (values > rng.normal(size=size)).astype(np.float64), y


class NumpyShermanMorrison:
    """The plain way: statistics and inverse in NumPy, one rank-one update a sample, a fresh direction."""

    def __init__(self, X: NDArray[np.float64], y: NDArray[np.int64], ridge: float) -> None:
        self.n = np.array([(y == c).sum() for c in (0, 1)], dtype=float)
        self.m = np.array([X[y == c].mean(axis=0) for c in (0, 1)])
        self.S = [np.cov(X[y == c].T, bias=True) * (y == c).sum() for c in (0, 1)]
        self.inverse = np.linalg.inv(self.S[0] + self.S[1] + ridge * np.eye(X.shape[1]))

    def update(self, x: NDArray[np.float64], label: int) -> tuple[NDArray[np.float64], float, float]:
        """Learn one sample: the new direction and both projected variances."""
        d = x - self.m[label]
        c = self.n[label] / (self.n[label] + 1)
        u = self.inverse @ d
        self.inverse -= np.outer(u, u) * (c / (1 + c * (d @ u)))
        self.S[label] += c * np.outer(d, d)
        self.n[label] += 1
        self.m[label] += d / self.n[label]
        w = self.inverse @ (self.m[1] - self.m[0])
        return w, w @ self.S[0] @ w / self.n[0], w @ self.S[1] @ w / self.n[1]


def contestants(size: int) -> dict[str, Callable[[], object]]:
    """A call each that learns the next sample of the stream."""
    X, y = stream(size, N_START + 20_000)
    first = slice(0, N_START)
    rest = itertools.cycle(range(N_START, len(X)))
    ours = OnlineGSLDA(size, ridge=20.0, weak="stump").fit(X[first], y[first])
    sgd = SGDClassifier().fit(X[first], y[first])
    plain = NumpyShermanMorrison(X[first], y[first], 20.0)
    boosting = ensemble.AdaBoostClassifier(_river_tree(), n_models=10, seed=0)
    lda = LinearDiscriminantAnalysis(solver="lsqr")

    def update() -> object:
        i = next(rest)
        ours.update(X[i], y[i])
        return ours.coef_, ours.intercept_

    checked = OnlineGSLDA(size, ridge=20.0, weak="stump").fit(X[first], y[first])

    def checked_fit() -> object:
        i = next(rest)
        return checked.partial_fit(X[i : i + 1], y[i : i + 1])

    def checked_fit_and_read() -> object:
        checked_fit()
        return checked.coef_, checked.intercept_

    def partial_fit() -> object:
        i = next(rest)
        return sgd.partial_fit(X[i : i + 1], y[i : i + 1])

    def numpy_update() -> object:
        i = next(rest)
        return plain.update(X[i], int(y[i]))

    def learn_one() -> object:
        i = next(rest)
        return boosting.learn_one(dict(enumerate(X[i])), bool(y[i]))

    return {
        "whet update": update,
        "whet partial_fit": checked_fit,
        "whet partial_fit, coefficients read": checked_fit_and_read,
        "NumPy Sherman-Morrison": numpy_update,
        "SGDClassifier.partial_fit": partial_fit,
        "River AdaBoostClassifier.learn_one": learn_one,
        "LinearDiscriminantAnalysis refit on 2,000": lambda: lda.fit(X[first], y[first]),
    }


def _river_tree() -> object:
    from river import tree

    return tree.HoeffdingTreeClassifier()


def block_contestants(size: int) -> dict[str, Callable[[], object]]:
    """A call each that learns a block of 1,000 samples."""
    X, y = stream(size, N_START + BLOCK)
    ours = OnlineGSLDA(size, ridge=20.0).fit(X[:N_START], y[:N_START])
    sgd = SGDClassifier().fit(X[:N_START], y[:N_START])
    block, labels = X[N_START:], y[N_START:]

    def partial_fit() -> object:
        ours.partial_fit(block, labels)
        return ours.coef_, ours.intercept_

    return {
        "whet partial_fit": partial_fit,
        "SGDClassifier.partial_fit": lambda: sgd.partial_fit(block, labels),
    }


def cost_by_samples_seen(size: int = 200) -> dict[str, float]:
    """Least microseconds an update after 1,000, 10,000, 100,000 and 1,000,000 samples."""
    X, y = stream(size, 12_000)
    costs = {}
    for seen in (1_000, 10_000, 100_000, 1_000_000):
        model = OnlineGSLDA(size, ridge=20.0).fit(X[:1000], y[:1000])
        for _ in range((seen - 1000) // 9000):
            model.partial_fit(X[:9000], y[:9000])
        rows = itertools.cycle(range(1000, 12_000))

        def update(model: OnlineGSLDA = model, rows: itertools.cycle[int] = rows) -> object:
            i = next(rows)
            model.update(X[i], y[i])
            return model.coef_, model.intercept_

        costs[str(seen)] = round(1e6 * min(take_turns({"whet": update}, 9, {"whet": 300})["whet"]), 1)
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=15)
    turns = parser.parse_args().turns
    results: dict[str, object] = {"versions": versions(), "machine": platform.machine(), "turns": turns}
    calls = dict.fromkeys(contestants(5), 100) | {
        "River AdaBoostClassifier.learn_one": 3,
        "LinearDiscriminantAnalysis refit on 2,000": 1,
    }
    results["one sample"] = {
        str(size): summary(take_turns(contestants(size), turns, calls), "whet update")
        for size in (25, 50, 100, 200, 400)
    }
    results["a sample in blocks of 1,000"] = {
        str(size): summary(
            take_turns(block_contestants(size), turns, {"whet partial_fit": 5, "SGDClassifier.partial_fit": 5}),
            "whet partial_fit",
            per=BLOCK,
        )
        for size in (25, 50, 100, 200, 400)
    }
    results["least microseconds an update of 200, by samples seen"] = cost_by_samples_seen()
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
