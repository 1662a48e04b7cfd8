"""What a model has learned since it was trained: `whet log`, `export-corrections`, `unlearn` and `merge`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.options import Force, Json, Model, ModelOut, Quiet, changed, check_output_file, is_model_file, model_out
from whet.cli.output import (
    SHORT_ID,
    as_fields,
    as_line,
    box_text,
    count_text,
    estimate_fields,
    plural,
    say,
    say_json,
    start,
    unsatisfied_lines,
    warn,
)

if TYPE_CHECKING:
    from whet.detector.detector import Detector
    from whet.detector.records import Record

# --- whet log, whet export-corrections --------------------------------------------------------------------------------


def log(model: Model, as_json: Json = False) -> None:
    """List the corrections and examples inside a model, the newest first.

    Each row has the id for whet unlearn, the time, the label of the box (object, not object, or example), the file
    name, the box as x,y,w,h, the number of windows, whether the correction holds, the site, if any has one, and the
    note.

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
    head: tuple[str, ...] = ("id", "time", "label", "file", "box", "windows", "holds", "note")
    rows = [head, *(_row(record, record.id in unsatisfied) for record in records)]
    if any(record.site for record in records):
        sites = ["site", *(record.site for record in records)]
        rows = [(*row[:-1], site, row[-1]) for row, site in zip(rows, sites, strict=True)]
        head = rows[0]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _row(record: Record, is_unsatisfied: bool) -> tuple[str, ...]:
    from whet.io.files import printable

    holds = "" if record.kind == "example" else "NO" if is_unsatisfied else "yes"
    texts = (record.id[:SHORT_ID], _local_time(record), record.kind_name, printable(record.name), box_text(record))
    return (*texts, str(len(record)), holds, printable(record.note))


def _local_time(record: Record) -> str:
    """The time at which a record was made, in the local time zone; empty if it is not known."""
    time = record.made_at
    return "" if time is None else time.astimezone().strftime("%Y-%m-%d %H:%M:%S")


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
    from whet.detector.records import as_coco
    from whet.detector.storage import load
    from whet.io.files import write_atomically

    check_output_file(out, force=force)
    records = load(model).records
    write_atomically(out, json.dumps(as_coco(records), indent=1, allow_nan=False).encode())
    if not quiet:
        say(f"Wrote {count_text(records)} to {out}")


# --- whet unlearn -----------------------------------------------------------------------------------------------------


def unlearn(
    model: Model,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="Remove this correction, by its id or the start of it. Repeatable."),
    ] = None,
    last: Annotated[int | None, typer.Option(min=1, metavar="N", help="Remove the newest N corrections.")] = None,
    image: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Remove all corrections of this image, by its pixels or else its name. Repeatable."
        ),
    ] = None,
    site: Annotated[
        str | None, typer.Option(metavar="NAME", help="Remove all that this site has learned (whet learn --site).")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Remove all corrections and examples.")] = False,
    out: ModelOut = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Remove corrections and examples from a detector, exactly, without any images.

    The result has the same bytes as a detector that never learned them. whet log lists them with their ids. The
    training samples of the base model cannot be removed, nor samples that were counted without a record.

    \b
    Examples:
      whet unlearn mine.whet --last 1
      whet unlearn mine.whet --id 6af0223f --id 91c07ab2
      whet unlearn mine.whet --image shots/dog.png
      whet unlearn all.whet --site harbour
      whet unlearn mine.whet --all --out original.whet
    """
    if sum((bool(ids), last is not None, bool(image), site is not None, every)) != 1:
        raise typer.BadParameter(
            "got no corrections to remove, or more than one choice of them; use one of --id ID, --last N, --image "
            "FILE, --site NAME and --all"
        )
    start(quiet=quiet)
    target = model_out(model, out, force=force)
    with changed(model, target) as detector:
        if site is None:
            chosen = _chosen(detector, ids, last, image)
            detector.unlearn(chosen)
        else:
            chosen = detector.unlearn_site(site)
        remaining = detector.records
    if as_json:
        removed = [as_fields(record) for record in chosen]
        say_json({"unlearned": removed, "remaining": len(remaining), "model": str(target)})
    elif not quiet:
        for record in chosen:
            say(f"Unlearned {as_line(record)}")
        say(f"Wrote {target}: {count_text(remaining)} left")


def _chosen(detector: Detector, ids: list[str] | None, last: int | None, image: list[Path] | None) -> list[Record]:
    """The records that the options name; all of them without any option."""
    from whet.detector.records import Records

    records = detector.records
    if ids:
        known = Records.from_iterable(records)
        return list({record.id: record for record in map(known.find, ids)}.values())
    if last is not None:
        if last > len(records):
            raise typer.BadParameter(f"got --last {last}; expected at most {len(records)}, the number in the model")
        return records[:last]
    if image:
        return list({record.id: record for path in image for record in _records_of_image(detector, path)}.values())
    return records


def _records_of_image(detector: Detector, path: Path) -> list[Record]:
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


# --- whet merge -------------------------------------------------------------------------------------------------------


def merge(
    model: Model,
    others: Annotated[
        list[str], typer.Argument(metavar="OTHERS", help="Copies of the same detector with other corrections.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Output model; may be MODEL itself.")],
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Combine the corrections of several copies of a detector into one, exactly, without any images.

    The result equals a detector that learned all corrections and examples itself; those that several models share count
    once. If the models learned with whet learn --site, whet unlearn --site removes one of them again. Corrections that
    contradict one another are listed. Box offset, operating points and provenance are those of MODEL. Samples that were
    counted without records before the models were copied count twice.

    \b
    Examples:
      whet merge door.whet yard.whet --out both.whet
      whet merge main.whet camera1.whet camera2.whet --out main.whet
      whet merge north.whet south.whet east.whet west.whet --out all.whet
    """
    start(quiet=quiet)
    from whet.detector.storage import load

    files = [Path(name).resolve() if is_model_file(name) else name for name in (model, *others)]
    twice = next((name for name, n in Counter(map(str, files)).items() if n > 1), None)
    if twice is not None:
        raise typer.BadParameter(f"{twice} is given twice; give each model once")
    target = model_out(model, out, force=force)
    loaded = [load(name) for name in others]
    with changed(model, target) as detector:
        sources = [(model, detector.copy()), *zip(others, loaded, strict=True)]
        for name, other in sources[1:]:
            _check_base(detector, other, model, name)
        detector.merge(*loaded)
    n_all, merged = sum(len(one.records) for _, one in sources), len(detector.records)
    if as_json:
        parts = [_fields(name, one) for name, one in sources]
        result = {"merged": _fields(str(target), detector), "sources": parts, "shared": n_all - merged}
        unsatisfied = detector.unsatisfied
        result["unsatisfied"] = [as_fields(record, [record.id]) for record in unsatisfied]
        say_json(result)
    elif not quiet:
        for name, one in sources:
            say(f"{name}: {count_text(one.records)}")
        say(f"Wrote {target}: {count_text(detector.records)} ({n_all - merged:,} shared)")
        for line in unsatisfied_lines(detector.unsatisfied):
            say(line)
    n_counted = sum(not one.counts.is_empty for _, one in sources)
    if n_counted > 1 and not quiet:
        warn(
            f"Warning: {plural(n_counted, 'model has', 'models have')} samples without records; those from before the "
            "models were copied count twice. Use whet learn, which keeps records, to avoid this"
        )


def _check_base(detector: Detector, other: Detector, model: str, name: str) -> None:
    from whet.errors import CannotMergeError

    if other.base_id != detector.base_id:
        raise CannotMergeError(
            f"{name} has another base ({other.base_id[:12]}) than {model} ({detector.base_id[:12]}); expected copies "
            "of one detector. Nothing was written"
        )


def _fields(name: str, detector: Detector) -> dict[str, Any]:
    n_examples = sum(record.kind == "example" for record in detector.records)
    return {
        "model": name,
        "corrections": len(detector.records) - n_examples,
        "examples": n_examples,
        "estimate": estimate_fields(detector.estimate),
    }
