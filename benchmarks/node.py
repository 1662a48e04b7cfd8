"""Decision "Packed responses".

A node at full scale: every Haar feature of a 24 x 24 window, 200 weak learners. `python -m benchmarks.node`.

Prints JSON: seconds of every phase (on the clock, and of all processors together, which a busy machine disturbs
less) and peak memory, for growing numbers of samples and of features. Each size runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.face_patches import WINDOW, face_patches
from whet.models.gslda.fitting import GreedyLDA, train_stage
from whet.models.gslda.haar import HaarPool
from whet.models.gslda.integral import IntegralStack
from whet.models.gslda.weak_training import train_weak_learners
from whet.parallel.threads import available_threads

ALL_FEATURES = 162_336
SAMPLES = (5_000, 10_000, 20_000, 40_000)
FEATURES = (20_000, 40_000, 80_000, ALL_FEATURES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=3, type=int, metavar=("SAMPLES", "FEATURES", "WEAK"), help="measure one size")
    parser.add_argument("--weak", type=int, default=200)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one)))
        return
    results: dict[str, Any] = {"threads": available_threads()}
    results["by samples"] = [in_a_process(n, ALL_FEATURES, options.weak) for n in SAMPLES]
    results["by features"] = [in_a_process(20_000, m, options.weak) for m in FEATURES]
    print(json.dumps(results, indent=1))


def in_a_process(n: int, n_features: int, n_weak: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.node", "--one", str(n), str(n_features), str(n_weak)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def measure(n: int, n_features: int, n_weak: int) -> dict[str, Any]:
    """Seconds of the phases of one training."""
    pool = HaarPool.from_window(WINDOW)
    small, labels, _ = face_patches(200)
    train_stage(pool.take(slice(None, None, 100)), small, labels, 3)  # compile, or load from the cache
    patches, is_positive, data = face_patches(n)
    if n_features < len(pool):
        pool = pool.sample(n_features, np.random.default_rng(0))
    seconds: dict[str, tuple[float, float]] = {}
    timed(seconds, "integrals", lambda: IntegralStack.from_patches(patches))
    _, responses = timed(seconds, "stumps and bits", lambda: train_weak_learners(pool, patches, is_positive))
    learner = GreedyLDA()
    chosen = timed(seconds, "selection", lambda: np.array(list(learner.rounds(responses, n_weak))))
    timed(seconds, "weights", lambda: learner.vote(responses, chosen).coef)
    return {
        "data": data,
        "samples": n,
        "features": len(pool),
        "weak learners": n_weak,
        "clock": {name: round(clock, 3) for name, (clock, _) in seconds.items()},
        "processors": {name: round(processors, 3) for name, (_, processors) in seconds.items()},
        "clock in all": round(sum(clock for name, (clock, _) in seconds.items() if name != "integrals"), 2),
        "peak memory in MB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def timed(seconds: dict[str, tuple[float, float]], name: str, work: Callable[[], Any]) -> Any:  # noqa: ANN401
    clock, processors = time.perf_counter(), time.process_time()
    result = work()
    seconds[name] = time.perf_counter() - clock, time.process_time() - processors
    return result


if __name__ == "__main__":
    main()
