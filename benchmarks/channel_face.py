"""A face detector of channels next to the bundled one, on pasted faces: `python -m benchmarks.channel_face`.

Trains on OpenCV's faces and on images without a face, those that the bundled detector was trained on, with default
settings otherwise. `--faces` and `--negatives` limit both and so the time: 1,000 and 100 take 48 core seconds.
Prints JSON: average precision in easy and in hard scenes (see `benchmarks.pasted_faces`), and milliseconds of one
core for photographs of 640 x 480, in turns. Neither faces nor images of the scenes were trained on.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from experiments.report import versions
from PIL import Image
from scripts.train_face import split_faces, split_images

import whet
from benchmarks.interleaved import take_turns
from benchmarks.pasted_faces import Scene, scenes
from benchmarks.scan import images
from whet.detector.base import Reporting
from whet.detector.detector import Detector
from whet.evaluation.evaluation import evaluate_detections


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faces", type=int, default=4000, help="training faces")
    parser.add_argument("--negatives", type=int, default=600, help="images without a face")
    parser.add_argument("--scenes", type=int, default=200)
    parser.add_argument("--images", type=int, default=6, help="for the timing")
    parser.add_argument("--turns", type=int, default=5, help="for the timing")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="threads of the training (default: all processors)")
    options = parser.parse_args()
    begun, used = time.perf_counter(), time.process_time()
    channels = trained(options.faces, options.negatives, options.seed, options.threads)
    report: dict[str, Any] = {
        "options": vars(options),
        "versions": versions(),
        "seconds": round(time.perf_counter() - begun, 1),
        "core_seconds": round(time.process_time() - used, 1),
        "window": channels.window,
    }
    # Boxes of scenes are windows: without the bundled detector's box offset.
    detectors = {"bundled": Detector(whet.load("face").base, reporting=Reporting()), "channels": channels}
    for kind in ("easy", "hard"):
        some = scenes(options.scenes, hard=kind == "hard")
        report[kind] = {name: average_precision(detector, some) for name, detector in detectors.items()}
    report["milliseconds"] = speed(detectors, options.images, options.turns)
    print(json.dumps(report, indent=1))


def trained(n_faces: int, n_negatives: int, seed: int, threads: int | None) -> Detector:
    """A channel detector of faces, evenly from the training part."""
    faces, _ = split_faces()
    chosen = np.linspace(0, len(faces) - 1, min(n_faces, len(faces))).astype(int)
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in chosen.tolist():
            Image.fromarray(faces[number]).save(Path(folder) / f"{number:05}.png")
        negatives = split_images()[0][:n_negatives]
        return whet.train(folder, negatives, format="crops", seed=seed, threads=threads)


def average_precision(detector: Detector, some: list[Scene]) -> float:
    """Average precision in scenes, at any score; a face is found from an IoU of 0.5 on."""
    found = [detector.detect(image, min_score=-np.inf) for image, _ in some]
    pairs = [(one.boxes, one.scores) for one in found]
    return round(evaluate_detections(pairs, [(boxes, None) for _, boxes in some]).average_precision, 4)


def speed(detectors: dict[str, Detector], n_images: int, n_turns: int) -> dict[str, float]:
    """Milliseconds of one thread for an image of 640 x 480 with faces of 24 pixels and more: the median image."""
    once = dict.fromkeys(detectors, 1)
    least: dict[str, list[float]] = {name: [] for name in detectors}
    for image in images(n_images):
        calls = {name: partial(one.detect, image, min_size=24, threads=1) for name, one in detectors.items()}
        for name, seconds in take_turns(calls, n_turns, once).items():
            least[name].append(1000 * min(seconds))
    return {name: round(median(each), 1) for name, each in least.items()}


if __name__ == "__main__":
    main()
