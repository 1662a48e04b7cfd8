"""Decision "Adopting only counts".

OpenCV's face cascades, adopted and corrected: `python -m benchmarks.adopted_cascade`.

Prints JSON. Each cascade is adopted with people of LFW, ten variations each, and images without faces. Then, in each
draw, false positives in photographs of streets, cars and number plates are corrected one after the other: how many are
gone, false positives in 80 other images, and recall on other people of LFW and on faces pasted into images, before and
after. They are counted at any score, which is what an adopted cascade reports, and at the score of one false positive
per image. Each cascade is adopted with 10, 50 and 200 people.

`same as OpenCV's`: before any correction, detections are those of the original file.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from experiments.datasets import LFW_FACE, lfw_images, negative_images
from experiments.patches import adopt_patches
from experiments.report import versions
from numpy.typing import NDArray

import whet
from benchmarks.correction_data import (
    Found,
    Grey,
    Setting,
    compared,
    drawn_false_positives,
    images_without_faces,
    is_found,
    measure,
)
from benchmarks.corrections import corrections
from benchmarks.measuring import cascade_model, progress
from benchmarks.pasted_faces import scenes
from whet.detector.base import DEFAULT_POINT
from whet.detector.detector import Detector
from whet.io.image_files import read_grey
from whet.models.gslda.fitting import Variations

CORRECTED = 20
WINDOWS = 10  # variations of each face
# People after these are never adopted with.
MOST_PEOPLE = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cascades", nargs="+", default=["frontalface_default", "frontalface_alt2"])
    parser.add_argument("--photographs", nargs="+", type=int, default=[10, 50, 200])
    parser.add_argument("--images", type=int, default=300, help="images without faces to adopt with")
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    photographs = [read_grey(path) for path in images_without_faces()]
    objects = held_out_faces()
    result: dict[str, Any] = {"options": vars(options), "versions": versions(), "opencv": cv2.__version__, "runs": []}
    for name in options.cascades:
        for n in options.photographs:
            original, adopted, seconds = adopt(name, n, options.images, options.seed)
            setting = Setting(name, adopted, photographs, objects)
            run = {"cascade": name, "photographs": n, "seconds to adopt": round(seconds, 1)}
            run |= {
                "negatives of a stage, fewest": min(stage.statistics[1].n for stage in cascade_model(adopted).stages)
            }
            run |= {"kilobytes": len(adopted.to_bytes()) // 1000}
            run |= {"same as OpenCV's": is_same(original, adopted, photographs[:20])}
            result["runs"].append(run | corrected(setting, options))
    print(json.dumps(result, indent=1))


def held_out_faces() -> list[tuple[Grey, NDArray[np.float64]]]:
    """150 people of LFW, and faces pasted into 40 images."""
    x, y, side = LFW_FACE
    box = np.array([[x, y, x + side, y + side]], np.float64)
    people = lfw_images()[MOST_PEOPLE:]
    return [(read_grey(path), box) for path in people[:150]] + scenes(40, seed=101, faces=people[150:])


def people(n: int, seed: int) -> tuple[list[Path], list[Path]]:
    """Photographs of n people of LFW, drawn at random, and those of all others."""
    every = lfw_images()
    order = np.random.default_rng(seed).permutation(min(len(every), MOST_PEOPLE)).tolist()
    chosen = set(order[:n])
    return [every[i] for i in sorted(chosen)], [path for i, path in enumerate(every) if i not in chosen]


def faces(photographs: Sequence[Path], window: tuple[int, int], n: int, seed: int) -> NDArray[np.uint8]:
    """N variations of each face."""
    (x, y, side), rng = LFW_FACE, np.random.default_rng(seed)
    box = (x, y, x + side, y + side)
    return np.concatenate([Variations().cut(read_grey(path), box, window, n, rng) for path in photographs])


def chosen_negatives(n: int, seed: int) -> list[Path]:
    """Images without faces, drawn at random."""
    every = negative_images()
    return [every[i] for i in sorted(np.random.default_rng(seed).permutation(len(every))[:n].tolist())]


def adopt(name: str, n: int, n_images: int, seed: int) -> tuple[Detector, Detector, float]:
    """A cascade before and after it is adopted with n people, and the time that it takes."""
    path = Path(cv2.data.haarcascades) / f"haarcascade_{name}.xml"
    original = whet.load(path)
    patches = faces(people(n, seed)[0], original.window, WINDOWS, seed)
    images = chosen_negatives(n_images, seed)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few photographs
        adopted = adopt_patches(path, patches, images, groups=np.repeat(np.arange(n), WINDOWS), seed=seed)
    seconds = time.perf_counter() - began
    reference = adopted.base.reference
    assert reference is not None
    wrong = np.sort(reference.judge(adopted.only.corrected).negative)[::-1]
    adopted.set_operating_point(DEFAULT_POINT, float(wrong[reference.n_images]))
    return original, adopted, seconds


def is_same(original: Detector, adopted: Detector, images: Sequence[Grey]) -> bool:
    found = [[one.detect(image, min_score=-np.inf) for image in images] for one in (original, adopted)]
    pairs = zip(*found, strict=True)
    return all(np.array_equal(a.boxes, b.boxes) and np.array_equal(a.scores, b.scores) for a, b in pairs)


def corrected(setting: Setting, options: argparse.Namespace) -> dict[str, Any]:
    """Twenty false positives in each draw."""
    rows, gone, unsatisfied = [], 0, 0
    point = setting.detector.operating_points[DEFAULT_POINT]
    right = measure(setting.detector, [], setting.objects).right
    for draw in range(options.draws):
        rng = np.random.default_rng([options.seed, draw])
        others, mistakes = drawn_false_positives(setting, rng, CORRECTED)
        before = Found(measure(setting.detector, others, []).wrong, right).counts(point)
        detector = corrections(setting.detector, mistakes)
        after = measure(detector, others, setting.objects).counts(detector.operating_points[DEFAULT_POINT])
        left = sum(is_found(detector, mistake) for mistake in mistakes)
        gone, unsatisfied = gone + len(mistakes) - left, unsatisfied + len(detector.unsatisfied)
        rows.append((before, after))
        progress(f"{setting.name} draw {draw}: {left} of {len(mistakes)} left, {before} -> {after}")
    return {
        "corrected": CORRECTED * options.draws,
        "gone": gone,
        "not satisfied": unsatisfied,
        **compared(rows),
    }


if __name__ == "__main__":
    main()
