"""Where detectors are loaded from and saved to: bundled ones, files, classes of files, OpenCV cascades.

Files are written as a whole, and never over the changes of another writer.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

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
    UnknownClassError,
)

if TYPE_CHECKING:
    from whet.detector.classes import MultiClassDetector

    M = TypeVar("M", Detector, MultiClassDetector, Detector | MultiClassDetector)

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

    Of a file with several classes, `signs.whet:stop` is the detector of one of them, and `load_classes` loads all.

    >>> load("unicorn")
    Traceback (most recent call last):
    whet.errors.DetectorNotFoundError: unknown detector 'unicorn'; bundled with whet: ...
    """
    if isinstance(name_or_path, str) and BARE_NAME.fullmatch(name_or_path):
        return _load_bundled(name_or_path)
    if class_in_file(name_or_path)[1] is None and Path(name_or_path).suffix.lower() == ".xml":
        return _load_opencv(Path(name_or_path))
    return load_file(name_or_path)


def load_classes(name_or_path: str | PathLike[str]) -> MultiClassDetector:
    """Load the detectors of all classes of a file; a model of one class gives one, named "object" if it has no name.

    >>> load_classes("face")
    MultiClassDetector(face)
    """
    from whet.detector.classes import MultiClassDetector

    model = load_model(name_or_path)
    if isinstance(model, MultiClassDetector):
        return model
    found = MultiClassDetector({model.class_name or "object": model})
    found.origin = model.origin
    return found


def load_model(name_or_path: str | PathLike[str]) -> Detector | MultiClassDetector:
    """Load a model of one class or of several: what `load` or `load_classes` gives, as the file says."""
    path = Path(name_or_path)
    if path.is_file():
        data = model_file.read_bytes(path)
        if model_file.has_classes(data):
            return _loaded_classes(path, data)
    return load(name_or_path)


def class_in_file(path: str | PathLike[str]) -> tuple[Path, str | None]:
    """The file, and the class that is named after a colon: `signs.whet:stop`; None for all of the file.

    >>> class_in_file("signs.whet:stop")
    (PosixPath('signs.whet'), 'stop')
    """
    found = re.fullmatch(rf"(.+{re.escape(SUFFIX)}):([^/\\\\]+)", str(path), re.IGNORECASE | re.DOTALL)
    return (Path(found[1]), found[2]) if found and not Path(path).exists() else (Path(path), None)


def _load_bundled(name: str) -> Detector:
    names = bundled_names()
    if name not in names:
        there = ", ".join(map(repr, names)) or "none"
        raise DetectorNotFoundError(f"unknown detector {name!r}; bundled with whet: {there}. {_hint(name)}")
    return load_file(BUNDLED / f"{name}{SUFFIX}")


def load_file(path: str | PathLike[str]) -> Detector:
    """Load a model file; its bytes are remembered, so that `save` can tell whether the file has changed."""
    file, class_name = class_in_file(path)
    data = model_file.read_bytes(file)
    if not model_file.has_classes(data):
        detector = _from_bytes(file, data)
        if class_name not in (None, detector.class_name):
            raise UnknownClassError(f"{file} is of one class, {detector.class_name or 'without a name'}; load {file}")
        return detector
    every = _loaded_classes(file, data)
    if class_name is None:
        first, what = next(iter(every)), "classes" if len(every.classes) > 1 else f"views of {every.classes[0]}"
        raise SeveralClassesError(
            f"{file} has several {what}: {', '.join(every)}; name one of them, such as '{file}:{first}' (in Python, "
            "whet.load_classes loads all)"
        )
    return every[class_name]


def _from_bytes(path: Path, data: bytes) -> Detector:
    try:
        detector = Detector.from_bytes(data)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error
    _remember(detector, path, data)
    return detector


def _loaded_classes(path: Path, data: bytes) -> MultiClassDetector:
    from whet.detector.classes import MultiClassDetector

    try:
        found = MultiClassDetector.from_bytes(data)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error
    _remember(found, path, data)
    return found


def _remember(model: Detector | MultiClassDetector, path: Path, data: bytes) -> None:
    """Note the bytes of the file that a model is in, so that `save` can tell whether they have changed."""
    model.origin = path.resolve(), _digest(data)
    if not isinstance(model, Detector):
        for detector in model.values():
            detector.origin = model.origin


def _hint(name: str) -> str:
    """What else may be meant by a bare name."""
    if Path(name).is_dir():
        return f"{name} is a directory here; expected a detector's name or its file"
    if Path(name).exists():
        return f"For the file that is here, write './{name}'"
    return "For a file, give its path with its suffix, or './' before it"


def _load_opencv(path: Path) -> Detector:
    from whet.opencv.cascade import stages_of
    from whet.opencv.xml import read_opencv

    if not path.exists():
        raise DetectorNotFoundError(f"no such file: {path}; expected an OpenCV cascade")
    cascade = read_opencv(path)
    try:
        stages = stages_of(cascade)
    except CannotConvertError as error:
        raise CannotConvertError(f"{path}: {error}") from error
    return Detector(DetectorBase(cascade.window, stages))


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


def save(model: Detector | MultiClassDetector, path: str | PathLike[str]) -> None:
    """Write a model to a file, or the detector of one class into the file of several; see `Detector.save`."""
    from whet.io.files import locked

    check_file_name(path)
    with locked(class_in_file(path)[0]):
        _write(model, model.to_bytes(), path)


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
    with _edited(path, load_file) as detector:
        yield detector


@contextmanager
def edit_model(path: str | PathLike[str]) -> Iterator[Detector | MultiClassDetector]:
    """The same as `edit`, for a model of one class or of several, as the file says."""
    with _edited(path, load_model) as model:
        yield model


@contextmanager
def _edited(path: str | PathLike[str], load: Callable[[str | PathLike[str]], M]) -> Iterator[M]:
    from whet.io.files import locked

    with locked(class_in_file(path)[0]):
        model = load(path)
        before = model.to_bytes()
        yield model
        after = model.to_bytes()
        if after != before:
            _write(model, after, path)


def _write(model: Detector | MultiClassDetector, data: bytes, path: str | PathLike[str]) -> None:
    """Write a model as these bytes, unless the file has changed since the model was loaded or saved."""
    file, class_name = class_in_file(path)
    now = file.read_bytes() if file.is_file() else None
    known = model.origin
    if now is not None and known is not None and known[0] == file.resolve() and _digest(now) != known[1]:
        raise ModelChangedError(
            f"{file} was changed by another writer since it was loaded; nothing was written. Load it again, or use "
            "`with whet.detector.edit(path) as detector`"
        )
    if class_name is not None and now is not None and not model_file.has_classes(now):
        load_file(path)  # or an error that names the class of the file
    elif class_name is not None:
        if now is None or not isinstance(model, Detector):
            raise DetectorNotFoundError(
                f"no such file: {file}; expected a model of several classes to save {class_name!r} in"
            )
        every = _loaded_classes(file, now)
        _ = every[class_name]  # or an error that lists the classes
        data = every.with_class(class_name, model).to_bytes()
    elif now is not None and isinstance(model, Detector) and model_file.has_classes(now):
        raise SeveralClassesError(
            f"{file} has several classes, which a detector of one would replace; name the class, such as "
            f"'{file}:{model.class_name or 'NAME'}', or choose another file"
        )
    elif not isinstance(model, Detector):
        check_classes(file, model)
    from whet.io.files import write_locked

    write_locked(file, data)
    _remember(model, file, data)


def check_classes(file: Path, names: Collection[str]) -> None:
    """Raise `SeveralClassesError` if a model with detectors of these names would delete other classes of a file."""
    from whet.detector.classes import class_by_name

    data = file.read_bytes() if file.is_file() else b""
    try:
        known = _loaded_classes(file, data).classes if model_file.has_classes(data) else ()
    except ModelFileError:  # nothing that could be loaded is lost
        known = ()
    lost = [name for name in known if name not in class_by_name(names).values()]
    if lost:
        raise SeveralClassesError(
            f"{file} also has the classes {', '.join(lost)}, which would be deleted; add them to the model, or choose "
            "another file"
        )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
