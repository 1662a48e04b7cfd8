"""Scanning from coarse to fine, and tighter rejection thresholds, on pasted faces: `python -m benchmarks.coarse_scan`.

Prints JSON, a row for each variant of the face detector: average precision and mean IoU of the faces found, in easy
and hard scenes (see `benchmarks.pasted_faces`), with the change against the first variant for each seed and how many of
its faces are lost; weak learners per window; and processor milliseconds of the scan of an image of 640 x 480 on one
thread. Scenes are drawn with `--seeds` (default 1): seed 0 is that of the reported benchmarks, so choices are made on
other faces.

Variants have no coarse pass, or one of some stages with lower thresholds: "0.02,0.05" are two stages, lower by 0.02 and
0.05 |w|. They have the rejection thresholds of the model or tighter ones: those of `whet.training.rejection.pruned` on
the validation faces of the training, by the share that they give up.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
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
from whet.detector.base import DetectorBase
from whet.evaluation.evaluation import Evaluation
from whet.training.rejection import pruned

Patches = NDArray[np.uint8]
Floats = NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="face", help="a bundled name or a model file")
    parser.add_argument("--scenes", type=int, default=120)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--images", type=int, default=8, help="for the timing")
    parser.add_argument("--coarse", nargs="*", default=["none", "0,0,0", "0,0,0,0"], help="none, or room of each stage")
    parser.add_argument("--given-up", type=float, nargs="*", default=[], help="of the positives")
    options = parser.parse_args()
    base = whet.load(options.model).base
    cascade = base.cascade.full
    kinds = {
        "easy": [scenes(options.scenes, seed) for seed in options.seeds],
        "hard": [scenes(options.scenes, seed, hard=True) for seed in options.seeds],
    }
    rooms = {text: () if text == "none" else tuple(map(float, text.split(","))) for text in options.coarse}
    variants = {f"coarse {text}": with_room(base, cascade, room) for text, room in rooms.items()}
    for given_up in options.given_up:
        tight = pruned(base.stages, validation_faces(), base.min_sigma, given_up=given_up)
        pruned_cascade = replace(cascade, stages=tuple(stage.run() for stage in tight))
        for text, room in rooms.items():
            variants[f"given up {given_up}, coarse {text}"] = with_room(base, pruned_cascade, room)
    rows = {name: measured(variant, images(options.images)) for name, variant in variants.items()}
    for kind, by_seed in kinds.items():
        results = {name: [Result.from_scenes(variant, some) for some in by_seed] for name, variant in variants.items()}
        first = next(iter(results.values()))
        for name, ours in results.items():
            rows[name][kind] = compared(ours, first)
    print(json.dumps({"options": vars(options), "versions": versions(), "variants": rows}, indent=1))


def with_room(base: DetectorBase, cascade: Cascade, room: tuple[float, ...]) -> Cascade:
    """A cascade with a coarse pass of stages whose thresholds are lower by so much, in units of |w|."""
    parts = zip(cascade.stages, base.lengths.tolist(), room, strict=False)
    return replace(cascade, coarse_stages=tuple(stage.loosened(own * length) for stage, length, own in parts))


def measured(cascade: Cascade, timed: list[Patches]) -> dict[str, Any]:
    """Weak learners and time."""
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
        n_windows += sum(scan.n_tested for scan in scan_images(cascade.full, levels))
    return {
        "weak learners a window with contrast": round(n_evaluated / n_windows, 2),
        "processor ms of the scan": round(float(np.mean(milliseconds)), 1),
    }


@dataclass(frozen=True)
class Result:
    """The evaluation of some scenes, the IoU of the faces found, the best score of each face, and the windows fired."""

    evaluation: Evaluation
    overlaps: Floats
    scores: Floats
    n_windows: int

    @classmethod
    def from_scenes(cls, cascade: Cascade, some: list[Scene]) -> Result:
        """Scan and group."""
        fired = [scan_pyramid(cascade, Pyramid.from_image(image, cascade.window)) for image, _ in some]
        groups = [group_windows(one) for one in fired]
        ious = [box_iou(boxes, one.boxes) for one, (_, boxes) in zip(groups, some, strict=True)]
        pairs = list(zip(ious, groups, strict=True))
        overlaps = np.concatenate([iou.max(axis=1, initial=0.0) for iou in ious])
        scores = [np.where(iou > 0.5, one.scores, 0.0).max(axis=1, initial=0.0) for iou, one in pairs]
        return cls(evaluated(groups, some), overlaps, np.concatenate(scores), sum(map(len, fired)))


def compared(ours: list[Result], first: list[Result]) -> dict[str, Any]:
    """Means over seeds, and what differs from the first variant."""
    precision, before = ([one.evaluation.average_precision for one in side] for side in (ours, first))
    overlaps = np.concatenate([one.overlaps for one in ours])
    scores, known = (np.concatenate([one.scores for one in side]) for side in (ours, first))
    return {
        "average precision": round(float(np.mean(precision)), 4),
        "change, by seed": [round(now - then, 4) for now, then in zip(precision, before, strict=True)],
        "faces lost": f"{int(((scores == 0) & (known > 0)).sum())} of {int((known > 0).sum())}",
        "IoU": round(float(overlaps[overlaps > 0.5].mean()), 4),
        "windows": sum(one.n_windows for one in ours),
    }


if __name__ == "__main__":
    main()
