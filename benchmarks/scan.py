"""An image of 640 x 480, all scales, step 1: whet, and OpenCV where it is installed. `python -m benchmarks.scan`.

Prints JSON. The cascade is trained on the spot, in a minute, so that its stages are as long as real ones. OpenCV runs
its own `haarcascade_frontalface_default`, which has more stages, and moves by 2 pixels below scale 2: windows per
second count what each of them visits. Contestants take turns; the fastest turn is the least disturbed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from experiments.datasets import negative_images
from experiments.report import versions
from numpy.typing import NDArray

from benchmarks.face_cascade import face_cascade
from benchmarks.interleaved import take_turns
from whet._kernels.threads import available_threads
from whet.cascade.cascade import Cascade
from whet.cascade.detect import detect
from whet.cascade.pyramid import Pyramid, level_scales, level_shape
from whet.cascade.scan import Scan, scan_images
from whet.errors import DataNotFoundError
from whet.io.images import read_grey

SHAPE = (480, 640)
GreyImage = NDArray[np.uint8]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", choices=["haar", "lbp"], default="haar")
    parser.add_argument("--stages", type=int, default=8)
    parser.add_argument("--images", type=int, default=6)
    parser.add_argument("--turns", type=int, default=10)
    options = parser.parse_args()
    cascade, data = face_cascade(options.family, options.stages)
    results = [measure(cascade, image, options.turns) for image in images(options.images)]
    report = {
        "data": data,
        "stages": [len(stage) for stage in cascade.stages],
        "threads": available_threads(),
        "versions": versions(),
        "mean": {name: round(float(np.mean([r[name] for r in results])), 3) for name in results[0]},
        "images": results,
    }
    print(json.dumps(report, indent=1))


def images(n: int) -> list[GreyImage]:
    """Photographs cut to 640 x 480, or smoothed noise where there are none."""
    try:
        large = (image for image in map(read_grey, negative_images()[::7]) if min(image.shape) >= 480)
        wide = (image[:480, :640] for image in large if image.shape[1] >= 640)
        return [np.ascontiguousarray(image) for _, image in zip(range(n), wide, strict=False)]
    except DataNotFoundError:
        rng = np.random.default_rng(0)
        return [np.kron(rng.integers(0, 256, (96, 128)), np.ones((5, 5))).astype(np.uint8) for _ in range(n)]


def measure(cascade: Cascade, image: GreyImage, turns: int) -> dict[str, float]:
    """Milliseconds of the parts, windows per second, and weak learners a window."""
    levels = [level.image for level in Pyramid.from_image(image, cascade.window).levels]
    contestants: dict[str, Callable[[], Any]] = {
        "detect": lambda: detect(cascade, image),
        "detect on one thread": lambda: detect(cascade, image, threads=1),
        "pyramid": lambda: Pyramid.from_image(image, cascade.window),
        "scan": lambda: scan_images(cascade, levels),
    }
    opencv = opencv_detector()
    if opencv is not None:
        contestants["opencv"] = lambda: opencv.detectMultiScale(image, 1.2, 3)
    seconds = take_turns(contestants, turns, dict.fromkeys(contestants, 1))
    scans = scan_images(cascade, levels)
    result = {f"{name} ms (least)": round(1e3 * min(values), 2) for name, values in seconds.items()}
    result |= {f"{name} ms (median)": round(1e3 * median(values), 2) for name, values in seconds.items()}
    result |= counts(scans, min(seconds["detect"]))
    if opencv is not None:
        result["opencv windows a second"] = round(opencv_windows() / min(seconds["opencv"]))
        ratios = (theirs / ours for theirs, ours in zip(seconds["opencv"], seconds["detect"], strict=True))
        result["opencv takes times ours (median)"] = round(median(ratios), 2)
    return result


def counts(scans: list[Scan], seconds: float) -> dict[str, float]:
    """Windows, and what they took; the speed counts all that `detect` does."""
    windows, has_contrast, evaluated = (
        sum(getattr(scan, name) for scan in scans) for name in ("n_windows", "n_tested", "n_evaluated")
    )
    return {
        "windows": windows,
        "windows a second": round(windows / seconds),
        "share looked at": round(has_contrast / windows, 3),
        "weak learners a window looked at": round(evaluated / max(has_contrast, 1), 2),
        "weak learners a window": round(evaluated / windows, 2),
        "windows found": sum(map(len, scans)),
    }


def opencv_detector() -> Any | None:  # noqa: ANN401 - OpenCV has no types
    """OpenCV's face detector, if it is installed and still has one."""
    try:
        import cv2
    except ImportError:
        return None
    if not hasattr(cv2, "CascadeClassifier"):
        return None
    cv2.setNumThreads(available_threads())
    return cv2.CascadeClassifier(cv2.data.haarcascades + "haarcascade_frontalface_default.xml")


def opencv_windows(window: tuple[int, int] = (24, 24)) -> int:
    """Windows that OpenCV visits at most: every second row and column below scale 2, then every one."""
    total = 0
    for scale in level_scales(SHAPE, window):
        step = 1 if scale >= 2 else 2
        height, width = level_shape(SHAPE, scale)
        total += ((height - window[0]) // step + 1) * ((width - window[1]) // step + 1)
    return total


if __name__ == "__main__":
    main()
