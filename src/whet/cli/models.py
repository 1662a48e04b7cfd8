"""Where commands write models: the output file, its journal and the recorded command line."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from whet.detector.base import Provenance
    from whet.detector.detector import Detector
    from whet.detector.journal import Journal
    from whet.detector.records import Record


ModelOut = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="FILE", help="Output model (default: overwrite MODEL).")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing output file.")]


def is_model_file(model: str) -> bool:
    """Whether a model argument is a .whet file, not a bundled name and not an OpenCV cascade."""
    path = Path(model)
    return not re.fullmatch(r"[\w-]+", model) and path.suffix.lower() != ".xml" and path.is_file()


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
    from whet.detector.journal import journal_beside

    if out is None:
        if not is_model_file(model):
            kind = "an OpenCV cascade" if Path(model).suffix.lower() == ".xml" else "a bundled model"
            raise typer.BadParameter(f"{model} is {kind} and cannot be overwritten; use {option} FILE")
        return Path(model)
    if out.suffix.lower() == ".xml":
        raise typer.BadParameter(f"got {option} {out}; expected a .whet file. Use whet export to write OpenCV's .xml")
    check_output_file(out)
    if not is_in_place(model, out):
        for path in (out, journal_beside(out).path):
            check_output_file(path, force=force)
    return out


def is_in_place(model: str, out: Path) -> bool:
    """Whether the output file is the model itself."""
    return is_model_file(model) and out.exists() and out.samefile(model)


@dataclass(frozen=True)
class Destination:
    """The file that a changed model is written to, and its journal, if one is kept.

    A model written to another file gets a new journal there, which starts with the records of the old one
    (`inherited`).
    """

    out: Path
    journal: Journal | None
    inherited: tuple[Record, ...] | None = None

    @classmethod
    def from_options(
        cls,
        model: str,
        detector: Detector,
        out: Path | None,
        journal: Path | None = None,
        *,
        force: bool,
        option: str = "--out",
    ) -> Destination:
        """By default the journal is next to the file; raises `JournalError` if it does not match the detector."""
        from whet.detector.journal import Journal, check_agreement, journal_beside

        target = model_out(model, out, force=force, option=option)
        own = None if journal is None else Journal(journal)
        if own is None and is_model_file(model):
            own = journal_beside(Path(model))
        if own is not None:
            check_agreement(detector, own, model)
        if journal is not None or is_in_place(model, target):
            return cls(target, own)
        inherited = () if own is None else tuple(own.learned(base_id=detector.base_id))
        return cls(target, journal_beside(target), inherited)

    def save(self, detector: Detector, entries: Sequence[Record]) -> None:
        """Write a detector that has learned these records, and its journal: both or none."""
        from whet.detector.journal import journal_beside, save_anew, save_learned

        if self.inherited is None:
            save_learned(detector, self.out, self.journal, entries)
        else:
            save_anew(detector, self.out, self.journal, [*self.inherited, *entries])
            if self.journal is None:  # the journal of the model that was overwritten does not match this one
                journal_beside(self.out).path.unlink(missing_ok=True)

    def __str__(self) -> str:
        if self.journal is None or not self.journal.path.exists():
            return str(self.out)
        return f"{self.out} and its journal {self.journal.path}"


def provenance(command: str) -> Provenance:
    """The command line, to store in a model; only the command's name if the line names a directory of this machine."""
    from whet.detector.base import Provenance

    try:
        return Provenance(command=shlex.join(["whet", *sys.argv[1:]]))
    except ValueError:
        return Provenance(command=f"whet {command}")
