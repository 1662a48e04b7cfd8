"""OpenCV's face cascade before and after it was adopted, on MIT+CMU: `python -m benchmarks.adopted_cascade`.

Prints JSON. The cascade is shown 1,000 faces of LFW, scaled to its window, and its own false alarms in 500 pictures
without faces. Before and after run in whet's own way (same pyramid, step and merging) and are judged alike. Then the
adopted detector is exported, and OpenCV has to find in the file what whet finds. MIT+CMU is for reporting: nothing is
chosen by it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

import whet
from whet.detect.pyramid import resized
from whet.errors import DataNotFoundError
from whet.experiments.mit_cmu_trial import Trial, faces_at
from whet.experiments.report import versions
from whet.io.datasets import find, negative_pictures
from whet.io.images import read_grey
from whet.model.cascade import Cascade
from whet.model.detector_base import StageBase
from whet.opencv import CascadeClassifier, write_opencv
from whet.training.adopt import adopt
from whet.training.detector import Detector

# Where the face lies in every picture of LFW, in OpenCV's convention.
X, Y, SIDE = 24, 23, 113
FALSE_ALARMS = (5, 10, 20, 50, 100, 200)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cascade", default="frontalface_default")
    parser.add_argument("--faces", type=int, default=1000)
    parser.add_argument("--pictures", type=int, default=500)
    parser.add_argument("--detection-rate", type=float, default=0.998)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    path = f"{cv2.data.haarcascades}haarcascade_{options.cascade}.xml"
    before = whet.load(path)
    pictures = chosen_negatives(options.pictures, options.seed)
    began = time.perf_counter()
    after = adopt(
        path,
        lfw_faces(options.faces, before.window, options.seed),
        pictures,
        detection_rate=options.detection_rate,
        seed=options.seed,
        tell=lambda number, base, n: print(f"stage {number}: {n} negatives, {type(base).__name__}", file=sys.stderr),
    )
    seconds = time.perf_counter() - began
    trial = Trial.of_mit_cmu()
    report = {
        "options": vars(options),
        "versions": versions(),
        "opencv": cv2.__version__,
        "seconds to adopt": round(seconds, 1),
        "stages": [stage_report(stage) for stage in after.taught.base.stages],
        "false alarms": FALSE_ALARMS,
        "faces of": trial.n_truths,
        "before": judged(trial, before),
        "after": judged(trial, after),
        "exported": exported(after.taught.cascade(), trial),
    }
    print(json.dumps(report, indent=1))


def lfw_faces(n: int, window: tuple[int, int], seed: int) -> NDArray[np.uint8]:
    """Faces of n people of LFW in the window's size, drawn at random."""
    folder = find("faces_lfw")
    if folder is None:
        raise DataNotFoundError("faces_lfw is not in $WHET_DATA")
    every = sorted(folder.rglob("*.jpg"))
    chosen = sorted(np.random.default_rng(seed).choice(len(every), n, replace=False).tolist())
    cut = (read_grey(every[i])[Y : Y + SIDE, X : X + SIDE] for i in chosen)
    return np.array([resized(np.ascontiguousarray(face), window) for face in cut])


def chosen_negatives(n: int, seed: int) -> list[Path]:
    every = negative_pictures()
    return [every[i] for i in sorted(np.random.default_rng(seed).choice(len(every), n, replace=False).tolist())]


def stage_report(stage: Any) -> dict[str, Any]:  # noqa: ANN401 - a stage that learns, or a fixed one
    learns = isinstance(stage, StageBase)
    return {"learners": len(stage), "learns": learns, **({"negatives": stage.negative.n} if learns else {})}


def judged(trial: Trial, detector: Detector) -> dict[str, Any]:
    evaluation = trial.run(detector.taught.cascade())
    curve = evaluation.curve
    return {
        "faces": faces_at(curve, FALSE_ALARMS),
        "all faces": int(curve.found[-1]),
        "all false alarms": int(curve.false_alarms[-1]),
    }


def exported(cascade: Cascade, trial: Trial) -> dict[str, Any]:
    """Windows of the exported file in OpenCV and in whet, on some of the pictures."""
    with TemporaryDirectory() as folder:
        name = f"{folder}/adopted.xml"
        written = write_opencv(cascade, name)
        theirs, ours = cv2.CascadeClassifier(name), CascadeClassifier(name)
    counts = []
    for picture in trial.pictures[::13]:
        found = [
            sorted(map(tuple, np.array(one.detectMultiScale(picture, 1.1, 0)).reshape(-1, 4).tolist()))
            for one in (theirs, ours)
        ]
        counts.append((len(found[0]), found[0] == found[1]))
    return {
        "stages": written.stages,
        "stumps": written.stumps,
        "closest": written.closest,
        "pictures": len(counts),
        "windows": sum(n for n, _ in counts),
        "same windows in OpenCV": all(same for _, same in counts),
    }


if __name__ == "__main__":
    main()
