"""What `whet watch` shows and writes while it runs."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from whet.cli.options import CTRL_C, ExitCode
from whet.cli.output import MOST_NAMED, count

if TYPE_CHECKING:
    from whet.errors import VideoError
    from whet.io.video import VideoFrame, VideoWriter
    from whet.tracking.session import Sink, Summary, WatchedModel
    from whet.tracking.tracker import Look
    from whet.web.page import LiveImage


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
    from whet.io.video import is_live

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


PLAIN_EVERY = 100  # frames between two lines where no terminal is


@contextmanager
def watch_view(*, hidden: bool, learns: bool) -> Iterator[Sink]:
    """A function that is shown every frame."""
    if hidden:
        yield lambda _, __: None
    elif sys.stderr.isatty():
        with _live(learns) as sink:
            yield sink
    else:
        yield lambda frame, look: _say(frame, look, learns) if look.number % PLAIN_EVERY == 0 else None


def _say(frame: VideoFrame, look: Look, learns: bool) -> None:
    moved = f", weights moved {look.moved:.2%}" if learns else ""
    typer.echo(f"frame {frame.number}: {len(look.detections)} detected, {_followed(look)}{moved}", err=True)


def _followed(look: Look) -> str:
    if look.sighting is None:
        return "nothing to follow yet"
    return f"followed with score {look.sighting.score:.1f}"


@contextmanager
def _live(learns: bool) -> Iterator[Sink]:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    from whet.tracking.session import Tally

    tally = Tally()

    def view(frame: VideoFrame, look: Look) -> None:
        now = tally.add(frame, look)
        cells = {"frame": f"{now.frame}", "a second": f"{now.rate:.1f}", "detected": f"{now.detected}"}
        cells["score"] = "-" if now.score is None else f"{now.score:.1f}"
        if learns:
            cells |= {
                "lessons": f"{now.lessons}",
                "taken back": f"{now.taken_back}",
                "weights moved": f"{now.moved:.2%}",
            }
        table = Table(*cells)
        table.add_row(*cells.values())
        live.update(table)

    # Standard output is not for rich to redirect: that would send it to standard error.
    with Live(console=Console(stderr=True), refresh_per_second=8, redirect_stdout=False) as live:
        yield view


def outputs(
    stack: ExitStack, lines: Path | None, out: Path | None, every: int
) -> tuple[list[Sink], VideoWriter | None]:
    """What hears of every frame and writes it, closed by the stack; and the video among it, if there is one."""
    from whet.io.detections import FrameLines
    from whet.io.video import VideoWriter
    from whet.tracking.session import line_of

    sinks: list[Sink] = []
    writer = None
    if lines is not None:
        table = stack.enter_context(FrameLines(lines))
        sinks.append(lambda frame, look: table.write(line_of(frame, look)))
    if out is not None:
        from whet.plots.drawing import draw_tracked_frame

        writer = film = stack.enter_context(VideoWriter(out))

        def draw(frame: VideoFrame, look: Look) -> None:
            film.rate = frame.rate / every
            film.write(draw_tracked_frame(frame.image, look))

        sinks.append(draw)
    return sinks, writer


@contextmanager
def watch_page(model: str, source: str, learns: bool, host: str | None, port: int | None) -> Iterator[LiveImage]:
    """Serve the page, and say where: also to who wants no progress, as a free port is not to be guessed."""
    from whet.web.page import LiveImage
    from whet.web.server import LiveServer

    live = LiveImage({"model": Path(model).stem, "source": short_name(source), "learns": learns})
    with LiveServer(live, host or "127.0.0.1", port or 0) as server:
        say(f"whet: live image at {server.address}")
        if not server.is_private:
            say("whet: everybody who reaches this machine can look: there is no password, and no encryption")
        elif host is not None:
            say(f"whet: {host} is this machine's name for itself: nobody else can look; --host 0.0.0.0 lets others")
        yield live


def short_name(source: str) -> str:
    """A source as others may see it: no folders, and of an address the host alone, as passwords stand anywhere else.

    >>> short_name("/home/ann/films/cat.mp4"), short_name("camera")
    ('cat.mp4', 'camera')
    >>> short_name("rtsp://ann:secret@10.0.0.7:554/live"), short_name("rtsp://10.0.0.7/user=ann_password=secret")
    ('rtsp://10.0.0.7:554', 'rtsp://10.0.0.7')
    """
    scheme, is_address, rest = source.partition("://")
    if not is_address:
        return Path(source).resolve().name
    # A password may have a slash in it, so that the host is what follows the last @.
    return f"{scheme}://{re.split('[/?#]', rest.rpartition('@')[2])[0]}"
