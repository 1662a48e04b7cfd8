"""Files and names: atomic writes, unique names, tolerant text lines, checked JSON fields."""

from __future__ import annotations

import codecs
import json
import os
import re
import secrets
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from whet.errors import AnnotationError, ModelFileError
from whet.io.annotations.annotation import ProblemKind, Problems


def write_atomically(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a file beside its place and move it there: a reader, or a crash, never sees half of it.

    A symbolic link stays one; what it points at is replaced. Only a `durable` file outlives a loss of power, which
    takes milliseconds to make sure of: too long where thousands are written that can be written again.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: there is no folder {path.parent}")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        # By "x", not by tempfile: the file gets the permissions that any new file of this user has.
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def unique_stems(paths: Sequence[Path]) -> list[str]:
    """A name without suffix for each path, its own where that is free; case makes no difference.

    >>> unique_stems([Path("a/1.jpg"), Path("b/1.png"), Path("b/2.png")])
    ['1', '1-2', '2']
    """
    own = {path.stem.casefold() for path in paths}
    taken: set[str] = set()
    stems = []
    for path in paths:
        stem, number = path.stem, 1
        while stem.casefold() in taken or (number > 1 and stem.casefold() in own):
            number += 1
            stem = f"{path.stem}-{number}"
        taken.add(stem.casefold())
        stems.append(stem)
    return stems


def as_file_name(text: str) -> str:
    """A text as the name of a folder, on any system.

    >>> as_file_name("../traffic light/red"), as_file_name("")
    ('_traffic light_red', '_')
    """
    return re.sub(r'[\x00-\x1f/\\:*?"<>|]', "_", text).strip(". ")[:100] or "_"


# COCO's own instances_train2017.json has 448 MB.
MOST_BYTES = 1_000_000_000


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """The bytes of a file that is not larger than that."""
    size = path.stat().st_size
    if size > most:
        raise AnnotationError(f"{path} has {size:,} bytes; expected at most {most:,}: divide it")
    return path.read_bytes()


def lines_of(path: Path, problems: Problems) -> Iterator[tuple[int, str]]:
    """Number and text of each line that is not empty; lines that are not UTF-8 are problems.

    Files in UTF-16, as Excel writes them, are known by their byte-order mark.
    """
    data = read_bytes(path)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        data = data.decode("utf-16", errors="replace").encode()
    data = data.removeprefix(codecs.BOM_UTF8)
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            yield number, line.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            problems.add(ProblemKind.BAD_ROW, path, number, f"not UTF-8 text ({error.reason}): save the file as UTF-8")


Table = dict[str, Any]


def parse_table(text: str, name: str) -> Table:
    """A JSON object from its text."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"the {name} is not JSON ({error}): the file is damaged, or not a detector") from error
    return as_table(parsed, name)


def as_table(value: object, name: str) -> Table:
    """The value itself, if it is a JSON object."""
    if not isinstance(value, dict):
        raise ModelFileError(f"the {name} is {_brief(value)}; expected a JSON object")
    return value


def check_keys(table: Table, required: Collection[str], optional: Collection[str] = (), *, where: str) -> None:
    """Refuse a table that lacks a key, or has one that would be lost when the detector is saved again."""
    missing, unknown = sorted(set(required) - set(table)), sorted(set(table) - {*required, *optional})
    if missing or unknown:
        raise ModelFileError(f"{where} lacks {missing} and has unknown {unknown}; expected {sorted(required)}")


def whole(value: object, least: int, most: int, name: str) -> int:
    """A whole number from `least` to `most`, both included.

    >>> whole(True, 0, 3, "count")
    Traceback (most recent call last):
    whet.errors.ModelFileError: count is True; expected a whole number from 0 to 3
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ModelFileError(f"{name} is {_brief(value)}; expected a whole number from {least} to {most}")
    return value


def finite(value: object, name: str) -> float:
    """A finite number."""
    # Compared, not converted: math.isfinite fails on a whole number of 400 digits.
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise ModelFileError(f"{name} is {_brief(value)}; expected a finite number")
    return float(value)


def one_of(value: object, choices: Collection[str], name: str) -> str:
    """One of some words."""
    if not isinstance(value, str) or value not in choices:
        raise ModelFileError(f"{name} is {_brief(value)}; expected one of {sorted(choices)}")
    return value


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
