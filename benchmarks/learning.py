"""Decision "Learning from kept samples".

What a detector learns from new images, without the old ones: `python -m benchmarks.learning`.

Each set and seed: a detector is trained with default settings on about 20 boxes; then about 80 more are learned as
`whet learn --annotations` does, from images that it has not seen, and the model is made again from its samples. Beside
it: a training on all 100 boxes with all images. All are evaluated on the test part of the set; difficult boxes are
ignored. The images of the first training are not read again: they are moved away before learning.

- `first`, `at once`, `learned`, `all`: average precision of 20 boxes, with corrections in memory only, made again with
  80 more boxes, and trained on all 100.
- `spread`: standard deviation of the average precision of the same samples made again with other seeds (`--refits`).
- `wrong`: false positives in images of the train part that were in no training are corrected one after the other, up
  to the numbers of `--corrections`, and the model is made again: how many are gone, and false positives on the test
  part at the recall that the first detector has at its default point; and the recall of both at that many false
  positives.
- `missed`: the same with missed objects: average precision before and after.
- `milliseconds`: time per test image after corrections over that of the first detector, in turns.

`--sets`, `--seeds` and `--parts` choose what is measured. Prints JSON; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

import numpy as np
from experiments.report import versions

import whet
from benchmarks.few_examples import _test, choose_images, train_part
from benchmarks.objects import SETS, test_part
from whet.detector.base import RefitSettings
from whet.detector.detector import Detector
from whet.evaluation.evaluation import Curve
from whet.evaluation.runs import EvaluationRun, evaluate
from whet.images.boxes import box_iou, intersection_over_first
from whet.io.annotations.annotation import AnnotatedImage, Annotations, Examples
from whet.io.annotations.formats import write_annotations
from whet.training.learning import LearningInput, learn_from

DEFAULT_SETS = ("inria_person", "plates", "rear_cars", "white_cells", "raccoon", "kangaroo")
FIRST, ALL = 20, 100
NEAR = 0.3
FOUND = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(DEFAULT_SETS), choices=list(SETS), metavar="SET")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument(
        "--parts", nargs="+", default=["boxes", "wrong", "missed"], choices=["boxes", "wrong", "missed"]
    )
    parser.add_argument("--corrections", nargs="+", type=int, default=[20, 100])
    parser.add_argument("--refits", type=int, default=0, metavar="N", help="refits of one set of samples, other seeds")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    runs = []
    for seed in options.seeds:
        for name in options.sets:
            runs.append(run(name, seed, options))
            print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
    print(
        json.dumps({"options": vars(options), "versions": versions(), "runs": runs, "summary": summary(runs)}, indent=1)
    )


def run(name: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """All parts of one set and seed."""
    every = choose_images(train_part(name).images, ALL, seed)
    first = choose_images(every, FIRST, seed)
    seen = {image.path for image in first}
    new = [image for image in every if image.path not in seen]
    record: dict[str, Any] = {"set": name, "seed": seed}
    record["boxes"] = [sum(len(image.objects) for image in part) for part in (first, new)]
    with tempfile.TemporaryDirectory() as folder:
        detector = trained(first, seed, Path(folder) / "first", options.threads)
        detector = Detector.from_bytes(detector.to_bytes())  # nothing but the file is left of the training
        record["first"] = measured(detector, name, options.threads)
        if "boxes" in options.parts:
            record |= boxes_part(detector, new, name, seed, options, Path(folder), every)
        unseen = [image for image in train_part(name).images if image.path not in seen and len(image.objects)]
        for kind in ("wrong", "missed"):
            if kind in options.parts:
                record[kind] = corrections_part(detector, unseen, name, kind, options)
    return record


def trained(images: Sequence[AnnotatedImage], seed: int, folder: Path, threads: int | None) -> Detector:
    """Train on copies of images, which are removed afterwards."""
    folder.mkdir()
    copies = []
    for number, image in enumerate(images):
        path = folder / f"{number:04}{image.path.suffix}"
        shutil.copy(image.path, path)
        copies.append(replace(image.relabelled("object"), path=path))
    write_annotations(Annotations(tuple(copies), ("object",)), folder / "boxes.json")
    detector = whet.train(folder / "boxes.json", seed=seed, shapes=1, threads=threads)
    shutil.rmtree(folder)
    return detector


def evaluation(detector: Detector, name: str, threads: int | None) -> EvaluationRun:
    return evaluate(detector, test_part(*_test(name)), threads=threads)


def measured(detector: Detector, name: str, threads: int | None) -> dict[str, float]:
    """Average precision, and recall, precision and false positives per image at the default point."""
    result = evaluation(detector, name, threads)
    n_true = round(result.recall * result.evaluation.curve.n_truths)
    return {
        "average_precision": round(result.evaluation.average_precision, 4),
        "recall": round(result.recall, 4),
        "precision": round(n_true / max(n_true + result.n_false_positives, 1), 4),
        "false_positives_per_image": round(result.n_false_positives / len(result.paths), 3),
    }


def boxes_part(
    detector: Detector,
    new: Sequence[AnnotatedImage],
    name: str,
    seed: int,
    options: argparse.Namespace,
    folder: Path,
    every: Sequence[AnnotatedImage],
) -> dict[str, Any]:
    """Learn new images, and compare with a training on all."""
    given = LearningInput(Examples(tuple(image.relabelled("object") for image in new)))
    begun = time.perf_counter()
    learned = learn_from(detector, given).detector
    seconds = {"learn": round(time.perf_counter() - begun, 1)}
    results = {"at once": measured(learned, name, options.threads)}
    begun, used = time.perf_counter(), time.process_time()
    update = learned.refit(threads=options.threads)
    seconds |= {"refit": round(time.perf_counter() - begun, 1), "refit core": round(time.process_time() - used, 1)}
    results["learned"] = measured(learned, name, options.threads)
    results["estimate"] = {"before": str(update.before), "after": str(update.after)}
    results["megabytes"] = [round(len(part.to_bytes()) / 1e6, 2) for part in (detector, learned)]
    if options.refits:
        results["spread"] = spread(learned, name, options)
    results["all"] = measured(trained(every, seed, folder / "all", options.threads), name, options.threads)
    return results | {"seconds": seconds}


def spread(learned: Detector, name: str, options: argparse.Namespace) -> list[float]:
    """Average precision of the same samples, made again with other seeds."""
    from whet.corrections.kept import Crops
    from whet.training.refit import grow_again

    shape = learned.only
    crops = Crops.from_iterable([*(shape.base.crops or ()), *(c for r in shape.records for c in r.keeps.crops)])
    precisions = []
    for seed in range(options.refits):
        settings: RefitSettings = replace(shape.base.settings, seed=1000 + seed)
        grown = grow_again(replace(shape.base, settings=settings), shape.as_trained().reporting, crops)
        again = Detector.from_base(grown.base, reporting=grown.reporting)
        precisions.append(measured(again, name, options.threads)["average_precision"])
    return precisions


def corrections_part(
    detector: Detector, images: Sequence[AnnotatedImage], name: str, kind: str, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Correct mistakes in images that were not trained on, one after the other, and make the model again."""
    corrected, n, rows = detector.copy(), 0, []
    before = evaluation(detector, name, options.threads)
    told: list[tuple[Path, np.ndarray]] = []
    for image in images:
        found = corrected.detect(image.path)
        if kind == "wrong":
            overlap = (box_iou(found.boxes, image.boxes) >= NEAR).any(axis=1)
            overlap |= (intersection_over_first(found.boxes, image.ignored) >= FOUND).any(axis=1)
            boxes = found.boxes[~overlap]
        else:
            boxes = image.objects[~(box_iou(image.objects, found.boxes) >= FOUND).any(axis=1)]
        for box in boxes:
            corrected.learn(image.path, box[None], kind == "missed")
            told.append((image.path, box))
            n += 1
            if n in options.corrections:
                rows.append(
                    {"corrections": n} | after_corrections(detector, corrected, before, told, name, kind, options)
                )
        if n >= max(options.corrections):
            return rows
    if n not in options.corrections and n:
        rows.append({"corrections": n} | after_corrections(detector, corrected, before, told, name, kind, options))
    return rows


def after_corrections(
    detector: Detector,
    corrected: Detector,
    before: EvaluationRun,
    told: Sequence[tuple[Path, np.ndarray]],
    name: str,
    kind: str,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """What holds, and what other images gain or lose."""
    again = corrected.copy()
    again.refit(threads=options.threads)
    after = evaluation(again, name, options.threads)
    holds = [held(one, told, kind) for one in (corrected, again)]
    curves = before.evaluation.curve, after.evaluation.curve
    n_found = [round(part.recall * part.evaluation.curve.n_truths) for part in (before, after)]
    at_recall = [false_positives_at(curve, n_found[0]) for curve in curves]
    rates = [recall_at(curve, at_recall[0]) for curve in curves]
    return {
        "holds": [round(share, 4) for share in holds],
        "unsatisfied": len(again.unsatisfied),
        "false_positives_at_recall": at_recall,
        "recall_at_false_positives": [round(rate, 4) for rate in rates],
        "average_precision": [round(part.evaluation.average_precision, 4) for part in (before, after)],
        "recall": [round(part.recall, 4) for part in (before, after)],
        "false_positives": [part.n_false_positives for part in (before, after)],
        "milliseconds": milliseconds(detector, again, [path for path, _ in told][:20]),
    }


def held(detector: Detector, told: Sequence[tuple[Path, np.ndarray]], kind: str) -> float:
    """The share of corrections that hold in their images, at the default point."""
    n = 0
    for path, box in told:
        is_there = bool((box_iou(detector.detect(path).boxes, box[None]) >= FOUND).any())
        n += is_there == (kind == "missed")
    return n / len(told)


def false_positives_at(curve: Curve, n_found: int) -> int | None:
    """False positives where at least so many objects are found; None where they never are."""
    enough = curve.found >= n_found
    return int(curve.false_positives[enough].min()) if enough.any() else None


def recall_at(curve: Curve, n_wrong: int | None) -> float:
    """Recall with at most so many false positives."""
    allowed = curve.false_positives <= (n_wrong or 0)
    return float(curve.found[allowed].max(initial=0)) / max(curve.n_truths, 1)


def milliseconds(first: Detector, again: Detector, paths: Sequence[Path]) -> list[float]:
    """Core milliseconds per image of both, in turns."""
    used = [0.0, 0.0]
    for path in paths:
        for number, detector in enumerate((first, again)):
            begun = time.process_time()
            detector.detect(path, threads=1)
            used[number] += time.process_time() - begun
    return [round(1000 * part / max(len(paths), 1), 1) for part in used]


def summary(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over seeds of each set."""
    rows = {}
    for name in dict.fromkeys(run["set"] for run in runs):
        own = [run for run in runs if run["set"] == name]
        row: dict[str, Any] = {}
        for key in ("first", "at once", "learned", "all"):
            if key in own[0]:
                values = [run[key]["average_precision"] for run in own]
                row[key] = [round(mean(values), 4), min(values), max(values)]
        spreads = [pstdev(run["spread"]) for run in own if run.get("spread")]
        if spreads:
            row["spread"] = round(mean(spreads), 4)
        rows[name] = row
    return rows


if __name__ == "__main__":
    main()
