"""Pictures that are shown to a detector, and pictures to judge it by, as `learn` and `adopt` take them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from whet.cli.annotated import is_incomplete, read_set
from whet.cli.options import AnnotationFormat
from whet.cli.words import count

if TYPE_CHECKING:
    from whet.io.annotations.annotation import AnnotatedPicture
    from whet.training.learning_run import Shown

Positives = Annotated[
    list[str] | None,
    typer.Option(
        "--positives", "-p", metavar="PICTURES", help="Pictures that one object fills: files, folders, patterns."
    ),
]
Negatives = Annotated[
    list[str] | None,
    typer.Option("--negatives", "-n", metavar="PICTURES", help="Pictures without the object."),
]
AnnotationsOption = Annotated[
    Path | None, typer.Option("--annotations", "-a", help="Annotated pictures: a file or a folder.")
]
HeldOut = Annotated[Path | None, typer.Option(help="Annotations to judge by, before and after; not learned.")]


class Showing(NamedTuple):
    """What is shown, annotated pictures to judge by, and whether some of the annotations were left out."""

    shown: Shown
    judges: tuple[AnnotatedPicture, ...]
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
    from whet.io.pictures import find_pictures
    from whet.training.learning_run import Shown

    found = None if annotations is None else read_set(annotations, layout, images, class_, split, quiet=quiet)
    judges = None if held_out is None else read_set(held_out, layout, images, class_, quiet=quiet)
    judging = () if judges is None else judges.pictures
    shown = Shown.of(
        () if found is None else found.pictures,
        find_pictures(positives, sys.stdin) if positives else (),
        find_pictures(negatives, sys.stdin) if negatives else (),
    )
    _warn_of_shared(shown, judging)
    problems = [problem for each in (found, judges) if each is not None for problem in each.problems]
    return Showing(shown, judging, is_incomplete(problems))


def _warn_of_shared(shown: Shown, judges: Sequence[AnnotatedPicture]) -> None:
    """Pictures that are learned judge what was learned too kindly."""
    learned = {picture.path.resolve() for picture in shown.pictures}
    shared = [picture.path.name for picture in judges if picture.path.resolve() in learned]
    if shared:
        named = ", ".join(shared[:3]) + (", ..." if len(shared) > 3 else "")
        n = count(len(judges), "picture")
        told = f"{len(shared)} of {n} of --held-out are learned from, too ({named}): they judge too kindly"
        typer.echo(f"whet: {told}; take them out of one", err=True)
