"""Decision "Two AdaBoosts".

AdaBoost, ours against scikit-learn's with depth-1 trees. `python -m benchmarks.adaboost`.

The same 3,000 x 200 samples and the same number of rounds; times in turns, in one run; test errors over ten seeds.
"""

from __future__ import annotations

import argparse
import json

import numpy as np
from experiments.report import versions
from numpy.typing import NDArray
from sklearn.ensemble import AdaBoostClassifier
from sklearn.tree import DecisionTreeClassifier

from benchmarks.measuring import summary, take_turns
from whet.estimators.baselines import AdaBoost

N, FEATURES, ROUNDS = 3_000, 200, 100


def samples(n: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Two classes that differ a little in many features, some of them not linearly."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, FEATURES)) + 0.25 * y[:, None] * (np.arange(FEATURES) < 60)
    X[:, 60:80] *= 1 + 0.6 * y[:, None]
    return X, y


def theirs(seed: int = 0) -> AdaBoostClassifier:
    return AdaBoostClassifier(DecisionTreeClassifier(max_depth=1), n_estimators=ROUNDS, random_state=seed)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    X, y = samples(N, 0)
    contestants = {"whet": lambda: AdaBoost(ROUNDS).fit(X, y), "scikit-learn": lambda: theirs().fit(X, y)}
    seconds = take_turns(contestants, turns=3, calls={"whet": 1, "scikit-learn": 1})
    errors: dict[str, list[float]] = {"whet": [], "scikit-learn": []}
    for seed in range(10):
        X, y = samples(N, seed)
        X_test, y_test = samples(10_000, 1000 + seed)
        for name, model in (("whet", AdaBoost(ROUNDS)), ("scikit-learn", theirs(seed))):
            errors[name].append(float((model.fit(X, y).predict(X_test) != y_test).mean()))
    difference = np.subtract(errors["whet"], errors["scikit-learn"])
    print(
        json.dumps(
            {
                "versions": versions(),
                "samples x features x rounds": [N, FEATURES, ROUNDS],
                "time": summary(seconds, "whet"),
                "test error, mean of 10 seeds": {name: round(float(np.mean(e)), 4) for name, e in errors.items()},
                "standard error of the mean": {
                    name: round(float(np.std(e, ddof=1) / np.sqrt(10)), 4) for name, e in errors.items()
                },
                "ours minus theirs": round(float(difference.mean()), 4),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
