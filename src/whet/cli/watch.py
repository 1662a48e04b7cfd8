"""`whet watch`: a detector on a video, that learns from what it sees."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.ctrl_c import ctrl_c_between
from whet.cli.exit_codes import CTRL_C, ExitCode
from whet.cli.model_out import Destination
from whet.cli.options import Json, Model, Quiet, Threads, Threshold, threshold_of
from whet.cli.results import MOST_NAMED
from whet.cli.start import start as start_quickly
from whet.cli.watch_view import watch_view
from whet.cli.words import count
from whet.cli.wrong_call import wrong_call_if_value_error

if TYPE_CHECKING:
    from whet.errors import VideoError
    from whet.io.video import VideoFrame
    from whet.io.video_writer import VideoWriter
    from whet.training.detector import Detector
    from whet.training.watch_session import Sink, Summary
    from whet.training.watched_model import WatchedModel
    from whet.training.watching import Lessons, Look


def watch(
    model: Model,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A video file, a folder of frames, an address, or camera[:N].")
    ],
    learn: Annotated[bool, typer.Option("--learn", help="Teach the detector what it sees.")] = False,
    save_as: Annotated[Path | None, typer.Option(help="File for what was learned; --learn needs it.")] = None,
    save_every: Annotated[int | None, typer.Option(min=1, help="Save also every so many frames.")] = None,
    no_journal: Annotated[bool, typer.Option("--no-journal", help="Keep none: what is learned stays.")] = False,
    above: Annotated[
        float | None, typer.Option(help="Score that a window needs to teach; else the detector's own (face: 39.6).")
    ] = None,
    others: Annotated[
        int | None, typer.Option(min=0, help="Windows elsewhere in a frame to teach as others; else none.")
    ] = None,
    threshold: Threshold = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Annotated video to write, such as seen.mp4.")] = None,
    lines: Annotated[
        Path | None, typer.Option(help="A line a frame to this file: JSON, or a table if it ends in .csv.")
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Look at every so many frames.")] = 1,
    start: Annotated[int, typer.Option(min=0, help="Number of the first frame.")] = 0,
    stop: Annotated[int | None, typer.Option(min=1, help="Number of the frame to stop before.")] = None,
    resize: Annotated[str | None, typer.Option(help="WIDTHxHEIGHT to bring frames to, such as 320x240.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there already.")] = False,
    threads: Threads = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Detect in every frame, follow the best window, and with --learn teach it to the detector as you go.

    \b
    Ctrl-C ends it (exit code 130), and keeps all until then. What was learned and is still remembered goes to a
    journal, for whet unlearn. Frames that cannot be read are skipped and named; the exit code is then 5.

    \b
    whet watch face film.mp4 --out seen.mp4
    whet watch face camera --learn --save-as mine.whet --save-every 1000
    whet watch face frames/ --lines seen.csv --resize 320x240 --every 2
    """
    _check_call(learn, save_as, save_every, above, others, no_journal)
    if stop is not None and stop <= start:
        raise typer.BadParameter(f"got --start {start} and --stop {stop}: there is no frame between them")
    size = _size(resize)
    _check_apart(model, out, lines, save_as)
    for path in (out, lines):
        _check_free(path, source, force=force)
    start_quickly(quiet=quiet)
    from whet.io.video import read_frames
    from whet.training.detector import load
    from whet.training.watch_session import Session
    from whet.training.watching import Watcher

    detector, skipped = load(model), _Skipped()
    file = None if save_as is None else _model_file(model, detector, save_as, no_journal=no_journal, force=force)
    with wrong_call_if_value_error():
        lessons, shown = _lessons(above, others), threshold_of(threshold)
        watcher = Watcher(detector, learn=learn, lessons=lessons, threshold=shown, threads=threads)
    frames = read_frames(source, every=every, start=start, stop=stop, resize=size, skipped=skipped.add)
    writer: VideoWriter | None = None
    try:
        with ctrl_c_between() as stoppable, ExitStack() as stack:
            sinks, writer = _outputs(stack, lines, out, every)
            sinks.append(stack.enter_context(watch_view(hidden=quiet, learns=learn)))
            summary = Session(watcher, tuple(sinks), file, save_every, _say).run(stoppable(frames))
    except KeyboardInterrupt:
        _say("whet: stopped before the first frame; nothing was written")
        raise typer.Exit(CTRL_C) from None
    out = None if writer is None or not writer.is_finished else out
    if as_json:
        typer.echo(json.dumps(_table(summary, skipped, file, out, lines), indent=1))
    elif not quiet:
        _report(summary, file, learn, (out, lines))
    _end(summary, skipped, source if stop is None else None)


@dataclass
class _Skipped:
    """Frames that could not be read: how many, and the first of them."""

    n: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, error: VideoError) -> None:
        self.n += 1
        if self.n <= MOST_NAMED:
            self.named.append(str(error))


def _check_call(
    learn: bool, save_as: Path | None, save_every: int | None, above: float | None, others: int | None, no_journal: bool
) -> None:
    if learn and save_as is None:
        raise typer.BadParameter("--learn needs --save-as: where shall what was learned be kept?")
    given = {"save-as": save_as, "save-every": save_every, "above": above, "others": others}
    idle = [f"--{name}" for name, value in given.items() if value is not None] + ["--no-journal"] * no_journal
    if idle and not learn:
        raise typer.BadParameter(f"got {', '.join(idle)} without --learn: nothing is learned then; add --learn")


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    width, by, height = text.lower().partition("x")
    if not (by and width.isdecimal() and height.isdecimal()):
        raise typer.BadParameter(f"got --resize {text}; expected WIDTHxHEIGHT, such as 320x240")
    return int(width), int(height)


def _check_apart(model: str, *outputs: Path | None) -> None:
    """No two outputs may be one file; a model may be saved in its place."""
    out, lines, save_as = (None if path is None else path.resolve() for path in outputs)
    files = [path for path in (Path(model).resolve(), out, lines) if path is not None]
    files += [save_as] if save_as is not None and save_as != files[0] else []
    twice = next((path for path in files if files.count(path) > 1), None)
    if twice is not None:
        raise typer.BadParameter(f"{twice.name} is named for two things: give each a file of its own")


def _check_free(path: Path | None, source: str, *, force: bool) -> None:
    """What is there already is lost only where that is asked for, and the source never."""
    if path is None or not path.exists():
        return
    if Path(source).exists() and path.samefile(source):
        raise typer.BadParameter(f"{path} is what is watched: give another name to write to")
    if path.is_file() and not force:
        raise typer.BadParameter(f"{path} is there already: give another name, or replace it with --force")


def _model_file(model: str, detector: Detector, save_as: Path, *, no_journal: bool, force: bool) -> WatchedModel:
    from whet.training.watched_model import WatchedModel

    target = Destination.of(model, detector, save_as, force=force, option="--save-as")
    return WatchedModel(target.out, None if no_journal else target.journal, target.takes_along)


def _lessons(above: float | None, others: int | None) -> Lessons:
    from whet.training.watching import Lessons

    lessons = Lessons()
    lessons = lessons if above is None else replace(lessons, gate=above)
    return lessons if others is None else replace(lessons, others=others)


def _outputs(
    stack: ExitStack, lines: Path | None, out: Path | None, every: int
) -> tuple[list[Sink], VideoWriter | None]:
    from whet.io.frame_lines import FrameLines
    from whet.io.video_writer import VideoWriter
    from whet.training.watch_session import line_of

    sinks: list[Sink] = []
    writer = None
    if lines is not None:
        table = stack.enter_context(FrameLines(lines))
        sinks.append(lambda frame, look: table.write(line_of(frame, look)))
    if out is not None:
        writer = film = stack.enter_context(VideoWriter(out))

        def draw(frame: VideoFrame, look: Look) -> None:
            film.rate = frame.rate / every
            film.write(_drawn(frame, look))

        sinks.append(draw)
    return sinks, writer


def _drawn(frame: VideoFrame, look: Look):  # type: ignore[no-untyped-def] # noqa: ANN202 - numpy is not imported here
    from whet.plots.drawn_boxes import FALSE_ALARM, FOUND, boxes_drawn

    drawn = boxes_drawn(frame.picture, look.elsewhere, FALSE_ALARM, width=1)
    if look.box is None or look.sighting is None:
        return drawn
    return boxes_drawn(drawn, look.box[None], FOUND, width=2 if look.sighting.accepts else 1)


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _report(summary: Summary, file: WatchedModel | None, learn: bool, outputs: tuple[Path | None, ...]) -> None:
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


def _table(
    summary: Summary, skipped: _Skipped, file: WatchedModel | None, out: Path | None, lines: Path | None
) -> dict[str, Any]:
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
        "skipped": {"frames": skipped.n, "first": skipped.named},
        "ended": summary.ended,
        "stopped": summary.stopped,
        **{name: None if path is None else str(path) for name, path in paths.items()},
    }


def _end(summary: Summary, skipped: _Skipped, source: str | None) -> None:
    """Say what went wrong, and end with an exit code that tells."""
    from whet.io.video_stream import is_live

    if skipped.n:
        _say(f"whet: skipped {count(skipped.n, 'frame')} that could not be read:")
        for line in skipped.named:
            _say(f"  {line}")
        if skipped.n > len(skipped.named):
            _say(f"  and {skipped.n - len(skipped.named):,} more")
    if summary.ended is not None:
        _say(f"whet: {summary.ended}" + ("; the model is kept as it was then" if summary.saved else ""))
        raise typer.Exit(ExitCode.FAILED)
    if summary.stopped:
        _say(f"whet: stopped after {count(summary.frames, 'frame')}; everything until then is kept")
        raise typer.Exit(CTRL_C)
    if source is not None and is_live(source):
        _say(f"whet: {source} sends no more; everything until then is kept")
    if skipped.n:
        raise typer.Exit(ExitCode.SOME_SKIPPED)
