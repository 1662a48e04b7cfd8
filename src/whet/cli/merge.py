"""`whet merge`: combine the corrections of several copies of a detector."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.models import Destination, Force, is_model_file
from whet.cli.options import Json, Model, Quiet
from whet.cli.output import plural, start, uninterrupted, warn

if TYPE_CHECKING:
    from whet.detector.detector import Detector
    from whet.detector.records import Record


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

    The result equals a detector that learned all samples itself. Box offset, operating points and provenance are
    those of MODEL. The journals are merged too. Samples learned before the models were copied count twice; a
    warning reports them.

    \b
    Examples:
      whet merge door.whet yard.whet --out both.whet
      whet merge main.whet camera1.whet camera2.whet --out main.whet
    """
    start(quiet=quiet)
    from whet.detector.detector import load

    files = [Path(name).resolve() if is_model_file(name) else name for name in (model, *others)]
    twice = next((name for name, n in Counter(map(str, files)).items() if n > 1), None)
    if twice is not None:
        raise typer.BadParameter(f"{twice} is given twice and would count twice; give each model once")
    detector = load(model)
    target = Destination.from_options(model, detector, out, force=force)
    sources = [{"model": model} | _counts(detector)]
    records: list[Record] = []
    for name in others:
        other = load(name)
        _merge(detector, other, model, name)
        records += _records(other, name)
        sources.append({"model": name} | _counts(other))
    known = _records(detector, model) if target.inherited is None else target.inherited
    n_shared = sum((Counter([*known, *records]) - Counter(set(known) | set(records))).values())
    with uninterrupted():
        target.save(detector, records)
    if as_json:
        merged = {"model": str(target.out)} | _counts(detector)
        typer.echo(json.dumps({"merged": merged, "sources": sources, "duplicate_records": n_shared}, indent=1))
    elif not quiet:
        for source in sources:
            typer.echo(f"{source['model']}: {_text(source)}")
        typer.echo(f"Wrote {target}: {_text(_counts(detector))}")
    if n_shared and not quiet:
        warn(
            f"Warning: {plural(n_shared, 'record is', 'records are')} in several journals and counted more than once, "
            "because the models were copied after they had learned; remove the duplicates with whet unlearn --records"
        )


def _merge(detector: Detector, other: Detector, model: str, name: str) -> None:
    from whet.errors import CannotMergeError

    if other.base_id != detector.base_id:
        raise CannotMergeError(
            f"{name} has another base ({other.base_id[:12]}) than {model} ({detector.base_id[:12]}); expected copies "
            "of one detector. Nothing was written"
        )
    detector.merge(other)


def _records(other: Detector, name: str) -> list[Record]:
    from whet.detector.journal import check_agreement, journal_beside

    if not is_model_file(name):
        return []
    journal = journal_beside(Path(name))
    check_agreement(other, journal, name)
    return journal.learned(base_id=other.base_id)


def _counts(detector: Detector) -> dict[str, object]:
    positives, negatives = detector.learned
    return {"learned_positives": positives, "learned_negatives": negatives}


def _text(counts: dict[str, object]) -> str:
    return f"learned weight {counts['learned_positives']:,} positive, {counts['learned_negatives']:,} negative"
