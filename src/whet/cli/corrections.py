"""How commands show the corrections and examples inside a model, as text and as JSON, and find those of an image."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.cli.output import plural
from whet.detector.corrections_table import iso_time, kind_name, sized_box, time_of

if TYPE_CHECKING:
    from whet.detector.detector import Detector
    from whet.detector.records import Record
    from whet.detector.reference import Estimate

SHORT_ID = 8


def box_text(record: Record) -> str:
    """The box as x,y,w,h, as the options of `whet learn` take it."""
    return ",".join(f"{round(value, 1):.6g}" for value in sized_box(record))


def local_time(record: Record) -> str:
    """The time at which a record was made, in the local time zone; empty if it is not known."""
    time = time_of(record)
    return "" if time is None else time.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def as_line(record: Record) -> str:
    """A correction as one line of text."""
    note = f"  {record.note}" if record.note else ""
    return f"{record.id[:SHORT_ID]}  {kind_name(record)} {record.name or 'unnamed'} {box_text(record)}{note}"


def as_fields(record: Record, unsatisfied: Collection[str] = ()) -> dict[str, Any]:
    """All of a record but its windows, for JSON; `holds` is None for examples, which are counted, not satisfied."""
    return {
        "id": record.id,
        "time": iso_time(record),
        "kind": kind_name(record),
        "is_object": bool(record.is_object),
        "weight": record.weight,
        "file_name": record.name,
        "image": record.image,
        "box": sized_box(record),
        "windows": len(record),
        "note": record.note,
        "holds": None if record.kind == "example" else record.id not in unsatisfied,
    }


def unsatisfied_lines(records: Sequence[Record]) -> Iterator[str]:
    """The corrections that do not hold, one per line."""
    if records:
        yield f"Not satisfied: {plural(len(records), 'correction')} (a contradiction, or beyond these weak learners)"
        yield from (f"  {as_line(record)}" for record in records)


def estimate_fields(estimate: Estimate | None) -> dict[str, float] | None:
    """An estimate for JSON."""
    if estimate is None:
        return None
    return {"recall": estimate.recall, "false_positives_per_image": estimate.false_positives_per_image}


def count_text(records: Sequence[Record]) -> str:
    """Numbers of corrections and examples.

    >>> count_text([])
    '0 corrections'
    """
    n_examples = sum(record.kind == "example" for record in records)
    text = plural(len(records) - n_examples, "correction")
    return f"{text}, {plural(n_examples, 'example')}" if n_examples else text


def records_of_image(detector: Detector, path: Path) -> list[Record]:
    """The records of an image: of the same pixels, or else of the same file name; raises `RecordError` without any."""
    from whet.detector.records import image_hash
    from whet.errors import RecordError, UnreadableImageError

    try:
        pixels = image_hash(detector.pixels(path))
    except UnreadableImageError:  # it may have been deleted: its name is enough
        pixels = ""
    records = detector.records
    found = [record for record in records if record.image == pixels]
    found = found or [record for record in records if record.name == path.name]
    if not found:
        raise RecordError(f"got --image {path}: the model has no record of it; `whet log MODEL` lists the images")
    return found
