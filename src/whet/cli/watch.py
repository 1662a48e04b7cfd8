"""`whet watch`: a detector on a video, that learns from what it sees."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.models import Destination
from whet.cli.options import (
    CTRL_C,
    Json,
    MinScore,
    Model,
    Quiet,
    Threads,
    parse_min_score,
    refuse,
    usage_errors,
)
from whet.cli.output import ctrl_c_between
from whet.cli.output import start as start_quickly
from whet.cli.watch_view import Skipped, end, outputs, report, say, table_of, watch_page, watch_view

if TYPE_CHECKING:
    from whet.detector.detector import Detector
    from whet.io.video import VideoWriter
    from whet.tracking.session import TrackedModel
    from whet.tracking.tracker import SelfTraining


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
    min_score: MinScore = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Annotated video to write, such as seen.mp4.")] = None,
    lines: Annotated[
        Path | None, typer.Option(help="A line a frame to this file: JSON, or a table if it ends in .csv.")
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Show the live image in a browser; says at which address.")
    ] = False,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port of the page; else a free one.")] = None,
    host: Annotated[
        str | None, typer.Option(help="Address of the page; else this machine alone. 0.0.0.0 lets others look.")
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
    whet watch face camera --show --port 8000
    whet watch face frames/ --lines seen.csv --resize 320x240 --every 2
    """
    _check_call(learn, save_as, save_every, above, others, no_journal)
    if not show:
        refuse("without --show: there is no page then; add --show", host=host, port=port)
    if stop is not None and stop <= start:
        raise typer.BadParameter(f"got --start {start} and --stop {stop}: there is no frame between them")
    size = _size(resize)
    _check_apart(model, out, lines, save_as)
    for path in (out, lines):
        _check_free(path, source, force=force)
    start_quickly(quiet=quiet)
    from whet.detector.detector import load
    from whet.io.video import read_frames
    from whet.tracking.session import Session
    from whet.tracking.tracker import Tracker

    detector, skipped = load(model), Skipped()
    file = None if save_as is None else _model_file(model, detector, save_as, no_journal=no_journal, force=force)
    with usage_errors():
        self_training, shown = _self_training(above, others), parse_min_score(min_score)
        tracker = Tracker(detector, learn=learn, self_training=self_training, min_score=shown, threads=threads)
    frames = read_frames(source, every=every, start=start, stop=stop, resize=size, skipped=skipped.add)
    writer: VideoWriter | None = None
    try:
        with ctrl_c_between() as stoppable, ExitStack() as stack:
            live = stack.enter_context(watch_page(model, source, learn, host, port)) if show else None
            sinks, writer = outputs(stack, lines, out, every)
            sinks.append(stack.enter_context(watch_view(hidden=quiet, learns=learn)))
            sinks += [] if live is None else [live.show]
            summary = Session(tracker, tuple(sinks), file, save_every, say).run(stoppable(frames))
            if live is not None:
                live.end(summary)
    except KeyboardInterrupt:
        say("whet: stopped before the first frame; nothing was written")
        raise typer.Exit(CTRL_C) from None
    out = None if writer is None or not writer.is_finished else out
    if as_json:
        typer.echo(json.dumps(table_of(summary, skipped, file, out, lines), indent=1))
    elif not quiet:
        report(summary, file, learn, (out, lines))
    end(summary, skipped, source if stop is None else None)


def _check_call(
    learn: bool, save_as: Path | None, save_every: int | None, above: float | None, others: int | None, no_journal: bool
) -> None:
    if learn and save_as is None:
        raise typer.BadParameter("--learn needs --save-as: where shall what was learned be kept?")
    if above is not None and not isfinite(above):
        raise typer.BadParameter(f"got --above {above}; expected a score, such as 20")
    if not learn:
        given = {"save_as": save_as, "save_every": save_every, "above": above, "others": others}
        refuse("without --learn: nothing is learned then; add --learn", **given, no_journal=no_journal)


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


def _model_file(model: str, detector: Detector, save_as: Path, *, no_journal: bool, force: bool) -> TrackedModel:
    from whet.tracking.session import TrackedModel

    target = Destination.from_options(model, detector, save_as, force=force, option="--save-as")
    return TrackedModel(target.out, None if no_journal else target.journal, target.inherited)


def _self_training(above: float | None, others: int | None) -> SelfTraining:
    from whet.tracking.tracker import SelfTraining

    self_training = SelfTraining()
    self_training = self_training if above is None else replace(self_training, min_score=above)
    return self_training if others is None else replace(self_training, others=others)
