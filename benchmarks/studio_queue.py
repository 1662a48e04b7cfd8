"""Orders of review against clicks, without a browser: `python -m benchmarks.studio_queue --set inria_person`.

A detector that was trained on few boxes is shown a pool of images, as given or as a camera gives them
(`benchmarks.studio_pools`). A user who knows the truth reviews them in some order: two clicks for every wrong detection
and every missed object, one to confirm. At some numbers of clicks a new detector is trained on the boxes of the start
and of all reviewed images ("Train again"), and evaluated on other images of the train part: recall at equal false
positives per image. Rules are chosen on these development images; the test part is for `benchmarks.studio_page`.
Corrections in between are left out: they hardly change other images.

The orders are `random` and `queue`, that of the studio, and the two rankings between which the queue takes turns:
`objects` and `errors`, the chance of any object or error per click. Prints JSON: every run, and for each pool the mean
curves and the clicks that the queue needs for the last recall of the random order.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from experiments.report import versions
from numpy.typing import NDArray

from benchmarks.objects import SETS
from benchmarks.studio_page import SETTINGS, progress, recall_of, trained
from benchmarks.studio_pools import POOLS, camera_pool, parts_of, summary
from whet.cascade.boxes import box_iou
from whet.detector.corrections import SAME
from whet.detector.detector import Detector
from whet.evaluation.runs import truths_of
from whet.io.annotations.annotation import AnnotatedImage
from whet.io.images import as_rgb
from whet.web.gallery import alike, perceptual_hash
from whet.web.review import Candidate, Expected, queue, ranked

RULES = ("random", "objects", "errors", "queue")


@dataclass(frozen=True, eq=False)
class Pool:
    """Images to review, what the detector makes expect of each, and the clicks that each needs (n,)."""

    images: Sequence[AnnotatedImage]
    candidates: Sequence[Candidate]
    clicks: NDArray[np.int64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="inria_person", choices=list(SETS))
    parser.add_argument("--pools", nargs="+", default=list(POOLS), choices=POOLS)
    parser.add_argument("--boxes", type=int, default=20, help="training boxes of the weak start")
    parser.add_argument("--pool", type=int, default=300, help="images that may be reviewed")
    parser.add_argument("--held-out", type=int, default=150, help="other images of the train part, to evaluate on")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--budget", nargs="+", type=int, default=[25, 50, 100], help="clicks at which to evaluate")
    parser.add_argument("--rules", nargs="+", default=list(RULES), choices=RULES)
    parser.add_argument("--false-positives", type=float, default=0.5, help="per image, at which recall is compared")
    parser.add_argument("--trees", type=int, default=SETTINGS["trees"], help="trees of all detectors")
    options = parser.parse_args()
    SETTINGS["trees"] = options.trees
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in options.seeds:
            rows += one_seed(options, seed, Path(folder))
    result = {"options": vars(options), "versions": versions(), "rows": rows, "summary": summary(rows, "recall")}
    print(json.dumps(result, indent=1))


def one_seed(options: argparse.Namespace, seed: int, folder: Path) -> list[dict[str, Any]]:
    """A weak start, and all rules from there."""
    parts = parts_of(options.set, options.boxes, options.pool, options.held_out, seed)
    weak = trained(parts.start, folder)
    start = recall_of(weak, parts.held_out, options.false_positives)
    rows = []
    for kind in options.pools:
        is_camera = kind == "camera"
        images = camera_pool(parts.pool, options.pool, folder / f"frames-{seed}", seed) if is_camera else parts.pool
        pool = pool_of(images, weak)
        n_with = sum(len(image) > 0 for image in images)
        progress(
            f"seed {seed}, {kind}: start {start}, {pool.clicks.mean():.2f} clicks per image, {n_with} of {len(images)} "
            f"images with objects, {len({one.group for one in pool.candidates})} groups"
        )
        for rule in options.rules:
            clicks, done, budgets = 0, [], list(options.budget)
            for i in ordered(rule, pool, seed):
                if not budgets:
                    break
                clicks += int(pool.clicks[i])
                done.append(pool.images[i])
                if clicks >= budgets[0]:
                    budgets = [budget for budget in budgets if budget > clicks]
                    recall = recall_of(trained([*parts.start, *done], folder), parts.held_out, options.false_positives)
                    n_boxes = sum(len(image.objects) for image in done)
                    row = {"seed": seed, "pool": kind, "order": rule, "clicks": clicks, "images": len(done)}
                    rows.append({**row, "boxes": n_boxes, "start": start, "recall": recall})
                    progress(json.dumps(rows[-1]))
    return rows


def pool_of(images: Sequence[AnnotatedImage], detector: Detector) -> Pool:
    """What the weak detector shows of images, and what it makes a user do."""
    lowest, expected, hashes, clicks = detector.reporting.min_score(None), [], [], []
    for image in images:
        pixels = as_rgb(image.path)
        found = detector.detect(pixels, min_score=-np.inf)
        truth, ignored = truths_of(image)
        same = box_iou(found.with_min_score(lowest).boxes, truth) >= SAME
        n_wrong, n_missed = int((~same.any(axis=1)).sum()), int((~(same.any(axis=0) | ignored)).sum())
        clicks.append(1 + 2 * (n_wrong + n_missed))
        expected.append(Expected.from_detections(found, lowest, np.empty((0, 4))))
        hashes.append(perceptual_hash(pixels))
    rows = enumerate(zip(alike(hashes), expected, strict=True))
    return Pool(images, [Candidate(str(i), *row) for i, row in rows], np.array(clicks))


def ordered(rule: str, pool: Pool, seed: int) -> list[int]:
    """The images of a pool, by one of the rules."""
    if rule == "random":
        shuffled: list[int] = np.random.default_rng([seed, 2]).permutation(len(pool.images)).tolist()
        return shuffled
    if rule == "queue":
        return [int(key) for key in queue(pool.candidates)]
    gain = {"objects": lambda one: one.object_gain, "errors": lambda one: one.error_gain}[rule]
    return [int(key) for key in ranked(pool.candidates, gain)]


if __name__ == "__main__":
    main()
