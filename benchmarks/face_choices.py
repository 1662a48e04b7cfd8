"""What the face detector's choices are worth, on pasted faces. `python -m benchmarks.face_choices [FILE]`.

Prints JSON: per cent of the faces found at given numbers of false positives in 200 easy and 200 hard scenes (see
`benchmarks.pasted_faces`), for each way to score and to group windows, and for stages that are soft (early exits) or
hard, with the mean number of weak learners a window. No test set is looked at.
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
from benchmarks.pasted_faces import Scene, scenes
from whet.cascade.cascade import Cascade
from whet.cascade.detect import Grouping, fired_windows, grouped
from whet.cascade.detections import FiredWindows
from whet.cascade.pyramid import levels_at, pyramid
from whet.cascade.scan import scan_images
from whet.evaluation.evaluation import Evaluation, evaluate_detections

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
    soft = whet.load(options.model).cascade
    hard = replace(soft, stages=tuple(replace(stage, rejection_thresholds=None) for stage in soft.stages))
    kinds = {"easy": scenes(options.scenes), "hard": scenes(options.scenes, hard=True)}
    report: dict[str, Any] = {"false positives": FALSE_POSITIVES, "versions": versions()}
    for kind, some in kinds.items():
        fired = [fired_windows(soft, image) for image, _ in some]
        margins = [all_margins(soft, *pair) for pair in zip([image for image, _ in some], fired, strict=True)]
        report[kind] = {
            "faces": sum(len(boxes) for _, boxes in some),
            "by score, grouped around peaks": {
                name: found(_with_scores(fired, margins, score), some) for name, score in SCORES.items()
            },
            "by grouping": {grouping: found(fired, some, grouping) for grouping in GROUPINGS},
            "soft stages": found(fired, some) | {"weak learners a window": learners_a_window(soft, some)},
            "hard stages": found([fired_windows(hard, image) for image, _ in some], some)
            | {"weak learners a window": learners_a_window(hard, some)},
        }
    print(json.dumps(report, indent=1))


def all_margins(cascade: Cascade, image: Any, fired: FiredWindows) -> Margins:  # noqa: ANN401
    """Margins (stages, windows) of the windows that fired."""
    height, width = cascade.window
    scales = sorted(set(fired.scale.tolist()))
    levels = dict(zip(scales, levels_at(image, scales), strict=True))
    places = zip(fired.scale.tolist(), fired.y.tolist(), fired.x.tolist(), strict=True)
    cut = [levels[scale].image[y : y + height, x : x + width] for scale, y, x in places]
    patches = np.array(cut, dtype=np.uint8).reshape(-1, height, width)
    return np.array([stage.score(patches) if len(patches) else np.empty(0) for stage in cascade.stages])


def _with_scores(
    fired: list[FiredWindows], margins: list[Margins], score: Callable[[Margins], Margins]
) -> list[FiredWindows]:
    return [replace(one, scores=score(its)) for one, its in zip(fired, margins, strict=True)]


def found(fired: list[FiredWindows], some: list[Scene], grouping: Grouping = "peaks") -> dict[str, float]:
    """Per cent of the faces at each number of false positives, and at the lowest threshold."""
    result = judged([grouped(one, grouping) for one in fired], some)
    percent = partial(round, ndigits=1)
    at = faces_at(result.curve, FALSE_POSITIVES)
    table = {str(n): percent(100 * faces / result.curve.n_truths) for n, faces in zip(FALSE_POSITIVES, at, strict=True)}
    return table | {f"{result.curve.false_positives[-1]} (all)": percent(100 * float(result.curve.recall[-1]))}


def judged(groups: list[Any], some: list[Scene]) -> Evaluation:
    """All scenes together, overlap above one half."""
    return evaluate_detections([(one.boxes, one.scores) for one in groups], [(boxes, None) for _, boxes in some])


def learners_a_window(cascade: Cascade, some: list[Scene], n: int = 30) -> float:
    """Mean number of weak learners that a window needs until it is rejected, in the first n scenes."""
    levels = [level.image for image, _ in some[:n] for level in pyramid(image, cascade.window)]
    scans = scan_images(cascade, levels)
    return round(sum(scan.n_evaluated for scan in scans) / sum(scan.n_looked_at for scan in scans), 2)


if __name__ == "__main__":
    main()
