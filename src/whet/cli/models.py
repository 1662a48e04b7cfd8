"""Where a command that changes a model writes it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from whet.detector.detector import Detector
    from whet.detector.journal import Journal
    from whet.detector.records import Record


ModelOut = Annotated[
    Path | None, typer.Option("--out", "-o", help="Write the model here; without it, MODEL itself is replaced.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace the model that is at another place, and its journal.")]


def is_file(model: str) -> bool:
    """Whether a model is a file of whet's own, rather than a bundled one or an OpenCV cascade."""
    path = Path(model)
    return not re.fullmatch(r"[\w-]+", model) and path.suffix.lower() != ".xml" and path.is_file()


def model_out(model: str, out: Path | None, *, force: bool = False, option: str = "-o") -> Path:
    """The file to write, checked before any work: `out`, or the model itself where it can be replaced."""
    from whet.detector.journal import journal_beside

    if out is None:
        if not is_file(model):
            raise typer.BadParameter(
                f"{model} comes with whet or is an OpenCV cascade: say where to write the model, with {option} FILE"
            )
        return Path(model)
    if out.suffix.lower() == ".xml":
        raise typer.BadParameter(f"got {out}: .xml is for OpenCV's files; name the model .whet, and use whet export")
    if out.is_dir() or not out.parent.is_dir():
        raise typer.BadParameter(f"{out} cannot be written: it is a folder, or in no folder that there is")
    there = next((path for path in (out, journal_beside(out).path) if path.exists()), None)
    if there is not None and not force and not is_same(model, out):
        raise typer.BadParameter(
            f"{there} is there already, and would be lost with what it tells: name {out} as MODEL to change it, or "
            "replace it with --force"
        )
    return out


def is_same(model: str, out: Path) -> bool:
    """Whether a model is changed in its place."""
    return is_file(model) and out.exists() and out.samefile(model)


@dataclass(frozen=True)
class Destination:
    """The file that a changed model goes to, and the journal of what it has learned, if one is kept.

    A model that goes to another file than its own takes what its journal says along, to a journal of its own.
    """

    out: Path
    journal: Journal | None
    takes_along: tuple[Record, ...] | None = None

    @classmethod
    def from_options(
        cls,
        model: str,
        detector: Detector,
        out: Path | None,
        journal: Path | None = None,
        *,
        force: bool,
        option: str = "-o",
    ) -> Destination:
        """By default, the journal is beside the file; raises `JournalError` where it is not about the detector."""
        from whet.detector.journal import Journal, check_agreement, journal_beside

        target = model_out(model, out, force=force, option=option)
        own = None if journal is None else Journal(journal)
        if own is None and is_file(model):
            own = journal_beside(Path(model))
        if own is not None:
            check_agreement(detector, own, model)
        if journal is not None or is_same(model, target):
            return cls(target, own)
        along = () if own is None else tuple(own.learned(base_id=detector.base_id))
        return cls(target, journal_beside(target), along)

    def save(self, detector: Detector, entries: Sequence[Record]) -> None:
        """Write a detector that has learned these entries, and its journal: both or none."""
        from whet.detector.journal import journal_beside, save_anew, save_learned

        if self.takes_along is None:
            save_learned(detector, self.out, self.journal, entries)
        else:
            save_anew(detector, self.out, self.journal, [*self.takes_along, *entries])
            if self.journal is None:  # that of the model that was replaced says nothing about this one
                journal_beside(self.out).path.unlink(missing_ok=True)

    def __str__(self) -> str:
        kept = (
            "" if self.journal is None or not self.journal.path.exists() else f", and its journal {self.journal.path}"
        )
        return f"{self.out}{kept}"
