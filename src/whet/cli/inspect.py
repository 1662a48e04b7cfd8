"""`whet inspect`: what is inside a detector."""

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
        list[str] | None, typer.Argument(metavar="[IMAGES]...", help="Count on them what each stage rejects.")
    ] = None,
    draw: Annotated[
        Path | None, typer.Option(help="PNG for the first features of each stage, over the mean positive.")
    ] = None,
    windows: Annotated[int, typer.Option(min=1, help="How many random windows of the images are counted.")] = 20_000,
    seed: Seed = 0,
    threads: Threads = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show what is inside a detector: stages, weak learners, counts, operating points and where it comes from.

    Images that cannot be read, or are too small, are skipped and named; the exit code is then 5.

    \b
    whet inspect face
    whet inspect mine.whet --draw features.png
    whet inspect mine.whet shots/ --json | jq .rejected
    """
    start(quiet=quiet)
    from whet.detector.detector import load
    from whet.detector.summary import Summary

    detector = load(model)
    summary = Summary.from_detector(detector.taught)
    rejected, is_incomplete = None, False
    if images:
        rejected, is_incomplete = _count(detector.taught.cascade(), images, windows, seed, threads)
    if draw is not None:
        from whet.plots.drawing import save_image
        from whet.plots.sheets import feature_sheet

        save_image(feature_sheet(detector.taught), draw)
    if as_json:
        counted = {} if rejected is None else {"windows": windows, "rejected": rejected}
        typer.echo(json.dumps(summary.table() | counted, indent=1))
    elif not quiet:
        for line in (*_table(summary, rejected, windows), *_provenance(summary)):
            typer.echo(line)
        if draw is not None:
            typer.echo(f"drawn: {draw}")
    if is_incomplete:
        raise typer.Exit(ExitCode.SOME_SKIPPED)


def _count(cascade: Cascade, images: list[str], windows: int, seed: int, threads: int | None) -> tuple[list[int], bool]:
    """What each stage rejects, and whether images were left out."""
    from rich.console import Console

    from whet.io.images import find_images
    from whet.training.negatives import SkippedImagesWarning, rejected_by_stage

    with warnings_as_lines(Console(stderr=True)) as told:
        rejected = rejected_by_stage(cascade, find_images(images, sys.stdin), windows, seed, threads)
    return rejected, any(isinstance(warning, SkippedImagesWarning) for warning in told)


def _table(summary: Summary, rejected: list[int] | None, windows: int) -> Iterator[str]:
    (height, width), stages = summary.window, summary.stages
    yield f"{width} x {height} windows, {len(stages)} stages, {summary.n_weak} weak learners"
    yield f"base {summary.base_id[:12]}; windows of a deviation up to {summary.min_sigma:g} are not looked at"
    counted = "" if rejected is None else f"  of {windows:,} windows"
    yield f"stage  {_kinds(summary)[0]}  learners  positives  negatives        learned  rejects{counted}"
    yield from _rows(summary, rejected, windows)
    if rejected is not None:
        yield f"{rejected[0]:,} windows are flat, and {windows - sum(rejected):,} pass all stages"


def _rows(summary: Summary, rejected: list[int] | None, windows: int) -> Iterator[str]:
    left = windows - (rejected[0] if rejected else 0)
    for number, (stage, kind) in enumerate(zip(summary.stages, _kinds(summary)[1:], strict=True)):
        counts = f"{stage.positives:9,}  {stage.negatives:9,}" if stage.learns else "    fixed           "
        learned = f"{stage.learned_positives:,} + {stage.learned_negatives:,}" if stage.learns else ""
        rejects = "" if stage.rejects is None else f"{stage.rejects:.0%}"
        rejects = "votes" if stage.keeps_votes else rejects
        row = f"{number:5d}  {kind}  {stage.n_weak:8d}  {counts}  {learned:>13}  {rejects:>7}"
        if rejected is not None:
            row += f"  {rejected[1 + number]:,} of {left:,}"
            left -= rejected[1 + number]
        yield row


def _kinds(summary: Summary) -> list[str]:
    """A heading and what the stages are made of, all of one width."""
    kinds = ["features", *(stage.family + (", soft" if stage.is_soft else "") for stage in summary.stages)]
    return [f"{kind:<{max(10, *map(len, kinds))}}" for kind in kinds]


def _provenance(summary: Summary) -> Iterator[str]:
    for name, score in sorted(summary.operating_points.items()):
        yield f"operating point '{name}': scores above {score:.4g}"
    provenance = summary.provenance
    for name in ("data", "licence", "command"):
        if provenance[name]:
            yield f"{name}: {provenance[name]}"
    for name, value in provenance["goals"].items():
        yield f"  goal: {name} {value}"
    for name, value in provenance["facts"].items():
        yield f"  {name}: {value}"
