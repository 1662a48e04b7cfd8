"""How commands end: text to a file or the screen, and what had to be left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import typer

from whet.cli.exit_codes import ExitCode

MOST_NAMED = 10


def write_pieces(pieces: Iterable[str], out: Path | None) -> None:
    """Pieces of a text to a file, whole or not at all, or to standard output as they come."""
    if out is None:
        for piece in pieces:
            typer.echo(piece, nl=False)
        return
    from whet.io.atomic_file import write_atomically

    write_atomically(out, "".join(pieces).encode(errors="surrogateescape"))  # names of files may be any bytes


def exit_if_skipped(errors: Sequence[object], n: int) -> None:
    """Name what was skipped of `n` pictures, and end with an exit code that tells: some, or all of them."""
    if not errors:
        return
    typer.echo(f"whet: skipped {len(errors)} of {n} pictures:", err=True)
    for error in errors[:MOST_NAMED]:
        typer.echo(f"  {error}", err=True)
    if len(errors) > MOST_NAMED:
        typer.echo(f"  and {len(errors) - MOST_NAMED} more", err=True)
    raise typer.Exit(ExitCode.SOME_SKIPPED if len(errors) < n else ExitCode.FAILED)
