"""Where detectors are loaded from and saved to: bundled ones, files, classes of files, OpenCV cascades.

Files are written as a whole, and never over the changes of another writer.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib.resources import files
from os import PathLike
from pathlib import Path

from whet.detector import model_file
from whet.detector.base import DetectorBase
from whet.detector.detector import Detector
from whet.errors import (
    CannotConvertError,
    DetectorNotFoundError,
    ModelChangedError,
    ModelFileError,
    ModelNameError,
    SeveralClassesError,
)

SUFFIX = ".whet"
# A text like this is the name of a bundled detector, never a file.
BARE_NAME = re.compile(r"[\w-]+")
BUNDLED = Path(str(files("whet") / "bundled"))


def bundled_names() -> list[str]:
    """The names of all detectors that come with whet.

    >>> bundled_names()
    ['face']
    """
    return sorted(path.name.removesuffix(SUFFIX) for path in BUNDLED.glob(f"*{SUFFIX}"))


def load(name_or_path: str | PathLike[str]) -> Detector:
    """Load a detector: a bundled one by its bare name, a saved one by its path, or an OpenCV cascade (`.xml`).

    Of a file with several classes, `signs.whet:stop` loads one of them.

    >>> load("unicorn")
    Traceback (most recent call last):
    whet.errors.DetectorNotFoundError: unknown detector 'unicorn'; bundled with whet: ...
    """
    if isinstance(name_or_path, str) and BARE_NAME.fullmatch(name_or_path):
        if name_or_path not in bundled_names():
            raise DetectorNotFoundError(
                f"unknown detector {name_or_path!r}; bundled with whet: "
                f"{', '.join(map(repr, bundled_names())) or 'none'}. {_hint(name_or_path)}"
            )
        return load_file(BUNDLED / f"{name_or_path}{SUFFIX}")
    file, class_name = class_in_file(name_or_path)
    return _load_opencv(file) if class_name is None and file.suffix.lower() == ".xml" else load_file(name_or_path)


def class_in_file(path: str | PathLike[str]) -> tuple[Path, str | None]:
    """The file, and the class that is named after a colon: `signs.whet:stop`; None for all of the file.

    >>> class_in_file("signs.whet:stop")
    (PosixPath('signs.whet'), 'stop')
    """
    match = re.fullmatch(rf"(.+{re.escape(SUFFIX)}):([^/\\\\]+)", str(path), re.IGNORECASE | re.DOTALL)
    return (Path(match[1]), match[2]) if match and not Path(path).exists() else (Path(path), None)


def load_file(path: str | PathLike[str]) -> Detector:
    """Load a model file; its bytes are remembered, so that `save` can tell whether the file has changed."""
    file, class_name = class_in_file(path)
    detector = _from_bytes(file, model_file.read_bytes(file))
    return detector if class_name is None else detector.select(class_name)


def _from_bytes(path: Path, data: bytes) -> Detector:
    try:
        detector = Detector.from_bytes(data)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error
    detector.files = {path.resolve(): _digest(data)}
    return detector


def _hint(name: str) -> str:
    """What else may be meant by a bare name."""
    if Path(name).is_dir():
        return f"{name} is a directory here; expected a detector's name or its file"
    if Path(name).exists():
        return f"For the file that is here, write './{name}'"
    return "For a file, give its path with its suffix, or './' before it"


def _load_opencv(path: Path) -> Detector:
    from whet.models.gslda.cascade_model import CascadeModel
    from whet.opencv.tree_cascade import stages_of
    from whet.opencv.xml_reader import read_opencv

    if not path.exists():
        raise DetectorNotFoundError(f"no such file: {path}; expected an OpenCV cascade")
    cascade = read_opencv(path)
    try:
        stages = stages_of(cascade)
    except CannotConvertError as error:
        raise CannotConvertError(f"{path}: {error}") from error
    return Detector.from_base(DetectorBase(CascadeModel(cascade.window, stages)))


def check_file_name(path: str | PathLike[str]) -> None:
    """Raise `ModelNameError` for a file that `load` would take for an OpenCV cascade or for a bundled detector.

    >>> check_file_name("mine")
    Traceback (most recent call last):
    whet.errors.ModelNameError: got the file name mine, which is read as the name of a bundled model; use mine.whet
    """
    if Path(path).suffix.lower() == ".xml":
        raise ModelNameError(
            f"got the file name {path}, which is read as an OpenCV cascade; use {Path(path).with_suffix(SUFFIX)} "
            "(whet export, or Detector.export_opencv, writes OpenCV's .xml)"
        )
    if BARE_NAME.fullmatch(str(path)):
        raise ModelNameError(
            f"got the file name {path}, which is read as the name of a bundled model; use {path}{SUFFIX}"
        )


def to_sound_bytes(detector: Detector) -> bytes:
    """The bytes of a detector's file, read back: what does not load must not replace what does."""
    data = detector.to_bytes()
    try:
        Detector.from_bytes(data)
    except ModelFileError as error:
        raise ModelFileError(f"the file would not load ({error}); nothing was written") from error
    return data


def save(detector: Detector, path: str | PathLike[str]) -> None:
    """Write a detector to a file, or its class into the file of several; see `Detector.save`."""
    from whet.io.files import locked

    check_file_name(path)
    with locked(class_in_file(path)[0]):
        _write(detector, path)


@contextmanager
def edit(path: str | PathLike[str]) -> Iterator[Detector]:
    """Load a detector's file, or one class of it, change it and save it, while no other writer can.

    >>> import tempfile
    >>> import numpy as np
    >>> path = Path(tempfile.mkdtemp()) / "mine.whet"
    >>> load("face").save(path)
    >>> with edit(path) as detector:
    ...     detector.learn_patches(np.random.default_rng(0).integers(0, 256, (5, 24, 24), np.uint8), False)
    >>> load(path).n_examples
    (0, 5)
    """
    from whet.io.files import locked

    with locked(class_in_file(path)[0]):
        detector = load_file(path)
        before = detector.to_bytes()
        yield detector
        if detector.to_bytes() != before:
            _write(detector, path)


def _write(detector: Detector, path: str | PathLike[str]) -> None:
    """Write a detector, unless the file has changed since the detector was loaded or saved."""
    from whet.io.files import write_locked

    file, class_name = class_in_file(path)
    now = file.read_bytes() if file.is_file() else None
    known = detector.files.get(file.resolve())
    if now is not None and known is not None and _digest(now) != known:
        raise ModelChangedError(
            f"{file} was changed by another writer since it was loaded; nothing was written. Load it again, or use "
            "`with whet.detector.edit(path) as detector`"
        )
    if class_name is None:
        check_classes(file, detector.classes)
    else:
        if now is None or len(detector.classes) > 1:
            raise DetectorNotFoundError(
                f"no such file: {file}; expected a model of several classes to save {class_name!r} in"
            )
        every = _from_bytes(file, now)
        every.shapes(class_name)  # or an error that lists the classes
        new = {name: (detector.shapes() if name == class_name else every.shapes(name)) for name in every.classes}
    data = to_sound_bytes(detector if class_name is None else Detector(new))
    write_locked(file, data)
    detector.files.pop(file.resolve(), None)
    detector.files[file.resolve()] = _digest(data)


def check_classes(file: Path, names: Collection[str]) -> None:
    """Raise `SeveralClassesError` if a detector of these classes would delete others of a file of several."""
    data = file.read_bytes() if file.is_file() else b""
    try:
        known = _from_bytes(file, data).classes if model_file.has_classes(data) else ()
    except ModelFileError:  # nothing that could be loaded is lost
        known = ()
    lost = [name for name in known if name not in names]
    if lost:
        raise SeveralClassesError(
            f"{file} also has the classes {', '.join(lost)}, which would be deleted; name the class to replace, such "
            f"as '{file}:{lost[0]}', add them to the model, or choose another file"
        )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
