"""Decision "The same windows as OpenCV".

Whether whet finds what OpenCV finds, file by file: `python -m benchmarks.opencv_agreement`.

Every cascade that comes with OpenCV, on images with faces (MIT+CMU) and without (`negatives`): the raw windows
(minNeighbors = 0) as sets, those that one side has and the other has not, and the grouped boxes with the default
arguments. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from experiments.datasets import negative_images
from experiments.mit_cmu import labelled_images
from experiments.report import versions
from numpy.typing import NDArray

from whet.io.image_files import read_grey
from whet.opencv import CascadeClassifier

Window = tuple[int, int, int, int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=24)
    options = parser.parse_args()
    images = chosen(options.images)
    files = sorted(Path(cv2.data.haarcascades).glob("*.xml"))
    results = []
    for path in files:
        print(path.name, file=sys.stderr, flush=True)
        results.append(agreement(path, images))
    total = {name: sum(row[name] for row in results) for name in ("opencv", "whet", "both", "images grouped alike")}
    report = {
        "options": vars(options),
        "versions": versions(),
        "opencv": cv2.__version__,
        "images": [list(image.shape) for image in images],
        "total": total,
        "results": results,
    }
    print(json.dumps(report, indent=1))


def chosen(n: int) -> list[NDArray[np.uint8]]:
    """Half with faces, half without, spread over the sets."""
    with_faces, without = labelled_images(), negative_images()
    paths = [one.path for one in with_faces[:: max(1, len(with_faces) // (n // 2))]][: n // 2]
    paths += without[:: max(1, len(without) // (n - n // 2))][: n - n // 2]
    return [read_grey(path) for path in paths]


def agreement(path: Path, images: list[NDArray[np.uint8]]) -> dict[str, Any]:
    """Windows of all images that either side accepts, and how many images have the same grouped boxes."""
    theirs, ours = cv2.CascadeClassifier(str(path)), CascadeClassifier(str(path))
    counts = np.zeros(3, np.int64)
    alike = 0
    for image in images:
        first, second = (windows(one.detectMultiScale(image, 1.1, 0)) for one in (theirs, ours))
        counts += len(first), len(second), len(first & second)
        grouped = [sorted(windows(one.detectMultiScale(image))) for one in (theirs, ours)]
        alike += grouped[0] == grouped[1]
    opencv, whet, both = counts.tolist()
    return {"file": path.name, "opencv": opencv, "whet": whet, "both": both, "images grouped alike": alike}


def windows(found: Any) -> set[Window]:  # noqa: ANN401 - an array, or () where there are none
    return {tuple(row) for row in np.array(found).reshape(-1, 4).tolist()}


if __name__ == "__main__":
    main()
