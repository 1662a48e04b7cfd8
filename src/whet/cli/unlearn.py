"""`whet unlearn`: remove corrections from a detector, exactly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.corrections import as_fields, as_line, count_text, records_of_image
from whet.cli.models import Force, ModelOut, changed, model_out
from whet.cli.options import Json, Model, Quiet
from whet.cli.output import say, say_json, start

if TYPE_CHECKING:
    from whet.detector.detector import Detector
    from whet.detector.records import Record


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
      whet unlearn mine.whet --all --out original.whet
    """
    if sum((bool(ids), last is not None, bool(image), every)) != 1:
        raise typer.BadParameter(
            "got no corrections to remove, or more than one choice of them; use one of --id ID, --last N, --image FILE "
            "and --all"
        )
    start(quiet=quiet)
    target = model_out(model, out, force=force)
    with changed(model, target) as detector:
        chosen = _chosen(detector, ids, last, image)
        detector.unlearn(chosen)
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
        return list({record.id: record for path in image for record in records_of_image(detector, path)}.values())
    return records
