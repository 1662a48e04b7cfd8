"""`whet export`: a detector as an OpenCV cascade."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from whet.cli.models import Force, check_output_file
from whet.cli.options import Json, Model, Quiet
from whet.cli.output import plural, say, say_json, start


class EarlyExits(StrEnum):
    """Which early exits of soft stages become stages of the OpenCV file."""

    all = "all"
    doubling = "doubling"
    none = "none"


def export(
    model: Model,
    out: Annotated[Path, typer.Argument(metavar="OUT.xml", help="File to write, for cv2.CascadeClassifier.")],
    early_exits: Annotated[
        EarlyExits,
        typer.Option(help="Early exits of soft stages to keep; all gives the same decisions with many more stumps."),
    ] = EarlyExits.doubling,
    exact: Annotated[
        bool, typer.Option("--exact", help="Add stumps that make up for the rounding to float32.")
    ] = False,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a detector as an OpenCV cascade.

    All stages must use Haar features, or all must use LBP: whet train --for-opencv trains such a detector. Sample
    counts, box offset and operating points cannot be represented in OpenCV's format. Differences in decisions and in
    the size of boxes are listed.

    \b
    Examples:
      whet export mine.whet mine.xml
      whet export mine.whet mine.xml --early-exits all
    """
    start(quiet=quiet)
    from whet.detector.storage import load

    if out.suffix.lower() != ".xml":
        raise typer.BadParameter(f"got {out}; expected a file name that ends in .xml")
    check_output_file(out, force=force)
    exported = load(model).export_opencv(out, early_exits=early_exits.value, exact=exact)
    if as_json:
        say_json({"file": str(out), **asdict(exported)})
    elif not quiet:
        size = f"{plural(exported.stages, 'stage')}, {plural(exported.stumps, 'tree')}, {out.stat().st_size:,} bytes"
        say(f"Wrote {out}: {size}")
        for line in exported.differences:
            say(f"  {line}")
