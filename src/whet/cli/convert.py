"""`whet convert` and `whet export`: annotations in another format, a detector as an OpenCV cascade."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from whet.cli.inputs import print_problems, skipped
from whet.cli.options import (
    AnnotationFormat,
    ExitCode,
    Force,
    ImageFolder,
    Json,
    Model,
    Quiet,
    Split,
    check_output_file,
    path_or_url,
)
from whet.cli.output import plural, progress_bar, say, say_json, start


def convert(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", parser=path_or_url, help="Annotations to read: a file or a directory.")
    ],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="File or directory to write.")],
    from_: Annotated[
        AnnotationFormat | None, typer.Option("--from", help="Format of SOURCE (default: detect automatically).")
    ] = None,
    to: Annotated[
        AnnotationFormat | None, typer.Option("--to", help="Format of TARGET (default: from its suffix).")
    ] = None,
    class_: Annotated[str | None, typer.Option("--class", metavar="NAME", help="Convert only this class.")] = None,
    images: ImageFolder = None,
    split: Split = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite TARGET if it exists.")] = False,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print counts and problems as JSON.")] = False,
) -> None:
    """Convert annotations between formats.

    \b
    coco    one JSON file                 csv     path,x,y,w,h[,label][,ignore]
    yolo    directory or its data.yaml    opencv  info.dat and bg.txt
    voc     directory of XML files        crops   directory of cropped objects

    Images are not moved: the new annotations refer to them. yolo copies images, crops cuts objects out.
    Annotations that cannot be read or represented in the new format are skipped and listed.
    The exit code is 5 if a part of SOURCE was skipped.

    \b
    Examples:
      whet convert instances.json cars.csv --class car
      whet convert VOC2007 yolo-set --to yolo
      whet convert labels.txt set.json --from opencv --images images
    """
    from whet.io.annotations.formats import place_to_write, read_annotations, write_annotations

    place_to_write(target, to and to.value, replace=force)  # fails before the slow part
    with progress_bar("reading", hidden=quiet) as progress:
        annotations = read_annotations(source, from_ and from_.value, images, progress)
    if split is not None:
        annotations = annotations.select_split(split)
    if class_ is not None:
        annotations = annotations.select(class_)
    with progress_bar("writing", hidden=quiet) as progress:
        lost = write_annotations(annotations, target, to and to.value, replace=force, progress=progress)
    problems = [*annotations.problems, *lost]
    if as_json:
        counts = {"images": len(annotations), "boxes": annotations.n_boxes, "ignored": annotations.n_ignored}
        rows = [{"kind": str(p.kind), "file": p.file, "line": p.line, "message": p.what} for p in problems]
        written = {"source": str(source), "format": annotations.format, "target": str(target)}
        say_json(written | counts | {"classes": annotations.counts, "problems": rows}, indent=None)
    else:
        print_problems(skipped(annotations.problems) if quiet else problems)
    if not as_json and not quiet:
        say(f"Wrote {target}: {annotations.summary()} (from {annotations.format})")
    if skipped(annotations.problems):
        raise typer.Exit(ExitCode.SOME_SKIPPED)


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
