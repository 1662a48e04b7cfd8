"""Where commands write models: the output file, how it is replaced, and the recorded command line."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from whet.detector.base import Provenance
    from whet.detector.detector import Detector


ModelOut = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="FILE", help="Output model (default: overwrite MODEL).")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing output file.")]


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
    """Load a model, change it and write it to `out`, as one step that Ctrl-C does not interrupt.

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


def provenance(command: str) -> Provenance:
    """The command line, to store in a model; only the command's name if the line names a directory of this machine."""
    from whet.detector.base import Provenance

    try:
        return Provenance(command=shlex.join(["whet", *sys.argv[1:]]))
    except ValueError:
        return Provenance(command=f"whet {command}")
