"""The MIT+CMU frontal test set: 130 grey pictures, 511 faces, 13 pictures without any.

A test set: for reporting, never to choose anything by. The literature counts 507 faces; four more are labelled in the
complete set.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.errors import DataNotFoundError
from whet.io import datasets

BOXES_FILE = "boxes_padded.txt"
N_PICTURES = {"test": 42, "test-low": 23, "newtest": 65}
N_FACES = 511


@dataclass(frozen=True, eq=False)
class LabelledPicture:
    """A picture's file and the boxes (M, 4) of its faces, float64 xyxy, half-open."""

    path: Path
    boxes: NDArray[np.float64]


def labelled_pictures() -> tuple[LabelledPicture, ...]:
    """All pictures, by folder and name, with boxes of whole faces (not the tight ones from eyes to mouth).

    Boxes are as published: 12 reach beyond the edge of their picture. Raises `DataNotFoundError` that names what is
    missing: the set, its box file, pictures, or faces.
    """
    folder = _folder()
    by_stem = {path.stem: path for path in _pictures(folder)}
    boxes = _boxes(folder / BOXES_FILE)
    unknown = sorted(boxes.keys() - by_stem.keys())
    if unknown:
        raise DataNotFoundError(f"{folder / BOXES_FILE} has faces in pictures that are missing: {', '.join(unknown)}")
    return tuple(
        LabelledPicture(path, np.array(boxes.get(stem, []), dtype=np.float64).reshape(-1, 4))
        for stem, path in by_stem.items()
    )


def _folder() -> Path:
    folder = datasets.find("mit_cmu")
    if folder is None:
        raise DataNotFoundError(
            f"the folder mit_cmu (MIT+CMU test set) is neither in $WHET_DATA nor in {datasets.cache_folder()}"
        )
    return folder


def _pictures(folder: Path) -> list[Path]:
    paths: list[Path] = []
    for name, expected in N_PICTURES.items():
        found = sorted((folder / name).glob("*.png"))
        if len(found) != expected:
            raise DataNotFoundError(f"{folder / name} has {len(found)} pictures (*.png); expected {expected}")
        paths += found
    # Boxes name a picture without its folder. No name is there twice, and if one were, its boxes would be anyone's.
    if len({path.stem for path in paths}) != len(paths):
        raise DataNotFoundError(f"{folder} has pictures of the same name in different folders; expected other files")
    return paths


def _boxes(path: Path) -> dict[str, list[list[float]]]:
    if not path.exists():
        raise DataNotFoundError(f"{path} is missing: the file of face boxes of the MIT+CMU test set")
    boxes: dict[str, list[list[float]]] = defaultdict(list)
    rows = [row for row in path.read_text(encoding="utf-8").splitlines() if row.strip()]
    for row in rows:
        name, *corners = row.split()
        boxes[Path(name).stem].append(_corners(corners, row, path))  # names end in .jpg, the pictures are .png
    if len(rows) != N_FACES:
        raise DataNotFoundError(f"{path} has {len(rows)} faces; expected {N_FACES}")
    return boxes


def _corners(words: list[str], row: str, path: Path) -> list[float]:
    try:
        xmin, ymin, xmax, ymax = map(float, words)
    except ValueError as error:
        raise DataNotFoundError(f"{path} has a row {row!r}; expected: name xmin ymin xmax ymax") from error
    return [xmin, ymin, xmax, ymax]
