"""Options and arguments that commands share, and errors about them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Annotated

import typer

from whet.errors import WhetError


class ExitCode(IntEnum):
    """0 is success, 2 a wrong call; Ctrl-C gives 130."""

    FAILED = 1
    DATA_MISSING = 3
    EXTRA_MISSING = 4
    SOME_SKIPPED = 5


CTRL_C = 130


class AnnotationFormat(StrEnum):
    """The same as `whet.io.annotations.formats.FORMATS`, listed here for help without imports."""

    coco = "coco"
    yolo = "yolo"
    voc = "voc"
    opencv = "opencv"
    csv = "csv"
    crops = "crops"


Model = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="A detector: a bundled one's name (face), a saved file, or an OpenCV .xml."),
]
Images = Annotated[
    list[str],
    typer.Argument(
        metavar="IMAGES...",
        help="Files, folders, quoted patterns such as 'shots/**/*.png'; - reads names from stdin.",
    ),
]
Threads = Annotated[int | None, typer.Option(min=1, help="Processors to use; all of them unless given.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all that is drawn at random.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary; warnings and errors only.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Threshold = Annotated[
    str | None,
    typer.Option(
        metavar="SCORE|NAME",
        help="Keep scores above this, or those of a named operating point; else the model's default, if it has one.",
    ),
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Write to this file rather than to the screen.")]
FormatOption = Annotated[
    AnnotationFormat | None, typer.Option("--format", help="Format of annotations; else it is found out.")
]
ImageFolder = Annotated[
    Path | None, typer.Option(exists=True, file_okay=False, help="Folder of annotated images, if not beside.")
]
Class = Annotated[str | None, typer.Option("--class", help="The class that is the object, where there are several.")]
Split = Annotated[str | None, typer.Option(help="Only this part of the annotations, such as val.")]
MinSize = Annotated[float | None, typer.Option(help="Longer side of the smallest boxes, in pixels.")]
MaxSize = Annotated[float | None, typer.Option(help="Longer side of the largest boxes, in pixels.")]
Factor = Annotated[float, typer.Option(help="Ratio of one size to the next.")]
Step = Annotated[int, typer.Option(min=1, help="Pixels from one window to the next.")]


def threshold_of(text: str | None) -> float | str | None:
    """A score where the text is a number; else the name of an operating point."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def refuse(why: str, **options: object) -> None:
    """Refuse those of the options that were given: they would do nothing, and nobody would know.

    >>> refuse("without --show: there is no page then", port=None, quiet=False)
    >>> refuse("without --show: there is no page then", port=0, save_as=None)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    typer.BadParameter: got --port without --show: there is no page then
    """
    idle = [name for name, value in options.items() if not (value is None or value is False or value == [])]
    if idle:
        raise typer.BadParameter(f"got {', '.join('--' + name.replace('_', '-') for name in idle)} {why}")


@contextmanager
def wrong_call_if_value_error() -> Iterator[None]:
    """A ValueError of ours names an argument and what was expected: exit code 2, and no traceback."""
    try:
        yield
    except WhetError:
        raise
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
