"""Output of `whet watch`: progress, files, the live page, the summary and the exit code."""

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
from whet.cli.output import MAX_LISTED, plural, warn

if TYPE_CHECKING:
    from whet.errors import VideoError
    from whet.io.video import VideoFrame, VideoWriter
    from whet.tracking.session import FrameCallback, SavedModel, Summary
    from whet.tracking.tracker import TrackedFrame
    from whet.web.page import LiveImage


@dataclass
class SkippedFrames:
    """Frames that could not be read: their number, and the first messages."""

    n: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, error: VideoError) -> None:
        """Count one more frame."""
        self.n += 1
        if self.n <= MAX_LISTED:
            self.first.append(str(error))


def print_summary(summary: Summary, saved: SavedModel | None, learn: bool, outputs: tuple[Path | None, ...]) -> None:
    """Print the numbers of a session, and the files that it wrote."""
    frames = f"{plural(summary.frames, 'frame')} ({summary.rate:.1f} per second)"
    typer.echo(f"{frames}, {summary.with_detections:,} with detections")
    if learn:
        learned = plural(summary.learned, "frame")
        typer.echo(f"Learned {learned}, rolled back {summary.rolled_back:,}; weight change {summary.weight_change:.2%}")
        if summary.frames and not (summary.learned or summary.rolled_back):
            typer.echo(_nothing_learned(summary))
    if saved is not None:
        journal = _journal_of(saved)
        typer.echo(f"Wrote {saved.path}" + ("" if journal is None else f" and its journal {journal}"))
    for path in outputs:
        if path is not None:
            typer.echo(f"Wrote {path}")


def _nothing_learned(summary: Summary) -> str:
    if summary.best_score is None:
        return "Learned nothing: no frame has a detection"
    return (
        f"Learned nothing: the best tracked window scores {summary.best_score:.2f}, and only windows above "
        f"{summary.learn_above:.2f} are learned. Use --learn-above to lower this score, --lines to see all scores"
    )


def _journal_of(saved: SavedModel) -> Path | None:
    """The journal of a saved model, if it was written."""
    return None if saved.journal is None or not saved.journal.path.exists() else saved.journal.path


def summary_table(
    summary: Summary, skipped: SkippedFrames, saved: SavedModel | None, out: Path | None, lines: Path | None
) -> dict[str, Any]:
    """The summary for JSON."""
    journal = None if saved is None else _journal_of(saved)
    paths = {"model": None if saved is None else saved.path, "journal": journal, "out": out, "lines": lines}
    return {
        "frames": summary.frames,
        "frames_per_second": round(summary.rate, 3),
        "with_detections": summary.with_detections,
        "longest_without_detections": summary.longest_without,
        "learned": summary.learned,
        "rolled_back": summary.rolled_back,
        "weight_change": round(summary.weight_change, 6),
        "learn_above": None if saved is None else round(summary.learn_above, 6),
        "best_score": None if summary.best_score is None else round(summary.best_score, 6),
        "skipped": {"frames": skipped.n, "first": skipped.first},
        "error": summary.error,
        "interrupted": summary.interrupted,
        **{name: None if path is None else str(path) for name, path in paths.items()},
    }


def exit_with_reason(summary: Summary, skipped: SkippedFrames, source: str | None) -> None:
    """Print what went wrong, and exit with the code for it."""
    from whet.io.video import is_live

    if skipped.n:
        warn(f"skipped {plural(skipped.n, 'frame')} that could not be read:")
        for line in skipped.first:
            typer.echo(f"  {line}", err=True)
        if skipped.n > len(skipped.first):
            typer.echo(f"  ... and {skipped.n - len(skipped.first):,} more", err=True)
    if summary.error is not None:
        warn(summary.error + ("; the model until then is saved" if summary.saved else ""))
        raise typer.Exit(ExitCode.FAILED)
    if summary.interrupted:
        warn(f"stopped after {plural(summary.frames, 'frame')}; everything until then is saved")
        raise typer.Exit(CTRL_C)
    if source is not None and is_live(source):
        warn(f"{source} ended the stream; everything until then is saved")
    if skipped.n:
        raise typer.Exit(ExitCode.SOME_SKIPPED)


PLAIN_EVERY = 100  # frames between two lines if standard error is not a terminal


@contextmanager
def progress_view(*, hidden: bool, learns: bool) -> Iterator[FrameCallback]:
    """A callback that prints the state of the session: a table on a terminal, else a line every 100 frames."""
    if hidden:
        yield lambda _, __: None
    elif sys.stderr.isatty():
        with _terminal_table(learns) as callback:
            yield callback
    else:
        yield lambda frame, tracked: _print_line(frame, tracked, learns) if tracked.number % PLAIN_EVERY == 0 else None


def _print_line(frame: VideoFrame, tracked: TrackedFrame, learns: bool) -> None:
    score = "nothing tracked yet" if tracked.track is None else f"tracked with score {tracked.track.score:.1f}"
    change = f", weight change {tracked.weight_change:.2%}" if learns else ""
    typer.echo(f"frame {frame.number}: {len(tracked.detections)} detected, {score}{change}", err=True)


@contextmanager
def _terminal_table(learns: bool) -> Iterator[FrameCallback]:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    from whet.tracking.session import FrameCounter

    counter = FrameCounter()

    def callback(frame: VideoFrame, tracked: TrackedFrame) -> None:
        now = counter.add(frame, tracked)
        cells = {"frame": f"{now.frame}", "frames/s": f"{now.rate:.1f}", "detected": f"{now.detected}"}
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

    # rich would otherwise redirect standard output to standard error.
    with Live(console=Console(stderr=True), refresh_per_second=8, redirect_stdout=False) as live:
        yield callback


def file_callbacks(
    stack: ExitStack, lines: Path | None, out: Path | None, every: int
) -> tuple[list[FrameCallback], VideoWriter | None]:
    """Callbacks that write lines and the annotated video, closed by the stack; and the video writer, if any."""
    from whet.io.detections import FrameLines
    from whet.io.video import VideoWriter
    from whet.tracking.session import frame_row

    callbacks: list[FrameCallback] = []
    writer = None
    if lines is not None:
        table = stack.enter_context(FrameLines(lines))
        callbacks.append(lambda frame, tracked: table.write(frame_row(frame, tracked)))
    if out is not None:
        from whet.plots.drawing import draw_tracked_frame

        writer = video = stack.enter_context(VideoWriter(out))

        def draw(frame: VideoFrame, tracked: TrackedFrame) -> None:
            video.rate = frame.rate / every
            video.write(draw_tracked_frame(frame.image, tracked))

        callbacks.append(draw)
    return callbacks, writer


@contextmanager
def live_page(model: str, source: str, learns: bool, host: str | None, port: int | None) -> Iterator[LiveImage]:
    """Serve the live page and print its address, even with --quiet: a free port cannot be guessed."""
    from whet.web.page import LiveImage
    from whet.web.server import LiveServer

    live = LiveImage({"model": Path(model).stem, "source": short_name(source), "learns": learns})
    with LiveServer(live, host or "127.0.0.1", port or 0) as server:
        warn(f"live image at {server.address}")
        if not server.is_private:
            warn("Warning: everyone on the network can view this page; it has no password and no encryption")
        elif host is not None:
            warn(f"{host} is visible on this machine only; use --host 0.0.0.0 to allow others")
        yield live


def short_name(source: str) -> str:
    """A source without directories, user names and passwords; of an address, only the host remains.

    >>> short_name("/home/ann/films/cat.mp4"), short_name("camera")
    ('cat.mp4', 'camera')
    >>> short_name("rtsp://ann:secret@10.0.0.7:554/live"), short_name("rtsp://10.0.0.7/user=ann_password=secret")
    ('rtsp://10.0.0.7:554', 'rtsp://10.0.0.7')
    """
    scheme, is_address, rest = source.partition("://")
    if not is_address:
        return Path(source).resolve().name
    # A password may contain a slash, so the host is what follows the last @.
    return f"{scheme}://{re.split('[/?#]', rest.rpartition('@')[2])[0]}"
