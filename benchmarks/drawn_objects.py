"""Detectors of drawn objects, through the commands alone: `python -m benchmarks.drawn_objects`.

Vans and walkers (`whet.demo.objects`) are drawn into images of `negatives`; others of them, without the
object, are given as negatives. Train and evaluate. No image is in two of these sets. Prints JSON, with the seconds of
each command, start of the process included.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from experiments.datasets import negative_images
from experiments.report import versions

from whet.demo.objects import OBJECTS, draw_set
from whet.io.annotations.formats import write_annotations

FEATURES = ("--features", "haar,lbp")
# Images: for training (about 200 objects), to try corrections on by hand, for evaluation, and without the object.
SIZES = {"train": 140, "more": 30, "test": 100, "empty": 300}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=sorted(OBJECTS), choices=sorted(OBJECTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    options = parser.parse_args()
    runs = [run(kind, seed) for kind in options.kinds for seed in options.seeds]
    print(json.dumps({"options": vars(options), "versions": versions(), "sizes": SIZES, "runs": runs}, indent=1))


def run(kind: str, seed: int) -> dict[str, Any]:
    """One kind of object, from drawing to the evaluation."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        drawn = draw(kind, seed, folder)
        train = command(
            folder, "train", "train.csv", "--negatives", "empty", "--seed", seed, "--out", "it.whet", *FEATURES
        )
        first = command(folder, "evaluate", "it.whet", "test.json")
    return {
        "kind": kind,
        "seed": seed,
        "drawn": drawn,
        "train": train,
        "evaluate": first,
    }


def draw(kind: str, seed: int, folder: Path) -> dict[str, int]:
    """Draw the sets; images without the object are linked to."""
    paths = negative_images()
    order = np.random.default_rng([seed, 11]).permutation(len(paths)).tolist()
    counts = {}
    for number, (name, n) in enumerate(SIZES.items()):
        chosen, order = [paths[i] for i in order[:n]], order[n:]
        if name == "empty":
            (folder / name).mkdir()
            for path in chosen:
                (folder / name / path.name).symlink_to(path)
            continue
        drawn = draw_set(kind, chosen, folder / f"{name}-images", 10 * seed + number)
        write_annotations(drawn, folder / f"{name}.{'json' if name == 'test' else 'csv'}")
        counts[name] = drawn.n_boxes
    return counts


def command(folder: Path, *arguments: object) -> dict[str, Any]:
    """What a command prints as JSON, and how long it took."""
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "whet", *map(str, arguments), "--json", "--quiet"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 5):
        raise SystemExit(f"whet {arguments[0]} failed: {done.stderr}")
    return {**json.loads(done.stdout), "wall seconds": round(time.perf_counter() - begun, 1)}


if __name__ == "__main__":
    main()
