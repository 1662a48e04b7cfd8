"""The MIT+CMU frontal test set: 130 grey images, 511 faces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from experiments import datasets
from whet.errors import DataNotFoundError
from whet.evaluation.evaluation import Curve, Evaluation, evaluate_detections
from whet.images.boxes import BoxOffset
from whet.images.detections import GROUPING, Grouping, report
from whet.images.pyramid import SCALE_FACTOR, Pyramid
from whet.io.image_files import read_grey
from whet.models.gslda.cascade import Cascade
from whet.models.gslda.cascade_scan import scan_pyramid

BOXES_FILE = "boxes_padded.txt"
N_IMAGES = {"test": 42, "test-low": 23, "newtest": 65}
N_FACES = 511


@dataclass(frozen=True, eq=False)
class LabelledImage:
    """An image's file and the boxes (M, 4) of its faces, float64 xyxy, half-open."""

    path: Path
    boxes: NDArray[np.float64]


def labelled_images() -> tuple[LabelledImage, ...]:
    """All images, by folder and name, with boxes of whole faces (not the tight ones from eyes to mouth).

    Boxes are as published: 12 reach beyond the edge of their image. Raises `DataNotFoundError` if the set, its box
    file, images or faces are missing.
    """
    folder = _folder()
    by_stem = {path.stem: path for path in _images(folder)}
    boxes = _boxes(folder / BOXES_FILE)
    unknown = sorted(boxes.keys() - by_stem.keys())
    if unknown:
        raise DataNotFoundError(f"{folder / BOXES_FILE} has faces in images that are missing: {', '.join(unknown)}")
    return tuple(
        LabelledImage(path, np.array(boxes.get(stem, []), dtype=np.float64).reshape(-1, 4))
        for stem, path in by_stem.items()
    )


def _folder() -> Path:
    folder = datasets.find("mit_cmu")
    if folder is None:
        raise DataNotFoundError(
            f"the folder mit_cmu (MIT+CMU test set) is neither in $WHET_DATA nor in {datasets.cache_folder()}"
        )
    return folder


def _images(folder: Path) -> list[Path]:
    paths: list[Path] = []
    for name, expected in N_IMAGES.items():
        found = sorted((folder / name).glob("*.png"))
        if len(found) != expected:
            raise DataNotFoundError(f"{folder / name} has {len(found)} images (*.png); expected {expected}")
        paths += found
    # Boxes name an image without its folder, so no name may occur twice.
    if len({path.stem for path in paths}) != len(paths):
        raise DataNotFoundError(f"{folder} has images of the same name in different folders; expected unique names")
    return paths


def _boxes(path: Path) -> dict[str, list[list[float]]]:
    if not path.exists():
        raise DataNotFoundError(f"{path} is missing: the file of face boxes of the MIT+CMU test set")
    boxes: dict[str, list[list[float]]] = defaultdict(list)
    rows = [row for row in path.read_text(encoding="utf-8").splitlines() if row.strip()]
    for row in rows:
        name, *corners = row.split()
        boxes[Path(name).stem].append(_corners(corners, row, path))  # names end in .jpg, the images are .png
    if len(rows) != N_FACES:
        raise DataNotFoundError(f"{path} has {len(rows)} faces; expected {N_FACES}")
    return boxes


def _corners(words: list[str], row: str, path: Path) -> list[float]:
    try:
        xmin, ymin, xmax, ymax = map(float, words)
    except ValueError as error:
        raise DataNotFoundError(f"{path} has a row {row!r}; expected: name xmin ymin xmax ymax") from error
    return [xmin, ymin, xmax, ymax]


Boxes = NDArray[np.float64]
GreyImage = NDArray[np.uint8]
Found = tuple[Boxes, NDArray[np.float64]]
Convention = Literal["raw", "offset"]

WIDTH, HEIGHT = 0.90, 0.81
EYES_IN_WINDOW, EYES_IN_FACE = 0.39, 0.375
TOP = EYES_IN_WINDOW - EYES_IN_FACE / HEIGHT
# The annotated face around a window, with the eyes at the same place.
FACE_OFFSET = BoxOffset(0.5 - 0.5 / WIDTH, TOP, 0.5 + 0.5 / WIDTH, TOP + 1 / HEIGHT)


@dataclass(frozen=True, eq=False)
class Trial:
    """Test images in memory and the true boxes of their faces."""

    images: tuple[GreyImage, ...]
    truths: tuple[Boxes, ...]

    @classmethod
    def from_mit_cmu(cls) -> Trial:
        """All 130 images and 511 faces; raises `DataNotFoundError` if they are not on this machine."""
        labelled = labelled_images()
        return cls(tuple(read_grey(one.path) for one in labelled), tuple(one.boxes for one in labelled))

    @property
    def n_truths(self) -> int:
        """Faces in all images."""
        return sum(map(len, self.truths))

    def evaluate(self, found: Sequence[Found], convention: Convention = "offset") -> Evaluation:
        """Evaluate boxes and scores of each image; with `offset`, boxes are windows, widened to faces."""
        offset = FACE_OFFSET if convention == "offset" else BoxOffset()
        reported = [(offset.boxes(np.asarray(boxes)), scores) for boxes, scores in found]
        return evaluate_detections(reported, [(truths, None) for truths in self.truths])

    def run(
        self,
        cascade: Cascade,
        *,
        scale_factor: float = SCALE_FACTOR,
        grouping: Grouping = GROUPING,
        threads: int | None = None,
    ) -> Evaluation:
        """Run a cascade over all images with step 1, and evaluate its windows with box offset."""
        pyramids = (
            Pyramid.from_image(image, cascade.window, scale_factor=scale_factor, threads=threads)
            for image in self.images
        )
        detections = (report(scan_pyramid(cascade, one, threads=threads), grouping=grouping) for one in pyramids)
        return self.evaluate([(one.boxes, one.scores) for one in detections])


def faces_at(curve: Curve, false_positives: Sequence[int]) -> list[int]:
    """Most faces found with at most each number of false positives.

    >>> from whet.evaluation.evaluation import sweep
    >>> faces_at(sweep([3.0, 2.0, 1.0], [1, 0, 1], n_truths=2, n_images=1), [0, 1])
    [1, 2]
    """
    steps = np.searchsorted(curve.false_positives, np.asarray(false_positives), side="right") - 1
    return [int(found) for found in curve.found[steps]]
