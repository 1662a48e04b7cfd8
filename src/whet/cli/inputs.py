"""Annotated images, crops and negatives that commands read, and how problems with them are reported."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from whet.cli.options import AnnotationFormat
from whet.cli.output import MAX_LISTED, plural, progress_bar, warn

if TYPE_CHECKING:
    from whet.io.annotations.annotation import AnnotatedImage, Annotations, Problem
    from whet.training.learning import Examples


Positives = Annotated[
    list[str] | None,
    typer.Option("--positives", "-p", metavar="IMAGES", help="Crops: images filled by one object. Repeatable."),
]
Negatives = Annotated[
    list[str] | None,
    typer.Option("--negatives", "-n", metavar="IMAGES", help="Images without the object. Repeatable."),
]
AnnotationsOption = Annotated[
    Path | None, typer.Option("--annotations", "-a", metavar="PATH", help="Annotated images: a file or a directory.")
]
HeldOut = Annotated[
    Path | None,
    typer.Option("--held-out", metavar="PATH", help="Annotations to evaluate on, before and after; not learned."),
]

# Kinds of `whet.io.annotations.annotation.ProblemKind` that mean that something was not read: exit code 5.
SKIPPED_KINDS = ("images missing", "images unreadable", "rows skipped", "boxes dropped")


def skipped(problems: Sequence[Problem]) -> list[Problem]:
    """Problems because of which a part of the annotations was not read."""
    return [problem for problem in problems if problem.kind in SKIPPED_KINDS]


def print_problems(problems: Sequence[Problem]) -> None:
    """Print the first problems to standard error, one per line."""
    for problem in problems[:MAX_LISTED]:
        typer.echo(str(problem), err=True)
    if len(problems) > MAX_LISTED:
        typer.echo(f"... and {len(problems) - MAX_LISTED:,} more", err=True)


def load_annotations(
    path: Path,
    format: AnnotationFormat | None = None,
    images: Path | None = None,
    class_: str | None = None,
    split: str | None = None,
    *,
    quiet: bool = False,
) -> Annotations:
    """Read the annotations of one class and print the problems; with `quiet`, only those that skip something."""
    from whet.io.annotations.formats import read_annotations

    with progress_bar("reading", hidden=quiet) as progress:
        found = read_annotations(path, format and format.value, images, progress)
    if split is not None:
        found = found.select_split(split)
    found = found.select(class_)
    print_problems(skipped(found.problems) if quiet else found.problems)
    return found


class TrainingInput(NamedTuple):
    """Images to learn from, held-out images to evaluate on, and whether a part of the input was skipped."""

    examples: Examples
    held_out: tuple[AnnotatedImage, ...]
    is_incomplete: bool


def read_training_input(
    annotations: Path | None,
    positives: Sequence[str] | None,
    negatives: Sequence[str] | None,
    held_out: Path | None,
    format: AnnotationFormat | None,
    images: Path | None,
    class_: str | None,
    split: str | None,
    *,
    quiet: bool,
) -> TrainingInput:
    """Find and read the images of `whet learn` and `whet adopt`, and print the problems."""
    from whet.io.images import find_images
    from whet.training.learning import Examples

    annotated = (
        None if annotations is None else load_annotations(annotations, format, images, class_, split, quiet=quiet)
    )
    held = None if held_out is None else load_annotations(held_out, format, images, class_, quiet=quiet)
    examples = Examples.from_annotations(
        () if annotated is None else annotated.images,
        find_images(positives, sys.stdin) if positives else (),
        find_images(negatives, sys.stdin) if negatives else (),
    )
    held_images = () if held is None else held.images
    _warn_if_shared(examples, held_images)
    problems = [problem for each in (annotated, held) if each is not None for problem in each.problems]
    return TrainingInput(examples, held_images, bool(skipped(problems)))


def _warn_if_shared(examples: Examples, held_out: Sequence[AnnotatedImage]) -> None:
    """Results on images that were also learned are too optimistic."""
    learned = {image.path.resolve() for image in examples.images}
    shared = [image.path.name for image in held_out if image.path.resolve() in learned]
    if shared:
        names = ", ".join(shared[:3]) + (", ..." if len(shared) > 3 else "")
        warn(
            f"Warning: {len(shared):,} of {plural(len(held_out), 'held-out image')} will also be learned ({names}), so "
            "the held-out results are too optimistic; remove them from one of the two sets"
        )
