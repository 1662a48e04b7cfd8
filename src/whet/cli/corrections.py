"""What a model has learned since it was trained: `whet log`, `unlearn`, `refit`, `merge` and others."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.options import (
    Force,
    Json,
    Model,
    ModelOut,
    Quiet,
    Threads,
    changed,
    check_output_file,
    is_model_file,
    model_out,
)
from whet.cli.output import (
    SHORT_ID,
    as_fields,
    as_line,
    box_text,
    count_text,
    estimate_fields,
    nothing_changed_on_ctrl_c,
    plural,
    refit_bar,
    say,
    say_json,
    start,
    unsatisfied_lines,
    warn,
)

if TYPE_CHECKING:
    from whet.corrections.records import Record
    from whet.detector.detector import Detector

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
    from whet.detector.storage import load

    loaded = load(model)
    detectors = {name: loaded.select(name) for name in loaded.classes}
    failing = {name: {record.id for record in part.unsatisfied} for name, part in detectors.items()}
    if as_json:
        rows = {name: [as_fields(record, failing[name]) for record in part.records] for name, part in detectors.items()}
        say_json(rows if len(rows) > 1 else next(iter(rows.values())))
        return
    for name, part in detectors.items():
        if len(detectors) > 1:
            say(f"class {name}:")
        for line in _table(part.records, failing[name]):
            say(line)


def _table(records: Sequence[Record], unsatisfied: set[str]) -> Iterator[str]:
    from whet.io.files import printable

    if not records:
        yield "No corrections"
        return
    columns: dict[str, Callable[[Record], str]] = {
        "id": lambda record: record.id[:SHORT_ID],
        "time": lambda record: f"{record.made_at.astimezone():%Y-%m-%d %H:%M:%S}" if record.made_at else "",
        "label": lambda record: record.kind_name,
        "file": lambda record: printable(record.name),
        "box": lambda record: box_text(record.box),
        "windows": lambda record: str(len(record)),
        "holds": lambda record: "" if record.kind != "correction" else "NO" if record.id in unsatisfied else "yes",
        "site": lambda record: record.site,
        "note": lambda record: printable(record.note),
    }
    if not any(record.site for record in records):
        del columns["site"]
    rows = [list(columns), *([text(record) for text in columns.values()] for record in records)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


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
    from whet.corrections.records import as_coco
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
        say_refit(detector, target)


def _chosen(detector: Detector, ids: list[str] | None, last: int | None, image: list[Path] | None) -> list[Record]:
    """The records that the options name; all of them without any option."""
    from whet.corrections.records import Records

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
    from whet.corrections.records import image_hash
    from whet.errors import RecordError, UnreadableImageError

    try:
        hashes = {image_hash(shape.pixels(path)) for shape in detector.shapes()}
    except UnreadableImageError:  # it may have been deleted: its name is enough
        hashes = set()
    by_pixels = [record for record in detector.records if record.image in hashes]
    records = by_pixels or [record for record in detector.records if record.name == path.name]
    if not records:
        raise RecordError(f"got --image {path}: the model has no record of it; `whet log MODEL` lists the images")
    return records


# --- whet refit, whet strip -------------------------------------------------------------------------------------------


def say_refit(detector: Detector, target: Path) -> None:
    """Say that a refit is due."""
    if detector.needs_refit:
        say(f"The model itself is as before. To make it again from what is left: whet refit {shlex.quote(str(target))}")


def refit(
    model: Model,
    out: ModelOut = None,
    force: Force = False,
    threads: Threads = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a model again from its samples: those of the training, and of all that was learned since.

    whet learn does this by itself. Use this command after whet unlearn, whet merge or whet learn --no-refit. The result
    depends on the set of samples alone: the same for any order of learning, and as if nothing unlearned had ever been
    learned. No images are needed. The model keeps small crops of objects and backgrounds for this; whet strip
    removes them. A model that learns by counting, such as face, has learned already, and stays as it is.

    \b
    Examples:
      whet refit both.whet
      whet refit mine.whet --out better.whet
      whet refit mine.whet --json
    """
    start(quiet=quiet)
    from whet.detector.storage import load

    target = model_out(model, out, force=force)
    made = load(model)
    with nothing_changed_on_ctrl_c(), refit_bar(hidden=quiet) as progress:
        update = made.refit(threads=threads, progress=progress)
    with changed(model, target) as detector:
        detector.take_refit(made)
    if as_json:
        estimates = {"before": estimate_fields(update.before), "after": estimate_fields(update.after)}
        say_json({"estimate": estimates, "unsatisfied": len(update.unsatisfied), "model": str(target)})
    elif not quiet:
        if all(shape.counts_examples for shape in made.shapes()):
            say("This model learns by counting: it has learned everything already, and stays as it is.")
        if update.before is not None and update.after is not None:
            say(f"On other images before: {update.before}")
            say(f"On other images after:  {update.after}")
        for line in unsatisfied_lines(update.unsatisfied):
            say(line)
        say(f"Wrote {target}")


def strip(
    model: Model,
    out: ModelOut = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Remove the samples from a model: small crops of objects and backgrounds that refits need.

    The model detects as before, and can be corrected; what it learns from then on does not reach other images. This
    cannot be undone.

    \b
    Examples:
      whet strip mine.whet --out public.whet
      whet strip mine.whet
    """
    start(quiet=quiet)
    target = model_out(model, out, force=force)
    with changed(model, target) as detector:
        detector.strip()
        size = len(detector.to_bytes())
    if not quiet:
        say(f"Wrote {target}: {size / 1e6:.2f} MB, without samples")


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
    from whet.errors import CannotMergeError

    files = [Path(name).resolve() if is_model_file(name) else name for name in (model, *others)]
    twice = next((name for name, n in Counter(map(str, files)).items() if n > 1), None)
    if twice is not None:
        raise typer.BadParameter(f"{twice} is given twice; give each model once")
    target = model_out(model, out, force=force)
    loaded = [load(name) for name in others]
    with changed(model, target) as detector:
        sources = {model: detector.copy(), **dict(zip(others, loaded, strict=True))}
        ours, *theirs = (", ".join(shape.base_id[:12] for shape in part.shapes()) for part in sources.values())
        for name, bases in zip(others, theirs, strict=True):
            if bases != ours:
                raise CannotMergeError(
                    f"{name} has another base ({bases}) than {model} ({ours}); expected copies of one detector. "
                    "Nothing was written"
                )
        detector.merge(*loaded)
    n_shared = sum(len(part.records) for part in sources.values()) - len(detector.records)
    unsatisfied = detector.unsatisfied
    if as_json:
        say_json(
            {
                "merged": _fields(str(target), detector),
                "sources": [_fields(name, part) for name, part in sources.items()],
                "shared": n_shared,
                "unsatisfied": [as_fields(record, [record.id]) for record in unsatisfied],
            }
        )
    elif not quiet:
        for name, part in sources.items():
            say(f"{name}: {count_text(part.records)}")
        say(f"Wrote {target}: {count_text(detector.records)} ({n_shared:,} shared)")
        for line in unsatisfied_lines(unsatisfied):
            say(line)
        say_refit(detector, target)
    n_counted = sum(any(shape.counts is not None for shape in part.shapes()) for part in sources.values())
    if n_counted > 1 and not quiet:
        warn(
            f"Warning: {plural(n_counted, 'model has', 'models have')} samples without records; those from before the "
            "models were copied count twice. Use whet learn, which keeps records, to avoid this"
        )


def _fields(name: str, detector: Detector) -> dict[str, Any]:
    n_examples = sum(record.kind == "example" for record in detector.records)
    return {
        "model": name,
        "corrections": len(detector.records) - n_examples,
        "examples": n_examples,
        "estimate": estimate_fields(detector.estimate),
    }
