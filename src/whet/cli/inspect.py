"""`whet inspect`: the contents of a detector."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.options import ExitCode, Json, Model, Quiet, Seed, Threads
from whet.cli.output import start, warnings_as_lines

if TYPE_CHECKING:
    from whet.cascade.cascade import Cascade
    from whet.detector.summary import Summary


def inspect(
    model: Model,
    images: Annotated[
        list[str] | None,
        typer.Argument(metavar="IMAGES", help="Count the windows of these images that each stage rejects."),
    ] = None,
    draw: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the first features of each stage on the mean positive (PNG)."),
    ] = None,
    windows: Annotated[int, typer.Option(min=1, metavar="N", help="Number of random windows to count.")] = 20_000,
    seed: Seed = 0,
    threads: Threads = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show the stages, sample counts, operating points and provenance of a detector.

    Images that cannot be read or are too small are skipped and listed; the exit code is then 5.

    \b
    Examples:
      whet inspect face
      whet inspect mine.whet --draw features.png
      whet inspect mine.whet shots/ --json | jq .rejected
    """
    start(quiet=quiet)
    from whet.detector.detector import load
    from whet.detector.summary import Summary

    detector = load(model)
    summary = Summary.from_detector(detector)
    rejected, is_incomplete = None, False
    if images:
        rejected, is_incomplete = _count(detector.cascade, images, windows, seed, threads)
    if draw is not None:
        from whet.plots.drawing import save_image
        from whet.plots.sheets import feature_sheet

        save_image(feature_sheet(detector), draw)
    if as_json:
        counted = {} if rejected is None else {"windows": windows, "rejected": rejected}
        typer.echo(json.dumps(summary.table() | counted, indent=1))
    elif not quiet:
        for line in (*_table(summary, rejected, windows), *_provenance(summary)):
            typer.echo(line)
        if draw is not None:
            typer.echo(f"Wrote {draw}")
    if is_incomplete:
        raise typer.Exit(ExitCode.SOME_SKIPPED)


def _count(cascade: Cascade, images: list[str], windows: int, seed: int, threads: int | None) -> tuple[list[int], bool]:
    """Windows rejected per stage, and whether images were skipped."""
    from rich.console import Console

    from whet.io.images import find_images
    from whet.training.negatives import SkippedImagesWarning, rejected_by_stage

    with warnings_as_lines(Console(stderr=True)) as warned:
        rejected = rejected_by_stage(cascade, find_images(images, sys.stdin), windows, seed, threads)
    return rejected, any(isinstance(warning, SkippedImagesWarning) for warning in warned)


def _table(summary: Summary, rejected: list[int] | None, windows: int) -> Iterator[str]:
    (height, width), stages = summary.window, summary.stages
    yield f"Window {width} x {height}, {len(stages)} stages, {summary.n_weak} weak learners"
    yield f"Base {summary.base_id[:12]}"
    yield f"Windows with standard deviation below {summary.min_sigma:g} are skipped"
    counted = "" if rejected is None else f"  of {windows:,} windows"
    yield f"stage  {_kinds(summary)[0]}  learners  positives  negatives  learned (+, -)  rejects{counted}"
    yield from _rows(summary, rejected, windows)
    if rejected is not None:
        yield f"Of {windows:,} windows, {rejected[0]:,} are too uniform and {windows - sum(rejected):,} pass all stages"


def _rows(summary: Summary, rejected: list[int] | None, windows: int) -> Iterator[str]:
    left = windows - (rejected[0] if rejected else 0)
    for number, (stage, kind) in enumerate(zip(summary.stages, _kinds(summary)[1:], strict=True)):
        counts = f"{stage.positives:9,}  {stage.negatives:9,}" if stage.learns else "    fixed           "
        learned = f"{stage.learned_positives:,}, {stage.learned_negatives:,}" if stage.learns else ""
        rejects = "" if stage.rejects is None else f"{stage.rejects:.0%}"
        row = f"{number:5d}  {kind}  {stage.n_weak:8d}  {counts}  {learned:>14}  {rejects:>7}"
        if rejected is not None:
            row += f"  {rejected[1 + number]:,} of {left:,}"
            left -= rejected[1 + number]
        yield row


def _kinds(summary: Summary) -> list[str]:
    """The heading and the features of each stage, padded to one width."""
    kinds = ["features", *(stage.family + (", soft" if stage.is_soft else "") for stage in summary.stages)]
    return [f"{kind:<{max(10, *map(len, kinds))}}" for kind in kinds]


def _provenance(summary: Summary) -> Iterator[str]:
    for name, score in sorted(summary.operating_points.items()):
        yield f"Operating point '{name}': minimum score {score:.4g}"
    provenance = summary.provenance
    for name in ("data", "licence", "command"):
        if provenance[name]:
            yield f"{name.capitalize()}: {provenance[name]}"
    for name, value in provenance["goals"].items():
        yield f"  goal {name}: {value}"
    for name, value in provenance["facts"].items():
        yield f"  {name}: {value}"
