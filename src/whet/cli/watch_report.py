"""What `whet watch` says when it is over: a few lines, or a table for programs, and an exit code that tells."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from whet.cli.exit_codes import CTRL_C, ExitCode
from whet.cli.results import MOST_NAMED
from whet.cli.words import count

if TYPE_CHECKING:
    from whet.errors import VideoError
    from whet.training.watch_session import Summary
    from whet.training.watched_model import WatchedModel


@dataclass
class Skipped:
    """Frames that could not be read: how many, and the first of them."""

    n: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, error: VideoError) -> None:
        """Count one more."""
        self.n += 1
        if self.n <= MOST_NAMED:
            self.named.append(str(error))


def say(text: str) -> None:
    """Standard output is for results alone."""
    typer.echo(text, err=True)


def report(summary: Summary, file: WatchedModel | None, learn: bool, outputs: tuple[Path | None, ...]) -> None:
    """Print what became of the session, and what was written."""
    n = count(summary.frames, "frame")
    typer.echo(f"{n}, {summary.rate:.1f} a second; with detections: {summary.seen:,}")
    if learn:
        lessons, back = count(summary.learned, "lesson"), f"{summary.taken_back:,} taken back"
        typer.echo(f"learned {lessons}, {back}; weights moved {summary.moved:.2%}")
        if summary.frames and not (summary.learned or summary.taken_back):
            typer.echo(_why_untaught(summary))
    if file is not None:
        kept = None if file.journal is None or not file.journal.path.exists() else file.journal.path
        typer.echo(f"wrote {file.path}" + ("" if kept is None else f", and its journal {kept}"))
    for path in outputs:
        if path is not None:
            typer.echo(f"wrote {path}")


def _why_untaught(summary: Summary) -> str:
    if summary.best is None:
        return "nothing was detected in any frame, so that no window taught"
    return (
        f"no window that was followed scored high enough to teach: the best had {summary.best:.2f}, and one above "
        f"{summary.gate:.2f} teaches; see the scores with --lines, lower --above"
    )


def table_of(
    summary: Summary, skipped: Skipped, file: WatchedModel | None, out: Path | None, lines: Path | None
) -> dict[str, Any]:
    """The same for programs, as JSON has it."""
    journal = None if file is None or file.journal is None or not file.journal.path.exists() else file.journal.path
    paths = {"model": None if file is None else file.path, "journal": journal, "out": out, "lines": lines}
    return {
        "frames": summary.frames,
        "frames_a_second": round(summary.rate, 3),
        "with_detections": summary.seen,
        "longest_without": summary.longest_unseen,
        "lessons": summary.learned,
        "taken_back": summary.taken_back,
        "weights_moved": round(summary.moved, 6),
        "gate": None if file is None else round(summary.gate, 6),
        "best_score": None if summary.best is None else round(summary.best, 6),
        "skipped": {"frames": skipped.n, "first": skipped.named},
        "ended": summary.ended,
        "stopped": summary.stopped,
        **{name: None if path is None else str(path) for name, path in paths.items()},
    }


def end(summary: Summary, skipped: Skipped, source: str | None) -> None:
    """Say what went wrong, and end with an exit code that tells."""
    from whet.io.video_stream import is_live

    if skipped.n:
        say(f"whet: skipped {count(skipped.n, 'frame')} that could not be read:")
        for line in skipped.named:
            say(f"  {line}")
        if skipped.n > len(skipped.named):
            say(f"  and {skipped.n - len(skipped.named):,} more")
    if summary.ended is not None:
        say(f"whet: {summary.ended}" + ("; the model is kept as it was then" if summary.saved else ""))
        raise typer.Exit(ExitCode.FAILED)
    if summary.stopped:
        say(f"whet: stopped after {count(summary.frames, 'frame')}; everything until then is kept")
        raise typer.Exit(CTRL_C)
    if source is not None and is_live(source):
        say(f"whet: {source} sends no more; everything until then is kept")
    if skipped.n:
        raise typer.Exit(ExitCode.SOME_SKIPPED)
