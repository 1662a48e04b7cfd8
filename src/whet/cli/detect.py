"""`whet detect`: boxes in pictures."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.options import Json, Model, Out, Pictures, Quiet, Threads, Threshold, threshold_of
from whet.cli.progress import progress_bar
from whet.cli.results import exit_if_skipped, write_text
from whet.cli.start import start
from whet.cli.wrong_call import wrong_call_if_value_error

if TYPE_CHECKING:
    from whet.plots.drawn_folder import DrawnFolder
    from whet.training.detection_run import DetectedPicture


class Format(StrEnum):
    """The layouts of `whet.io.detection_files`, listed here for help without imports."""

    text = "text"
    json = "json"
    csv = "csv"
    coco = "coco"


def detect(
    model: Model,
    pictures: Pictures,
    threshold: Threshold = None,
    min_size: Annotated[float | None, typer.Option(help="Longer side of the smallest boxes, in pixels.")] = None,
    max_size: Annotated[float | None, typer.Option(help="Longer side of the largest boxes, in pixels.")] = None,
    factor: Annotated[float, typer.Option(help="Ratio of one size to the next.")] = 1.2,
    step: Annotated[int, typer.Option(min=1, help="Pixels from one window to the next.")] = 1,
    best: Annotated[bool, typer.Option("--best", help="Only the best box of a picture.")] = False,
    layout: Annotated[Format, typer.Option("--format", "-f", help="How boxes are written.")] = Format.text,
    as_json: Json = False,
    out: Out = None,
    draw: Annotated[Path | None, typer.Option(help="Folder for the pictures with their boxes drawn in.")] = None,
    ids: Annotated[Path | None, typer.Option(help="COCO file whose picture ids --format coco uses.")] = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Find objects in pictures.

    Pictures that cannot be read are skipped, counted and named at the end; the exit code is then 5.

    \b
    whet detect face holiday.jpg
    whet detect mine.whet shots/ --draw drawn --threshold 2.5
    whet detect face 'shots/**/*.png' --format csv --out boxes.csv
    find . -name '*.jpg' | whet detect face - --json | jq '.[].boxes'
    """
    start(quiet=quiet)
    from whet.io.detection_files import Layout, written
    from whet.io.picture_ids import coco_ids, ids_of
    from whet.io.pictures import find_pictures
    from whet.plots.drawn_folder import DrawnFolder
    from whet.training.detection_run import detect_many
    from whet.training.detector import load

    detector = load(model)
    paths = find_pictures(pictures, sys.stdin)
    # By place among all pictures, so that one that is skipped does not move the others.
    numbers = {path: n for n, path in enumerate(paths, start=1)} if ids is None else ids_of(paths, coco_ids(ids))
    drawing = None if draw is None else DrawnFolder(draw, paths)
    with wrong_call_if_value_error():
        run = detect_many(
            detector,
            paths,
            threads=threads,
            threshold=threshold_of(threshold),
            min_size=min_size,
            max_size=max_size,
            factor=factor,
            step=step,
            best=best,
        )
        done = list(_drawn(run, len(paths), drawing, hidden=quiet or len(paths) < 2))
    found = [(one.path, one.found) for one in done if one.found is not None]
    write_text(written(found, Layout.json if as_json else Layout(layout.value), numbers), out)
    if not quiet and out is not None:
        typer.echo(f"{sum(len(boxes) for _, boxes in found)} boxes in {len(found)} pictures: {out}", err=True)
    exit_if_skipped([one.error for one in done if one.error is not None], len(paths))


def _drawn(
    run: Iterator[DetectedPicture], n: int, drawing: DrawnFolder | None, *, hidden: bool
) -> Iterator[DetectedPicture]:
    """Each result as it comes, drawn if that is asked for, behind a bar."""
    with progress_bar("detect", hidden=hidden) as progress:
        for number, one in enumerate(run, start=1):
            if drawing is not None and one.found is not None:
                drawing.add(one.path, one.found.boxes)
            progress(number / n)
            yield one
