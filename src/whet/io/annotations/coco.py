"""COCO: one JSON file of images, categories and annotations with bbox = x, y, width, height (cocodataset.org)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whet.errors import AnnotationError
from whet.io.annotations.annotation import AnnotatedImage, Annotations, Problem, ProblemKind, Problems
from whet.io.annotations.assembly import (
    MAX_COORDINATE,
    ImageFinder,
    Progress,
    RawBox,
    RawImage,
    assemble,
    decimal_sum,
    read_bytes,
    relative_name,
    with_progress,
)
from whet.io.files import write_atomically

Table = dict[str, Any]
Image = tuple[int, RawImage]

PARTS = ("images", "annotations")
# What `whet export-corrections` writes as info.description.
CORRECTIONS = "corrections of a whet detector"


def read_coco(path: Path, images: Path | None = None, progress: Progress = lambda _: None) -> Annotations:
    """Read a COCO file. `iscrowd` regions are ignored; an annotation without `bbox` gets the box of its polygons."""
    table = parse(path)
    info = table.get("info")
    if isinstance(info, dict) and info.get("description") == CORRECTIONS:
        raise AnnotationError(
            f"{path} was written by whet export-corrections; its images have boxes only where they were corrected, so "
            "these are no annotations. Use whet merge to add the corrections of one copy of a model to another"
        )
    problems = Problems()
    raw_images: dict[object, RawImage] = {}
    for number, image in enumerate(_rows(table, "images", path, problems)):
        _add_image(raw_images, image, number, path, problems)
    names = _categories(table, path, problems)
    for number, row in enumerate(_rows(table, "annotations", path, problems)):
        _add_box(raw_images, names, row, number, path, problems)
    finder = ImageFinder(path.parent, images)
    every = list(raw_images.values())
    return assemble(every, filter(None, names.values()), finder, problems, "coco", progress, source=path)


def parse(path: Path) -> Table:
    """Parse a COCO file; raises `AnnotationError` if it is not one."""
    try:
        table = json.loads(read_bytes(path).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise AnnotationError(f"{path} is not JSON: {error}") from error
    if not isinstance(table, dict) or not all(isinstance(table.get(part), list) for part in PARTS):
        found = ", ".join(list(table)[:6]) if isinstance(table, dict) else type(table).__name__
        raise AnnotationError(f"{path} is not COCO: expected lists named images and annotations, got {found or 'none'}")
    return table


def _rows(table: Table, part: str, path: Path, problems: Problems) -> list[Table]:
    rows = table.get(part)
    good = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    for _ in range(len(rows) - len(good) if isinstance(rows, list) else 0):
        problems.add(ProblemKind.BAD_ROW, path, None, f"an element of {part} is not a JSON object")
    return good


def _add_image(raw_images: dict[object, RawImage], image: Table, number: int, path: Path, problems: Problems) -> None:
    name, key = image.get("file_name"), image.get("id")
    if not isinstance(name, str) or not name or not isinstance(key, int | str):
        problems.add(ProblemKind.BAD_ROW, path, None, f"images[{number}] has no file_name or no id")
        return
    if key in raw_images:
        problems.add(ProblemKind.BAD_ROW, path, None, f"images[{number}] has the id {key!r} of an earlier image")
        return
    height, width = image.get("height"), image.get("width")
    stated = (height, width) if isinstance(height, int) and isinstance(width, int) else None
    raw_images[key] = RawImage(name, path, stated_shape=stated)


def _categories(table: Table, path: Path, problems: Problems) -> dict[object, str]:
    names: dict[object, str] = {}
    for number, row in enumerate(_rows(table, "categories", path, problems)):
        key, name = row.get("id"), row.get("name")
        if isinstance(key, int | str) and isinstance(name, str):
            names[key] = name
        else:
            problems.add(ProblemKind.BAD_ROW, path, None, f"categories[{number}] has no id or no name")
    return names


def _add_box(
    raw_images: dict[object, RawImage],
    names: dict[object, str],
    row: Table,
    number: int,
    path: Path,
    problems: Problems,
) -> None:
    where = f"annotations[{number}]"
    image, category = row.get("image_id"), row.get("category_id")
    if not isinstance(image, int | str) or image not in raw_images:
        problems.add(
            ProblemKind.BAD_ROW, path, None, f"{where} has image_id {image!r}, which is not the id of an image"
        )
        return
    if not isinstance(category, int | str):
        problems.add(ProblemKind.BAD_ROW, path, None, f"{where} has category_id {category!r}; expected a number")
        return
    corners = _corners(row)
    if corners is None:
        problems.add(
            ProblemKind.BAD_ROW,
            path,
            None,
            f"{where} has bbox {str(row.get('bbox'))[:60]}; expected x, y, width, height",
        )
        return
    if category not in names:
        problems.add(ProblemKind.NOTE, path, None, f"category {category!r} has no name; it is named {str(category)!r}")
        names[category] = str(category)
    ignore = bool(row.get("iscrowd"))
    raw_images[image].boxes.append(RawBox(corners, names[category] or ("" if ignore else str(category)), ignore))


def _corners(row: Table) -> tuple[float, float, float, float] | None:
    numbers = _numbers(row.get("bbox"))
    if numbers is not None and len(numbers) == 4:
        x, y, width, height = numbers
        return x, y, decimal_sum(x, width), decimal_sum(y, height)
    outlines = row.get("segmentation")
    if row.get("bbox") is not None or not isinstance(outlines, list):
        return None
    points = [value for outline in outlines for value in _numbers(outline) or []]
    if len(points) < 6 or len(points) % 2:
        return None
    return min(points[::2]), min(points[1::2]), max(points[::2]), max(points[1::2])


def _numbers(values: object) -> list[float] | None:
    if not isinstance(values, list):
        return None
    good = all(
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_COORDINATE
        for value in values
    )
    return [float(value) for value in values] if good else None


def write_coco(annotations: Annotations, path: Path, progress: Progress = lambda _: None) -> list[Problem]:
    """Write a COCO file with image paths relative to its directory. The format represents all annotations."""
    ids = {name: number for number, name in enumerate(_class_names(annotations), start=1)}
    rows: list[Table] = []
    for number, image in enumerate(with_progress(annotations.images, progress), start=1):
        _write_boxes(rows, image, number, ids)
    table = {
        "info": {"description": "written by whet"},
        "licenses": [],
        "images": [
            {
                "id": number,
                "file_name": relative_name(image.path, path.parent),
                "height": image.shape[0],
                "width": image.shape[1],
            }
            for number, image in enumerate(annotations.images, start=1)
        ],
        "annotations": rows,
        "categories": [{"id": number, "name": name, "supercategory": ""} for name, number in ids.items()],
    }
    # File names that are not UTF-8 become JSON escapes.
    write_atomically(path, json.dumps(table, ensure_ascii=False, indent=1).encode(errors="backslashreplace"))
    return []


def _class_names(annotations: Annotations) -> Sequence[str]:
    nameless = any("" in image.labels for image in annotations.images)
    return [*annotations.classes, *([""] if nameless else [])]


def _write_boxes(rows: list[Table], image: AnnotatedImage, number: int, ids: dict[str, int]) -> None:
    boxes = zip(image.boxes.tolist(), image.labels, image.ignore.tolist(), strict=True)
    for (x1, y1, x2, y2), label, ignore in boxes:
        width, height = decimal_sum(x2, -x1), decimal_sum(y2, -y1)
        rows.append(
            {
                "id": len(rows) + 1,
                "image_id": number,
                "category_id": ids[label],
                "bbox": [x1, y1, width, height],
                "area": width * height,
                "segmentation": [],
                "iscrowd": int(ignore),
            }
        )
