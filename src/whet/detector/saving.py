"""Saving a detector: files are written as a whole, and never over the changes of another writer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from whet.detector.detector import Detector, load_file
from whet.errors import ModelChangedError
from whet.io.files import locked, write_atomically


def save(detector: Detector, path: Path) -> None:
    """Write a detector to a file, under a lock; see `Detector.save`."""
    with locked(path):
        _write(detector, path, detector.to_bytes())


@contextmanager
def edit(path: str | PathLike[str]) -> Iterator[Detector]:
    """Load a detector's file, change it and save it, while no other writer can.

    >>> import tempfile
    >>> import numpy as np
    >>> from whet.detector.detector import load
    >>> path = Path(tempfile.mkdtemp()) / "mine.whet"
    >>> load("face").save(path)
    >>> with edit(path) as detector:
    ...     detector.learn_patches(np.random.default_rng(0).integers(0, 256, (5, 24, 24), np.uint8), False)
    >>> load(path).n_examples
    (0, 5)
    """
    path = Path(path)
    with locked(path):
        detector = load_file(path)
        before = detector.to_bytes()
        yield detector
        after = detector.to_bytes()
        if after != before:
            _write(detector, path, after)


def _write(detector: Detector, path: Path, data: bytes) -> None:
    """Write the bytes of a detector, unless the file has changed since it was loaded or saved."""
    known = detector.origin if path.exists() else None
    if known is not None and known[0] == path.resolve() and _digest(path.read_bytes()) != known[1]:
        raise ModelChangedError(
            f"{path} was changed by another writer since it was loaded; nothing was written. Load it again, or use "
            "`with whet.detector.edit(path) as detector`"
        )
    write_atomically(path, data)
    detector.origin = path.resolve(), _digest(data)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
