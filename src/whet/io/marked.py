"""Detections that a person has marked: the files that `whet detect` writes, with a column or key `wrong`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from whet.errors import AnnotationError, DataNotFoundError
from whet.io.annotations.annotation import Boxes, Problem, ProblemKind, Problems
from whet.io.annotations.assembly import ImageFinder, decimal_sum, number_in, read_bytes
from whet.io.annotations.tables import columns_of, rows_of

COLUMN = "wrong"
TRUE, FALSE = ("1", "true", "yes"), ("", "0", "false", "no", "none")


@dataclass(frozen=True, eq=False)
class WrongDetections:
    """Boxes (n, 4) that were marked as wrong, by image file; the number of all detections; and problems."""

    boxes: dict[Path, Boxes]
    n_detections: int
    problems: tuple[Problem, ...] = ()


class _Row(NamedTuple):
    """A detection: line, name of the image, box as x1, y1, x2, y2 (None if it is none), and its mark."""

    line: int | None
    name: str
    box: list[float] | None
    mark: object


def read_wrong(path: Path, images: Path | None = None) -> WrongDetections:
    """Read the detections with a true `wrong` (1, true or yes) in a table, in COCO results or in whet's own JSON.

    Those with a false or empty one are left out. Images are searched as those of annotations, in `images` first. Raises
    `AnnotationError` for another kind of file, and where no detection has the mark.
    """
    if not path.is_file():
        raise DataNotFoundError(f"no such file: {path}; expected detections that whet detect has written")
    problems = Problems()
    data = read_bytes(path).lstrip()
    rows = list(_json_rows(path, problems) if data[:1] in (b"[", b"{") else _table_rows(path, problems))
    finder = ImageFinder(path.parent, images)
    found: dict[Path, list[list[float]]] = {}
    for row in rows:
        if not _is_wrong(row, path, problems):
            continue
        image = finder.find(row.name) if row.name else None
        if image is None:
            problems.add(ProblemKind.MISSING_IMAGE, path, row.line, f"the image {row.name!r} does not exist")
        elif row.box is None:
            problems.add(ProblemKind.BAD_ROW, path, row.line, "the box is not four numbers")
        else:
            found.setdefault(image, []).append(row.box)
    return WrongDetections({image: np.array(boxes) for image, boxes in found.items()}, len(rows), problems.all())


def _is_wrong(row: _Row, path: Path, problems: Problems) -> bool:
    text = str(row.mark).strip().lower()
    if text not in TRUE + FALSE:
        what = f"{COLUMN} is {text[:40]!r}; expected {', '.join(TRUE)}, or {', '.join(FALSE[1:-1])} or nothing"
        problems.add(ProblemKind.BAD_ROW, path, row.line, what)
    return text in TRUE


def _no_mark(path: Path) -> AnnotationError:
    return AnnotationError(f"{path} has no column or key {COLUMN!r}; expected one, with 1 for each false positive")


def _table_rows(path: Path, problems: Problems) -> Iterator[_Row]:
    rows = rows_of(path, problems)
    _, header = next(rows, (0, []))
    columns = columns_of(header, path)
    if columns is None:
        raise AnnotationError(f"{path} has no header; expected path, x, y, width, height and {COLUMN}")
    marks = [i for i, cell in enumerate(header) if cell.lower() == COLUMN]
    if not marks:
        raise _no_mark(path)
    for line, cells in rows:
        padded = cells + [""] * (len(header) - len(cells))
        numbers = [number_in(padded[i]) for i in columns.box]
        box = [value for value in numbers if value is not None]
        if len(box) == 4 and not columns.is_corners:
            box = _corners(box)
        yield _Row(line, padded[columns.path], box if len(box) == 4 else None, padded[marks[0]])


def _json_rows(path: Path, problems: Problems) -> Iterator[_Row]:
    try:
        table = json.loads(read_bytes(path).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise AnnotationError(f"{path} is not JSON: {error}") from error
    if not isinstance(table, list) or not all(isinstance(one, dict) for one in table):
        raise AnnotationError(f"{path} is not a list of detections; expected a file that whet detect has written")
    if table and not any(COLUMN in one for one in table):
        raise _no_mark(path)
    for number, one in enumerate(table):
        if "boxes" in one:
            yield from _of_image(one, number, path, problems)
        else:
            box = _numbers(one.get("bbox"))
            name = one.get("file_name")
            mark = one.get(COLUMN, "")
            yield _Row(None, name if isinstance(name, str) else "", box and _corners(box), mark)


def _of_image(one: dict[str, Any], number: int, path: Path, problems: Problems) -> Iterator[_Row]:
    """The detections of an image in whet's own JSON; `wrong` is a list as long as `boxes`."""
    boxes, marks, name = one["boxes"], one.get(COLUMN), one.get("image")
    if not isinstance(boxes, list):
        problems.add(ProblemKind.BAD_ROW, path, None, f"boxes of element {number} are no list")
        return
    marks = [""] * len(boxes) if marks is None else marks
    if not isinstance(marks, list) or len(marks) != len(boxes):
        problems.add(
            ProblemKind.BAD_ROW, path, None, f"{COLUMN} of element {number} is no list with one value for each box"
        )
        return
    for box, mark in zip(boxes, marks, strict=True):
        yield _Row(None, name if isinstance(name, str) else "", _numbers(box), mark)


def _numbers(value: object) -> list[float] | None:
    if not isinstance(value, list) or len(value) != 4:
        return None
    numbers = [number_in(repr(one)) for one in value if isinstance(one, int | float)]
    good = [one for one in numbers if one is not None]
    return good if len(good) == 4 else None


def _corners(box: list[float]) -> list[float]:
    x, y, width, height = box
    return [x, y, decimal_sum(x, width), decimal_sum(y, height)]
