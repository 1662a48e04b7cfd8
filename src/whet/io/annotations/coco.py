"""COCO: one JSON file of images, categories and annotations with bbox = x, y, width, height (cocodataset.org)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from whet.errors import AnnotationError
from whet.io.annotations.annotation import Annotations, Problem, Problems
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
        file_name, key = image.get("file_name"), image.get("id")
        if not isinstance(file_name, str) or not file_name or not isinstance(key, int | str):
            problems.skip_row(path, None, f"images[{number}] has no file_name or no id")
        elif key in raw_images:
            problems.skip_row(path, None, f"images[{number}] has the id {key!r} of an earlier image")
        else:
            height, width = image.get("height"), image.get("width")
            stated = (height, width) if isinstance(height, int) and isinstance(width, int) else None
            raw_images[key] = RawImage(file_name, path, stated_shape=stated)
    names: dict[object, str] = {}
    for number, row in enumerate(_rows(table, "categories", path, problems)):
        key, name = row.get("id"), row.get("name")
        if isinstance(key, int | str) and isinstance(name, str):
            names[key] = name
        else:
            problems.skip_row(path, None, f"categories[{number}] has no id or no name")
    for number, row in enumerate(_rows(table, "annotations", path, problems)):
        where, image_id, category = f"annotations[{number}]", row.get("image_id"), row.get("category_id")
        corners = _corners(row)
        if not isinstance(image_id, int | str) or image_id not in raw_images:
            problems.skip_row(path, None, f"{where} has image_id {image_id!r}, which is not the id of an image")
        elif not isinstance(category, int | str):
            problems.skip_row(path, None, f"{where} has category_id {category!r}; expected a number")
        elif corners is None:
            problems.skip_row(path, None, f"{where} has bbox {str(row.get('bbox'))[:60]}; expected x, y, width, height")
        else:
            if category not in names:
                problems.note(path, f"category {category!r} has no name; it is named {str(category)!r}")
                names[category] = str(category)
            ignore = bool(row.get("iscrowd"))
            label = names[category] or ("" if ignore else str(category))
            raw_images[image_id].boxes.append(RawBox(corners, label, ignore))
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
        got = ", ".join(list(table)[:6]) if isinstance(table, dict) else type(table).__name__
        raise AnnotationError(f"{path} is not COCO: expected lists named images and annotations, got {got or 'none'}")
    return table


def _rows(table: Table, part: str, path: Path, problems: Problems) -> list[Table]:
    rows = table.get(part)
    good = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    for _ in range(len(rows) - len(good) if isinstance(rows, list) else 0):
        problems.skip_row(path, None, f"an element of {part} is not a JSON object")
    return good


def _corners(row: Table) -> tuple[float, float, float, float] | None:
    numbers = numbers_in(row.get("bbox"))
    if numbers is not None and len(numbers) == 4:
        x, y, width, height = numbers
        return x, y, decimal_sum(x, width), decimal_sum(y, height)
    outlines = row.get("segmentation")
    if row.get("bbox") is not None or not isinstance(outlines, list):
        return None
    points = [value for outline in outlines for value in numbers_in(outline) or []]
    if len(points) < 6 or len(points) % 2:
        return None
    return min(points[::2]), min(points[1::2]), max(points[::2]), max(points[1::2])


def numbers_in(values: object) -> list[float] | None:
    """A list of numbers that positions can have; None for anything else."""
    if not isinstance(values, list):
        return None
    good = all(
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_COORDINATE
        for value in values
    )
    return [float(value) for value in values] if good else None


def write_coco(annotations: Annotations, path: Path, progress: Progress = lambda _: None) -> list[Problem]:
    """Write a COCO file with image paths relative to its directory. The format represents all annotations."""
    nameless = [""] if any("" in image.labels for image in annotations.images) else []
    ids = {name: number for number, name in enumerate([*annotations.classes, *nameless], start=1)}
    images, rows = list[Table](), list[Table]()
    for number, image in enumerate(with_progress(annotations.images, progress), start=1):
        (height, width), name = image.shape, relative_name(image.path, path.parent)
        images.append({"id": number, "file_name": name, "height": height, "width": width})
        for (x1, y1, x2, y2), label, ignore in image.rows():
            w, h = decimal_sum(x2, -x1), decimal_sum(y2, -y1)
            row = {"id": len(rows) + 1, "image_id": number, "category_id": ids[label], "bbox": [x1, y1, w, h]}
            rows.append(row | {"area": w * h, "segmentation": [], "iscrowd": int(ignore)})
    table = {
        "info": {"description": "written by whet"},
        "licenses": [],
        "images": images,
        "annotations": rows,
        "categories": [{"id": number, "name": name, "supercategory": ""} for name, number in ids.items()],
    }
    # File names that are not UTF-8 become JSON escapes.
    write_atomically(path, json.dumps(table, ensure_ascii=False, indent=1).encode(errors="backslashreplace"))
    return []
