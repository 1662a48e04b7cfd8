"""OpenCV's own cascades and pictures, whet against OpenCV: `python -m benchmarks.opencv_scan`.

Prints JSON. Both run `detectMultiScale` with the default arguments on the same pictures and find the same boxes, which
is checked; both count the same windows. Contestants take turns; the fastest turn is the least disturbed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from statistics import median
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from benchmarks.interleaved import take_turns
from whet.detect.opencv_levels import levels_of, scales_between
from whet.errors import DataNotFoundError
from whet.experiments.report import versions
from whet.io.datasets import negative_pictures
from whet.io.images import read_grey
from whet.opencv import CascadeClassifier

CASCADES = ("frontalface_default", "frontalface_alt2")
SHAPES = ((480, 640), (1080, 1920))
Picture = NDArray[np.uint8]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    results = [
        measure(cascade, picture_of(shape), threads, options.turns)
        for cascade in CASCADES
        for shape in SHAPES
        for threads in (1, 2)
    ]
    print(json.dumps({"versions": versions(), "opencv": cv2.__version__, "results": results}, indent=1))


def picture_of(shape: tuple[int, int]) -> Picture:
    """Photographs side by side, cut to a shape, or smoothed noise where there are none."""
    height, width = shape
    try:
        large = (picture for picture in map(read_grey, negative_pictures()[::7]) if min(picture.shape) >= 480)
        wide = (picture[:480, :640] for picture in large if picture.shape[1] >= 640)
        tiles = [next(wide) for _ in range(-(-height // 480) * -(-width // 640))]
        across = -(-width // 640)
        rows = [np.hstack(tiles[i : i + across]) for i in range(0, len(tiles), across)]
        return np.ascontiguousarray(np.vstack(rows)[:height, :width])
    except DataNotFoundError:
        coarse = np.random.default_rng(0).integers(0, 256, (height // 5 + 1, width // 5 + 1))
        return np.kron(coarse, np.ones((5, 5)))[:height, :width].astype(np.uint8)


def measure(name: str, picture: Picture, threads: int, turns: int) -> dict[str, Any]:
    """Milliseconds, windows a second, and how many times as long OpenCV takes."""
    path = f"{cv2.data.haarcascades}haarcascade_{name}.xml"
    ours, theirs = CascadeClassifier(path, threads=threads), cv2.CascadeClassifier(path)
    cv2.setNumThreads(threads)
    found = [sorted(map(tuple, np.array(c.detectMultiScale(picture)).reshape(-1, 4).tolist())) for c in (ours, theirs)]
    contestants: dict[str, Callable[[], object]] = {
        "whet": lambda: ours.detectMultiScale(picture),
        "opencv": lambda: theirs.detectMultiScale(picture),
    }
    seconds = take_turns(contestants, turns, dict.fromkeys(contestants, 1))
    windows = count_windows(picture.shape, ours)
    ratios = [theirs / ours for theirs, ours in zip(seconds["opencv"], seconds["whet"], strict=True)]
    return {
        "cascade": name,
        "shape": picture.shape,
        "threads": threads,
        "same boxes": found[0] == found[1],
        "windows": windows,
        **{f"{who} ms (least)": round(1e3 * min(values), 2) for who, values in seconds.items()},
        **{f"{who} ms (median)": round(1e3 * median(values), 2) for who, values in seconds.items()},
        **{f"{who} windows a second": round(windows / min(values)) for who, values in seconds.items()},
        "opencv takes times ours (least)": round(min(seconds["opencv"]) / min(seconds["whet"]), 2),
        "opencv takes times ours (median of turns)": round(median(ratios), 2),
    }


def count_windows(shape: tuple[int, ...], classifier: CascadeClassifier) -> int:
    """Windows at the steps of all levels; the first stage lets OpenCV step over some of them."""
    width, height = classifier.getOriginalWindowSize()
    size = (int(shape[0]), int(shape[1]))
    scales = scales_between(size, (height, width), 1.1, (0, 0), size[::-1])
    return sum(level.rows * level.columns for level in levels_of(size, (height, width), scales))


if __name__ == "__main__":
    main()
