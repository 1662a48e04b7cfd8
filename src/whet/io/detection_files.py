"""Detections as text: lines for people, JSON, CSV and COCO results; and files of them that a person has marked."""

from __future__ import annotations

import csv
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from io import StringIO
from itertools import takewhile
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, Self, TextIO

import numpy as np

from whet.arrays import Boxes
from whet.errors import AnnotationError, DataNotFoundError, VideoError
from whet.images.detections import Detections
from whet.io.annotations.annotation import Problem, ProblemKind, Problems
from whet.io.annotations.assembly import ImageFinder, decimal_sum, number_in, read_bytes
from whet.io.annotations.coco import numbers_in
from whet.io.annotations.csv_opencv_crops import columns_of, rows_of
from whet.io.files import printable


def coco_ids(path: Path) -> dict[str, int]:
    """Read the image ids of a COCO annotation file, by `file_name`."""
    try:
        images = [(str(image["file_name"]), int(image["id"])) for image in json.loads(read_bytes(path))["images"]]
    except (ValueError, KeyError, TypeError) as error:
        raise AnnotationError(f"{path} is not a COCO file; expected `images` with `id` and `file_name`") from error
    ids = dict(images)
    for name, number in images:
        if ids[name] != number:
            raise AnnotationError(f"{path} has two ids for the image {name}: {number} and {ids[name]}")
    return ids


def ids_of(paths: Iterable[Path], ids: Mapping[str, int]) -> dict[Path, int]:
    """Return the image id of each path: that of the file name with the longest common end.

    A base name is enough if it is unique, because directories differ between machines. Raises `AnnotationError` if a
    path has no id, has several, or has the id of another path.

    >>> ids_of([Path("set/b/1.png"), Path("2.png")], {"a/1.png": 7, "b/1.png": 8, "old/place/2.png": 9})
    {PosixPath('set/b/1.png'): 8, PosixPath('2.png'): 9}
    """
    named: dict[str, list[tuple[list[str], str]]] = defaultdict(list)
    for name in ids:
        parts = _backwards(name.replace("\\", "/"))
        named[parts[0] if parts else ""].append((parts, name))
    numbers: dict[Path, int] = {}
    owners: dict[int, Path] = {}
    for path in paths:
        number = ids[_best(path, named)]
        other = owners.setdefault(number, path)
        if other != path:
            raise AnnotationError(
                f"{other} and {path} have the same id {number} in the COCO file; expected different ones"
            )
        numbers[path] = number
    return numbers


def _best(path: Path, named: Mapping[str, list[tuple[list[str], str]]]) -> str:
    parts = _backwards(os.path.abspath(path))
    shared = [
        (sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(parts, theirs, strict=False))), name)
        for theirs, name in named.get(path.name, [])
    ]
    most = max(shared, default=(0, ""))[0]
    best = [name for n, name in shared if n == most]
    if not best:
        raise AnnotationError(f"{path} has no id in the COCO file")
    if len(best) > 1:
        raise AnnotationError(f"{path} could be {best[0]} or {best[1]} in the COCO file; give more of its path")
    return best[0]


def _backwards(path: str) -> list[str]:
    return list(reversed(Path(path).parts))


Found = tuple[Path, Detections]
HEADER: tuple[str, ...] = ("path", "x", "y", "width", "height", "score")


class Layout(StrEnum):
    """The output format of detections."""

    text = "text"
    json = "json"
    csv = "csv"
    coco = "coco"


# Layouts that are written image by image.
PIECEMEAL = (Layout.text, Layout.csv)


def coco_categories(path: Path) -> dict[str, int]:
    """The category ids of a COCO annotation file, by name; none if it has no categories."""
    try:
        return {str(row["name"]): int(row["id"]) for row in json.loads(read_bytes(path))["categories"]}
    except (ValueError, KeyError, TypeError):
        return {}


def pieces(
    images: Iterable[Found],
    layout: Layout,
    ids: Mapping[Path, int] | None = None,
    categories: Mapping[str, int] | None = None,
) -> Iterator[str]:
    """Yield detections as text; the formats `text` and `csv` yield one piece per image.

    `json` is a list with `image`, `boxes` (x1, y1, x2, y2, half-open) and `scores` of each image; `csv` has a row
    for each detection. `coco` is a list of results (x, y, width, height) as COCO's evaluation reads them, with the
    `file_name` of the image: `ids` are the image ids; without, images are numbered from 1. `categories` are the ids of
    classes by name; others are numbered from 1. Where the detector is calibrated, each detection has a probability
    beside its score; where it names its classes, each has its label.

    >>> cars = Detections(np.array([[10.0, 20.0, 34.0, 44.0]]), np.array([2.5]), class_names=("car",))
    >>> print(*pieces([(Path("a.png"), cars)], Layout.csv), sep="", end="")
    path,x,y,width,height,score,label
    a.png,10.0,20.0,24.0,24.0,2.5,car
    """
    match layout:
        case Layout.text:
            yield from (f"{printable(str(path))}: {line(detections)}\n" for path, detections in images)
        case Layout.json:
            yield (
                json.dumps([_plain(path, detections) for path, detections in images], indent=1, allow_nan=False) + "\n"
            )
        case Layout.csv:
            yield from _csv_pieces(images)
        case Layout.coco:
            every = list(images)
            numbers = {path: n for n, (path, _) in enumerate(every, start=1)} if ids is None else ids
            rows = [row for image in every for row in _coco_rows(*image, numbers[image[0]], categories or {})]
            yield json.dumps(rows, allow_nan=False) + "\n"


def line(detections: Detections) -> str:
    """Format the detections of an image as one line of text.

    >>> line(Detections())
    'nothing found'
    """
    boxes = [
        f"{label} {w:.0f} x {h:.0f} at ({x:.0f}, {y:.0f}) scores {score:.4g}".lstrip()
        for label, (x, y, w, h, score) in zip(detections.labels, _rows(detections), strict=True)
    ]
    return "; ".join(boxes) or "nothing found"


def _rows(detections: Detections) -> list[list[Any]]:
    sized = zip(detections.boxes.tolist(), detections.scores.tolist(), strict=True)
    return [[x1, y1, x2 - x1, y2 - y1, score] for (x1, y1, x2, y2), score in sized]


def _probabilities(detections: Detections) -> list[float | None] | None:
    """The probability of each detection; None for a detector that is not calibrated."""
    if detections.calibration is None:
        return None
    return [value if isfinite(value) else None for value in detections.probabilities.tolist()]


def _plain(path: Path, detections: Detections) -> dict[str, object]:
    probabilities = _probabilities(detections)
    table: dict[str, object] = {"image": str(path), "boxes": detections.boxes.tolist()}
    table |= {"scores": detections.scores.tolist()}
    table |= {"labels": detections.labels} if detections.class_names else {}
    return table if probabilities is None else table | {"probabilities": probabilities}


def _coco_rows(
    path: Path, detections: Detections, image_id: int, categories: Mapping[str, int]
) -> Iterator[dict[str, Any]]:
    probabilities = _probabilities(detections)
    for i, (row, label) in enumerate(zip(detections.to_coco(image_id), detections.labels, strict=True)):
        known: dict[str, Any] = {} if probabilities is None else {"probability": probabilities[i]}
        if label:
            known |= {"category_name": label, "category_id": categories.get(label, row["category_id"])}
        yield {**row, **known, "file_name": str(path)}


def _csv_pieces(images: Iterable[Found]) -> Iterator[str]:
    head = [HEADER]  # written with the first image, so that a failed call writes nothing
    for path, detections in images:
        rows, probabilities = [[str(path), *row] for row in _rows(detections)], _probabilities(detections)
        if detections.class_names:
            head = [(*names, "label") for names in head]
            rows = [[*row, label] for row, label in zip(rows, detections.labels, strict=True)]
        if probabilities is not None:
            head = [(*names, "probability") for names in head]
            rows = [[*row, "" if value is None else value] for row, value in zip(rows, probabilities, strict=True)]
        yield _csv_text([*head, *rows])
        head = []
    yield _csv_text(head)


def _csv_text(rows: Iterable[Iterable[object]]) -> str:
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


# A table has the corners of the tracked box, and the number of detections.
COLUMNS = (
    *("frame", "seconds", "x1", "y1", "x2", "y2", "score", "accepted"),
    *("detections", "learned", "rolled_back", "weight_change"),
)


class FrameLines:
    """Writes tracked frames as JSON lines, or as a table if the file name ends in .csv.

    Keys are those of `COLUMNS`, with `tracked`, a box or None, in place of its corners, and `boxes` and `scores` of all
    detections in place of their number.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "seen.jsonl"
    >>> with FrameLines(path) as lines:
    ...     lines.write({"frame": 3})
    >>> json.loads(path.read_text())["frame"]
    3
    """

    def __init__(self, path: Path) -> None:
        if path.is_dir() or not path.parent.is_dir():
            raise VideoError(f"{path} cannot be written: it is a directory, or its directory does not exist")
        self.path = path
        self._file: TextIO | None = None
        self._table: csv.DictWriter[str] | None = None

    def write(self, row: Mapping[str, Any]) -> None:
        """Write one line and flush it, so that other programs never read half a line."""
        try:
            if self._file is None:  # until the first line, an existing file stays
                self._file = self.path.open("w", newline="")
                if self.path.suffix.lower() == ".csv":
                    self._table = csv.DictWriter(self._file, COLUMNS, extrasaction="ignore")
                    self._table.writeheader()
            if self._table is None:
                self._file.write(json.dumps(dict(row), allow_nan=False) + "\n")
            else:
                corners = dict(zip(("x1", "y1", "x2", "y2"), row["tracked"] or [None] * 4, strict=True))
                self._table.writerow({**row, **corners, "detections": len(row["boxes"] or ())})
            self._file.flush()
        except OSError as error:
            with suppress(OSError):  # do not retry the failed write
                self._close()
            raise VideoError(f"{self.path} cannot be written: {error.strerror}") from error

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()


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
    wrong: dict[Path, list[list[float]]] = {}
    for row in rows:
        if not _is_wrong(row, path, problems):
            continue
        image = finder.find(row.name) if row.name else None
        if image is None:
            problems.add(ProblemKind.MISSING_IMAGE, path, row.line, finder.not_found(row.name))
        elif row.box is None:
            problems.skip_row(path, row.line, "the box is not four numbers")
        else:
            wrong.setdefault(image, []).append(row.box)
    finder.note_base_names(path, problems)
    return WrongDetections({image: np.array(boxes) for image, boxes in wrong.items()}, len(rows), problems.all())


def _is_wrong(row: _Row, path: Path, problems: Problems) -> bool:
    text = str(row.mark).strip().lower()
    if text not in TRUE + FALSE:
        what = f"{COLUMN} is {text[:40]!r}; expected {', '.join(TRUE)}, or {', '.join(FALSE[1:-1])} or nothing"
        problems.skip_row(path, row.line, what)
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
    if not isinstance(table, list) or not all(isinstance(row, dict) for row in table):
        raise AnnotationError(f"{path} is not a list of detections; expected a file that whet detect has written")
    if table and not any(COLUMN in row for row in table):
        raise _no_mark(path)
    for number, row in enumerate(table):
        if "boxes" in row:
            yield from _of_image(row, number, path, problems)
        else:
            box, name = _numbers(row.get("bbox")), row.get("file_name")
            yield _Row(None, name if isinstance(name, str) else "", box and _corners(box), row.get(COLUMN, ""))


def _of_image(image: dict[str, Any], number: int, path: Path, problems: Problems) -> Iterator[_Row]:
    """The detections of an image in whet's own JSON; `wrong` is a list as long as `boxes`."""
    boxes, marks, name = image["boxes"], image.get(COLUMN), image.get("image")
    if not isinstance(boxes, list):
        problems.skip_row(path, None, f"boxes of element {number} are no list")
        return
    marks = [""] * len(boxes) if marks is None else marks
    if not isinstance(marks, list) or len(marks) != len(boxes):
        problems.skip_row(path, None, f"{COLUMN} of element {number} is no list with one value for each box")
        return
    for box, mark in zip(boxes, marks, strict=True):
        yield _Row(None, name if isinstance(name, str) else "", _numbers(box), mark)


def _numbers(value: object) -> list[float] | None:
    numbers = numbers_in(value)
    return numbers if numbers is not None and len(numbers) == 4 else None


def _corners(box: list[float]) -> list[float]:
    x, y, width, height = box
    return [x, y, decimal_sum(x, width), decimal_sum(y, height)]
