"""Folders that whet fills with annotations: a list of its files, so that they can be replaced and no others."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from whet.errors import AnnotationError
from whet.io.atomic_file import write_atomically

LIST = ".whet-files"


def check_free(folder: Path, *, replace: bool) -> None:
    """Raise `AnnotationError` unless a folder is empty, or may be replaced and holds only what whet wrote.

    >>> check_free(Path("nowhere"), replace=False)
    """
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not replace:
        raise AnnotationError(f"{folder} is there already: choose another place, or replace it (replace=True, --force)")
    listed = _listed(folder)
    other = next((name for name in _names_in(folder) if name not in listed), None)
    if other is not None:
        raise AnnotationError(
            f"{folder} holds {other}, which whet did not write: nothing was replaced; "
            "take it out, or choose another place"
        )


@contextmanager
def filled(folder: Path, *, replace: bool) -> Iterator[None]:
    """A folder to write to, from which files of an earlier time are gone; what is written is listed, if all or not."""
    check_free(folder, replace=replace)
    _empty(folder)
    try:
        yield
    finally:
        if folder.is_dir():
            names = [name for name in _names_in(folder) if name != LIST]
            write_atomically(folder / LIST, json.dumps(names, indent=0).encode())


def _empty(folder: Path) -> None:
    for name in _names_in(folder):
        (folder / name).unlink()
        for above in Path(name).parents[:-1]:
            if any((folder / above).iterdir()):
                break
            (folder / above).rmdir()


def _names_in(folder: Path) -> list[str]:
    """All files below, with slashes; a link to a folder is one of them, and is not followed."""
    found = []
    for here, folders, names in os.walk(folder):
        links = [name for name in folders if Path(here, name).is_symlink()]
        found += [Path(here, name).relative_to(folder).as_posix() for name in (*names, *links)]
    return sorted(found)


def _listed(folder: Path) -> set[str]:
    try:
        return {LIST, *map(str, json.loads((folder / LIST).read_bytes()))}
    except (OSError, ValueError, TypeError):
        return set()
