"""`whet detect`: boxes and scores of the objects in images."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli import options
from whet.cli.output import exit_if_skipped, plural, progress_bar, say, start, write_text

if TYPE_CHECKING:
    from whet.errors import UnreadableImageError
    from whet.evaluation.runs import DetectedImage
    from whet.images.detections import Detections
    from whet.plots.drawing import DrawnFolder


class Format(StrEnum):
    """The layouts of `whet.io.detection_files`, listed here so that help needs no imports."""

    text = "text"
    json = "json"
    csv = "csv"
    coco = "coco"


def format_of(out: Path | None) -> Format:
    """The format that the suffix of a file names, or text.

    >>> format_of(Path("boxes.CSV")).value, format_of(Path("boxes.txt")).value
    ('csv', 'text')
    """
    suffix = "" if out is None else out.suffix.lower().removeprefix(".")
    return Format(suffix) if suffix in ("json", "csv") else Format.text


def detect(
    model: options.Model,
    images: options.Images,
    min_score: options.MinScore = None,
    max_detections: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Keep the N highest-scoring detections per image.")
    ] = None,
    min_size: options.MinSize = None,
    max_size: options.MaxSize = None,
    scale_factor: options.ScaleFactor = 1.2,
    step: options.Step = 1,
    fast: Annotated[
        bool | None,
        typer.Option(
            "--fast/--full", help="Look at every second row and column first, or at all (default: as the model says)."
        ),
    ] = None,
    layout: Annotated[
        Format | None,
        typer.Option("--format", "-f", help="Output format (default: that of the suffix of --out, or text)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Output file (default: standard output).")
    ] = None,
    draw: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the images with their detections drawn to this directory.")
    ] = None,
    ids: Annotated[
        Path | None, typer.Option(metavar="FILE", help="COCO file with the image ids for --format coco.")
    ] = None,
    max_memory: Annotated[
        int | None,
        typer.Option(min=1, metavar="MB", help="Megabytes that a scan may take (default: 1250, or a quarter of all)."),
    ] = None,
    threads: options.Threads = None,
    scheduler: options.Scheduler = None,
    n_workers: options.NWorkers = None,
    quiet: options.Quiet = False,
) -> None:
    """Detect objects in images and print their boxes and scores.

    JSON, CSV and COCO also have the class, if the model names it, and the probability that a
    detection is right, if the model can estimate it. To correct false positives, add a column (or key) wrong with 1 for
    each of them, and run whet learn --detections.

    Images that cannot be read, or do not fit into memory, are skipped and listed at the end; the
    exit code is then 5.

    \b
    Examples:
      whet detect face holiday.jpg
      whet detect mine.whet shots/ --draw drawn --min-score 40
      whet detect face 'shots/**/*.png' --format csv --out boxes.csv
      find . -name '*.jpg' | whet detect face - --json | jq '.[].boxes'
    """
    start(quiet=quiet)
    from whet.detector.storage import load
    from whet.evaluation.runs import detect_many
    from whet.io.detection_files import PIECEMEAL, Layout, coco_categories, coco_ids, ids_of, pieces
    from whet.io.image_files import find_images
    from whet.plots.drawing import DrawnFolder

    if as_json and layout not in (None, Format.json):
        raise typer.BadParameter(f"got --json and --format {layout}; choose one")
    chosen = Layout.json if as_json else Layout((layout or format_of(out)).value)
    if ids is not None and chosen is not Layout.coco:
        raise typer.BadParameter(f"got --ids {ids} with --format {chosen}; expected --format coco")
    detector = load(model)
    paths = find_images(images, sys.stdin)
    # Numbered by position among all images, so that a skipped image does not renumber the others.
    numbers = {path: n for n, path in enumerate(paths, start=1)} if ids is None else ids_of(paths, coco_ids(ids))
    drawings = None if draw is None else DrawnFolder(draw, paths)
    with options.usage_errors(), options.workers_of(scheduler, n_workers, threads, quiet=quiet) as workers:
        run = detect_many(
            detector,
            paths,
            workers=workers,
            max_detections=max_detections,
            fast=fast,
            max_memory=None if max_memory is None else max_memory * 1_000_000,
            **options.scan_options(min_size, max_size, scale_factor, step, threads, min_score),
        )
        # Lines that appear one by one on a terminal are progress enough, and a bar would be mixed up with them.
        is_streaming = out is None and chosen in PIECEMEAL and sys.stdout.isatty()
        with progress_bar("detecting", hidden=quiet or is_streaming or len(paths) < 2) as progress:
            results = _Results(drawings, lambda done: progress(done / len(paths)))
            categories = {} if ids is None else coco_categories(ids)
            write_text(pieces(results.detections(run), chosen, numbers, categories), out)
    if not quiet and out is not None:
        n = len(paths) - len(results.errors)
        say(f"Wrote {plural(results.n_boxes, 'detection')} in {plural(n, 'image')} to {out}", err=True)
    if not quiet and draw is not None:
        say(f"Wrote drawings to {draw}/", err=True)
    exit_if_skipped(results.errors, len(paths))


@dataclass
class _Results:
    """Counts the detections on their way from the scan to the output, collects errors and draws the images."""

    drawings: DrawnFolder | None
    progress: Callable[[int], None]
    n_boxes: int = 0
    errors: list[UnreadableImageError] = field(default_factory=list)

    def detections(self, run: Iterable[DetectedImage]) -> Iterator[tuple[Path, Detections]]:
        """Detections in the readable images; their windows, which take far more memory, are dropped."""
        import numpy as np

        from whet.images.detections import FiredWindows

        for number, image in enumerate(run, start=1):
            if image.error is not None:
                self.errors.append(image.error)
            if image.found is not None:
                self.n_boxes += len(image.found)
                if self.drawings is not None:
                    self.drawings.add(image.path, image.found)
                yield image.path, replace(image.found, windows=FiredWindows(), group=np.empty(0, np.intp))
            self.progress(number)
