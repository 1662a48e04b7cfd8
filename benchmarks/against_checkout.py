"""Decision "This code against another checkout": both take turns.

`python -m benchmarks.against_checkout ROOT` prints JSON. Each turn runs a fresh process of one checkout and then of the
other, so that noise of the machine hits both. A process imports whet from its checkout, warms up, and reports the
processor time of each job: detect with `face` and with a detector on channels, learn a correction, update a classifier,
train a detector on channels and a cascade. `start` is the processor time of a whole process that loads `face` and
detects in a small image. Ratios are totals of this checkout over totals of the other: below 1, this one is faster.
`results` holds hashes of what each checkout detected, learned and trained.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
START = "import numpy, whet; whet.load('face').detect(numpy.arange(4096, dtype='uint8').reshape(64, 64))"
CHANNELS = {"trees": 256}
CASCADE = {
    "features": "haar,lbp",
    "max_stages": 3,
    "max_weak_learners": 30,
    "max_features": 4000,
    "negatives_per_stage": 1500,
}


def main() -> None:
    """Run both checkouts in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, nargs="?", help="the other checkout")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        print(json.dumps(jobs()))
        return
    if options.root is None:
        parser.error("give the root of the other checkout")
    roots = {"this": HERE, "other": options.root.resolve()}
    for root in roots.values():
        run(root, [__file__, "--job"])  # compiles what is not in the cache
        run(root, ["-c", START])
    seconds: dict[str, dict[str, list[float]]] = {name: {} for name in roots}
    results: dict[str, Any] = {}
    for _ in range(options.turns):
        for name, root in roots.items():
            table = json.loads(run(root, [__file__, "--job"])[0])
            results[name] = table.pop("results")
            table["start"] = run(root, ["-c", START])[1]
            for job, value in table.items():
                seconds[name].setdefault(job, []).append(value)
    ratios = {
        job: round(sum(mine) / sum(seconds["other"][job]), 3)
        for job, mine in seconds["this"].items()
        if sum(seconds["other"][job])
    }
    rounded = {
        name: {job: [round(one, 4) for one in row] for job, row in jobs_.items()} for name, jobs_ in seconds.items()
    }
    print(json.dumps({"turns": options.turns, "ratios": ratios, "seconds": rounded, "results": results}, indent=1))


def run(root: Path, arguments: list[str]) -> tuple[str, float]:
    """Standard output and processor seconds of a Python process that imports whet from a checkout."""
    environment = os.environ | {"PYTHONPATH": str(root / "src")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = os.times()
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, check=False)
    after = os.times()
    if done.returncode:
        raise SystemExit(f"{root}: {done.stderr}")
    return done.stdout, after.children_user + after.children_system - before.children_user - before.children_system


def jobs() -> dict[str, Any]:
    """Processor seconds of each job, in this process."""
    import numpy as np
    from skimage import data

    import whet

    image = data.astronaut()
    images = [image, np.tile(image, (1, 2, 1)), image[::2, ::2]]
    table: dict[str, Any] = {}
    detector = whet.load("face")
    detector.detect(image, threads=1)
    table["detect"] = timed(lambda: [detector.detect(one, threads=1) for one in images * 8])
    wrong = detector.detect(image).boxes[1:2]
    detector.copy().learn(image, wrong, [False])

    def learn() -> None:
        for _ in range(10):
            detector.copy().learn(image, wrong, [False], threads=1)

    table["learn"] = timed(learn)
    table["update"] = timed(update(np))
    with tempfile.TemporaryDirectory() as folder:
        boxes = draw(Path(folder), np)
        trained = {}
        for name, settings in (("channels", CHANNELS), ("cascade", CASCADE)):
            trained[name] = whet.train(boxes, threads=1, **settings)  # warms up
            table[f"train_{name}"] = timed(lambda settings=settings: whet.train(boxes, threads=1, **settings))
        channels = trained["channels"]
        table["detect_channels"] = timed(lambda: [channels.detect(one, threads=1) for one in images])
    corrected = detector.copy()
    corrected.learn(image, wrong, [False], threads=1)
    detections = [detector.detect(one).boxes.tobytes() + detector.detect(one).scores.tobytes() for one in images]
    table["results"] = {
        "detections": hashlib.sha256(b"".join(detections)).hexdigest()[:16],
        "base_id": detector.base_id[:16],
        "corrected": hashlib.sha256(corrected.detect(image).scores.tobytes()).hexdigest()[:16],
        **{name: one.base_id[:16] for name, one in trained.items()},
    }
    return table


def timed(work: Callable[[], object]) -> float:
    """Processor seconds of some work."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def update(np: Any) -> Callable[[], None]:  # noqa: ANN401 - numpy, imported after the path is set
    """Single updates of an online classifier with 200 weak learners."""
    from whet.estimators import OnlineGSLDA

    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 3000)
    X = rng.normal(size=(3000, 400)) + 0.3 * y[:, None]
    model = OnlineGSLDA(n_weak=200).fit(X[:1000], y[:1000])
    model.update(X[1000], y[1000])

    def work() -> None:
        for x, label in zip(X[1001:], y[1001:], strict=True):
            model.update(x, label)

    return work


def draw(folder: Path, np: Any) -> Path:  # noqa: ANN401
    """Images of bright boxes on noise, and their annotations as CSV."""
    from PIL import Image

    rng, rows = np.random.default_rng(0), []
    for number in range(60):
        pixels = rng.integers(0, 120, (120, 160), dtype=np.uint8)
        x, y = (int(place) for place in rng.integers(5, 80, 2))
        pixels[y : y + 30, x : x + 60] += 60
        pixels[y + 15 : y + 30, x : x + 60] += 60
        Image.fromarray(pixels).save(folder / f"{number}.png")
        rows.append(f"{number}.png,{x},{y},60,30,box\n")
    (folder / "boxes.csv").write_text("".join(rows))
    return folder / "boxes.csv"


if __name__ == "__main__":
    main()
