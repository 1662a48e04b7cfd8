"""Two videos of one face each: David Ross's `david` (dark to bright) and `trellis` (cast shadows).

Test footage: for reporting, never to choose anything by. Published with "Incremental Learning for Robust Visual
Tracking" (Ross et al., IJCV 2008); the boxes are those of the online tracking benchmark of Wu et al. (2013).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments import datasets
from whet.errors import DataNotFoundError

TRUTHS_FILE = "groundtruth_rect.txt"
# The number of the first frame that has a box. Those of `david` before it are nearly black.
FIRST = {"david": 300, "trellis": 1}
# Where the paper's footage begins, if later. Its `trellis` has 501 frames: Ross et al.'s `trellis70`, whose tracker
# starts around (200, 100), where the face is in frame 69, with 501 frames left.
FIRST_OF_PAPER = {"trellis": 69}


@dataclass(frozen=True, eq=False)
class FaceVideo:
    """Frames that have a box: their files, their numbers, and the boxes (n, 4) as xmin, ymin, xmax, ymax."""

    name: str
    paths: tuple[Path, ...]
    numbers: tuple[int, ...]
    truths: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.paths)

    def every(self, step: int) -> FaceVideo:
        """Every `step`-th frame."""
        return self[::step]

    def __getitem__(self, part: slice) -> FaceVideo:
        return FaceVideo(self.name, self.paths[part], self.numbers[part], self.truths[part])


def face_video(name: str) -> FaceVideo:
    """The frames of `david` or `trellis`; raises `DataNotFoundError` that names what is missing."""
    if name not in FIRST:
        raise ValueError(f"there is no face video {name!r}; expected one of: {', '.join(FIRST)}")
    folder = datasets.find(name)
    if folder is None:
        raise DataNotFoundError(f"the video {name} is neither in $WHET_DATA nor in {datasets.cache_folder()}")
    corner, size = np.split(_numbers(folder / TRUTHS_FILE), 2, axis=1)
    numbers = tuple(range(FIRST[name], FIRST[name] + len(corner)))
    paths = tuple(folder / "img" / f"{number:04d}.jpg" for number in numbers)
    missing = [path.name for path in paths if not path.exists()]
    if missing:
        raise DataNotFoundError(
            f"{folder / 'img'} has no {missing[0]}, and {len(missing)} frames with a box are missing"
        )
    return FaceVideo(name, paths, numbers, np.concatenate([corner, corner + size], axis=1))


def _numbers(path: Path) -> NDArray[np.float64]:
    """Rows of x, y, width and height, parted by commas, tabs or spaces."""
    if not path.exists():
        raise DataNotFoundError(f"{path} is missing: the true boxes, a row of x, y, width, height a frame")
    rows = [re.split(r"[,\s]+", line.strip()) for line in path.read_text().splitlines() if line.strip()]
    try:
        return np.array(rows, dtype=np.float64).reshape(-1, 4)
    except ValueError as error:
        raise DataNotFoundError(f"{path} is damaged: expected rows of x, y, width, height") from error
