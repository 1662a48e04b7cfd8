"""`whet convert`: annotations from one format to another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.exit_codes import ExitCode
from whet.cli.options import AnnotationFormat, Quiet
from whet.cli.progress import progress_bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whet.io.annotations.problem import Problem

# So many problems are shown one by one; the rest are counted.
SHOWN = 10
# Kinds of problems, `whet.io.annotations.problem.ProblemKind`, by which something is missing from what was written.
LEFT_OUT = ("pictures missing", "pictures unreadable", "rows skipped", "boxes dropped")


def convert(
    source: Annotated[Path, typer.Argument(help="Annotations: a file or a folder.")],
    target: Annotated[Path, typer.Argument(help="File (coco, csv) or folder (others) to write.")],
    from_: Annotated[
        AnnotationFormat | None, typer.Option("--from", help="Format of SOURCE; else it is found out.")
    ] = None,
    to: Annotated[AnnotationFormat | None, typer.Option(help="Format of TARGET; else by its suffix.")] = None,
    class_: Annotated[str | None, typer.Option("--class", help="Only this class.")] = None,
    images: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Folder of the pictures, if not beside SOURCE.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Only this part of the set, such as val.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what is at TARGET.")] = False,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print counts and problems as JSON.")] = False,
) -> None:
    """Convert annotations: COCO, YOLO, Pascal VOC, OpenCV's info.dat, CSV, folders of crops.

    \b
    coco    one JSON file                 csv     path,x,y,w,h[,label][,ignore]
    yolo    folder or its data.yaml       opencv  info.dat and bg.txt
    voc     folder of XML files           crops   folder of cut-out objects

    \b
    Pictures stay where they are and are referred to; yolo copies them, crops cuts objects out.
    What cannot be read, or cannot be said in the other format, is left out and told.
    Where something of SOURCE was left out, the exit code is 5.

    \b
    whet convert instances.json cars.csv --class car
    whet convert VOC2007 yolo-set --to yolo
    whet convert labels.txt set.json --from opencv --images pictures
    """
    from whet.io.annotations.formats import place_to_write, read_annotations, write_annotations

    place_to_write(target, to and to.value, replace=force)  # before a long time of reading
    with progress_bar("reading", hidden=quiet) as progress:
        found = read_annotations(source, from_ and from_.value, images, progress)
    if split is not None:
        found = found.of_split(split)
    if class_ is not None:
        found = found.select(class_)
    with progress_bar("writing", hidden=quiet) as progress:
        lost = write_annotations(found, target, to and to.value, replace=force, progress=progress)
    problems = [*found.problems, *lost]
    if as_json:
        counts = {"pictures": len(found), "boxes": found.n_boxes, "ignored": found.n_ignored, "classes": found.counts}
        told = [{"kind": str(each.kind), "file": each.file, "line": each.line, "what": each.what} for each in problems]
        typer.echo(json.dumps({"source": str(source), "from": found.format, **counts, "problems": told}))
    else:
        show(left_out(found.problems) if quiet else problems)
    if not as_json and not quiet:
        typer.echo(f"{target}: {found.summary()} (from {found.format})")
    if left_out(found.problems):
        raise typer.Exit(ExitCode.SOME_SKIPPED)


def left_out(problems: Sequence[Problem]) -> list[Problem]:
    """Those by which something of the annotations is missing."""
    return [problem for problem in problems if problem.kind in LEFT_OUT]


def show(problems: Sequence[Problem]) -> None:
    """The first problems, one in a line, on standard error."""
    for problem in problems[:SHOWN]:
        typer.echo(str(problem), err=True)
    if len(problems) > SHOWN:
        typer.echo(f"... and {len(problems) - SHOWN:,} more (all with --json)", err=True)
