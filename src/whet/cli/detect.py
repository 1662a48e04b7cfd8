"""`whet detect`: boxes in images."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.options import (
    Factor,
    Images,
    Json,
    MaxSize,
    MinSize,
    Model,
    Out,
    Quiet,
    Step,
    Threads,
    Threshold,
    threshold_of,
    wrong_call_if_value_error,
)
from whet.cli.output import exit_if_skipped, progress_bar, start, write_pieces

if TYPE_CHECKING:
    from whet.cascade.detections import Detections
    from whet.errors import UnreadableImageError
    from whet.evaluation.runs import DetectedImage
    from whet.plots.drawing import DrawnFolder


class Format(StrEnum):
    """The layouts of `whet.io.detections`, listed here for help without imports."""

    text = "text"
    json = "json"
    csv = "csv"
    coco = "coco"


def detect(
    model: Model,
    images: Images,
    threshold: Threshold = None,
    min_size: MinSize = None,
    max_size: MaxSize = None,
    scale_factor: Factor = 1.2,
    step: Step = 1,
    best: Annotated[bool, typer.Option("--best", help="Only the best box of an image.")] = False,
    layout: Annotated[Format, typer.Option("--format", "-f", help="How boxes are written.")] = Format.text,
    as_json: Json = False,
    out: Out = None,
    draw: Annotated[Path | None, typer.Option(help="Folder for the images with their boxes drawn in.")] = None,
    ids: Annotated[Path | None, typer.Option(help="COCO file whose image ids --format coco uses.")] = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Find objects in images.

    Images that cannot be read are skipped, counted and named at the end; the exit code is then 5.

    \b
    whet detect face holiday.jpg
    whet detect mine.whet shots/ --draw drawn --threshold 40
    whet detect face 'shots/**/*.png' --format csv --out boxes.csv
    find . -name '*.jpg' | whet detect face - --json | jq '.[].boxes'
    """
    start(quiet=quiet)
    from whet.detector.detector import load
    from whet.evaluation.runs import detect_many
    from whet.io.detections import PIECEMEAL, Layout, coco_ids, ids_of, pieces
    from whet.io.images import find_images

    detector = load(model)
    paths = find_images(images, sys.stdin)
    # By place among all images, so that one that is skipped does not move the others.
    numbers = {path: n for n, path in enumerate(paths, start=1)} if ids is None else ids_of(paths, coco_ids(ids))
    drawing = None if draw is None else _drawing(draw, paths)
    with wrong_call_if_value_error():
        run = detect_many(
            detector,
            paths,
            threads=threads,
            min_score=threshold_of(threshold),
            min_size=min_size,
            max_size=max_size,
            scale_factor=scale_factor,
            step=step,
            max_detections=1 if best else None,
        )
        chosen = Layout.json if as_json else Layout(layout.value)
        # Lines that come one by one to a terminal are progress enough, and a bar would get among them.
        is_told = out is None and chosen in PIECEMEAL and sys.stdout.isatty()
        with progress_bar("detect", hidden=quiet or is_told or len(paths) < 2) as progress:
            told = _Told(drawing, lambda done: progress(done / len(paths)))
            write_pieces(pieces(told.found(run), chosen, numbers), out)
    if not quiet and out is not None:
        typer.echo(f"{told.n_boxes} boxes in {len(paths) - len(told.errors)} images: {out}", err=True)
    exit_if_skipped(told.errors, len(paths))


def _drawing(folder: Path, paths: list[Path]) -> DrawnFolder:
    from whet.plots.drawing import DrawnFolder

    return DrawnFolder(folder, paths)


@dataclass
class _Told:
    """Counts what is found on its way from the scan to the text, and draws it if that is asked for."""

    drawing: DrawnFolder | None
    progress: Callable[[int], None]
    n_boxes: int = 0
    errors: list[UnreadableImageError] = field(default_factory=list)

    def found(self, run: Iterable[DetectedImage]) -> Iterator[tuple[Path, Detections]]:
        """Boxes and scores of the images that can be read; the windows behind them, far more, are let go."""
        from whet.cascade.detections import Detections

        for number, one in enumerate(run, start=1):
            if one.error is not None:
                self.errors.append(one.error)
            if one.found is not None:
                self.n_boxes += len(one.found)
                if self.drawing is not None:
                    self.drawing.add(one.path, one.found)
                yield one.path, Detections(one.found.boxes, one.found.scores)
            self.progress(number)
