"""Lines of a text file that somebody else wrote: any line ends, with or without a byte-order mark."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path

from whet.errors import AnnotationError
from whet.io.annotations.problem import ProblemKind, Problems

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
