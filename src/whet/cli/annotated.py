"""Annotated pictures as commands name them, and how they are looked at: options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.convert import Format, left_out, show
from whet.cli.progress import progress_bar

if TYPE_CHECKING:
    from whet.io.annotations.annotation import Annotations
    from whet.io.annotations.problem import Problem

FormatOption = Annotated[Format | None, typer.Option("--format", help="Format of annotations; else it is found out.")]
Images = Annotated[
    Path | None, typer.Option(exists=True, file_okay=False, help="Folder of annotated pictures, if not beside.")
]
Class = Annotated[str | None, typer.Option("--class", help="The class that is the object, where there are several.")]
Split = Annotated[str | None, typer.Option(help="Only this part of the annotations, such as val.")]
MinSize = Annotated[float | None, typer.Option(help="Longer side of the smallest boxes, in pixels.")]
MaxSize = Annotated[float | None, typer.Option(help="Longer side of the largest boxes, in pixels.")]
Factor = Annotated[float, typer.Option(help="Ratio of one size to the next.")]
Step = Annotated[int, typer.Option(min=1, help="Pixels from one window to the next.")]


def read_set(
    path: Path,
    format: Format | None = None,
    images: Path | None = None,
    class_: str | None = None,
    split: str | None = None,
    *,
    quiet: bool = False,
) -> Annotations:
    """Read annotations of one class; what is wrong with them is told on standard error, if quiet what was left out."""
    from whet.io.annotations.formats import read_annotations

    with progress_bar("reading", hidden=quiet) as progress:
        found = read_annotations(path, format and format.value, images, progress)
    if split is not None:
        found = found.of_split(split)
    found = found.select(class_)
    show(left_out(found.problems) if quiet else found.problems)
    return found


def is_incomplete(problems: Sequence[Problem]) -> bool:
    """Whether something of the annotations was left out."""
    return bool(left_out(problems))


def scan_options(
    min_size: float | None, max_size: float | None, factor: float, step: int, threads: int | None
) -> dict[str, Any]:
    """How pictures are looked at, as `Detector.detect` and `Detector.learn` take it."""
    return {"min_size": min_size, "max_size": max_size, "factor": factor, "step": step, "threads": threads}
