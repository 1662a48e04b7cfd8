"""Scanning from coarse to fine, and tighter rejection thresholds, on pasted faces: `python -m benchmarks.coarse_scan`.

Prints JSON, a row for each variant of the face detector: average precision, per cent of the faces found at given
numbers of false positives and mean IoU of the faces found, in easy and hard scenes (see `benchmarks.pasted_faces`);
weak learners per window; and processor milliseconds of the scan of an image of 640 x 480 on one thread. Scenes are
drawn with `--seed` (default 1): seed 0 is that of the reported benchmarks, so choices are made on other faces.

Variants have 0 to 5 stages in the coarse pass, and the rejection thresholds of the model or tighter ones: those of
`whet.training.rejection.pruned` on the validation faces of the training, by the share that they give up.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from typing import Any

import numpy as np
from experiments.mit_cmu import faces_at
from experiments.report import versions
from numpy.typing import NDArray
from scripts.train_face import validation_faces

import whet
from benchmarks.face_choices import evaluated
from benchmarks.pasted_faces import Scene, scenes
from benchmarks.scan import images
from whet.cascade.boxes import box_iou
from whet.cascade.cascade import Cascade
from whet.cascade.detect import group_windows
from whet.cascade.pyramid import Pyramid
from whet.cascade.scan import scan_images, scan_pyramid
from whet.training.rejection import pruned

Patches = NDArray[np.uint8]

FALSE_POSITIVES = (1, 5, 10, 20, 40)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="face", help="a bundled name or a model file")
    parser.add_argument("--scenes", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--images", type=int, default=8, help="for the timing")
    parser.add_argument("--coarse", type=int, nargs="*", default=[0, 1, 2, 3, 4, 5], help="stages in the coarse pass")
    parser.add_argument("--given-up", type=float, nargs="*", default=[0.0, 0.001, 0.002], help="of the positives")
    options = parser.parse_args()
    base = whet.load(options.model).base
    cascade = base.cascade
    kinds = {
        "easy": scenes(options.scenes, options.seed),
        "hard": scenes(options.scenes, options.seed, hard=True),
    }
    timed = images(options.images)
    variants = {f"coarse {n}": replace(cascade, coarse_stages=n) for n in options.coarse}
    for given_up in options.given_up:
        tight = pruned(base.stages, validation_faces(), base.min_sigma, given_up=given_up)
        stages = tuple(stage.run() for stage in tight)
        for n in options.coarse:
            variants[f"given up {given_up}, coarse {n}"] = replace(cascade, stages=stages, coarse_stages=n)
    rows = {name: measured(variant, kinds, timed) for name, variant in variants.items()}
    print(json.dumps({"versions": versions(), "variants": rows}, indent=1))


def measured(cascade: Cascade, kinds: dict[str, list[Scene]], timed: list[Patches]) -> dict[str, Any]:
    """Accuracy in scenes, weak learners and time."""
    row: dict[str, Any] = {kind: accuracy(cascade, some) for kind, some in kinds.items()}
    milliseconds, n_evaluated, n_windows = [], 0, 0
    for image in timed:
        levels = [level.image for level in Pyramid.from_image(image, cascade.window).levels]
        turns = []
        for _ in range(4):
            begun = time.process_time()
            scans = scan_images(cascade, levels, threads=1)
            turns.append(time.process_time() - begun)
        milliseconds.append(1e3 * min(turns))
        n_evaluated += sum(scan.n_evaluated for scan in scans)
        n_windows += sum(scan.n_windows for scan in scans)
    row["weak learners a window"] = round(n_evaluated / n_windows, 2)
    row["processor ms of the scan"] = round(float(np.mean(milliseconds)), 1)
    return row


def accuracy(cascade: Cascade, some: list[Scene]) -> dict[str, Any]:
    """Average precision, recall and IoU of groups, and how many windows fired."""
    fired = [scan_pyramid(cascade, Pyramid.from_image(image, cascade.window)) for image, _ in some]
    groups = [group_windows(one) for one in fired]
    result = evaluated(groups, some)
    at = faces_at(result.curve, FALSE_POSITIVES)
    best = [
        box_iou(boxes, one.boxes).max(axis=1) for one, (_, boxes) in zip(groups, some, strict=True) if len(one.boxes)
    ]
    overlaps = np.concatenate([np.empty(0), *best])
    return {
        "average precision": round(result.average_precision, 4),
        "recall by false positives": {
            str(n): round(100 * faces / result.curve.n_truths, 1) for n, faces in zip(FALSE_POSITIVES, at, strict=True)
        },
        "IoU": round(float(overlaps[overlaps > 0.5].mean()), 4),
        "windows": sum(map(len, fired)),
    }


if __name__ == "__main__":
    main()
