"""Corrections and examples as a table for other tools: COCO annotations with the category of each label."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whet.detector.records import Record

OBJECT, NOT_OBJECT = 1, 2
# The year 9999: a file may claim any time.
LATEST = 253_000_000_000


def kind_name(record: Record) -> str:
    """The label of a correction, object or not object; or example."""
    return "example" if record.kind == "example" else "object" if record.is_object else "not object"


def sized_box(record: Record) -> list[float]:
    """The box as x, y, width, height."""
    x1, y1, x2, y2 = record.box
    return [x1, y1, x2 - x1, y2 - y1]


def iso_time(record: Record) -> str | None:
    """The time at which a record was made, as ISO 8601 in UTC; None if it is not known."""
    time = time_of(record)
    return None if time is None else time.isoformat()


def time_of(record: Record) -> datetime | None:
    """The time at which a record was made; None if it is not known."""
    return datetime.fromtimestamp(record.time, UTC) if 0 < record.time < LATEST else None


def as_coco(records: Sequence[Record]) -> dict[str, Any]:
    """Records, the newest first, as a COCO table; whet does not read it as annotations.

    Images have boxes only where they were corrected, and no sizes: a record holds no image.
    """
    from whet.io.annotations.coco import CORRECTIONS

    ordered = records[::-1]  # the oldest first
    images = {record.image: record.name for record in records}
    numbers = {image: number for number, image in enumerate(dict.fromkeys(r.image for r in ordered), start=1)}
    return {
        "info": {"description": CORRECTIONS},
        "licenses": [],
        "images": [
            {"id": number, "file_name": images[image] or image, "sha256": image} for image, number in numbers.items()
        ],
        "annotations": [_annotation(n, numbers[r.image], r) for n, r in enumerate(ordered, start=1)],
        "categories": [
            {"id": OBJECT, "name": "object", "supercategory": ""},
            {"id": NOT_OBJECT, "name": "not-object", "supercategory": ""},
        ],
    }


def _annotation(number: int, image: int, record: Record) -> dict[str, Any]:
    box = sized_box(record)
    return {
        "id": number,
        "image_id": image,
        "category_id": OBJECT if record.is_object else NOT_OBJECT,
        "bbox": box,
        "area": box[2] * box[3],
        "segmentation": [],
        "iscrowd": 0,
        "record": record.id,
        "kind": kind_name(record),
        "time": iso_time(record),
        "note": record.note,
    }
