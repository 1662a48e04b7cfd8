"""Options and arguments that several commands share, and how wrong ones are reported."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from whet.errors import WhetError


class ExitCode(IntEnum):
    """Exit codes other than 0 (success), 2 (invalid arguments, set by Typer) and 130 (Ctrl-C)."""

    FAILED = 1
    DATA_MISSING = 3
    EXTRA_MISSING = 4
    SOME_SKIPPED = 5
    WORSE = 6
    NOT_USABLE = 7


CTRL_C = 130


class AnnotationFormat(StrEnum):
    """The same as `whet.io.annotations.formats.FORMATS`, listed here so that help needs no imports."""

    coco = "coco"
    yolo = "yolo"
    voc = "voc"
    opencv = "opencv"
    csv = "csv"
    crops = "crops"


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Detector: a bundled name (face), a .whet file or an OpenCV .xml file; of several classes: FILE:CLASS.",
    ),
]
Images = Annotated[
    list[str],
    typer.Argument(
        metavar="IMAGES",
        help="Files, directories or quoted patterns such as 'shots/**/*.png'; - reads file names from stdin.",
    ),
]
Threads = Annotated[int | None, typer.Option(min=1, metavar="N", help="Number of threads (default: all processors).")]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="Random seed.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings and errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
MinScore = Annotated[
    str | None,
    typer.Option(
        "--min-score",
        metavar="SCORE|NAME",
        help="Keep detections above this score, or above a named operating point (default: the model's own, if any).",
    ),
]
FormatOption = Annotated[
    AnnotationFormat | None, typer.Option("--format", help="Annotation format (default: detect automatically).")
]
ImageFolder = Annotated[
    Path | None,
    typer.Option(
        "--images",
        metavar="DIR",
        exists=True,
        file_okay=False,
        help="Directory of the annotated images (default: next to the annotations).",
    ),
]
Class = Annotated[
    str | None,
    typer.Option(
        "--class", metavar="NAME", help="Object class; required if there are several. cat,dog makes one class of both."
    ),
]
Split = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Part of the data set, such as val (default: train; test or val to evaluate)."),
]
MinSize = Annotated[
    float | None,
    typer.Option(metavar="PIXELS", help="Longer side of the smallest boxes, in pixels (default: the model's own)."),
]
MaxSize = Annotated[
    float | None,
    typer.Option(metavar="PIXELS", help="Longer side of the largest boxes, in pixels (default: the image)."),
]
ScaleFactor = Annotated[
    float, typer.Option(metavar="RATIO", help="Ratio between successive scales of the image pyramid.")
]
Step = Annotated[int, typer.Option(min=1, metavar="PIXELS", help="Pixels between neighbouring windows.")]


def parse_min_score(text: str | None) -> float | str | None:
    """A number if the text is one, else the name of an operating point.

    >>> parse_min_score("2.5"), parse_min_score("careful")
    (2.5, 'careful')
    """
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def scan_options(
    min_size: float | None, max_size: float | None, scale_factor: float, step: int, threads: int | None
) -> dict[str, Any]:
    """Keyword arguments of `Detector.detect` and `Detector.learn` that control the scan."""
    return {"min_size": min_size, "max_size": max_size, "scale_factor": scale_factor, "step": step, "threads": threads}


def refuse(why: str, **options: object) -> None:
    """Raise a usage error if any of the options was given; they would have no effect.

    >>> refuse("need --show", port=None, quiet=False)
    >>> refuse("need --show", port=0, save_as=None)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    typer.BadParameter: got --port need --show
    """
    given = [name for name, value in options.items() if not (value is None or value is False or value == [])]
    if given:
        raise typer.BadParameter(f"got {', '.join('--' + name.replace('_', '-') for name in given)} {why}")


_ARGUMENTS = re.compile(r"\b(min_size|max_size|scale_factor|step|min_score|max_detections|iou|weight|threads)=")


@contextmanager
def usage_errors() -> Iterator[None]:
    """Report a `ValueError` from argument checks of the library as a usage error (exit code 2).

    The message names options instead of Python arguments: "min_size=1" becomes "--min-size 1".
    """
    try:
        yield
    except WhetError:
        raise
    except ValueError as error:
        named = _ARGUMENTS.sub(lambda found: f"--{found[1].replace('_', '-')} ", str(error))
        raise typer.BadParameter(named) from error
