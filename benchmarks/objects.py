"""Decision "Trees on channels by default".

Average precision of `whet train` with default settings on eight sets of objects: `python -m benchmarks.objects`.

`--sets inria_person plates` chooses sets, `--seeds 3` repeats the training, `--features haar,lbp` trains cascades of
grey features. Each set is trained on its train part and evaluated on its test part; difficult boxes are ignored.
Prints JSON: average precision, seconds of training and milliseconds per test image.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from experiments.report import versions

from whet.detector.detector import Detector
from whet.evaluation.runs import evaluate
from whet.io.annotations.annotation import Annotations
from whet.io.annotations.formats import read_annotations
from whet.training.train import train


@dataclass(frozen=True)
class ObjectSet:
    """Where a set has its train and test part, and the class to train."""

    train: str
    test: str
    class_name: str | None = None


SETS = {
    "inria_person": ObjectSet("inria_person/train/annotations.json", "inria_person/test/annotations.json"),
    "plates": ObjectSet("plates/train.csv", "plates/test.csv"),
    "stop": ObjectSet("road_signs", "road_signs", "stop"),
    "rear_cars": ObjectSet("rear_cars/train", "rear_cars/test"),
    "white_cells": ObjectSet("blood_cells/train", "blood_cells/test", "WBC"),
    "cats": ObjectSet("pet_heads/train", "pet_heads/test", "cat"),
    "raccoon": ObjectSet("raccoon/train.csv", "raccoon/test.csv"),
    "kangaroo": ObjectSet("kangaroo/train", "kangaroo/test"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS), metavar="SET")
    parser.add_argument("--seeds", type=int, default=1, help="number of trainings of each set, with seeds from 0")
    parser.add_argument("--features", help="features setting of whet train (default: its own)")
    parser.add_argument("--threads", type=int, help="threads of training and detection (default: all processors)")
    parser.add_argument("--save", type=Path, metavar="DIR", help="keep the detectors in this directory")
    options = parser.parse_args()
    settings = {} if options.features is None else {"features": options.features}
    results = {}
    for name in options.sets:
        runs = [run(name, seed, settings, options.threads, options.save) for seed in range(options.seeds)]
        results[name] = summary(runs) | {"runs": runs}
        print(json.dumps({name: results[name]}), flush=True)
    shown = {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}
    print(json.dumps({"options": shown, "versions": versions(), "results": results}, indent=1))


def run(name: str, seed: int, settings: dict[str, Any], threads: int | None, save: Path | None) -> dict[str, float]:
    """Train on the train part of a set, and evaluate on the test part."""
    root, chosen = Path(os.environ["WHET_DATA"]) / "objects", SETS[name]
    begun, used = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        detector = train(root / chosen.train, class_name=chosen.class_name, seed=seed, threads=threads, **settings)
    seconds, core_seconds = time.perf_counter() - begun, time.process_time() - used
    if save is not None:
        detector.save(save / f"{name}{seed}.whet")
    return {
        "seed": seed,
        "seconds": round(seconds, 1),
        "core_seconds": round(core_seconds, 1),
        **evaluated(detector, test_part(root / chosen.test, chosen.class_name), threads),
    }


def test_part(path: Path, class_name: str | None) -> Annotations:
    """The annotations to evaluate on: the part of a set that is not its train part."""
    found = read_annotations(path)
    others = [split for split in found.splits if split and split != "train"]
    return (found.select_split(others[0]) if others else found).select(class_name)


def evaluated(detector: Detector, test: Annotations, threads: int | None) -> dict[str, float]:
    """Average precision, and core milliseconds per image with all that reading it takes."""
    used = time.process_time()
    result = evaluate(detector, test, threads=threads)
    per_image = (time.process_time() - used) / len(test.images)
    return {
        "average_precision": round(result.evaluation.average_precision, 4),
        "recall": round(result.recall, 4),
        "false_positives_per_image": round(result.n_false_positives / len(test.images), 3),
        "core_milliseconds_per_image": round(1000 * per_image, 1),
    }


def summary(runs: list[dict[str, float]]) -> dict[str, float]:
    """Means over seeds."""
    names = ("average_precision", "seconds", "core_seconds", "core_milliseconds_per_image")
    return {name: round(float(np.mean([one[name] for one in runs])), 4) for name in names}


if __name__ == "__main__":
    main()
