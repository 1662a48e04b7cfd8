"""`whet unlearn`: remove corrections from a detector, exactly."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.models import Force, ModelOut, is_in_place, is_model_file, model_out
from whet.cli.options import Json, Model, Quiet, refuse, usage_errors
from whet.cli.output import plural, start, uninterrupted

if TYPE_CHECKING:
    from whet.detector.journal import Journal
    from whet.detector.records import Record


MAX_QUOTED = 60  # characters of a damaged line


def unlearn(
    model: Model,
    journal: Annotated[
        Path | None,
        typer.Argument(metavar="JOURNAL", help="Journal of MODEL (default: MODEL.journal.jsonl)."),
    ] = None,
    image: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", exists=True, dir_okay=False, help="Remove all records of this image. Repeatable."),
    ] = None,
    records: Annotated[
        str | None, typer.Option(metavar="NUMBERS", help="Remove records by number (see --list), such as 3,5-8.")
    ] = None,
    last: Annotated[int | None, typer.Option(min=1, metavar="N", help="Remove the last N records.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the records and exit.")] = False,
    journal_only: Annotated[
        bool, typer.Option("--journal-only", help="Change only the journal, after an interrupted run.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Remove an incomplete last line from the journal and exit.")
    ] = False,
    out: ModelOut = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Remove corrections from a detector, exactly, without any images.

    Removes all records of the journal, or those that you choose. The result has the same bytes as a detector that
    never learned them. The training samples of the base model cannot be removed.

    With --out, MODEL and its journal are unchanged; the remaining records go to a journal next to OUT.

    \b
    Examples:
      whet unlearn mine.whet --list
      whet unlearn mine.whet --records 3,5-8
      whet unlearn mine.whet camera.jsonl --image shots/dog.png
      whet unlearn mine.whet
    """
    if sum((bool(image), records is not None, last is not None)) > 1:
        raise typer.BadParameter("got more than one of --image, --records and --last; choose one")
    if repair:
        selection = {"image": image, "records": records, "last": last, "list": list_}
        refuse("with --repair; run --repair alone first", **selection, journal_only=journal_only, out=out, json=as_json)
    start(quiet=quiet)
    from whet.detector.detector import load
    from whet.detector.journal import (
        Journal,
        check_agreement,
        journal_beside,
        last_records,
        numbers_in,
        records_by_number,
        records_of_images,
        save_anew,
        save_unlearned,
    )

    detector = load(model)
    kept = Journal(_journal_path(model, journal))
    if repair:
        _repair(kept, quiet=quiet)
        check_agreement(detector, kept, model)
        return
    known = kept.learned(base_id=detector.base_id)
    chosen = known
    with usage_errors():
        if image:
            chosen = records_of_images(known, image)
        elif records is not None:
            chosen = records_by_number(known, numbers_in(records))
        elif last is not None:
            chosen = last_records(known, last)
    if list_:
        _print_records(known, chosen, len(kept.learned()) - len(known), as_json=as_json)
        return
    if journal_only:
        kept.add_unlearned(chosen)
        if not quiet:
            typer.echo(f"Removed {plural(len(chosen), 'record')} from {kept.path}; {model} is unchanged")
        return
    target = model_out(model, out, force=force)
    check_agreement(detector, kept, model)
    detector.unlearn(chosen)
    with uninterrupted():
        if not is_in_place(model, target):
            save_anew(detector, target, journal_beside(target), list((Counter(known) - Counter(chosen)).elements()))
        elif chosen:
            save_unlearned(detector, target, kept, chosen)
    positives, negatives = detector.learned
    if as_json:
        result = {"unlearned": len(chosen), "remaining": len(known) - len(chosen), "model": str(target)}
        typer.echo(json.dumps(result | {"learned_positives": positives, "learned_negatives": negatives}))
    elif not quiet:
        typer.echo(f"Unlearned {len(chosen):,} of {plural(len(known), 'record')}; wrote {target}")
        typer.echo(f"Remaining learned weight: {positives:,} positive, {negatives:,} negative")
        typer.echo("The training samples of the base model cannot be removed")


def _journal_path(model: str, journal: Path | None) -> Path:
    from whet.detector.journal import journal_beside

    if journal is None and not is_model_file(model):
        raise typer.BadParameter(f"{model} is not a .whet file and has no journal of its own; give JOURNAL")
    path = journal_beside(Path(model)).path if journal is None else journal
    if not path.is_file():
        raise typer.BadParameter(f"Journal does not exist: {path}; expected a file that whet learn has written")
    return path


def _repair(journal: Journal, *, quiet: bool) -> None:
    cut = journal.repair()
    if quiet:
        return
    remaining = plural(len(journal.learned()), "record")
    typer.echo(
        f"Removed an incomplete line from {journal.path}: {cut[:MAX_QUOTED]}{'...' * (len(cut) > MAX_QUOTED)} "
        f"({remaining} left)"
        if cut
        else f"Nothing to repair: all lines of {journal.path} are complete ({remaining})"
    )


def _print_records(known: Sequence[Record], chosen: Sequence[Record], n_other: int, *, as_json: bool) -> None:
    listed = set(chosen)
    rows = [(number, entry) for number, entry in enumerate(known, start=1) if entry in listed]
    if as_json:
        typer.echo(json.dumps([{"number": number} | _fields(entry) for number, entry in rows], indent=1))
        return
    for line in _table(rows):
        typer.echo(line)
    if n_other:
        typer.echo(f"Not listed: {plural(n_other, 'record')} of other base models")


def _fields(entry: Record) -> dict[str, object]:
    return {
        "image": entry.image,
        "scale": entry.scale,
        "y": entry.y,
        "x": entry.x,
        "is_object": entry.is_object,
        "weight": entry.weight,
        "stages": entry.stages,
    }


def _table(rows: Sequence[tuple[int, Record]]) -> Iterator[str]:
    yield "number  image hash       x       y   scale  label       weight"
    for number, entry in rows:
        x, y = entry.x * entry.scale, entry.y * entry.scale
        label = "object" if entry.is_object else "background"
        place = f"{x:7.0f} {y:7.0f} {entry.scale:7.2f}"
        yield f"{number:6d}  {entry.image[:10]} {place}  {label:<10} {entry.weight:7,}"
