"""OpenCV's face cascade before and after adoption: `python -m benchmarks.adopted_cascade --seed 0`.

Prints JSON. The cascade is adopted with 1,000 people of LFW, each in many variations (`whet.training.positives`), and
its own false positives in 500 images without faces. Before and after are evaluated alike: in whet (same pyramid, step
and grouping) and, as files, in OpenCV. MIT+CMU is for reporting; no parameter is chosen on it. Parameters are chosen
with `--pasted`, which evaluates on other people of LFW, and on faces of `faces_opencv24`, pasted into other images.
`--join FILE ...` combines runs of several seeds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cv2
import numpy as np
from experiments.datasets import lfw_images
from experiments.mit_cmu import Trial, faces_at
from experiments.opencv_peers import NEIGHBOURS, groupings
from experiments.report import versions
from numpy.typing import NDArray
from scripts.train_face import split_images

import whet
from benchmarks.pasted_faces import FACE, LEFT, TOP, Scene, scenes, window_scenes
from whet.cascade.cascade import Cascade, TrainedStage
from whet.cascade.detect import detect
from whet.evaluation.curves import Curve
from whet.evaluation.evaluation import evaluate_detections
from whet.io.images import read_grey
from whet.opencv import CascadeClassifier, write_opencv
from whet.training.adopt import adopt_patches
from whet.training.positives import Variations

FALSE_POSITIVES = (5, 10, 20, 50, 100, 200)
BOX = LEFT, TOP, LEFT + FACE, TOP + FACE
OPENCV_FACTOR = 1.1
PASTED = 150  # scenes of each kind


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cascade", default="frontalface_default")
    parser.add_argument("--faces", type=int, default=1000)
    parser.add_argument("--windows", type=int, default=10, help="variations of each face")
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--pasted", action="store_true", help="evaluate on pasted faces, not on MIT+CMU")
    parser.add_argument("--join", nargs="+", type=Path, metavar="FILE", help="results of runs to combine")
    options = parser.parse_args()
    report = joined([json.loads(path.read_text()) for path in options.join]) if options.join else run(options)
    print(json.dumps(report, indent=1))


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Adopt, and evaluate before and after."""
    path = f"{cv2.data.haarcascades}haarcascade_{options.cascade}.xml"
    before = whet.load(path)
    photographs, others = people(options.faces, options.seed)
    images = chosen_negatives(options.images, options.seed)
    began = time.perf_counter()
    after = adopt_patches(
        path,
        faces(photographs, before.window, options.windows, options.seed),
        images,
        groups=np.repeat(np.arange(len(photographs)), options.windows),
        seed=options.seed,
        threads=options.threads,
    )
    seconds = time.perf_counter() - began
    cascades = {"before": before.cascade, "after": after.cascade}
    report = {
        "options": {name: value for name, value in vars(options).items() if name != "join"},
        "versions": versions(),
        "opencv": cv2.__version__,
        "seconds to adopt": round(seconds, 1),
        "stages": [stage_report(stage) for stage in after.base.stages],
        "false positives": FALSE_POSITIVES,
    }
    if options.pasted:
        kinds = {
            "easy": scenes(PASTED, 7, faces=others),
            "hard": scenes(PASTED, 7, hard=True, faces=others),
            "faces_opencv24": window_scenes(PASTED, 11),
        }
        return report | {kind: {name: pasted(c, some) for name, c in cascades.items()} for kind, some in kinds.items()}
    trial = Trial.from_mit_cmu()
    return report | {
        "faces of": trial.n_truths,
        "in whet": {name: in_whet(trial, cascade) for name, cascade in cascades.items()},
        "in OpenCV": {name: in_opencv(trial, cascade) for name, cascade in cascades.items()},
        "exported": exported(cascades["after"], trial),
    }


def people(n: int, seed: int) -> tuple[list[Path], list[Path]]:
    """Photographs of n people of LFW, drawn at random, and those of all others."""
    every = lfw_images()
    order = np.random.default_rng(seed).permutation(len(every)).tolist()
    return [every[i] for i in sorted(order[:n])], [every[i] for i in sorted(order[n:])]


def faces(photographs: Sequence[Path], window: tuple[int, int], n: int, seed: int) -> NDArray[np.uint8]:
    """N variations of each face."""
    rng = np.random.default_rng(seed)
    return np.concatenate([Variations().cut(read_grey(path), BOX, window, n, rng) for path in photographs])


def chosen_negatives(n: int, seed: int) -> list[Path]:
    """Images without faces, drawn from those that are not used to evaluate."""
    every = split_images()[0]
    return [every[i] for i in sorted(np.random.default_rng(seed).permutation(len(every))[:n].tolist())]


def stage_report(stage: TrainedStage) -> dict[str, Any]:
    negatives = {"negatives": stage.statistics[1].n} if stage.learns else {}
    return {"learners": len(stage), "learns": stage.learns, **negatives}


def in_whet(trial: Trial, cascade: Cascade) -> dict[str, Any]:
    """Most faces at each number of false positives, and at the lowest threshold."""
    return points(trial.run(cascade).curve)


def points(curve: Curve) -> dict[str, Any]:
    return {
        "faces": faces_at(curve, FALSE_POSITIVES),
        "all faces": int(curve.found[-1]),
        "all false positives": int(curve.false_positives[-1]),
    }


def pasted(cascade: Cascade, some: Sequence[Scene]) -> dict[str, Any]:
    """The same on pasted faces; their boxes need no offset."""
    found = [detect(cascade, image) for image, _ in some]
    truths = [(boxes, None) for _, boxes in some]
    in_whet = points(evaluate_detections([(one.boxes, one.scores) for one in found], truths).curve)
    return in_whet | swept(
        cascade, [image for image, _ in some], lambda found: evaluate_detections(found, truths).curve
    )


def in_opencv(trial: Trial, cascade: Cascade) -> dict[str, Any]:
    return swept(cascade, trial.images, lambda found: trial.evaluate(found).curve)


def swept(
    cascade: Cascade, images: Sequence[NDArray[np.uint8]], curve_of: Callable[[list[Any]], Curve]
) -> dict[str, Any]:
    """The file in `cv2.CascadeClassifier`: swept by `minNeighbors`, and by the last stage's weight at 3 neighbours."""
    with TemporaryDirectory() as folder:
        write_opencv(cascade, f"{folder}/cascade.xml")
        peer = cv2.CascadeClassifier(f"{folder}/cascade.xml")
    grouped = [groupings(peer, image, OPENCV_FACTOR) for image in images]
    curves = {k: curve_of([(one[k].boxes, one[k].weights) for one in grouped]) for k in NEIGHBOURS}
    ends = [(int(curve.found[-1]), int(curve.false_positives[-1])) for curve in curves.values()]
    by_neighbours = [
        max((faces for faces, false_positives in ends if false_positives <= n), default=0) for n in FALSE_POSITIVES
    ]
    return {"by minNeighbors": by_neighbours, "by weight": faces_at(curves[3], FALSE_POSITIVES)}


def exported(cascade: Cascade, trial: Trial) -> dict[str, Any]:
    """Windows of the exported file in OpenCV and in whet, on some of the images."""
    with TemporaryDirectory() as folder:
        name = f"{folder}/adopted.xml"
        written = write_opencv(cascade, name)
        theirs, ours = cv2.CascadeClassifier(name), CascadeClassifier(name)
    counts = []
    for image in trial.images[::13]:
        found = [
            sorted(map(tuple, np.array(one.detectMultiScale(image, 1.1, 0)).reshape(-1, 4).tolist()))
            for one in (theirs, ours)
        ]
        counts.append((len(found[0]), found[0] == found[1]))
    return {
        "stages": written.stages,
        "stumps": written.stumps,
        "closest": written.closest,
        "images": len(counts),
        "windows": sum(n for n, _ in counts),
        "same windows in OpenCV": all(same for _, same in counts),
    }


def joined(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Runs of several seeds: mean and standard deviation of the faces that adopting gains, and all runs."""
    gains: dict[str, Any] = {}
    for way, measure in (("in whet", "faces"), ("in OpenCV", "by minNeighbors"), ("in OpenCV", "by weight")):
        after, before = (np.array([run[way][when][measure] for run in runs]) for when in ("after", "before"))
        gains[f"{way}, {measure}"] = {
            "before": before[0].tolist(),
            "after, mean": after.mean(axis=0).round(1).tolist(),
            "after, deviation": after.std(axis=0, ddof=1).round(1).tolist(),
        }
    return {
        "false positives": FALSE_POSITIVES,
        "seeds": [run["options"]["seed"] for run in runs],
        **gains,
        "runs": list(runs),
    }


if __name__ == "__main__":
    main()
