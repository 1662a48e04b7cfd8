"""Annotated pictures as several commands read them, and how they are looked at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.cli.convert import left_out, show
from whet.cli.options import AnnotationFormat
from whet.cli.progress import progress_bar

if TYPE_CHECKING:
    from whet.io.annotations.annotation import Annotations
    from whet.io.annotations.problem import Problem


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
        found = found.of_split(split)
    found = found.select(class_)
    show(left_out(found.problems) if quiet else found.problems)
    return found


def is_incomplete(problems: Sequence[Problem]) -> bool:
    """Whether something of the annotations was left out."""
    return bool(left_out(problems))


def scan_options(
    min_size: float | None, max_size: float | None, factor: float, step: int, threads: int | None
) -> dict[str, Any]:
    """How pictures are looked at, as `Detector.detect` and `Detector.learn` take it."""
    return {"min_size": min_size, "max_size": max_size, "factor": factor, "step": step, "threads": threads}
