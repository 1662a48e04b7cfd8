"""`whet watch`: a detector on a video, that learns from what it sees."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.exit_codes import ExitCode
from whet.cli.start import start as start_quickly

if TYPE_CHECKING:
    from whet.io.video import VideoFrame
    from whet.training.watch_session import Sink, Summary
    from whet.training.watching import Look

PLAIN_EVERY = 100  # frames between two lines where no terminal is


def watch(
    model: Annotated[str, typer.Argument(help="A detector's file, or the name of one that comes with whet: face.")],
    source: Annotated[str, typer.Argument(help="A video file, a folder of frames, an address, or camera[:N].")],
    learn: Annotated[bool, typer.Option("--learn", help="Teach the detector what it sees.")] = False,
    above: Annotated[float | None, typer.Option(help="The margin that a window needs to teach.")] = None,
    others: Annotated[int | None, typer.Option(min=0, help="Windows elsewhere in a frame to teach as others.")] = None,
    threshold: Annotated[str | None, typer.Option(help="Score or operating point of what is shown.")] = None,
    out: Annotated[Path | None, typer.Option(help="Annotated video to write, such as seen.mp4.")] = None,
    json_lines: Annotated[Path | None, typer.Option("--json", help="A JSON line a frame, to this file.")] = None,
    csv: Annotated[Path | None, typer.Option(help="A table row a frame, to this file.")] = None,
    every: Annotated[int, typer.Option(min=1, help="Look at every so many frames.")] = 1,
    start: Annotated[int, typer.Option(min=0, help="Number of the first frame.")] = 0,
    stop: Annotated[int | None, typer.Option(min=1, help="Number of the frame to stop before.")] = None,
    resize: Annotated[str | None, typer.Option(help="WIDTHxHEIGHT to bring frames to, such as 320x240.")] = None,
    save_as: Annotated[Path | None, typer.Option(help="File for what was learned; with --learn.")] = None,
    save_every: Annotated[int | None, typer.Option(min=1, help="Save also every so many frames.")] = None,
) -> None:
    """Detect in every frame, follow the best window, and with --learn teach it to the detector as you go.

    \b
    whet watch face film.mp4 --out seen.mp4
    whet watch face camera --learn --save-as mine.safetensors --save-every 1000
    whet watch face frames/ --json seen.jsonl --resize 320x240 --every 2
    """
    from whet.io.video import frame_rate, read_frames
    from whet.training.detector import load
    from whet.training.watch_session import Session
    from whet.training.watching import Lessons, Watcher

    if learn and save_as is None:
        raise typer.BadParameter("--learn needs --save-as: where shall what was learned be kept?")
    size = _size(resize)
    lessons = Lessons()
    lessons = lessons if above is None else replace(lessons, gate=above)
    lessons = lessons if others is None else replace(lessons, others=others)
    detector, shown = load(model), _threshold(threshold)
    if isinstance(shown, str) and shown not in detector.operating_points:
        known = ", ".join(detector.operating_points) or "none"
        raise typer.BadParameter(f"there is no operating point {shown!r}; this detector has: {known}")
    watcher = Watcher(detector, learn=learn, lessons=lessons, threshold=shown)
    start_quickly()
    with ExitStack() as stack:
        sinks = _outputs(stack, json_lines, csv, out, frame_rate(source) / every if out else 0.0)
        show = stack.enter_context(_live() if sys.stderr.isatty() else _plain())
        session = Session(watcher, (*sinks, show), save_as if learn else None, save_every, _say)
        summary = session.run(read_frames(source, every=every, start=start, stop=stop, resize=size))
    _report(summary)


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    width, by, height = text.lower().partition("x")
    if not (by and width.isdigit() and height.isdigit()):
        raise typer.BadParameter(f"got --resize {text}; expected WIDTHxHEIGHT, such as 320x240")
    return int(width), int(height)


def _threshold(text: str | None) -> float | str | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _outputs(stack: ExitStack, json_lines: Path | None, csv: Path | None, out: Path | None, rate: float) -> list[Sink]:
    from whet.io.frame_lines import FrameLines
    from whet.io.video_writer import VideoWriter
    from whet.training.watch_session import line_of

    sinks: list[Sink] = []
    for path in (json_lines, csv):
        if path is not None:
            lines = stack.enter_context(FrameLines(path))
            sinks.append(lambda frame, look, lines=lines: lines.write(line_of(frame, look)))  # type: ignore[misc]
    if out is not None:
        writer = stack.enter_context(VideoWriter(out, rate))
        sinks.append(lambda frame, look: writer.write(_drawn(frame, look)))
    return sinks


def _drawn(frame: VideoFrame, look: Look):  # type: ignore[no-untyped-def] # noqa: ANN202 - numpy is not imported here
    from whet.plots.drawn_boxes import FALSE_ALARM, FOUND, boxes_drawn

    drawn = boxes_drawn(frame.picture, look.detections.boxes, FALSE_ALARM, width=1)
    return drawn if look.box is None else boxes_drawn(drawn, look.box[None], FOUND)


@contextmanager
def _plain() -> Iterator[Sink]:
    """A line now and then, for logs."""
    yield lambda frame, look: _say(_state(frame, look)) if look.number % PLAIN_EVERY == 0 else None


@contextmanager
def _live() -> Iterator[Sink]:
    """One view that is drawn anew."""
    import time

    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    begin = time.perf_counter()
    learned = taken_back = 0

    def view(frame: VideoFrame, look: Look) -> None:
        nonlocal learned, taken_back
        learned, taken_back = learned + look.n_learned, taken_back + look.n_taken_back
        table = Table("frame", "a second", "detections", "score", "lessons", "taken back", "weights moved")
        rate = (look.number + 1) / max(time.perf_counter() - begin, 1e-9)
        score = "-" if look.sighting is None else f"{look.sighting.score:.1f}"
        cells = f"{frame.number}", f"{rate:.1f}", f"{len(look.detections)}", score, f"{learned}", f"{taken_back}"
        table.add_row(*cells, f"{look.moved:.2%}")
        live.update(table)

    with Live(console=Console(stderr=True), refresh_per_second=8) as live:
        yield view


def _state(frame: VideoFrame, look: Look) -> str:
    score = "nothing followed" if look.sighting is None else f"score {look.sighting.score:.1f}"
    return f"frame {frame.number}: {len(look.detections)} detections, {score}, weights moved {look.moved:.2%}"


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _report(summary: Summary) -> None:
    typer.echo(
        f"{summary.frames} frames, {summary.rate:.1f} a second; followed in {summary.seen}; {summary.learned} lessons, "
        f"{summary.taken_back} taken back; weights moved {summary.moved:.2%}"
    )
    for path in summary.saved:
        typer.echo(f"saved {path}")
    if summary.ended is not None:
        typer.echo(f"whet: {summary.ended}; everything until then is kept", err=True)
        raise typer.Exit(ExitCode.FAILED)
