"""`whet merge`: what copies of one detector have learned at different places, in one."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.models import Destination, Force, is_file
from whet.cli.options import Json, Model, Quiet
from whet.cli.output import count, start, uninterrupted

if TYPE_CHECKING:
    from whet.detector.detector import Detector
    from whet.detector.records import Record


def merge(
    model: Model,
    others: Annotated[list[str], typer.Argument(metavar="OTHERS...", help="Models that learned on the same base.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write; MODEL itself may be named.")],
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Add to MODEL what other copies of it have learned: the detector that learned all of it, exactly.

    No image is needed. BoxOffset, operating points and provenance are those of MODEL. What several of them had learned
    before they were copied apart counts twice. Journals beside the models are merged, too, and tell that.

    \b
    whet merge door.whet yard.whet -o both.whet
    """
    start(quiet=quiet)
    from whet.detector.detector import load

    files = [Path(name).resolve() if is_file(name) else name for name in (model, *others)]
    twice = next((name for name, n in Counter(map(str, files)).items() if n > 1), None)
    if twice is not None:
        raise typer.BadParameter(f"{twice} is named twice: all that it has learned would count twice")
    detector = load(model)
    target = Destination.from_options(model, detector, out, force=force)
    told = [{"model": model} | _counts(detector)]
    entries: list[Record] = []
    for name in others:
        other = load(name)
        _merge(detector, other, model, name)
        entries += _entries(other, name)
        told.append({"model": name} | _counts(other))
    known = _entries(detector, model) if target.takes_along is None else target.takes_along
    shared = sum((Counter([*known, *entries]) - Counter(set(known) | set(entries))).values())
    with uninterrupted():
        target.save(detector, entries)
    if as_json:
        merged = {"model": str(target.out)} | _counts(detector)
        typer.echo(json.dumps({"merged": merged, "from": told, "entries_more_than_once": shared}, indent=1))
    elif not quiet:
        for row in told:
            typer.echo(f"{row['model']}: learned {_said(row)}")
        typer.echo(f"wrote {target}: learned {_said(_counts(detector))}")
    if shared and not quiet:
        typer.echo(
            f"whet: {count(shared, 'entry is', 'entries are')} in several journals, and so counted more than once: "
            "these models were copied apart after they had learned. Take them out once with whet unlearn",
            err=True,
        )


def _merge(detector: Detector, other: Detector, model: str, name: str) -> None:
    from whet.errors import CannotMergeError

    if other.base_id != detector.base_id:
        raise CannotMergeError(
            f"{name} is of another base ({other.base_id[:12]}) than {model} ({detector.base_id[:12]}); only copies of "
            "one detector can be merged. Nothing was written"
        )
    detector.merge(other)


def _entries(other: Detector, name: str) -> list[Record]:
    from whet.detector.journal import check_agreement, journal_beside

    if not is_file(name):
        return []
    journal = journal_beside(Path(name))
    check_agreement(other, journal, name)
    return journal.learned(base_id=other.base_id)


def _counts(detector: Detector) -> dict[str, object]:
    objects, others = detector.learned
    return {"learned_objects": objects, "learned_others": others}


def _said(row: dict[str, object]) -> str:
    return f"the object {row['learned_objects']:,} times, others {row['learned_others']:,} times"
