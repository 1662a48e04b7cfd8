"""Orders of review against clicks, without a browser: `python -m benchmarks.studio_queue --set inria_person`.

A detector that was trained on few boxes is shown a pool of images, as given or as a camera gives them
(`benchmarks.studio_pools`). A user who knows the truth reviews them in some order. At some numbers of clicks a new
detector is trained on the boxes of the start and of all reviewed images ("Train again"); the user goes on with it, and
it is evaluated on other images of the train part: recall at equal false positives per image. Rules are chosen on these
development images; the test part (`--test`) is for reporting. Corrections in between are left out: they hardly change
other images.

Clicks of an image: two for every missed object, one to confirm, and two for every wrong detection or for every right
one, whichever are fewer: the others are judged at once (Space or N). The orders are `random` and `queue`, that of the
studio. Prints JSON: every run, and for each pool the mean curves and the clicks that the queue needs for the last
recall of the random order.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from experiments.datasets import find
from experiments.report import versions

from benchmarks.objects import SETS, test_part
from benchmarks.studio_page import SETTINGS, progress, recall_of, trained
from benchmarks.studio_pools import POOLS, WITH_OBJECT, parts_of, pool_of, summary
from whet.cascade.boxes import box_iou
from whet.cascade.detections import Detections
from whet.detector.corrections import SAME
from whet.detector.detector import Detector
from whet.evaluation.runs import truths_of
from whet.io.annotations.annotation import AnnotatedImage
from whet.io.images import as_rgb
from whet.web.gallery import alike, perceptual_hash
from whet.web.review import Candidate, Expected, queue

RULES = ("random", "queue")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="inria_person", choices=list(SETS))
    parser.add_argument("--pools", nargs="+", default=list(POOLS), choices=POOLS)
    parser.add_argument("--boxes", type=int, default=10, help="training boxes of the weak start")
    parser.add_argument("--pool", type=int, default=300, help="images that may be reviewed")
    parser.add_argument("--with-objects", type=float, default=WITH_OBJECT, help="share of scenes that have an object")
    parser.add_argument("--held-out", type=int, default=200, help="other images of the train part, to evaluate on")
    parser.add_argument("--test", action="store_true", help="evaluate on the test part instead")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--budget", nargs="+", type=int, default=[15, 30, 60, 120], help="clicks at which to train")
    parser.add_argument("--rules", nargs="+", default=list(RULES), choices=RULES)
    parser.add_argument("--false-positives", type=float, default=0.5, help="per image, at which recall is compared")
    parser.add_argument("--repeats", type=int, default=1, help="trainings at each point (the user has the first)")
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
    parts = parts_of(options.set, options.boxes, 0 if options.test else options.held_out, seed)
    others = test_images(options.set) if options.test else parts.held_out
    repeats = range(options.repeats)
    weak = [trained_with(k, parts.start, folder) for k in repeats]
    start = mean_recall(weak, others, options.false_positives)
    rows = []
    for kind in options.pools:
        images = pool_of(kind, parts, options.pool, folder / f"frames-{seed}", seed, options.with_objects)
        n_with = sum(len(image) > 0 for image in images)
        progress(f"seed {seed}, {kind}: start {start}, {n_with} of {len(images)} images with objects")
        for rule in options.rules:
            review, detectors = Review(images, rule, seed), weak
            for budget in options.budget:
                review.go_on(detectors[0], budget)
                done = [images[i] for i in review.done]
                detectors = [trained_with(k, [*parts.start, *done], folder) for k in repeats]
                row = {"seed": seed, "pool": kind, "order": rule, "clicks": review.clicks, "images": len(done)}
                recall = mean_recall(detectors, others, options.false_positives)
                n_boxes = sum(len(image.objects) for image in done)
                rows.append({**row, "boxes": n_boxes, "start": start, "recall": recall})
                progress(json.dumps(rows[-1]))
    return rows


def trained_with(number: int, images: Sequence[AnnotatedImage], folder: Path) -> Detector:
    """A detector trained with another seed: with few boxes, this alone changes recall by several points."""
    SETTINGS["seed"] = number
    return trained(images, folder)


def mean_recall(detectors: Sequence[Detector], images: Sequence[AnnotatedImage], false_positives: float) -> float:
    return round(float(np.mean([recall_of(detector, images, false_positives) for detector in detectors])), 4)


def test_images(name: str) -> Sequence[AnnotatedImage]:
    """The test part of a set."""
    root = find("objects")
    if root is None:
        raise SystemExit("the data set objects is not in $WHET_DATA")
    return test_part(root / SETS[name].test, SETS[name].class_name).images


class Review:
    """A user who reviews images by a rule, with one detector after the other."""

    def __init__(self, images: Sequence[AnnotatedImage], rule: str, seed: int) -> None:
        self._images, self._rule = images, rule
        self._random: list[int] = np.random.default_rng([seed, 2]).permutation(len(images)).tolist()
        self._groups = alike([perceptual_hash(as_rgb(image.path)) for image in images])
        self.done: list[int] = []
        self.clicks = 0

    def go_on(self, detector: Detector, budget: int) -> None:
        """Review images until so many clicks are used in all."""
        lowest = detector.reporting.min_score(None)

        @cache
        def found(i: int) -> Detections:
            return detector.detect(as_rgb(self._images[i].path), min_score=-np.inf)

        while self.clicks < budget and len(self.done) < len(self._images):
            if self._rule == "random":
                i = self._random[len(self.done)]
            else:
                nothing = np.empty((0, 4))
                expected = (Expected.from_detections(found(i), lowest, nothing) for i in range(len(self._images)))
                rows = enumerate(zip(self._groups, expected, strict=True))
                i = int(queue([Candidate(str(i), *row, i in self.done) for i, row in rows])[0])
            self.clicks += clicks_of(self._images[i], found(i).with_min_score(lowest))
            self.done.append(i)


def clicks_of(image: AnnotatedImage, shown: Detections) -> int:
    """Clicks of a user who judges all detections of an image, and draws what is missing."""
    truth, ignored = truths_of(image)
    same = box_iou(shown.boxes, truth) >= SAME
    n_right, n_missed = int(same.any(axis=1).sum()), int((~(same.any(axis=0) | ignored)).sum())
    return 1 + 2 * (n_missed + min(n_right, len(shown) - n_right))


if __name__ == "__main__":
    main()
