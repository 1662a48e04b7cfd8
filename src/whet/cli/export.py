"""`whet export`: a detector as a file for OpenCV."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from whet.cli.options import Json, Model, Quiet
from whet.cli.output import start


class ExitChoice(StrEnum):
    """Which exits inside of stages are kept."""

    all = "all"
    doubling = "doubling"
    none = "none"


def export(
    model: Model,
    out: Annotated[Path, typer.Argument(metavar="OUT.xml", help="File to write, for cv2.CascadeClassifier.")],
    early_exits: Annotated[
        ExitChoice, typer.Option(help="Exits to keep of soft stages; all decides alike, with many more stumps.")
    ] = ExitChoice.doubling,
    exact: Annotated[bool, typer.Option("--exact", help="A second stump for what float32 rounds off.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file that is there already.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a detector as it is now for OpenCV: all stages of Haar features, or all of LBP.

    What it has counted, its frame and its operating points stay behind. Where the file decides otherwise, that is told.

    \b
    whet export mine.whet mine.xml
    whet export mine.whet mine.xml --early-exits all
    """
    start(quiet=quiet)
    from whet.detector.detector import load

    if out.suffix.lower() != ".xml":
        raise typer.BadParameter(f"got {out}; OpenCV knows a cascade by its name, which ends in .xml")
    if out.exists() and not force:
        raise typer.BadParameter(f"{out} is there already: give another name, or replace it with --force")
    exported = load(model).export_opencv(out, early_exits=early_exits.value, exact=exact)
    if as_json:
        typer.echo(json.dumps({"file": str(out), **asdict(exported)}, indent=1))
    elif not quiet:
        size = f"{exported.stages:,} stages, {exported.stumps:,} stumps or trees, {out.stat().st_size:,} bytes"
        typer.echo(f"{out}: {size}")
        for line in exported.differences:
            typer.echo(f"  {line}")
