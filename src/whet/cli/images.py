"""Annotated images on the command line: reading, learning from them, and before and after."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from whet.cli.options import AnnotationFormat, ExitCode, Quiet
from whet.cli.output import count, number, progress_bar, rounded

if TYPE_CHECKING:
    from whet.detector.base import Provenance
    from whet.evaluation.runs import EvaluationRun
    from whet.io.annotations.annotation import AnnotatedImage, Annotations, Problem
    from whet.training.learning import BeforeAfter, Examples


# So many problems are shown one by one; the rest are counted.
SHOWN = 10
# Kinds of problems, `whet.io.annotations.annotation.ProblemKind`, by which something is missing from what was written.
LEFT_OUT = ("images missing", "images unreadable", "rows skipped", "boxes dropped")


def convert(
    source: Annotated[Path, typer.Argument(help="Annotations: a file or a folder.")],
    target: Annotated[Path, typer.Argument(help="File (coco, csv) or folder (others) to write.")],
    from_: Annotated[
        AnnotationFormat | None, typer.Option("--from", help="Format of SOURCE; else it is found out.")
    ] = None,
    to: Annotated[AnnotationFormat | None, typer.Option(help="Format of TARGET; else by its suffix.")] = None,
    class_: Annotated[str | None, typer.Option("--class", help="Only this class.")] = None,
    images: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Folder of the images, if not beside SOURCE.")
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
    Images stay where they are and are referred to; yolo copies them, crops cuts objects out.
    What cannot be read, or cannot be said in the other format, is left out and told.
    Where something of SOURCE was left out, the exit code is 5.

    \b
    whet convert instances.json cars.csv --class car
    whet convert VOC2007 yolo-set --to yolo
    whet convert labels.txt set.json --from opencv --images images
    """
    from whet.io.annotations.formats import place_to_write, read_annotations, write_annotations

    place_to_write(target, to and to.value, replace=force)  # before a long time of reading
    with progress_bar("reading", hidden=quiet) as progress:
        found = read_annotations(source, from_ and from_.value, images, progress)
    if split is not None:
        found = found.select_split(split)
    if class_ is not None:
        found = found.select(class_)
    with progress_bar("writing", hidden=quiet) as progress:
        lost = write_annotations(found, target, to and to.value, replace=force, progress=progress)
    problems = [*found.problems, *lost]
    if as_json:
        counts = {"images": len(found), "boxes": found.n_boxes, "ignored": found.n_ignored, "classes": found.counts}
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


def read_set(
    path: Path,
    format: AnnotationFormat | None = None,
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
        found = found.select_split(split)
    found = found.select(class_)
    show(left_out(found.problems) if quiet else found.problems)
    return found


def is_incomplete(problems: Sequence[Problem]) -> bool:
    """Whether something of the annotations was left out."""
    return bool(left_out(problems))


def scan_options(
    min_size: float | None, max_size: float | None, scale_factor: float, step: int, threads: int | None
) -> dict[str, Any]:
    """How images are looked at, as `Detector.detect` and `Detector.learn` take it."""
    return {"min_size": min_size, "max_size": max_size, "scale_factor": scale_factor, "step": step, "threads": threads}


Positives = Annotated[
    list[str] | None,
    typer.Option("--positives", "-p", metavar="IMAGES", help="Images that one object fills: files, folders, patterns."),
]
Negatives = Annotated[
    list[str] | None,
    typer.Option("--negatives", "-n", metavar="IMAGES", help="Images without the object."),
]
AnnotationsOption = Annotated[
    Path | None, typer.Option("--annotations", "-a", help="Annotated images: a file or a folder.")
]
HeldOut = Annotated[Path | None, typer.Option(help="Annotations to judge by, before and after; not learned.")]


class Showing(NamedTuple):
    """What is shown, annotated images to judge by, and whether some of the annotations were left out."""

    shown: Examples
    judges: tuple[AnnotatedImage, ...]
    is_incomplete: bool


def showing(
    annotations: Path | None,
    positives: Sequence[str] | None,
    negatives: Sequence[str] | None,
    held_out: Path | None,
    layout: AnnotationFormat | None,
    images: Path | None,
    class_: str | None,
    split: str | None,
    *,
    quiet: bool,
) -> Showing:
    """Find and read all of it; what is wrong with it is told."""
    from whet.io.images import find_images
    from whet.training.learning import Examples

    found = None if annotations is None else read_set(annotations, layout, images, class_, split, quiet=quiet)
    judges = None if held_out is None else read_set(held_out, layout, images, class_, quiet=quiet)
    judging = () if judges is None else judges.images
    shown = Examples.from_annotations(
        () if found is None else found.images,
        find_images(positives, sys.stdin) if positives else (),
        find_images(negatives, sys.stdin) if negatives else (),
    )
    _warn_of_shared(shown, judging)
    problems = [problem for each in (found, judges) if each is not None for problem in each.problems]
    return Showing(shown, judging, is_incomplete(problems))


def _warn_of_shared(shown: Examples, judges: Sequence[AnnotatedImage]) -> None:
    """Images that are learned judge what was learned too kindly."""
    learned = {image.path.resolve() for image in shown.images}
    shared = [image.path.name for image in judges if image.path.resolve() in learned]
    if shared:
        named = ", ".join(shared[:3]) + (", ..." if len(shared) > 3 else "")
        n = count(len(judges), "image")
        told = f"{len(shared)} of {n} of --held-out are learned from, too ({named}): they judge too kindly"
        typer.echo(f"whet: {told}; take them out of one", err=True)


def figures(run: EvaluationRun) -> dict[str, Any]:
    """Counts and rates, by name."""
    return {
        "images": len(run.paths),
        "objects": int(run.truths.sum()),
        "missed": run.n_missed,
        "false_positives": run.n_false_positives,
        "recall": number(run.recall),
        "false_positives_per_image": run.n_false_positives / len(run.paths),
        "average_precision": number(run.evaluation.average_precision),
    }


def judgement_lines(judgement: BeforeAfter) -> Iterator[str]:
    """What changed on images that were held out."""
    old, new = map(figures, judgement)
    yield f"held out, {count(old['images'], 'image')} with {count(old['objects'], 'object')}:"
    for name in ("recall", "false_positives_per_image", "average_precision"):
        yield f"  {name.replace('_', ' '):<22}  {rounded(old[name])} -> {rounded(new[name])}"


def unread_and_judged(judgement: BeforeAfter | None) -> tuple[list[str], int]:
    """Which images that were held out could not be read, and how many were held out, those included."""
    if judgement is None:
        return [], 0
    before, _ = judgement
    return list(map(str, before.unread)), len(before.paths) + len(before.unread)


def origin(command: str) -> Provenance:
    """The whole command line, or the bare command if that names a folder of this machine."""
    from whet.detector.base import Provenance

    try:
        return Provenance(command=shlex.join(["whet", *sys.argv[1:]]))
    except ValueError:
        return Provenance(command=f"whet {command}")
