"""Decision "Cost of large trainings".

What a training of any size needs in cores, memory, network and hours. `python -m benchmarks.cluster_cost`.

Prints JSON. Constants are measured on one thread at small sizes. `check` predicts a larger size by them and measures
it: the ratio is the error of the model. `plan` is the training that Xiao et al. (ICCV 2007) report: 500,000 positives
and ten billion negative windows, 30 desktop computers, 7 hours.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from experiments.mining import Miner

import whet
from benchmarks.cluster import photographs
from benchmarks.face_patches import WINDOW, face_patches
from benchmarks.measuring import cascade_model
from benchmarks.node import ALL_FEATURES
from whet.models.gslda.haar import HaarPool
from whet.models.gslda.weak_training import train_weak_learners
from whet.parallel.workers import Threads

ALONE = Threads(1)
WORD = 64


@dataclass(frozen=True)
class Constants:
    """Seconds on one core."""

    stump: float  # per feature and sample
    count: float  # per feature, word of a bit row and round
    project: float  # per feature, round and earlier round
    window: float  # per window that is mined


@dataclass(frozen=True)
class Plan:
    """A training of a cascade: its size, and the cluster that runs it."""

    positives: int = 500_000
    negatives_per_stage: int = 500_000
    windows: float = 1e10
    features: int = ALL_FEATURES
    stages: int = 20
    weak_learners: int = 100
    cores: int = 60
    machines: int = 30

    @property
    def samples(self) -> int:
        """Samples of a stage."""
        return self.positives + self.negatives_per_stage

    def core_seconds(self, constants: Constants) -> dict[str, float]:
        """Seconds on one core by phase."""
        words, rounds = self.samples / WORD, self.weak_learners
        return {
            # Every stage scans all windows: an upper bound, since early stages find enough in a few images.
            "mining": self.stages * constants.window * self.windows,
            "training of weak learners": self.stages * constants.stump * self.features * self.samples,
            "selection": self.stages
            * self.features
            * (constants.count * words * rounds + constants.project * rounds * rounds / 2),
        }

    def needs(self, constants: Constants) -> dict[str, Any]:
        """Core hours, hours, memory and network."""
        seconds = self.core_seconds(constants)
        words = self.samples / WORD
        pixels = WINDOW[0] * WINDOW[1]
        matrix = 8 * words * self.features
        return {
            "core hours": {name: round(each / 3600, 1) for name, each in seconds.items()},
            "hours on the cores": round(sum(seconds.values()) / 3600 / self.cores, 2),
            "memory of the matrix, GB in all": round(matrix / 1e9, 1),
            "memory of the matrix, GB a machine": round(matrix / self.machines / 1e9, 2),
            "memory of integral images, GB a worker process": round(
                8 * (WINDOW[0] + 1) * (WINDOW[1] + 1) * self.samples / 1e9, 1
            ),
            "network, samples, GB a stage and machine": round(pixels * self.samples / 1e9, 2),
            "network, selection, MB a stage and block": round(
                2 * (8 * words + 8 * self.weak_learners / 2) * self.weak_learners / 1e6, 1
            ),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--features", type=int, default=20_000)
    parser.add_argument("--images", type=int, default=20)
    options = parser.parse_args()
    constants = measure(options.samples, options.features, options.images)
    results = {
        "command": "python -m benchmarks.cluster_cost",
        "options": vars(options),
        "constants": asdict(constants),
        "check": check(constants, 4 * options.samples, 4 * options.features, 3 * options.images),
        "plan": {"sizes": asdict(Plan()), **Plan().needs(constants)},
    }
    print(json.dumps(results, indent=1))


def seconds_of(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def phases(n: int, n_features: int, n_images: int, n_rounds: int) -> tuple[dict[str, float], int, int]:
    """Processor seconds of each phase on one thread; words of a bit row, and windows."""
    patches, is_positive, _ = face_patches(n)
    pool = HaarPool.from_window(WINDOW).sample(n_features, np.random.default_rng(0))
    cascade, images = cascade_model(whet.load("face")).cascade, photographs(n_images)
    train_weak_learners(pool.take(slice(64)), patches[::50], is_positive[::50], workers=ALONE)  # compile
    mining, mined = seconds_of(lambda: Miner(images, cascade.window, workers=ALONE).mine(cascade, 10**6, 1))
    stumps, (_, responses) = seconds_of(lambda: train_weak_learners(pool, patches, is_positive, workers=ALONE))
    selection, _ = seconds_of(lambda: list(responses.selected("fda", 20.0, n_rounds)))
    return {"mining": mining, "stumps": stumps, "selection": selection}, responses.layout.words, mined.n_tested


def measure(n: int, n_features: int, n_images: int) -> Constants:
    """Constants from selections of few and of many rounds: the projection grows with the square of the rounds."""
    phases(200, 1000, 2, 4)  # compile
    few, many = 10, 60
    short, words, _ = phases(n, n_features, n_images, few)
    long, _, windows = phases(n, n_features, n_images, many)
    rows = np.array([[words * few, few * few / 2], [words * many, many * many / 2]])
    count, project = np.linalg.solve(rows, np.array([short["selection"], long["selection"]]) / n_features)
    return Constants(
        min(short["stumps"], long["stumps"]) / n_features / n,
        max(float(count), 0.0),
        max(float(project), 0.0),
        min(short["mining"], long["mining"]) / windows,
    )


def check(constants: Constants, n: int, n_features: int, n_images: int) -> dict[str, Any]:
    """A larger size, predicted and measured."""
    n_rounds = 40
    measured, words, windows = phases(n, n_features, n_images, n_rounds)
    predicted = {
        "mining": constants.window * windows,
        "stumps": constants.stump * n_features * n,
        "selection": n_features * (constants.count * words * n_rounds + constants.project * n_rounds**2 / 2),
    }
    return {
        name: {
            "predicted": round(predicted[name], 2),
            "measured": round(measured[name], 2),
            "predicted over measured": round(predicted[name] / measured[name], 2),
        }
        for name in measured
    } | {"samples": n, "features": n_features, "images": n_images}


if __name__ == "__main__":
    main()
