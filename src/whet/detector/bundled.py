"""Detectors by name or by file: those that come with whet, saved ones, and OpenCV cascades."""

from __future__ import annotations

import re
from importlib.resources import files
from os import PathLike
from pathlib import Path

from whet.detector import model_file
from whet.detector.base import DetectorBase
from whet.detector.taught import TaughtDetector
from whet.errors import CannotConvertError, DetectorNotFoundError

SUFFIX = ".whet"
FOLDER = Path(str(files("whet") / "bundled"))


def bundled_names() -> list[str]:
    """The names of all detectors that come with whet."""
    return sorted(path.name.removesuffix(SUFFIX) for path in FOLDER.glob(f"*{SUFFIX}"))


def load(name_or_path: str | PathLike[str]) -> TaughtDetector:
    """The bundled detector of a bare name (letters, digits, _ and -), or that of a file; `.xml` is OpenCV's."""
    if isinstance(name_or_path, str) and re.fullmatch(r"[\w-]+", name_or_path):
        return _bundled(name_or_path)
    if Path(name_or_path).suffix.lower() == ".xml":
        return _of_opencv(Path(name_or_path))
    return model_file.load(name_or_path)


def _of_opencv(path: Path) -> TaughtDetector:
    from whet.opencv.cascade import stages_of
    from whet.opencv.xml import read_opencv  # XML is not for every start

    if not path.exists():
        raise DetectorNotFoundError(f"there is no file {path}; expected an OpenCV cascade")
    cascade = read_opencv(path)
    try:
        stages = stages_of(cascade)
    except CannotConvertError as error:
        raise CannotConvertError(f"{path}: {error}") from error
    return TaughtDetector(DetectorBase(cascade.window, stages))


def _hint(name: str) -> str:
    """What else may be meant by a bare name."""
    if Path(name).is_dir():
        return f"{name} is a folder here; expected a detector's name or its file"
    if Path(name).exists():
        return f"For the file that is here, write './{name}'"
    return "For a file, give its path with its suffix, or './' before it"


def _bundled(name: str) -> TaughtDetector:
    if name not in bundled_names():
        there = ", ".join(map(repr, bundled_names())) or "none"
        raise DetectorNotFoundError(f"there is no detector named {name!r}; bundled with whet: {there}. {_hint(name)}")
    return model_file.load(FOLDER / f"{name}{SUFFIX}")
