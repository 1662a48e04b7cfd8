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
from whet.cli.output import MAX_LISTED, plural

if TYPE_CHECKING:
    from whet.errors import VideoError
    from whet.io.video import VideoFrame, VideoWriter
    from whet.tracking.session import Sink, Summary, TrackedModel
    from whet.tracking.tracker import TrackedFrame
    from whet.web.page import LiveImage


@dataclass
class Skipped:
    """Frames that could not be read: how many, and the first of them."""

    n: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, error: VideoError) -> None:
        """Count one more."""
        self.n += 1
        if self.n <= MAX_LISTED:
            self.named.append(str(error))


def say(text: str) -> None:
    """Standard output is for results alone."""
    typer.echo(text, err=True)


def report(summary: Summary, file: TrackedModel | None, learn: bool, outputs: tuple[Path | None, ...]) -> None:
    """Print what became of the session, and what was written."""
    n = plural(summary.frames, "frame")
    typer.echo(f"{n}, {summary.rate:.1f} a second; with detections: {summary.seen:,}")
    if learn:
        learned = plural(summary.learned, "frame")
        typer.echo(f"learned {learned}, rolled back {summary.rolled_back:,}; weight change {summary.weight_change:.2%}")
        if summary.frames and not (summary.learned or summary.rolled_back):
            typer.echo(_nothing_learned(summary))
    if file is not None:
        kept = None if file.journal is None or not file.journal.path.exists() else file.journal.path
        typer.echo(f"wrote {file.path}" + ("" if kept is None else f", and its journal {kept}"))
    for path in outputs:
        if path is not None:
            typer.echo(f"wrote {path}")


def _nothing_learned(summary: Summary) -> str:
    if summary.best is None:
        return "learned nothing: no frame has a detection"
    return (
        f"learned nothing: the best tracked window scores {summary.best:.2f}, and windows above "
        f"{summary.learn_above:.2f} are learned; see the scores with --lines, or lower --learn-above"
    )


def table_of(
    summary: Summary, skipped: Skipped, file: TrackedModel | None, out: Path | None, lines: Path | None
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
        "rolled_back": summary.rolled_back,
        "weights_moved": round(summary.weight_change, 6),
        "gate": None if file is None else round(summary.learn_above, 6),
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
        say(f"whet: skipped {plural(skipped.n, 'frame')} that could not be read:")
        for line in skipped.named:
            say(f"  {line}")
        if skipped.n > len(skipped.named):
            say(f"  and {skipped.n - len(skipped.named):,} more")
    if summary.ended is not None:
        say(f"whet: {summary.ended}" + ("; the model is kept as it was then" if summary.saved else ""))
        raise typer.Exit(ExitCode.FAILED)
    if summary.stopped:
        say(f"whet: stopped after {plural(summary.frames, 'frame')}; everything until then is kept")
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
        yield lambda frame, tracked: _say(frame, tracked, learns) if tracked.number % PLAIN_EVERY == 0 else None


def _say(frame: VideoFrame, tracked: TrackedFrame, learns: bool) -> None:
    change = f", weight change {tracked.weight_change:.2%}" if learns else ""
    typer.echo(f"frame {frame.number}: {len(tracked.detections)} detected, {_tracked(tracked)}{change}", err=True)


def _tracked(tracked: TrackedFrame) -> str:
    if tracked.track is None:
        return "nothing tracked yet"
    return f"tracked with score {tracked.track.score:.1f}"


@contextmanager
def _live(learns: bool) -> Iterator[Sink]:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    from whet.tracking.session import Tally

    tally = Tally()

    def view(frame: VideoFrame, tracked: TrackedFrame) -> None:
        now = tally.add(frame, tracked)
        cells = {"frame": f"{now.frame}", "a second": f"{now.rate:.1f}", "detected": f"{now.detected}"}
        cells["score"] = "-" if now.score is None else f"{now.score:.1f}"
        if learns:
            cells |= {
                "learned": f"{now.learned}",
                "rolled back": f"{now.rolled_back}",
                "weight change": f"{now.weight_change:.2%}",
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
        sinks.append(lambda frame, tracked: table.write(line_of(frame, tracked)))
    if out is not None:
        from whet.plots.drawing import look_drawn

        writer = film = stack.enter_context(VideoWriter(out))

        def draw(frame: VideoFrame, tracked: TrackedFrame) -> None:
            film.rate = frame.rate / every
            film.write(look_drawn(frame.image, tracked))

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
