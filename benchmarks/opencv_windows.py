"""Decision "Exported files decide alike".

The windows that OpenCV accepts, as JSON: `python benchmarks/opencv_windows.py IMAGES.npz FILE.xml ...`.

Needs OpenCV and NumPy alone, so that an environment with another OpenCV, and without whet, can run it. The NPZ has
images under any names; `patches` (n, height, width), if present, are classified as one window each.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import cv2
import numpy as np

Windows = list[list[int]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", help="NPZ file")
    parser.add_argument("files", nargs="+", help="cascades as XML")
    options = parser.parse_args()
    arrays = dict(np.load(options.images))
    patches = arrays.pop("patches", np.empty((0, 0, 0), np.uint8))
    files = {path: report(cv2.CascadeClassifier(path), list(arrays.values()), patches) for path in options.files}
    print(json.dumps({"opencv": cv2.__version__, "files": files}))


def report(classifier: Any, images: list[Any], patches: Any) -> dict[str, Any]:  # noqa: ANN401 - OpenCV has no types
    """Windows of each image before grouping, boxes after it, and the numbers of the patches that are accepted."""
    return {
        "windows": [boxes(classifier, image, 0) for image in images],
        "grouped": [boxes(classifier, image, 3) for image in images],
        "accepted": [number for number, patch in enumerate(patches) if boxes(classifier, patch, 0)],
    }


def boxes(classifier: Any, image: Any, neighbours: int) -> Windows:  # noqa: ANN401
    """Rows of x, y, width and height, in an order that threads do not change."""
    rows: Windows = np.array(classifier.detectMultiScale(image, 1.1, neighbours)).reshape(-1, 4).tolist()
    return sorted(rows)


if __name__ == "__main__":
    main()
