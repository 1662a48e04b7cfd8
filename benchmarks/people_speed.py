"""Decision "Speed of people".

Time per image of a detector of people, of OpenCV's, and of a cascade: `python -m benchmarks.people_speed MODEL`.

MODEL is a channel detector of people: `python -m benchmarks.objects --sets inria_person --save DIR` makes one. Images
of 640 x 480 are cut from the test images of INRIA; objects are searched from 100 pixels of height up, on one thread.
All methods take turns on each image, and processor time is summed over all. Prints JSON: milliseconds per image, and
how many times as long as whet the others take. The cascade is the bundled face detector, from 100 pixels up.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from experiments.datasets import find
from experiments.report import versions
from numpy.typing import NDArray
from PIL import Image

import whet
from benchmarks.measuring import VGA
from whet.io.image_files import as_grey, as_rgb

SIZE = VGA[::-1]
SMALLEST = 100
# OpenCV's window for people has 64 x 128 pixels, 96 of them the person; steps as in its sample program.
HOG_SCALE, HOG_STRIDE, HOG_PERSON = 1.05, (8, 8), 96


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--images", type=int, default=30)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    images = test_images(options.images)
    people, face = whet.load(options.model), whet.load("face")
    cv2.setNumThreads(1)
    hog = cv2.HOGDescriptor()
    hog.setSVMDetector(cv2.HOGDescriptor_getDefaultPeopleDetector())
    # Smaller people are skipped by making the image smaller first.
    shrunk = HOG_PERSON / SMALLEST

    def opencv(image: NDArray[np.uint8]) -> object:
        small = cv2.resize(image, None, fx=shrunk, fy=shrunk, interpolation=cv2.INTER_AREA)
        return hog.detectMultiScale(small, winStride=HOG_STRIDE, scale=HOG_SCALE)

    methods: dict[str, Callable[[NDArray[np.uint8]], object]] = {
        "whet, people": lambda image: people.detect(image, min_size=SMALLEST, threads=1),
        "whet, face cascade": lambda image: face.detect(as_grey(image), min_size=SMALLEST, threads=1),
        "OpenCV HOG, people": opencv,
    }
    print(json.dumps(measured(methods, images, options.turns) | {"versions": versions(), "opencv": cv2.__version__}))


def test_images(n: int) -> list[NDArray[np.uint8]]:
    """Photographs of people and places, in random order, scaled and cut to one size."""
    root = find("objects")
    if root is None:
        raise SystemExit("the data set objects is not in $WHET_DATA")
    found = sorted((root / "inria_person" / "test").rglob("*.jpg"))
    order = np.random.default_rng(0).permutation(len(found))[:n]
    return [cut(as_rgb(found[i])) for i in order]


def cut(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The middle of an image, enlarged or made smaller to 640 x 480."""
    height, width = image.shape[:2]
    scale = max(SIZE[0] / width, SIZE[1] / height)
    pillow = Image.fromarray(image).resize((round(width * scale), round(height * scale)), Image.Resampling.BILINEAR)
    left, top = (pillow.width - SIZE[0]) // 2, (pillow.height - SIZE[1]) // 2
    return np.asarray(pillow.crop((left, top, left + SIZE[0], top + SIZE[1])))


def measured(
    methods: dict[str, Callable[[NDArray[np.uint8]], object]], images: list[NDArray[np.uint8]], turns: int
) -> dict[str, Any]:
    """Milliseconds of processor time per image, and ratios to the first method."""
    for method in methods.values():
        method(images[0])  # compiles
    total = dict.fromkeys(methods, 0.0)
    for _ in range(turns):
        for image in images:
            for name, method in methods.items():
                begun = time.process_time()
                method(image)
                total[name] += time.process_time() - begun
    n, first = turns * len(images), next(iter(total.values()))
    return {
        "images": len(images),
        "turns": turns,
        "milliseconds per image": {name: round(1000 * seconds / n, 1) for name, seconds in total.items()},
        "times as long as whet": {name: round(seconds / first, 2) for name, seconds in total.items()},
    }


if __name__ == "__main__":
    main()
