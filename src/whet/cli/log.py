"""`whet log` and `whet export-corrections`: what a model has learned since it was trained."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.corrections import SHORT_ID, as_fields, box_text, count_text, local_time
from whet.cli.models import Force, check_output_file
from whet.cli.options import Json, Model, Quiet
from whet.cli.output import say, say_json, start
from whet.detector.corrections_table import kind_name

if TYPE_CHECKING:
    from whet.detector.records import Record


def log(model: Model, as_json: Json = False) -> None:
    """List the corrections and examples inside a model, the newest first.

    Each row has the id for whet unlearn, the time, the label of the box (object, not object, or example), the file
    name, the box as x,y,w,h, the number of windows, whether the correction holds, and the note.

    \b
    Examples:
      whet log mine.whet
      whet log mine.whet --json | jq '.[] | select(.holds == false)'
    """
    start(quiet=True)
    from whet.detector.storage import load_model

    loaded = load_model(model)
    several = isinstance(loaded, Mapping)
    detectors = loaded if isinstance(loaded, Mapping) else {"": loaded}
    failing = {name: {record.id for record in one.unsatisfied} for name, one in detectors.items()}
    if as_json:
        rows = {name: [as_fields(each, failing[name]) for each in one.records] for name, one in detectors.items()}
        say_json(rows if several else rows[""])
        return
    for name, one in detectors.items():
        if several:
            say(f"class {name}:")
        for line in _table(one.records, failing[name]):
            say(line)


def _table(records: Sequence[Record], unsatisfied: set[str]) -> Iterator[str]:
    if not records:
        yield "No corrections"
        return
    head = ("id", "time", "label", "file", "box", "windows", "holds", "note")
    rows = [head, *(_row(record, record.id in unsatisfied) for record in records)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _row(record: Record, is_unsatisfied: bool) -> tuple[str, ...]:
    holds = "" if record.kind == "example" else "NO" if is_unsatisfied else "yes"
    from whet.io.files import printable

    texts = (record.id[:SHORT_ID], local_time(record), kind_name(record), printable(record.name), box_text(record))
    return (*texts, str(len(record)), holds, printable(record.note))


def export_corrections(
    model: Model,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Output file (COCO JSON).")],
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Write the corrections and examples inside a model as COCO annotations, for other tools.

    whet does not read the file as annotations: its images have boxes only where they were corrected.

    Missed objects and examples have the category "object", false positives the category "not-object". Each annotation
    also has the keys record (its id), kind, time and note. Images have the file name and the SHA-256 of their grey
    pixels; their sizes are not known, because a model holds no images.

    \b
    Examples:
      whet export-corrections mine.whet -o corrections.json
      whet export-corrections door.whet -o door.json --force
    """
    start(quiet=quiet)
    from whet.detector.corrections_table import as_coco
    from whet.detector.storage import load
    from whet.io.files import write_atomically

    check_output_file(out, force=force)
    records = load(model).records
    write_atomically(out, json.dumps(as_coco(records), indent=1, allow_nan=False).encode())
    if not quiet:
        say(f"Wrote {count_text(records)} to {out}")
