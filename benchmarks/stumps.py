"""Training at full scale: seconds and memory of a stump on every Haar feature of a 24 x 24 window.

    WHET_DATA=... python -m benchmarks.stumps [--samples 5000 10000 20000] [--rounds 200]

Prints one JSON object: for each number of patches the seconds of every phase (on the clock, and of all
processors together, which a busy machine disturbs less), and the peak memory so far. With
`WHET_DATA`, positives are OpenCV's faces and negatives random crops of pictures without a face; else all
patches are noise, on which the phases take as long.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from whet.features.haar import HaarPool
from whet.features.integral import IntegralStack
from whet.features.parallel import available_threads
from whet.features.response_matrix import BitResponses
from whet.features.weak_training import train_weak_learners

SIDE = 24
WINDOW = (SIDE, SIDE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, nargs="+", default=[5_000, 10_000, 20_000])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--weighings", type=int, default=5)
    options = parser.parse_args()
    warm_up()
    rows = [measure(n, options.rounds, options.weighings) for n in sorted(options.samples)]
    data = "faces_opencv24 and negatives" if "WHET_DATA" in os.environ else "noise"
    print(json.dumps({"threads": available_threads(), "data": data, "results": rows}, indent=2))


def warm_up() -> None:
    """Compile, or load from the cache, so that no phase has to."""
    measure(200, rounds=2, weighings=1, pool=HaarPool.of_window(WINDOW).take(slice(None, None, 50)))


def measure(n: int, rounds: int, weighings: int, pool: HaarPool | None = None) -> dict[str, Any]:
    patches, is_positive = samples(n)
    seconds: dict[str, dict[str, float]] = {}
    pool = pool or timed(seconds, "pool", lambda: HaarPool.of_window(WINDOW))
    timed(seconds, "integrals", lambda: IntegralStack.of(patches))
    stumps, responses = timed(seconds, "stumps_and_bits", lambda: train_weak_learners(pool, patches, is_positive))
    order = np.argsort(stumps.error)[:rounds]
    timed(seconds, f"co_occurrence_x{rounds}", lambda: correlate(responses, order))
    weights = np.full(n, 1 / n)
    timed(seconds, f"weighted_errors_x{weighings}", lambda: weigh(responses, weights, weighings))
    return {
        "samples": n,
        "features": len(pool),
        "seconds": seconds,
        "best_balanced_error": round(float(stumps.error.min()), 4),
        "bit_matrix_mb": round(responses.bits.nbytes / 1e6),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def correlate(responses: BitResponses, order: NDArray[np.intp]) -> None:
    for j in order:
        responses.co_occurrence(int(j))


def weigh(responses: BitResponses, weights: NDArray[np.float64], times: int) -> None:
    for _ in range(times):
        responses.weighted_errors(weights)


def timed(seconds: dict[str, dict[str, float]], name: str, work: Callable[[], Any]) -> Any:  # noqa: ANN401
    clock, processors = time.perf_counter(), time.process_time()
    result = work()
    seconds[name] = {
        "clock": round(time.perf_counter() - clock, 3),
        "processors": round(time.process_time() - processors, 3),
    }
    return result


def samples(n: int) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Half faces and half non-faces (n, 24, 24), and which of them are faces."""
    rng = np.random.default_rng(0)
    is_positive = np.arange(n) < n // 2
    if "WHET_DATA" not in os.environ:
        return rng.integers(0, 256, (n, *WINDOW), dtype=np.uint8), is_positive
    data = Path(os.environ["WHET_DATA"])
    faces = np.load(data / "faces_opencv24" / "faces24.npz")["X"]
    positives = faces[rng.choice(len(faces), n // 2, replace=n // 2 > len(faces))]
    return np.concatenate([positives, crops(data / "negatives", n - n // 2, rng)]), is_positive


def crops(folder: Path, n: int, rng: np.random.Generator, pictures: int = 100) -> NDArray[np.uint8]:
    """Random squares of random pictures, scaled to 24 x 24."""
    paths = rng.permutation(sorted(folder.glob("*.jpg")))[:pictures]
    patches = np.empty((n, *WINDOW), dtype=np.uint8)
    for k, share in enumerate(np.array_split(np.arange(n), len(paths))):
        with Image.open(paths[k]) as opened:
            picture = opened.convert("L")
        for i in share:
            side = int(rng.integers(SIDE, min(picture.size) + 1))
            x, y = rng.integers(0, picture.width - side + 1), rng.integers(0, picture.height - side + 1)
            patches[i] = picture.resize(WINDOW, Image.Resampling.BILINEAR, (x, y, x + side, y + side))
    return patches


if __name__ == "__main__":
    main()
