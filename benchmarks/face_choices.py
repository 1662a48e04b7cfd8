"""Decision "Scores and grouping of the face detector".

The choices of the face detector, on pasted faces. `python -m benchmarks.face_choices [FILE]`.

Prints JSON: per cent of the faces found at given numbers of false positives in 200 easy and 200 hard scenes (see
`benchmarks.pasted_faces`), for each way to score and to group windows, and for stages with and without rejection
thresholds (soft and hard), with the mean number of weak learners evaluated for a window. No test set is used.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from experiments.mit_cmu import faces_at
from experiments.report import versions

import whet
from benchmarks.measuring import cascade_model
from benchmarks.pasted_faces import Scene, scenes
from whet.evaluation.evaluation import Evaluation, evaluate_detections
from whet.images.detections import FiredWindows, Grouping, group_windows
from whet.images.pyramid import Pyramid
from whet.models.gslda.cascade import Cascade
from whet.models.gslda.cascade_scan import scan_images, scan_pyramid

FALSE_POSITIVES = (1, 5, 10, 20, 40, 80)
GROUPINGS: tuple[Grouping, ...] = ("peaks", "nms")
Margins = np.ndarray[Any, np.dtype[np.float64]]
# From the margins (stages, windows) of all stages to scores.
SCORES: dict[str, Callable[[Margins], Margins]] = {
    "later half": lambda margins: margins[len(margins) // 2 :].sum(axis=0),
    "all stages": lambda margins: margins.sum(axis=0),
    "last stage": lambda margins: margins[-1],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="face", help="a bundled name or a model file")
    parser.add_argument("--scenes", type=int, default=200)
    options = parser.parse_args()
    soft = cascade_model(whet.load(options.model)).cascade
    hard = replace(soft, stages=tuple(replace(stage, rejection_thresholds=None) for stage in soft.stages))
    kinds = {"easy": scenes(options.scenes), "hard": scenes(options.scenes, hard=True)}
    report: dict[str, Any] = {"false positives": FALSE_POSITIVES, "versions": versions()}
    for kind, some in kinds.items():
        pyramids = [Pyramid.from_image(image, soft.window) for image, _ in some]
        fired = [scan_pyramid(soft, pyramid) for pyramid in pyramids]
        margins = [all_margins(soft, *pair) for pair in zip(pyramids, fired, strict=True)]
        report[kind] = {
            "faces": sum(len(boxes) for _, boxes in some),
            "by score, grouped around peaks": {
                name: found(_with_scores(fired, margins, score), some) for name, score in SCORES.items()
            },
            "by grouping": {grouping: found(fired, some, grouping) for grouping in GROUPINGS},
            "soft stages": found(fired, some) | {"weak learners a window": learners_a_window(soft, some)},
            "hard stages": found([scan_pyramid(hard, pyramid) for pyramid in pyramids], some)
            | {"weak learners a window": learners_a_window(hard, some)},
        }
    print(json.dumps(report, indent=1))


def all_margins(cascade: Cascade, pyramid: Pyramid, fired: FiredWindows) -> Margins:
    """Margins (stages, windows) of the windows that fired."""
    patches = pyramid.patches(fired.index)
    return np.array([stage.score(patches) if len(patches) else np.empty(0) for stage in cascade.stages])


def _with_scores(
    fired: list[FiredWindows], margins: list[Margins], score: Callable[[Margins], Margins]
) -> list[FiredWindows]:
    return [replace(one, scores=score(its)) for one, its in zip(fired, margins, strict=True)]


def found(fired: list[FiredWindows], some: list[Scene], grouping: Grouping = "peaks") -> dict[str, float]:
    """Per cent of the faces at each number of false positives, and at the lowest threshold."""
    result = evaluated([group_windows(one, grouping) for one in fired], some)
    percent = partial(round, ndigits=1)
    at = faces_at(result.curve, FALSE_POSITIVES)
    table = {str(n): percent(100 * faces / result.curve.n_truths) for n, faces in zip(FALSE_POSITIVES, at, strict=True)}
    return table | {f"{result.curve.false_positives[-1]} (all)": percent(100 * float(result.curve.recall[-1]))}


def evaluated(groups: list[Any], some: list[Scene]) -> Evaluation:
    """All scenes together, IoU above 0.5."""
    return evaluate_detections([(one.boxes, one.scores) for one in groups], [(boxes, None) for _, boxes in some])


def learners_a_window(cascade: Cascade, some: list[Scene], n: int = 30) -> float:
    """Mean number of weak learners that a window needs until it is rejected, in the first n scenes."""
    levels = [level.image for image, _ in some[:n] for level in Pyramid.from_image(image, cascade.window).levels]
    scans = scan_images(cascade, levels)
    return round(sum(scan.n_evaluated for scan in scans) / sum(scan.n_tested for scan in scans), 2)


if __name__ == "__main__":
    main()
