"""Orders of review against clicks, without a browser: `python -m benchmarks.studio_queue --set inria_person`.

A detector that was trained on few boxes is shown a pool of images. A person who knows the truth reviews them in some
order: two clicks for every wrong detection and every missed object, one to confirm. At some numbers of clicks a new
detector is trained on the boxes of the start and of all reviewed images ("Train again"), and evaluated on other images
of the train part: recall at equal false positives per image. Rules are chosen on these development images; the test
part is for `benchmarks.studio_page`. Corrections in between are left out: they hardly change other images.

- `random`: any order;
- `errors`: most expected errors first;
- `gain`: the queue of the studio (`whet.web.overview.review_gain`);
- `objects`: most likely objects per click first;
- `diverse`: the image that differs most from all that were reviewed, by the perceptual hash.

Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from experiments.report import versions
from numpy.typing import NDArray

from benchmarks.few_examples import choose_images, train_part
from benchmarks.objects import SETS
from benchmarks.studio_page import progress, recall_of, trained
from whet.cascade.boxes import box_iou
from whet.detector.corrections import SAME
from whet.detector.detector import Detector
from whet.evaluation.runs import truths_of
from whet.io.annotations.annotation import AnnotatedImage
from whet.io.images import as_rgb
from whet.web.gallery import perceptual_hash
from whet.web.overview import expected_change, review_gain

Floats = NDArray[np.float64]
RULES = ("random", "errors", "gain", "objects", "diverse")


@dataclass(frozen=True, eq=False)
class Pool:
    """Images to review: the clicks that each needs, expected errors, likely objects (n,), and hashes (n, bits)."""

    images: Sequence[AnnotatedImage]
    clicks: Floats
    errors: Floats
    objects: Floats
    hashes: NDArray[np.int16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="inria_person", choices=list(SETS))
    parser.add_argument("--boxes", type=int, default=20, help="training boxes of the weak start")
    parser.add_argument("--pool", type=int, default=300, help="images that may be reviewed")
    parser.add_argument("--held-out", type=int, default=150, help="other images of the train part, to evaluate on")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--budget", nargs="+", type=int, default=[50, 100], help="clicks at which to evaluate")
    parser.add_argument("--rules", nargs="+", default=list(RULES), choices=RULES)
    parser.add_argument("--false-positives", type=float, default=0.5, help="per image, at which recall is compared")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in options.seeds:
            rows += one_seed(options, seed, Path(folder))
    print(json.dumps({"options": vars(options), "versions": versions(), "rows": rows}, indent=1))


def one_seed(options: argparse.Namespace, seed: int, folder: Path) -> list[dict[str, Any]]:
    """A weak start, and all rules from there."""
    images = train_part(options.set).images
    first = choose_images([image for image in images if len(image)], options.boxes, seed)
    used = {image.path for image in first}
    rest = [image for image in images if image.path not in used]
    order = np.random.default_rng([seed, 1]).permutation(len(rest)).tolist()
    chosen, held_out = order[: options.pool], order[options.pool : options.pool + options.held_out]
    weak, test = trained(first, folder), [rest[i] for i in held_out]
    pool = pool_of([rest[i] for i in chosen], weak)
    start = recall_of(weak, test, options.false_positives)
    progress(f"seed {seed}: start {start}, {pool.clicks.mean():.2f} clicks per image")
    rows = []
    for rule in options.rules:
        clicks, done, budgets = 0, [], list(options.budget)
        for i in ordered(rule, pool, first, seed):
            clicks += int(pool.clicks[i])
            done.append(pool.images[i])
            if budgets and clicks >= budgets[0]:
                budgets = [budget for budget in budgets if budget > clicks]
                recall = recall_of(trained([*first, *done], folder), test, options.false_positives)
                n_boxes = sum(len(image.objects) for image in done)
                row = {"seed": seed, "rule": rule, "clicks": clicks, "images": len(done), "boxes": n_boxes}
                rows.append({**row, "start": start, "recall": recall})
                progress(json.dumps(rows[-1]))
            if not budgets:
                break
    return rows


def pool_of(images: Sequence[AnnotatedImage], detector: Detector) -> Pool:
    """What the weak detector shows of images, and what it makes a person do."""
    lowest, rows = detector.reporting.min_score(None), []
    for image in images:
        pixels = as_rgb(image.path)
        found = detector.detect(pixels, min_score=-np.inf)
        truth, ignored = truths_of(image)
        same = box_iou(found.with_min_score(lowest).boxes, truth) >= SAME
        n_wrong, n_missed = int((~same.any(axis=1)).sum()), int((~(same.any(axis=0) | ignored)).sum())
        likely = float(np.nan_to_num(found.probabilities, nan=0.5).sum())
        rows.append((1 + 2 * (n_wrong + n_missed), expected_change(found, lowest, np.empty((0, 4))), likely))
    clicks, errors, objects = np.array(rows, np.float64).T
    return Pool(images, clicks, errors, objects, hashes_of(images))


def hashes_of(images: Sequence[AnnotatedImage]) -> NDArray[np.int16]:
    hashes = [np.frombuffer(perceptual_hash(as_rgb(image.path)), np.uint8) for image in images]
    return np.unpackbits(np.array(hashes), axis=1).astype(np.int16)


def ordered(rule: str, pool: Pool, first: Sequence[AnnotatedImage], seed: int) -> Iterator[int]:
    """The images of a pool, by one of the rules."""
    n = len(pool.images)
    if rule == "random":
        yield from np.random.default_rng([seed, 2]).permutation(n).tolist()
    elif rule == "diverse":
        distance = np.array([abs(hashes_of(first) - one).sum(axis=1).min() for one in pool.hashes])
        for _ in range(n):
            i = int(distance.argmax())
            distance = np.minimum(distance, abs(pool.hashes - pool.hashes[i]).sum(axis=1))
            distance[i] = -1
            yield i
    else:
        values = {
            "errors": pool.errors,
            "gain": np.array([review_gain(errors) for errors in pool.errors]),
            "objects": (pool.objects + pool.errors) / (1 + 2 * pool.errors),
        }
        yield from np.argsort(-values[rule], kind="stable").tolist()


if __name__ == "__main__":
    main()
