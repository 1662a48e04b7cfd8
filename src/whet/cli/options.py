"""Options and arguments that several commands share: how wrong ones are reported, where models are written."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.errors import WhetError
from whet.io.annotations import FORMAT_NAMES

if TYPE_CHECKING:
    from whet.detector.base import Provenance
    from whet.detector.detector import Detector
    from whet.parallel.workers import Workers


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
    """A name of an annotation format."""

    vars().update({name: name for name in FORMAT_NAMES})


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
        help="Files, directories, URLs or quoted patterns such as 'shots/**/*.png'; - reads file names from stdin.",
    ),
]
Threads = Annotated[int | None, typer.Option(min=1, metavar="N", help="Number of threads (default: all processors).")]
Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Dask scheduler, such as tcp://host:8786: its workers read the images and do the work.",
    ),
]
NWorkers = Annotated[
    int | None, typer.Option("--workers", min=1, metavar="N", help="Work in N processes of this machine, with Dask.")
]
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


def path_or_url(text: str) -> Path:
    """A path of the command line; Typer's own would take a slash of a URL."""
    from whet.io.files import as_path

    return as_path(text)


def _folder_or_url(text: str) -> Path:
    from whet.io.files import is_url

    path = path_or_url(text)
    if not is_url(path) and not path.is_dir():
        raise typer.BadParameter(f"Directory {text!r} does not exist.")
    return path


ImageFolder = Annotated[
    Path | None,
    typer.Option(
        "--images",
        metavar="DIR|URL",
        parser=_folder_or_url,
        help="Directory of the annotated images, or a URL such as s3://bucket/images (default: next to the "
        "annotations).",
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
ModelOut = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="FILE", help="Output model (default: overwrite MODEL).")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing output file.")]


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
    min_size: float | None,
    max_size: float | None,
    scale_factor: float,
    step: int,
    threads: int | None,
    min_score: str | None,
) -> dict[str, Any]:
    """Keyword arguments of `Detector.detect` and `Detector.learn` that control the scan."""
    return locals() | {"min_score": parse_min_score(min_score)}


@contextmanager
def workers_of(
    scheduler: str | None, n_workers: int | None, threads: int | None, *, quiet: bool = False
) -> Iterator[Workers]:
    """The workers of a command: a Dask cluster, which is announced, or threads of this process."""
    from whet.parallel.workers import Cluster, connect

    if scheduler is not None and n_workers is not None:
        raise typer.BadParameter("got --scheduler and --workers; a running cluster has its own workers: give one")
    with connect(scheduler, n_workers, threads) as workers:
        if isinstance(workers, Cluster) and not quiet:
            typer.echo(f"cluster: {workers}", err=True)
        yield workers


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
        named = _ARGUMENTS.sub(lambda match: f"--{match[1].replace('_', '-')} ", str(error))
        raise typer.BadParameter(named) from error


# --- Where commands write models, and the command line that models record ---------------------------------------------


def is_model_file(model: str) -> bool:
    """Whether a model argument is a .whet file or a class of one, not a bundled name and not an OpenCV cascade."""
    from whet.detector.storage import BARE_NAME, class_in_file

    if BARE_NAME.fullmatch(model) or Path(model).suffix.lower() == ".xml":
        return False
    return class_in_file(model)[0].is_file()


def check_model_file(out: Path, option: str = "--out") -> None:
    """Raise a usage error for an output file that commands could not load again by its name."""
    from whet.detector.storage import check_file_name
    from whet.errors import ModelNameError

    try:
        check_file_name(out)
    except ModelNameError as error:
        raise typer.BadParameter(f"{option}: {error}") from error


def check_output_file(out: Path, *, force: bool = True) -> None:
    """Raise a usage error if a file cannot be written, or exists and `force` is not set."""
    from whet.io.files import check_local

    check_local(out)
    if out.is_dir():
        raise typer.BadParameter(f"{out} is a directory; expected a file name, such as {out / 'model.whet'}")
    if not out.parent.is_dir():
        raise typer.BadParameter(f"Output directory does not exist: {out.parent}/; create it or use another path")
    if out.exists() and not force:
        raise typer.BadParameter(f"{out} already exists; use --force to overwrite it")


def model_out(model: str, out: Path | None, *, force: bool = False, option: str = "--out") -> Path:
    """The file to write, checked before any work: `out`, or the model itself if that is a file."""
    if out is None:
        if not is_model_file(model):
            from whet.detector.storage import load

            load(model)  # or an error that says that there is no such model
            kind = "an OpenCV cascade" if Path(model).suffix.lower() == ".xml" else "a bundled model"
            raise typer.BadParameter(f"{model} is {kind} and cannot be overwritten; use {option} FILE")
        return Path(model)
    check_output_file(out)
    check_model_file(out, option)
    if not is_in_place(model, out):
        check_output_file(out, force=force)
    return out


def is_in_place(model: str, out: Path) -> bool:
    """Whether the output file, and the class of it, is the model itself."""
    from whet.detector.storage import class_in_file

    (file, name), (target, target_name) = class_in_file(model), class_in_file(out)
    return is_model_file(model) and target.exists() and target.samefile(file) and name == target_name


@contextmanager
def changed(model: str, out: Path) -> Iterator[Detector]:
    """Load a detector, change it and write it to `out`, as one step that Ctrl-C does not interrupt.

    In place, no other writer comes between: what others have written since the command started is kept.
    """
    from whet.cli.output import uninterrupted
    from whet.detector.storage import edit, load

    with uninterrupted():
        if is_in_place(model, out):
            with edit(out) as detector:
                yield detector
        else:
            detector = load(model)
            yield detector
            detector.save(out)


# Options that a model does not depend on: where a command runs, what it writes and prints. Flags have no value.
PLACES = ("--threads", "--workers", "--scheduler", "--out", "-o")
FLAGS = ("--resume", "--fresh", "--force", "--json", "--quiet", "-q")


def provenance(command: str) -> Provenance:
    """The command line, to store in a model; only the command's name if the line names a directory of this machine.

    Nor is a URL stored: it may hold credentials.
    """
    from whet.detector.base import Provenance

    line = shlex.join(["whet", *_without_places(sys.argv[1:])])
    try:
        return Provenance(command=f"whet {command}" if "://" in line else line)
    except ValueError:
        return Provenance(command=f"whet {command}")


def _without_places(arguments: list[str]) -> list[str]:
    """Arguments without the options that the model does not depend on.

    >>> _without_places(["train", "a.csv", "--workers", "4", "--threads=2", "--resume", "--seed", "1"])
    ['train', 'a.csv', '--seed', '1']
    """
    return [
        argument
        for argument, before in zip(arguments, ["", *arguments], strict=False)
        if before not in PLACES and argument.partition("=")[0] not in (*PLACES, *FLAGS)
    ]
