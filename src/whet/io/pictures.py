"""Pictures by name: files, folders, patterns and lists, as people name them on a command line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path

from whet.errors import DataNotFoundError

# What is looked for in folders; a file that is named is taken whatever its name.
SUFFIXES = frozenset(
    [
        ".avif",
        ".bmp",
        ".dib",
        ".gif",
        ".jfif",
        ".jp2",
        ".jpe",
        ".jpeg",
        ".jpg",
        ".pbm",
        ".pgm",
        ".png",
        ".pnm",
        ".ppm",
        ".tga",
        ".tif",
        ".tiff",
        ".webp",
    ]
)


def find_pictures(names: Iterable[str | Path], listed: Iterable[str] = ()) -> list[Path]:
    """The pictures that names stand for, each once: files, folders with all below, and patterns such as `*/a*.png`.

    The name `-` stands for the names in `listed`, a line each, which a program may write to standard input.
    Names keep their order; what lies in a folder comes in the order in which people count: 2 before 10. Raises
    `DataNotFoundError` for a name that leads nowhere, and where there is no picture at all.

    >>> find_pictures(["nowhere.png"])
    Traceback (most recent call last):
    whet.errors.DataNotFoundError: there is no file or folder nowhere.png, and no file of such a pattern
    """
    found = dict.fromkeys(path for name in _spelled_out(names, listed) for path in _meant(name))
    if not found:
        raise DataNotFoundError(f"there is no picture in {_brief(names)}; looked for {', '.join(sorted(SUFFIXES))}")
    return list(found)


def is_picture_name(path: Path) -> bool:
    """Whether a file's name is that of a picture, and not of a hidden file.

    >>> is_picture_name(Path("A.JPG")), is_picture_name(Path("a.txt")), is_picture_name(Path("._a.jpg"))
    (True, False, False)
    """
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def files_in(folder: Path) -> Iterator[Path]:
    """All files under a folder but hidden ones."""
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(here, name) for name in sorted(names) if not name.startswith("."))


def counting_order(path: Path) -> list[tuple[int, str]]:
    """A key that sorts file names as people count.

    >>> sorted(map(Path, ["a10.png", "a2.png"]), key=counting_order)
    [PosixPath('a2.png'), PosixPath('a10.png')]
    """
    pieces = re.split(r"(\d+)", str(path))
    return [(int(piece), "") if piece.isdecimal() else (-1, piece) for piece in pieces]


def _spelled_out(names: Iterable[str | Path], listed: Iterable[str]) -> Iterator[str]:
    for name in map(str, names):
        if name == "-":
            yield from (line.rstrip("\r\n") for line in listed if line.strip())
        else:
            yield name


def _meant(name: str) -> Sequence[Path]:
    path = Path(name)
    if path.is_dir():
        return sorted((file for file in files_in(path) if is_picture_name(file) and file.is_file()), key=counting_order)
    if path.exists():
        return [path]
    if has_magic(name):
        matches = sorted(map(Path, glob(name, recursive=True)), key=counting_order)
        if matches:
            return [picture for match in matches for picture in ([match] if match.is_file() else _meant(str(match)))]
    raise DataNotFoundError(f"there is no file or folder {name}, and no file of such a pattern")


def _brief(names: Iterable[str | Path], most: int = 3) -> str:
    every = list(map(str, names))
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")
