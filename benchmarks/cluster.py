"""Decision "Blocks of features are dealt out".

A Dask cluster on this machine: two workers against one, bytes on the wire, memory. `python -m benchmarks.cluster`.

Prints JSON. One worker and two take turns, as `--workers` starts them, with one thread each. A phase is mining with the
bundled face detector, training of weak learners on all Haar features, or rounds of selection. `small job` is a training
of seconds, with threads and with two workers. `memory` trains on a response matrix that does not fit into one worker.
Needs `pip install whet[dask]`, and WHET_DATA for photographs; without them it uses noise.
"""

from __future__ import annotations

import argparse
import json
import pickle
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from distributed import Client, LocalCluster
from experiments.datasets import negative_images
from experiments.mining import Miner
from PIL import Image

import whet
from benchmarks.face_patches import WINDOW, face_patches
from benchmarks.measuring import cascade_model
from whet.detector.detector import Detector
from whet.errors import DataNotFoundError
from whet.lda.selection import Candidates
from whet.models.gslda.fitting import train_stage
from whet.models.gslda.haar import HaarPool
from whet.models.gslda.weak_training import train_weak_learners
from whet.parallel.workers import Cluster, Threads, Workers, connect

ROUNDS = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--images", type=int, default=150)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--limit", type=int, default=1000, help="memory limit of a worker, in MB")
    parser.add_argument("--memory-samples", type=int, default=50_000)
    options = parser.parse_args()
    results: dict[str, Any] = {"command": "python -m benchmarks.cluster", "options": vars(options)}
    with connect(n_workers=1) as one, connect(n_workers=2) as two:
        results["phases"] = two_against_one(one, two, options.samples, options.images, options.turns)
        results["small job"] = small_job(two, options.turns)
    results["wire"] = wire(options.samples)
    results["memory"] = memory(options.memory_samples, options.limit)
    print(json.dumps(results, indent=1))


@contextmanager
def limited_cluster(n: int, limit: str) -> Iterator[Cluster]:
    cluster = LocalCluster(n_workers=n, threads_per_worker=1, memory_limit=limit, dashboard_address=None)
    with cluster, Client(cluster) as client:
        yield Cluster(client)


def photographs(n: int) -> list[Path]:
    try:
        return negative_images()[:n]
    except DataNotFoundError:
        folder, rng = Path(tempfile.mkdtemp()), np.random.default_rng(0)
        for i in range(n):
            noise = Image.fromarray(rng.integers(0, 256, (120, 160), dtype=np.uint8))
            noise.resize((640, 480)).save(folder / f"{i}.png")
        return sorted(folder.iterdir())


def two_against_one(one: Workers, two: Workers, n: int, n_images: int, turns: int) -> dict[str, Any]:
    """Seconds of each phase with one worker and with two, which take turns, and the ratio of each turn."""
    patches, is_positive, data = face_patches(n)
    pool, images = HaarPool.from_window(WINDOW), photographs(n_images)
    cascade = cascade_model(whet.load("face")).cascade
    names = "mining", "training of weak learners", f"{ROUNDS} rounds of selection"
    seconds: dict[str, list[list[float]]] = {name: [] for name in names}
    found = set()
    for turn in range(turns + 1):  # the first loads kernels and is not counted
        rows = []
        for workers in (one, two):  # in this order: what a cluster still holds is not computed again
            clock = [time.perf_counter()]
            mined = Miner(images, cascade.window, workers=workers).mine(cascade, 10**6, 1)
            clock.append(time.perf_counter())
            weak, responses = train_weak_learners(pool, patches, is_positive, workers=workers)
            clock.append(time.perf_counter())
            chosen = [j for j, _ in islice(responses.selected("fda", 20.0, ROUNDS), ROUNDS)]
            clock.append(time.perf_counter())
            rows.append(np.diff(clock).tolist())
            found.add((mined.patches.tobytes(), weak.threshold.tobytes(), tuple(chosen)))
        if turn > 0:
            for name, *pair in zip(names, *rows, strict=True):
                seconds[name].append(pair)
    return {
        "data": data,
        "samples": n,
        "features": len(pool),
        "images": len(images),
        "windows": mined.n_tested,
        "same results": len(found) == 1,
        **{name: _ratios(pairs) for name, pairs in seconds.items()},
    }


def _ratios(pairs: list[list[float]]) -> dict[str, Any]:
    """Medians of seconds with one worker and with two, and how many times as fast two were: median, worst and all."""
    ratios = [one / two for one, two in pairs]
    ones, twos = zip(*pairs, strict=True)
    return {
        "one worker": round(median(ones), 3),
        "two workers": round(median(twos), 3),
        "times as fast": round(median(ratios), 2),
        "worst turn": round(min(ratios), 2),
        "turns": [round(each, 2) for each in ratios],
    }


def small_job(two: Workers, turns: int) -> dict[str, Any]:
    """Seconds of a stage of 20 weak learners, of 2,000 features on 400 patches: too small for a cluster."""
    patches, is_positive, _ = face_patches(400)
    pool = HaarPool.from_window(WINDOW).sample(2000, np.random.default_rng(0))

    def run(workers: Workers) -> float:
        start = time.perf_counter()
        train_stage(pool, patches, is_positive, 20, workers=workers)
        return time.perf_counter() - start

    rows = [(run(Threads()), run(two)) for _ in range(turns + 1)][1:]
    threads, cluster = (median(column) for column in zip(*rows, strict=True))
    return {
        "weak learners": 20,
        "threads": round(threads, 3),
        "two workers": round(cluster, 3),
        "milliseconds a weak learner, two workers": round(1000 * cluster / 20, 1),
    }


def wire(n: int) -> dict[str, Any]:
    """Pickled bytes of what goes out and comes back in a round of selection, for each block, and of a correction."""
    patches, is_positive, _ = face_patches(n)
    pool = HaarPool.from_window(WINDOW).sample(2000, np.random.default_rng(0))
    _, responses = train_weak_learners(pool, patches, is_positive)
    block = responses.take(np.arange(len(pool)))
    candidates = Candidates.from_scatter(block.scatter("fda", 20.0))
    sizes = []
    for _ in range(ROUNDS):
        best = candidates.best()
        assert best is not None
        sizes.append(len(pickle.dumps(best)))
        candidates = candidates.without(best)
    detector: Detector = whet.load("face")
    records = []
    for path in photographs(100):
        found = detector.detect(path, min_score=-np.inf)
        if len(found):
            records = detector.new_records(path, found.boxes[:1], False)
            break
    return {
        "samples": n,
        "a round, each way and block, first and last": [sizes[0], sizes[-1]],
        "a correction": len(pickle.dumps(records)) if records else None,
    }


def memory(n: int, limit: int) -> dict[str, Any]:
    """Peak memory of four workers while they train a matrix that one of them could not hold."""
    patches, is_positive, _ = face_patches(n)
    pool = HaarPool.from_window(WINDOW)
    with limited_cluster(4, f"{limit}MB") as workers:
        _, responses = train_weak_learners(pool, patches, is_positive, workers=workers, max_memory=1 << 33)
        chosen = [j for j, _ in islice(responses.selected("fda", 20.0, 20), 20)]
        peaks = workers.client.run(peak_memory)
    return {
        "samples": n,
        "features": len(pool),
        "matrix, MB": round(len(pool) * responses.layout.words * 8 / 1e6),
        "limit of a worker, MB": limit,
        "peaks of the workers, MB": sorted(peaks.values()),
        "selected": len(chosen),
    }


def peak_memory() -> int:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6)


if __name__ == "__main__":
    main()
