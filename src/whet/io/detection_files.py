"""Detections of many pictures as text: lines for people, JSON, CSV, and COCO results for other programs."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from io import StringIO
from pathlib import Path

from whet.detect.detections import Detections
from whet.errors import AnnotationError

Found = tuple[Path, Detections]
HEADER = ("path", "x", "y", "width", "height", "score")


class Layout(StrEnum):
    """How detections are written."""

    text = "text"
    json = "json"
    csv = "csv"
    coco = "coco"


def written(pictures: Iterable[Found], layout: Layout, ids: Mapping[str, int] | None = None, category: int = 1) -> str:
    """All detections as one text.

    `json` is a list with `path`, `boxes` (x1, y1, x2, y2, half-open) and `scores` of each picture; `csv` has a row
    for each detection. `coco` is a list of results (x, y, width, height) as COCO's evaluation reads them: `ids` are
    the picture ids by file name; without, pictures are numbered from 1. `category` is their category id.

    >>> import numpy as np
    >>> found = Detections(np.array([[10.0, 20.0, 34.0, 44.0]]), np.array([2.5]))
    >>> print(written([(Path("a.png"), found)], Layout.csv), end="")
    path,x,y,width,height,score
    a.png,10.0,20.0,24.0,24.0,2.5
    """
    every = list(pictures)
    match layout:
        case Layout.text:
            return "".join(f"{path}: {line(found)}\n" for path, found in every)
        case Layout.json:
            return json.dumps([_plain(path, found) for path, found in every], indent=1) + "\n"
        case Layout.csv:
            return _as_csv(every)
        case Layout.coco:
            return json.dumps(_as_coco(every, ids, category)) + "\n"


def line(found: Detections) -> str:
    """What was found, for people.

    >>> line(Detections())
    'nothing found'
    """
    boxes = [f"{w:.0f} x {h:.0f} at ({x:.0f}, {y:.0f}) scores {score:.4g}" for x, y, w, h, score in _rows(found)]
    return "; ".join(boxes) or "nothing found"


def coco_ids(path: Path) -> dict[str, int]:
    """Picture ids by file name, of a COCO annotation file."""
    try:
        images = json.loads(path.read_bytes())["images"]
        return {Path(str(image["file_name"])).name: int(image["id"]) for image in images}
    except (ValueError, KeyError, TypeError) as error:
        raise AnnotationError(f"{path} is no COCO file with `images` that have `id` and `file_name`") from error


def _rows(found: Detections) -> list[list[float]]:
    sized = zip(found.boxes.tolist(), found.scores.tolist(), strict=True)
    return [[x1, y1, x2 - x1, y2 - y1, score] for (x1, y1, x2, y2), score in sized]


def _plain(path: Path, found: Detections) -> dict[str, object]:
    return {"path": str(path), "boxes": found.boxes.tolist(), "scores": found.scores.tolist()}


def _as_csv(pictures: Sequence[Found]) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for path, found in pictures:
        writer.writerows([str(path), *row] for row in _rows(found))
    return text.getvalue()


def _as_coco(pictures: Sequence[Found], ids: Mapping[str, int] | None, category: int) -> list[dict[str, object]]:
    numbers = ids or {path.name: number for number, (path, _) in enumerate(pictures, start=1)}
    unknown = [path.name for path, _ in pictures if path.name not in numbers]
    if unknown:
        raise AnnotationError(f"{len(unknown)} pictures have no id in the COCO file that was given: {unknown[0]}, ...")
    return [
        {"image_id": numbers[path.name], "category_id": category, "bbox": row[:4], "score": row[4]}
        for path, found in pictures
        for row in _rows(found)
    ]
