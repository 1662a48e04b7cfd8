"""Decision "Integer stage sums".

Cascades in OpenCV's format, whet against OpenCV: `python -m benchmarks.opencv_scan --xml face.xml`.

Prints JSON. Both run `detectMultiScale` with the default arguments on the same images and find the same boxes, which
is checked, as are the windows before grouping; both count the same windows. Contestants take turns; the fastest turn is
the least disturbed. Processor time of all threads is the second measure: other work on the machine adds little to it.
`benchmarks.exported_face` trains the detectors of our own that `--xml` adds to OpenCV's.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import cv2
import numpy as np
from experiments.datasets import negative_images
from experiments.report import versions
from numpy.typing import NDArray

from benchmarks.measuring import HD, VGA
from whet.errors import DataNotFoundError
from whet.io.image_files import read_grey
from whet.opencv import CascadeClassifier
from whet.opencv.classifier import levels_of, scales_between

CASCADES = ("frontalface_default", "frontalface_alt2")
SHAPES = (VGA, HD)
GreyImage = NDArray[np.uint8]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--xml", type=Path, nargs="*", default=[], help="more cascades")
    options = parser.parse_args()
    paths = [Path(cv2.data.haarcascades) / f"haarcascade_{name}.xml" for name in CASCADES]
    results = [
        measure(path, image_of(shape), threads, options.turns)
        for path in [*paths, *options.xml]
        for shape in SHAPES
        for threads in (1, 2)
    ]
    print(json.dumps({"versions": versions(), "opencv": cv2.__version__, "results": results}, indent=1))


def image_of(shape: tuple[int, int]) -> GreyImage:
    """Photographs side by side, cut to a shape, or smoothed noise where there are none."""
    height, width = shape
    try:
        large = (image for image in map(read_grey, negative_images()[::7]) if min(image.shape) >= 480)
        wide = (image[:480, :640] for image in large if image.shape[1] >= 640)
        tiles = [next(wide) for _ in range(-(-height // 480) * -(-width // 640))]
        across = -(-width // 640)
        rows = [np.hstack(tiles[i : i + across]) for i in range(0, len(tiles), across)]
        return np.ascontiguousarray(np.vstack(rows)[:height, :width])
    except DataNotFoundError:
        coarse = np.random.default_rng(0).integers(0, 256, (height // 5 + 1, width // 5 + 1))
        return np.kron(coarse, np.ones((5, 5)))[:height, :width].astype(np.uint8)


def measure(path: Path, image: GreyImage, threads: int, turns: int) -> dict[str, Any]:
    """Milliseconds, windows a second, and how many times as long OpenCV takes."""
    ours, theirs = CascadeClassifier(path, threads=threads), cv2.CascadeClassifier(str(path))
    cv2.setNumThreads(threads)
    same = all(found(ours, image, n) == found(theirs, image, n) for n in (0, 3))
    wall, processor = clocked({"whet": ours, "opencv": theirs}, image, turns)
    windows = count_windows(image.shape, ours)
    return {
        "cascade": path.stem,
        "shape": image.shape,
        "threads": threads,
        "same windows and boxes": same,
        "windows": windows,
        **{f"{who} ms (least)": round(1e3 * min(values), 2) for who, values in wall.items()},
        **{f"{who} ms (median)": round(1e3 * median(values), 2) for who, values in wall.items()},
        **{f"{who} processor ms (least)": round(1e3 * min(values), 2) for who, values in processor.items()},
        **{f"{who} windows a second": round(windows / min(values)) for who, values in wall.items()},
        "opencv takes times ours (least)": round(min(wall["opencv"]) / min(wall["whet"]), 2),
        "opencv takes times ours (median of turns)": ratio(wall),
        "opencv takes times ours (processor, least)": round(min(processor["opencv"]) / min(processor["whet"]), 2),
    }


def found(classifier: Any, image: GreyImage, neighbours: int) -> list[list[int]]:  # noqa: ANN401 - OpenCV has no types
    """Boxes in an order that does not depend on threads."""
    boxes = np.array(classifier.detectMultiScale(image, minNeighbors=neighbours)).reshape(-1, 4)
    return sorted(boxes.tolist())


def ratio(seconds: dict[str, list[float]]) -> float:
    """OpenCV's time in ours, the median over the turns."""
    return round(median(theirs / ours for theirs, ours in zip(seconds["opencv"], seconds["whet"], strict=True)), 2)


def clocked(
    classifiers: dict[str, Any], image: GreyImage, turns: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds on the clock and of the processors, one of each a turn; classifiers take turns."""
    wall: dict[str, list[float]] = {name: [] for name in classifiers}
    processor: dict[str, list[float]] = {name: [] for name in classifiers}
    for _ in range(turns):
        for name, classifier in classifiers.items():
            start, worked = time.perf_counter(), time.process_time()
            classifier.detectMultiScale(image)
            wall[name].append(time.perf_counter() - start)
            processor[name].append(time.process_time() - worked)
    return wall, processor


def count_windows(shape: tuple[int, ...], classifier: CascadeClassifier) -> int:
    """Windows at the steps of all levels; the first stage lets OpenCV step over some of them."""
    width, height = classifier.getOriginalWindowSize()
    size = (int(shape[0]), int(shape[1]))
    scales = scales_between(size, (height, width), 1.1, (0, 0), size[::-1])
    return sum(level.rows * level.columns for level in levels_of(size, (height, width), scales))


if __name__ == "__main__":
    main()
