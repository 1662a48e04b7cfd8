"""Detections as text: lines for people, JSON, CSV and COCO results, per image and per video frame."""

from __future__ import annotations

import csv
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from io import StringIO
from itertools import takewhile
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from whet.cascade.detections import Detections
from whet.errors import AnnotationError, VideoError


def coco_ids(path: Path) -> dict[str, int]:
    """Read the image ids of a COCO annotation file, by `file_name`."""
    try:
        images = [(str(image["file_name"]), int(image["id"])) for image in json.loads(path.read_bytes())["images"]]
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
    found: dict[Path, int] = {}
    owners: dict[int, Path] = {}
    for path in paths:
        number = ids[_best(path, named)]
        other = owners.setdefault(number, path)
        if other != path:
            raise AnnotationError(
                f"{other} and {path} have the same id {number} in the COCO file; expected different ones"
            )
        found[path] = number
    return found


def _best(path: Path, named: Mapping[str, list[tuple[list[str], str]]]) -> str:
    parts = _backwards(os.path.abspath(path))
    shared = [(_n_shared(parts, theirs), name) for theirs, name in named.get(path.name, [])]
    most = max(shared, default=(0, ""))[0]
    best = [name for n, name in shared if n == most]
    if not best:
        raise AnnotationError(f"{path} has no id in the COCO file")
    if len(best) > 1:
        raise AnnotationError(f"{path} could be {best[0]} or {best[1]} in the COCO file; give more of its path")
    return best[0]


def _n_shared(ours: list[str], theirs: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False)))


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


def written(images: Iterable[Found], layout: Layout, ids: Mapping[Path, int] | None = None, category: int = 1) -> str:
    """Format all detections as one text.

    `json` is a list with `image`, `boxes` (x1, y1, x2, y2, half-open) and `scores` of each image; `csv` has a row
    for each detection. `coco` is a list of results (x, y, width, height) as COCO's evaluation reads them, with the
    `file_name` of the image: `ids` are the image ids; without, images are numbered from 1. `category` is their
    category id. Where the detector is calibrated, each detection has a probability beside its score.

    >>> import numpy as np
    >>> found = Detections(np.array([[10.0, 20.0, 34.0, 44.0]]), np.array([2.5]))
    >>> print(written([(Path("a.png"), found)], Layout.csv), end="")
    path,x,y,width,height,score
    a.png,10.0,20.0,24.0,24.0,2.5
    """
    return "".join(pieces(images, layout, ids, category))


def pieces(
    images: Iterable[Found], layout: Layout, ids: Mapping[Path, int] | None = None, category: int = 1
) -> Iterator[str]:
    """Yield the text of `written` in pieces; `text` and `csv` yield one piece per image."""
    match layout:
        case Layout.text:
            yield from (f"{path}: {line(found)}\n" for path, found in images)
        case Layout.json:
            yield json.dumps([_plain(path, found) for path, found in images], indent=1) + "\n"
        case Layout.csv:
            yield from _csv_pieces(images)
        case Layout.coco:
            every = list(images)
            numbers = {path: n for n, (path, _) in enumerate(every, start=1)} if ids is None else ids
            rows = (row for path, found in every for row in _coco_rows(path, found, numbers[path], category))
            yield json.dumps(list(rows)) + "\n"


def line(found: Detections) -> str:
    """Format the detections of an image as one line of text.

    >>> line(Detections())
    'nothing found'
    """
    boxes = [f"{w:.0f} x {h:.0f} at ({x:.0f}, {y:.0f}) scores {score:.4g}" for x, y, w, h, score in _rows(found)]
    return "; ".join(boxes) or "nothing found"


def _rows(found: Detections) -> list[list[Any]]:
    sized = zip(found.boxes.tolist(), found.scores.tolist(), strict=True)
    return [[x1, y1, x2 - x1, y2 - y1, score] for (x1, y1, x2, y2), score in sized]


def _probabilities(found: Detections) -> list[float | None] | None:
    """The probability of each detection; None for a detector that is not calibrated."""
    if found.calibration is None:
        return None
    return [value if isfinite(value) else None for value in found.probabilities.tolist()]


def _plain(path: Path, found: Detections) -> dict[str, object]:
    probabilities = _probabilities(found)
    table = {"image": str(path), "boxes": found.boxes.tolist(), "scores": found.scores.tolist()}
    return table if probabilities is None else table | {"probabilities": probabilities}


def _coco_rows(path: Path, found: Detections, image_id: int, category: int) -> Iterator[dict[str, Any]]:
    rows = found.to_coco(image_id, category)
    probabilities = _probabilities(found)
    for i, row in enumerate(rows):
        known = {} if probabilities is None else {"probability": probabilities[i]}
        yield {**row, **known, "file_name": str(path)}


def _csv_pieces(images: Iterable[Found]) -> Iterator[str]:
    head = [HEADER]  # written with the first image, so that a failed call writes nothing
    for path, found in images:
        rows, probabilities = [[str(path), *row] for row in _rows(found)], _probabilities(found)
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


# The keys of a video frame; `tracked` is a box or None, `boxes` and `scores` are those of all detections.
FIELDS = (
    "frame",
    "seconds",
    "tracked",
    "score",
    "accepted",
    "boxes",
    "scores",
    "learned",
    "rolled_back",
    "weight_change",
)
# A table has the corners of the tracked box, and the number of detections.
COLUMNS = (
    "frame",
    "seconds",
    "x1",
    "y1",
    "x2",
    "y2",
    "score",
    "accepted",
    "detections",
    "learned",
    "rolled_back",
    "weight_change",
)


class FrameLines:
    """Writes mappings with the keys `FIELDS` as JSON lines, or as a table if the file name ends in .csv.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "seen.jsonl"
    >>> with FrameLines(path) as lines:
    ...     lines.write(dict.fromkeys(FIELDS) | {"frame": 3})
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
            file = self._opened()
            if self._table is None:
                file.write(json.dumps(dict(row)) + "\n")
            else:
                self._table.writerow(_flat(row))
            file.flush()
        except OSError as error:
            with suppress(OSError):  # do not retry the failed write
                self._close()
            raise VideoError(f"{self.path} cannot be written: {error.strerror}") from error

    def _opened(self) -> TextIO:
        """Open the file at the first line; until then an existing file stays."""
        if self._file is None:
            self._file = self.path.open("w", newline="")
            if self.path.suffix.lower() == ".csv":
                self._table = csv.DictWriter(self._file, COLUMNS)
                self._table.writeheader()
        return self._file

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    corners = dict(zip(("x1", "y1", "x2", "y2"), row["tracked"] or [None] * 4, strict=True))
    values = {**row, **corners, "detections": len(row["boxes"] or ())}
    return {name: values[name] for name in COLUMNS}
