"""`whet unlearn`: what a detector has learned is taken out again, exactly."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.models import Force, ModelOut, is_file, is_same, model_out
from whet.cli.options import Json, Model, Quiet, refuse, wrong_call_if_value_error
from whet.cli.output import count, start, uninterrupted

if TYPE_CHECKING:
    from whet.detector.journal import Journal
    from whet.detector.records import Record


MOST_SHOWN = 60
BASE_STAYS = "What the base was trained on cannot be taken out: it chose the weak learners."


def unlearn(
    model: Model,
    journal: Annotated[
        Path | None,
        typer.Argument(
            metavar="[JOURNAL]", exists=True, dir_okay=False, help="What it learned; else MODEL.journal.jsonl."
        ),
    ] = None,
    image: Annotated[
        list[Path] | None,
        typer.Option(exists=True, dir_okay=False, help="All that was learned from this image. May be repeated."),
    ] = None,
    entries: Annotated[str | None, typer.Option(help="Entries by number, as --list has them: 3,5-8.")] = None,
    last: Annotated[int | None, typer.Option(min=1, help="The entries that were learned last.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="Show what is in the journal, and change nothing.")] = False,
    journal_only: Annotated[
        bool, typer.Option("--journal-only", help="Change the journal alone, after a run was cut short.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Take a last line that was cut short off the journal, and do nothing else.")
    ] = False,
    out: ModelOut = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Take out what a detector has learned, as if it had never been shown; no image is needed.

    All of a journal, or entries of it. The detector that is left has the bytes of one that never learned them.
    What the base was trained on cannot be taken out: it chose the weak learners.

    \b
    With --out, MODEL and its journal stay as they are, and what is left gets a journal beside OUT.

    \b
    whet unlearn mine.whet --list
    whet unlearn mine.whet --entries 3,5-8
    whet unlearn mine.whet camera.jsonl --image shots/dog.png
    whet unlearn mine.whet
    """
    if sum((bool(image), entries is not None, last is not None)) > 1:
        raise typer.BadParameter("got several of --image, --entries and --last: choose one")
    if repair:
        chosen_by = {"image": image, "entries": entries, "last": last, "list": listed}
        why = "with --repair, which does nothing else: repair it first"
        refuse(why, **chosen_by, journal_only=journal_only, out=out, json=as_json)
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
    kept = _journal_of(model) if journal is None else Journal(journal)
    if repair:
        _repair(kept, quiet=quiet)
        check_agreement(detector, kept, model)
        return
    known = kept.learned(base_id=detector.base_id)
    chosen = known
    with wrong_call_if_value_error():
        if image:
            chosen = records_of_images(known, image)
        elif entries is not None:
            chosen = records_by_number(known, numbers_in(entries))
        elif last is not None:
            chosen = last_records(known, last)
    if listed:
        _show_list(known, chosen, len(kept.learned()) - len(known), as_json=as_json)
        return
    if journal_only:
        kept.add_unlearned(chosen)
        typer.echo(f"{count(len(chosen), 'entry', 'entries')} taken off {kept.path}; {model} stays as it is")
        return
    target = model_out(model, out, force=force)
    check_agreement(detector, kept, model)
    detector.unlearn(chosen)
    with uninterrupted():
        if not is_same(model, target):
            save_anew(detector, target, journal_beside(target), list((Counter(known) - Counter(chosen)).elements()))
        elif chosen:
            save_unlearned(detector, target, kept, chosen)
    objects, others = detector.learned
    if as_json:
        told = {"unlearned": len(chosen), "left": len(known) - len(chosen), "model": str(target)}
        typer.echo(json.dumps(told | {"learned_objects": objects, "learned_others": others}))
    elif not quiet:
        typer.echo(f"{target}: unlearned {len(chosen)} of {count(len(known), 'entry', 'entries')}")
        typer.echo(f"learned since its base, now: the object {count(objects, 'time')}, others {count(others, 'time')}")
        typer.echo(BASE_STAYS)


def _journal_of(model: str) -> Journal:
    from whet.detector.journal import journal_beside

    if not is_file(model):
        raise typer.BadParameter(f"{model} is no file with a journal beside it: name the journal")
    found = journal_beside(Path(model))
    if not found.path.exists():
        raise typer.BadParameter(f"there is no journal {found.path}: name the one that has what {model} learned")
    return found


def _repair(journal: Journal, *, quiet: bool) -> None:
    cut = journal.repair()
    if quiet:
        return
    left = count(len(journal.learned()), "entry", "entries")
    typer.echo(
        f"took off {journal.path}: {cut[:MOST_SHOWN]}{'...' * (len(cut) > MOST_SHOWN)}; {left} left"
        if cut
        else f"nothing to repair: all lines of {journal.path} are whole, {left}"
    )


def _show_list(known: Sequence[Record], chosen: Sequence[Record], of_others: int, *, as_json: bool) -> None:
    shown = set(chosen)
    rows = [(number, entry) for number, entry in enumerate(known, start=1) if entry in shown]
    if as_json:
        typer.echo(json.dumps([{"number": number} | _fields(entry) for number, entry in rows], indent=1))
        return
    for line in _table(rows):
        typer.echo(line)
    if of_others:
        typer.echo(f"and {count(of_others, 'entry', 'entries')} of other bases, which this model has not learned")


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
    yield "number  image         x       y   scale  label   weight"
    for number, entry in rows:
        x, y = entry.x * entry.scale, entry.y * entry.scale
        label = "object" if entry.is_object else "other"
        place = f"{x:7.0f} {y:7.0f} {entry.scale:7.2f}"
        yield f"{number:6d}  {entry.image[:10]} {place}  {label:<6} {entry.weight:7,}"
