"""Decision "The face detector stays a cascade".

A face detector of channels next to the bundled one, on pasted faces: `python -m benchmarks.channel_face`.

Trains on OpenCV's faces and on images without a face, those that the bundled detector was trained on, with default
settings otherwise: on the crops as they are, and on the same crops pasted into the images, three in each, so that
windows have surroundings. `--faces` and `--negatives` limit both and so the time.
Prints JSON: average precision in easy and in hard scenes (see `benchmarks.pasted_faces`), and milliseconds of one
core for photographs of 640 x 480, in turns. Neither faces nor images of the scenes were trained on.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from experiments.report import versions
from numpy.typing import NDArray
from PIL import Image
from scripts.train_face import split_faces, split_images

import whet
from benchmarks.face_speed import photographs
from benchmarks.measuring import VGA, take_turns
from benchmarks.pasted_faces import A_SCENE, Scene, scenes, window_scenes
from whet.detector.base import Reporting
from whet.detector.detector import Detector
from whet.evaluation.evaluation import evaluate_detections
from whet.io.annotations.annotation import AnnotatedImage, Annotations
from whet.io.annotations.formats import write_annotations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faces", type=int, default=4000, help="training faces")
    parser.add_argument("--negatives", type=int, default=600, help="images without a face")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS), help="what to train on")
    parser.add_argument("--scenes", type=int, default=200, help="scenes of each kind to evaluate on")
    parser.add_argument("--images", type=int, default=6, help="for the timing")
    parser.add_argument("--turns", type=int, default=5, help="for the timing")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="threads of the training (default: all processors)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="save the detectors here")
    options = parser.parse_args()
    faces, negatives = chosen_faces(options.faces), split_images()[0][: options.negatives]
    shown = {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}
    report: dict[str, Any] = {"options": shown, "versions": versions(), "training": {}}
    # Boxes of scenes are windows: without the bundled detector's box offset.
    detectors = {"bundled": Detector.from_base(whet.load("face").base, reporting=Reporting())}
    for name in options.kinds:
        begun = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            detectors[name] = KINDS[name](faces, negatives, options.seed, options.threads)
        used = round(time.process_time() - begun, 1)
        report["training"][name] = {"core_seconds": used, "window": detectors[name].window}
        print(f"{name}: {used} core seconds", file=sys.stderr)
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            detectors[name].save(options.out / f"face-{name}.whet")
    for kind in ("easy", "hard"):
        some = scenes(options.scenes, hard=kind == "hard")
        report[kind] = {name: average_precision(detector, some) for name, detector in detectors.items()}
    report["milliseconds"] = speed(detectors, options.images, options.turns)
    print(json.dumps(report, indent=1))


def chosen_faces(n: int) -> NDArray[np.uint8]:
    """Faces, evenly from the training part."""
    faces, _ = split_faces()
    return faces[np.linspace(0, len(faces) - 1, min(n, len(faces))).astype(int)]


def trained_on_crops(faces: NDArray[np.uint8], negatives: list[Path], seed: int, threads: int | None) -> Detector:
    """A channel detector of faces without surroundings."""
    with TemporaryDirectory() as folder:
        for number, face in enumerate(faces):
            Image.fromarray(face).save(Path(folder) / f"{number:05}.png")
        return whet.train(folder, negatives, format="crops", seed=seed, threads=threads)


def trained_on_scenes(faces: NDArray[np.uint8], negatives: list[Path], seed: int, threads: int | None) -> Detector:
    """A channel detector of faces in images; images that are left over have none."""
    n = len(faces) // A_SCENE
    made = window_scenes(n, seed, windows=faces, paths=negatives)
    with TemporaryDirectory() as folder:
        annotated = []
        for number, (image, boxes) in enumerate(made):
            path = Path(folder) / f"{number:05}.png"
            Image.fromarray(image).save(path)
            names, crowd = ("face",) * len(boxes), np.zeros(len(boxes), dtype=bool)
            annotated.append(AnnotatedImage(path, image.shape[:2], boxes, names, crowd))
        boxes_file = Path(folder) / "boxes.json"
        write_annotations(Annotations(tuple(annotated), ("face",)), boxes_file)
        return whet.train(boxes_file, negatives[n:] or None, seed=seed, threads=threads)


KINDS = {"crops": trained_on_crops, "scenes": trained_on_scenes}


def average_precision(detector: Detector, some: list[Scene]) -> float:
    """Average precision in scenes, at any score; a face is found from an IoU of 0.5 on."""
    found = [detector.detect(image, min_score=-np.inf) for image, _ in some]
    pairs = [(one.boxes, one.scores) for one in found]
    return round(evaluate_detections(pairs, [(boxes, None) for _, boxes in some]).average_precision, 4)


def speed(detectors: dict[str, Detector], n_images: int, n_turns: int) -> dict[str, float]:
    """Milliseconds of one thread for an image of 640 x 480 with faces of 24 pixels and more: the median image."""
    once = dict.fromkeys(detectors, 1)
    least: dict[str, list[float]] = {name: [] for name in detectors}
    for image in islice(photographs(VGA), n_images):
        calls = {name: partial(one.detect, image, min_size=24, threads=1) for name, one in detectors.items()}
        for name, seconds in take_turns(calls, n_turns, once).items():
            least[name].append(1000 * min(seconds))
    return {name: round(median(each), 1) for name, each in least.items()}


if __name__ == "__main__":
    main()
