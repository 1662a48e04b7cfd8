"""Detectors, images, mistakes and measures for `benchmarks.corrections`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from experiments.datasets import LFW_FACE, find, lfw_images
from numpy.typing import NDArray

import whet
from benchmarks.pasted_faces import scenes
from whet.corrections.box_windows import SAME
from whet.detector.base import DEFAULT_POINT
from whet.detector.detector import Detector
from whet.images.boxes import box_iou
from whet.io.annotations.formats import read_annotations
from whet.io.image_files import as_rgb, read_grey

Grey = NDArray[np.uint8]  # or RGB, for a channel detector
Boxes = NDArray[np.float64]
Scene = tuple[Grey, Boxes]

OTHERS = 80
# Photographs up to the first number and people from the second on are for results, others for development.
IMAGES, PEOPLE = 500, 1200


@dataclass(frozen=True, eq=False)
class Setting:
    """A detector, images without its object, and held-out objects: images with boxes."""

    name: str
    detector: Detector
    images: list[Grey]
    objects: list[Scene]


def face(*, development: bool = False) -> Setting:
    """The bundled face detector. None of the images was used to train, to choose settings or as a reference.

    For development, other photographs of the same kinds, and other people.
    """
    x, y, side = LFW_FACE
    box = np.array([[x, y, x + side, y + side]], np.float64)
    people = lfw_images()[:PEOPLE] if development else lfw_images()[PEOPLE:]
    objects = [(read_grey(path), box) for path in people[:150]]
    return Setting(
        "face",
        whet.load("face"),
        [read_grey(path) for path in images_without_faces(development=development)],
        objects + scenes(80, seed=101, hard=True, faces=people[150:]),
    )


def images_without_faces(*, development: bool = False) -> list[Path]:
    """Photographs of streets, cars and number plates."""
    root = find("objects")
    if root is None:
        raise SystemExit("the data set objects is not in $WHET_DATA")
    folders = ("road_signs", "plates", "rear_cars", "inria_person/train/neg", "inria_person/test/neg")
    found = [path for folder in folders for path in sorted((root / folder).rglob("*.jpg"))]
    order = np.random.default_rng(0).permutation(len(found))
    return [found[i] for i in (order[IMAGES : 2 * IMAGES] if development else order[:IMAGES])]


def plates() -> Setting:
    """A detector of number plates, trained by `whet.train` with default settings on 138 plates, and other photographs.

    These show kangaroos, raccoons, pets and places without people.
    """
    root = find("objects")
    if root is None:
        raise SystemExit("the data set objects is not in $WHET_DATA")
    test = read_annotations(root / "plates" / "test.csv")
    objects = [(as_rgb(image.path), image.objects) for image in test.images]
    folders = ("kangaroo", "raccoon", "pet_heads", "inria_person/train/neg", "inria_person/test/neg")
    found = [path for folder in folders for path in sorted((root / folder).rglob("*.jpg"))]
    images = [as_rgb(found[i]) for i in np.random.default_rng(0).permutation(len(found))[:IMAGES]]
    return Setting("plates", whet.train(root / "plates" / "train.csv"), images, objects)


# --- Measuring --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Found:
    """Scores of false positives, and the best score at each object (-inf where it is missed)."""

    wrong: NDArray[np.float64]
    right: NDArray[np.float64]

    def counts(self, point: float) -> dict[str, float]:
        """False positives and recall, at a minimum score and at any."""
        return {
            "false positives": float((self.wrong > point).sum()),
            "false positives at any score": float(len(self.wrong)),
            "recall": 100 * float((self.right > point).mean()),
            "recall at any score": 100 * float((self.right > -np.inf).mean()),
        }


def measure(detector: Detector, images: Sequence[Grey], objects: Sequence[Scene]) -> Found:
    """Detect everywhere, at any score."""
    wrong = [detector.detect(image, min_score=-np.inf).scores for image in images]
    right = []
    for image, boxes in objects:
        found = detector.detect(image, min_score=-np.inf)
        hits = box_iou(boxes, found.boxes) >= SAME
        right += [float(found.scores[row].max()) if row.any() else -np.inf for row in hits]
    return found_of(wrong, right)


def found_of(wrong: Sequence[NDArray[np.float64]], right: Sequence[float]) -> Found:
    return Found(np.concatenate([np.empty(0), *wrong]), np.array(right))


def point_of(detector: Detector) -> float:
    return detector.operating_points[DEFAULT_POINT]


def compared(draws: list[tuple[dict[str, float], dict[str, float]]]) -> dict[str, Any]:
    """Totals before and after over draws, ratios of false positives and points of recall, with 95 % intervals."""
    rng = np.random.default_rng(0)
    again = rng.integers(len(draws), size=(2000, len(draws)))
    rows: dict[str, Any] = {}
    for name in draws[0][0]:
        before, after = (np.array([pair[side][name] for pair in draws]) for side in (0, 1))
        if name.startswith("recall"):
            change = (after - before)[again].mean(axis=1)
            rows[name] = {"before": round(before.mean(), 2), "points": round((after - before).mean(), 3)}
            rows[name] |= {"interval": np.quantile(change, [0.025, 0.975]).round(3).tolist()}
            rows[name] |= {"worst": round((after - before).min(), 3)}
        else:
            ratios = after[again].sum(axis=1) / np.maximum(before[again].sum(axis=1), 1)
            rows[name] = {"before": before.sum(), "after": after.sum()}
            rows[name] |= {"ratio": round(after.sum() / max(before.sum(), 1), 3)}
            rows[name] |= {"interval": np.quantile(ratios, [0.025, 0.975]).round(3).tolist()}
            rows[name] |= {"worst": round(float((after / np.maximum(before, 1)).max()), 3)}
    return rows


@dataclass(frozen=True, eq=False)
class Mistake:
    """An image and the box (4,) of a false positive or of a missed object in it."""

    image: Grey
    box: Boxes


def drawn_false_positives(setting: Setting, rng: np.random.Generator, n: int) -> tuple[list[Grey], list[Mistake]]:
    """Other images, and n false positives of the rest, at any score, in random order."""
    order = rng.permutation(len(setting.images))
    others = [setting.images[i] for i in order[:OTHERS]]
    pool: list[Mistake] = []
    for i in order[OTHERS:]:
        found = setting.detector.detect(setting.images[i], min_score=-np.inf)
        pool += [Mistake(setting.images[i], box) for box in found.boxes]
        if len(pool) > 2 * n:  # in images of random order
            break
    return others, [pool[i] for i in rng.permutation(len(pool))[:n]]


def is_found(detector: Detector, mistake: Mistake, min_score: float = -np.inf) -> bool:
    found = detector.detect(mistake.image, min_score=min_score)
    return bool((box_iou(mistake.box[None], found.boxes) >= SAME).any())
