"""Detections of many pictures as text: lines for people, JSON, CSV, and COCO results for other programs."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from io import StringIO
from pathlib import Path

from whet.detect.detections import Detections

Found = tuple[Path, Detections]
HEADER = ("path", "x", "y", "width", "height", "score")


class Layout(StrEnum):
    """How detections are written."""

    text = "text"
    json = "json"
    csv = "csv"
    coco = "coco"


# Layouts of which a piece can be written as soon as a picture is done.
PIECEMEAL = (Layout.text, Layout.csv)


def written(pictures: Iterable[Found], layout: Layout, ids: Mapping[Path, int] | None = None, category: int = 1) -> str:
    """All detections as one text.

    `json` is a list with `path`, `boxes` (x1, y1, x2, y2, half-open) and `scores` of each picture; `csv` has a row
    for each detection. `coco` is a list of results (x, y, width, height) as COCO's evaluation reads them: `ids` are
    the picture ids; without, pictures are numbered from 1. `category` is their category id.

    >>> import numpy as np
    >>> found = Detections(np.array([[10.0, 20.0, 34.0, 44.0]]), np.array([2.5]))
    >>> print(written([(Path("a.png"), found)], Layout.csv), end="")
    path,x,y,width,height,score
    a.png,10.0,20.0,24.0,24.0,2.5
    """
    return "".join(pieces(pictures, layout, ids, category))


def pieces(
    pictures: Iterable[Found], layout: Layout, ids: Mapping[Path, int] | None = None, category: int = 1
) -> Iterator[str]:
    """The same text in pieces: those of `text` and `csv` come as the pictures do."""
    match layout:
        case Layout.text:
            yield from (f"{path}: {line(found)}\n" for path, found in pictures)
        case Layout.json:
            yield json.dumps([_plain(path, found) for path, found in pictures], indent=1) + "\n"
        case Layout.csv:
            yield from _csv_pieces(pictures)
        case Layout.coco:
            every = list(pictures)
            numbers = {path: n for n, (path, _) in enumerate(every, start=1)} if ids is None else ids
            yield json.dumps([row for path, found in every for row in found.to_coco(numbers[path], category)]) + "\n"


def line(found: Detections) -> str:
    """What was found, for people.

    >>> line(Detections())
    'nothing found'
    """
    boxes = [f"{w:.0f} x {h:.0f} at ({x:.0f}, {y:.0f}) scores {score:.4g}" for x, y, w, h, score in _rows(found)]
    return "; ".join(boxes) or "nothing found"


def _rows(found: Detections) -> list[list[float]]:
    sized = zip(found.boxes.tolist(), found.scores.tolist(), strict=True)
    return [[x1, y1, x2 - x1, y2 - y1, score] for (x1, y1, x2, y2), score in sized]


def _plain(path: Path, found: Detections) -> dict[str, object]:
    return {"path": str(path), "boxes": found.boxes.tolist(), "scores": found.scores.tolist()}


def _csv_pieces(pictures: Iterable[Found]) -> Iterator[str]:
    head = [HEADER]  # only when the first picture is done, so that a wrong call writes nothing
    for path, found in pictures:
        yield _csv_text([*head, *([str(path), *row] for row in _rows(found))])
        head = []
    yield _csv_text(head)


def _csv_text(rows: Iterable[Iterable[object]]) -> str:
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
