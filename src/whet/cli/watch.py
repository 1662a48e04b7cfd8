"""`whet watch`: track an object in a video, and train the detector on it."""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.options import (
    ExitCode,
    Json,
    MinScore,
    Model,
    Quiet,
    Threads,
    is_in_place,
    model_out,
    parse_min_score,
    refuse,
    usage_errors,
)
from whet.cli.output import MAX_LISTED, StopSignals, plural, say, say_json, warn
from whet.cli.output import start as start_quickly

if TYPE_CHECKING:
    from whet.detector.detector import Detector
    from whet.errors import VideoError
    from whet.io.video import VideoFrame, VideoWriter
    from whet.tracking.session import FrameCallback, SavedModel, Summary
    from whet.tracking.tracker import TrackedFrame
    from whet.web.live import WatchedVideo


def watch(
    model: Model,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Video file, directory of frames, stream address, or camera[:N].")
    ],
    learn: Annotated[bool, typer.Option("--learn", help="Train the detector on the tracked object.")] = False,
    save_as: Annotated[Path | None, typer.Option(metavar="FILE", help="Output model; required with --learn.")] = None,
    save_every: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Also save every N frames (default: only at the end).")
    ] = None,
    unguarded: Annotated[
        bool, typer.Option("--unguarded", help="Learn without checks on the reference set, for models that have none.")
    ] = False,
    learn_min_score: Annotated[
        float | None,
        typer.Option(metavar="SCORE", help="Learn tracked windows above this score (default: automatic; face: 39.6)."),
    ] = None,
    min_score: MinScore = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Annotated video, such as seen.mp4.")
    ] = None,
    lines: Annotated[
        Path | None, typer.Option(metavar="FILE", help="One JSON line per frame; a table if FILE ends in .csv.")
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Serve a live page for the browser and print its address.")
    ] = False,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, metavar="N", help="Port of the live page (default: a free port).")
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(metavar="HOST", help="Address of the live page (default: this machine only). 0.0.0.0: all."),
    ] = None,
    every: Annotated[int, typer.Option(min=1, metavar="N", help="Use every Nth frame.")] = 1,
    start: Annotated[int, typer.Option(min=0, metavar="N", help="First frame.")] = 0,
    stop: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop before this frame.")] = None,
    resize: Annotated[str | None, typer.Option(metavar="WIDTHxHEIGHT", help="Scale frames, such as 320x240.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing output files.")] = False,
    threads: Threads = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Detect in every frame of a video and track one object; with --learn, train the detector on it.

    Press Ctrl-C to stop (exit code 130); whet saves everything until then, and also on SIGTERM and SIGHUP. The newest
    learned frames stay in the model as records: whet log lists them, whet unlearn takes them out. Updates that harm
    held-out samples are rolled back. Frames that cannot be read are skipped and listed (exit code 5).

    \b
    Examples:
      whet watch face film.mp4 --out seen.mp4
      whet watch face camera --learn --save-as mine.whet --save-every 1000
      whet watch face camera --show --port 8000
      whet watch face frames/ --lines seen.csv --resize 320x240 --every 2
    """
    _check_options(learn, save_as, save_every, learn_min_score, unguarded)
    if not show:
        refuse("without --show; add --show to serve the live page", host=host, port=port)
    if stop is not None and stop <= start:
        raise typer.BadParameter(f"got --start {start} and --stop {stop}; expected --stop above --start")
    size = _parse_size(resize)
    _check_different_files(model, out, lines, save_as)
    for path in (out, lines):
        _check_not_overwritten(path, source, force=force)
    start_quickly(quiet=quiet)
    from whet.detector.storage import load
    from whet.io.video import read_frames
    from whet.tracking.session import SavedModel, Session
    from whet.tracking.tracker import SelfTraining, Tracker

    skipped, saved = SkippedFrames(), None
    if save_as is not None:
        save_as = model_out(model, save_as, force=force, option="--save-as")
        saved = SavedModel(save_as, in_place=is_in_place(model, save_as))
    with usage_errors():
        tracker = Tracker(
            load(model),
            learn=learn,
            self_training=SelfTraining(learn_min_score, guarded=not unguarded),
            min_score=parse_min_score(min_score),
            threads=threads,
            source=short_name(source),
        )
    frames = read_frames(source, every=every, start=start, stop=stop, resize=size, skipped=skipped.add)
    writer: VideoWriter | None = None
    stop_signals = StopSignals()
    try:
        with stop_signals, ExitStack() as stack:
            page = stack.enter_context(live_page(model, tracker.detector, source, host, port)) if show else None
            callbacks, writer = file_callbacks(stack, lines, out, every)
            callbacks.append(stack.enter_context(progress_view(hidden=quiet, learns=learn)))
            callbacks += [] if page is None else [page.show]
            session = Session(tracker, tuple(callbacks), saved, save_every, lambda text: warn(f"Warning: {text}"))
            summary = session.run(stop_signals.between(frames))
            if page is not None:
                page.end(summary)
    except KeyboardInterrupt:
        warn("stopped before the first frame; nothing was written")
        raise typer.Exit(stop_signals.exit_code) from None
    out = None if writer is None or not writer.is_finished else out
    if as_json:
        say_json(summary_table(summary, skipped, saved, out, lines))
    elif not quiet:
        print_summary(summary, saved, learn, (out, lines))
    exit_with_reason(summary, skipped, source if stop is None else None, stop_signals.exit_code)


def _check_options(
    learn: bool, save_as: Path | None, save_every: int | None, learn_min_score: float | None, unguarded: bool
) -> None:
    if learn and save_as is None:
        raise typer.BadParameter("--learn needs an output model; add --save-as FILE")
    if learn_min_score is not None and not isfinite(learn_min_score):
        raise typer.BadParameter(f"got --learn-min-score {learn_min_score}; expected a finite score, such as 20")
    if not learn:
        given = {"save_as": save_as, "save_every": save_every, "learn_min_score": learn_min_score}
        refuse("without --learn; add --learn to train the detector", **given, unguarded=unguarded)


def _parse_size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    width, by, height = text.lower().partition("x")
    if not (by and width.isdecimal() and height.isdecimal()):
        raise typer.BadParameter(f"got --resize {text}; expected WIDTHxHEIGHT, such as 320x240")
    return int(width), int(height)


def _check_different_files(model: str, *outputs: Path | None) -> None:
    """Refuse two outputs in one file; only the model may be saved in its own file."""
    out, lines, save_as = (None if path is None else path.resolve() for path in outputs)
    files = [path for path in (Path(model).resolve(), out, lines) if path is not None]
    files += [save_as] if save_as is not None and save_as != files[0] else []
    duplicate = next((path for path in files if files.count(path) > 1), None)
    if duplicate is not None:
        raise typer.BadParameter(
            f"{duplicate.name} is used twice; give MODEL, --out, --lines and --save-as different files"
        )


def _check_not_overwritten(path: Path | None, source: str, *, force: bool) -> None:
    """Refuse to overwrite the source, and other files without --force."""
    if path is None or not path.exists():
        return
    if Path(source).exists() and path.samefile(source):
        raise typer.BadParameter(f"{path} is the source; use another output file")
    if path.is_file() and not force:
        raise typer.BadParameter(f"{path} already exists; use --force to overwrite it")


# Output: progress, files, the live page, the summary and the exit code.


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
    say(f"{frames}, {summary.with_detections:,} with detections")
    if learn:
        learned = plural(summary.learned, "frame")
        say(f"Learned {learned}, rolled back {summary.rolled_back:,}; weight change {summary.weight_change:.2%}")
        if summary.before is not None and summary.after is not None:
            say(f"Held-out samples: {summary.before} before, {summary.after} after")
        if summary.frames and not (summary.learned or summary.rolled_back):
            why = "no frame has a detection"
            if summary.best_score is not None:
                why = (
                    f"the best tracked window scores {summary.best_score:.2f}, and only windows above "
                    f"{summary.learn_min_score:.2f} are learned. Use --learn-min-score to lower this score, --lines to "
                    "see scores"
                )
            say(f"Learned nothing: {why}")
    if saved is not None:
        say(f"Wrote {saved.path}")
    for path in outputs:
        if path is not None:
            say(f"Wrote {path}")


def summary_table(
    summary: Summary, skipped: SkippedFrames, saved: SavedModel | None, out: Path | None, lines: Path | None
) -> dict[str, Any]:
    """The summary for JSON."""
    paths = {"model": None if saved is None else saved.path, "out": out, "lines": lines}
    estimates = {"before": summary.before, "after": summary.after}
    return {
        "frames": summary.frames,
        "frames_per_second": round(summary.rate, 3),
        "with_detections": summary.with_detections,
        "longest_without_detections": summary.longest_without,
        "learned": summary.learned,
        "rolled_back": summary.rolled_back,
        "weight_change": round(summary.weight_change, 6),
        "learn_min_score": None if saved is None else round(summary.learn_min_score, 6),
        "best_score": None if summary.best_score is None else round(summary.best_score, 6),
        "held_out": {name: None if estimate is None else asdict(estimate) for name, estimate in estimates.items()},
        "skipped": {"frames": skipped.n, "first": skipped.first},
        "error": summary.error,
        "interrupted": summary.interrupted,
        **{name: None if path is None else str(path) for name, path in paths.items()},
    }


def exit_with_reason(summary: Summary, skipped: SkippedFrames, source: str | None, stopped: int) -> None:
    """Print what went wrong, and exit with the code for it; `stopped` is that of a signal."""
    from whet.io.video import is_live

    if skipped.n:
        warn(f"skipped {plural(skipped.n, 'frame')} that could not be read:")
        for line in skipped.first:
            say(f"  {line}", err=True)
        if skipped.n > len(skipped.first):
            say(f"  ... and {skipped.n - len(skipped.first):,} more", err=True)
    if summary.error is not None:
        warn(summary.error + ("; the model until then is saved" if summary.saved else ""))
        raise typer.Exit(ExitCode.FAILED)
    if summary.interrupted:
        warn(f"stopped after {plural(summary.frames, 'frame')}; everything until then is saved")
        raise typer.Exit(stopped)
    if source is not None and is_live(source):
        warn(f"{source} ended the stream; everything until then is saved")
    if skipped.n:
        raise typer.Exit(ExitCode.SOME_SKIPPED)


@contextmanager
def progress_view(*, hidden: bool, learns: bool) -> Iterator[FrameCallback]:
    """A callback that prints the state of the session: a table on a terminal, else a line every 100 frames."""
    if hidden:
        yield lambda _, __: None
    elif sys.stderr.isatty():
        with _terminal_table(learns) as callback:
            yield callback
    else:

        def print_line(frame: VideoFrame, tracked: TrackedFrame) -> None:
            if tracked.number % 100:
                return
            score = "nothing tracked yet" if tracked.track is None else f"tracked with score {tracked.track.score:.1f}"
            change = f", weight change {tracked.weight_change:.2%}" if learns else ""
            say(f"frame {frame.number}: {len(tracked.detections)} detected, {score}{change}", err=True)

        yield print_line


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
            cells |= {"learned": f"{now.learned}", "rolled back": f"{now.rolled_back}"}
            cells["weight change"] = f"{now.weight_change:.2%}"
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
    from whet.io.detection_files import FrameLines
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
def live_page(
    model: str, detector: Detector, source: str, host: str | None, port: int | None
) -> Iterator[WatchedVideo]:
    """Serve the page of the session and print its address, even with --quiet: a free port cannot be guessed.

    The page is the studio's, on a project that is gone afterwards.
    """
    from tempfile import TemporaryDirectory

    from whet.web.api import make_app
    from whet.web.live import WatchedVideo
    from whet.web.security import Access
    from whet.web.server import StudioServer, is_loopback
    from whet.web.studio import Studio
    from whet.web.workspace import Workspace

    wanted = host or "127.0.0.1"
    token = None if is_loopback(wanted) else secrets.token_urlsafe(16)
    with TemporaryDirectory() as folder:
        workspace = Workspace.open(Path(folder) / "watch.studio", detector.copy(), name=Path(model).stem)
        video = WatchedVideo(workspace.events, short_name(source))
        with (
            Studio(workspace, video=video) as studio,
            StudioServer(make_app(studio, Access(token=token)), wanted, port or 0) as server,
        ):
            warn(f"live image at {server.address}" + (f"?token={token}" if token else ""))
            if not server.is_private:
                warn("Warning: others on the network can view this page with its token; it is not encrypted")
            elif host is not None:
                warn(f"{host} is visible on this machine only; use --host 0.0.0.0 to allow others")
            yield video


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
