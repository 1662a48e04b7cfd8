"""A face detector of ours next to OpenCV's three. `python -m benchmarks.face_detector FILE`.

Prints JSON. Recall: faces of MIT+CMU found at given numbers of false positives, by one rule for all; ours with
`detect` at scale factors 1.1 and 1.2, OpenCV's in the best of many settings at that number. Speed: images of 640 x 480,
OpenCV and ours alternating, on one thread and on all. Parts that need a missing test set or OpenCV are
skipped, with a remark.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from statistics import median
from typing import Any, get_args

import numpy as np
from experiments.mit_cmu import GreyImage, Trial, faces_at
from experiments.opencv_peers import NAMES, NoPeersError, classifier, run_peers
from experiments.report import versions

from benchmarks.interleaved import take_turns
from benchmarks.scan import images, opencv_windows
from whet._kernels.threads import available_threads
from whet.cascade.cascade import Cascade
from whet.cascade.detect import GROUPING, Grouping, detect
from whet.cascade.pyramid import Pyramid
from whet.cascade.scan import scan_images
from whet.detector.storage import load
from whet.errors import DataNotFoundError

FALSE_POSITIVES = (10, 15, 20, 26, 35, 50, 60, 69, 100, 107, 150, 200)
FACTORS = (1.1, 1.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="model file of a face detector")
    parser.add_argument("--grouping", choices=get_args(Grouping), default=GROUPING)
    parser.add_argument("--images", type=int, default=6, help="for the timing")
    parser.add_argument("--turns", type=int, default=10, help="for the timing")
    parser.add_argument("--no-peers", action="store_true", help="recall of ours alone: a minute instead of several")
    parser.add_argument("--no-timing", action="store_true")
    options = parser.parse_args()
    cascade = load(options.model).cascade
    remarks: list[str] = []
    report: dict[str, Any] = {"stages": [len(stage) for stage in cascade.stages], "versions": versions()}
    try:
        report["faces"] = recall(cascade, Trial.from_mit_cmu(), options.grouping, not options.no_peers, remarks)
    except DataNotFoundError as error:
        remarks.append(f"no recall: {error}")
    if not options.no_timing:
        report["speed"] = speed(cascade, images(options.images), options.turns, options.grouping, remarks)
    print(json.dumps(report | {"remarks": remarks}, indent=1))


def recall(
    cascade: Cascade,
    trial: Trial,
    grouping: Grouping = GROUPING,
    with_peers: bool = True,
    remarks: list[str] | None = None,
) -> dict[str, dict[str, int]]:
    """Faces found at each of `FALSE_POSITIVES`, by ours and by the peers."""
    faces = {
        f"whet, factor {scale_factor}": _table(
            faces_at(trial.run(cascade, scale_factor=scale_factor, grouping=grouping).curve, FALSE_POSITIVES)
        )
        for scale_factor in FACTORS
    }
    if not with_peers:
        return faces
    try:
        return faces | {peer.name: _table(peer.faces_at(FALSE_POSITIVES)) for peer in run_peers(trial)}
    except NoPeersError as error:
        (remarks if remarks is not None else []).append(f"no peers: {error}")
        return faces


def _table(faces: list[int]) -> dict[str, int]:
    return {str(n): found for n, found in zip(FALSE_POSITIVES, faces, strict=True)}


def speed(
    cascade: Cascade,
    images: list[GreyImage],
    turns: int,
    grouping: Grouping = GROUPING,
    remarks: list[str] | None = None,
) -> dict[str, dict[str, float]]:
    """Milliseconds an image (median and least of the turns) and windows a second, at factor 1.2."""
    contestants: dict[str, Callable[[], object]] = {}
    all_threads = available_threads()
    for threads in sorted({1, all_threads}):
        contestants[f"whet, threads {threads}"] = _ours(cascade, images, grouping, threads)
        try:
            contestants |= {f"{name}, threads {threads}": _theirs(name, images, threads) for name in NAMES}
        except NoPeersError as error:
            (remarks if remarks is not None else []).append(f"no peers: {error}")
    seconds = take_turns(contestants, turns, dict.fromkeys(contestants, 1))
    windows = {
        name: _windows(cascade, images) if name.startswith("whet") else _their_windows(name.split(",")[0])
        for name in contestants
    }
    return {
        name: {
            "ms an image, median": round(1e3 * median(values) / len(images), 2),
            "ms an image, least": round(1e3 * min(values) / len(images), 2),
            "windows a second": round(windows[name] * len(images) / min(values)),
            "times ours": _ratio(values, seconds[f"whet, threads {name.rsplit(' ', 1)[1]}"]),
        }
        for name, values in seconds.items()
    }


def _ratio(theirs: list[float], ours: list[float]) -> float:
    return round(median(t / o for t, o in zip(theirs, ours, strict=True)), 2)


def _ours(cascade: Cascade, images: list[GreyImage], grouping: Grouping, threads: int) -> Callable[[], object]:
    return lambda: [detect(cascade, image, grouping=grouping, threads=threads) for image in images]


def _theirs(name: str, images: list[GreyImage], threads: int) -> Callable[[], object]:
    peer = classifier(name)
    import cv2

    def run() -> object:
        cv2.setNumThreads(threads)
        return [peer.detectMultiScale(image, 1.2, 3) for image in images]

    return run


def _windows(cascade: Cascade, images: list[GreyImage]) -> float:
    """Windows in an image, on average."""
    counts = [
        sum(scan.n_windows for scan in scan_images(cascade, [level.image for level in levels]))
        for levels in (Pyramid.from_image(image, cascade.window).levels for image in images)
    ]
    return float(np.mean(counts))


def _their_windows(name: str) -> int:
    """Windows that OpenCV visits at most, by the size of its own window."""
    width, height = classifier(name).getOriginalWindowSize()
    return opencv_windows((height, width))


if __name__ == "__main__":
    main()
