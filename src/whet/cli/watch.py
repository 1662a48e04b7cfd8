"""`whet watch`: track an object in a video, and train the detector on it."""

from __future__ import annotations

import json
from contextlib import ExitStack
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
from whet.cli.output import ctrl_c_between, warn
from whet.cli.output import start as start_quickly
from whet.cli.watch_view import (
    SkippedFrames,
    exit_with_reason,
    file_callbacks,
    live_page,
    print_summary,
    progress_view,
    summary_table,
)

if TYPE_CHECKING:
    from whet.detector.detector import Detector
    from whet.io.video import VideoWriter
    from whet.tracking.session import SavedModel


def watch(
    model: Model,
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="Video file, directory of frames, stream address, or camera[:N]."),
    ],
    learn: Annotated[bool, typer.Option("--learn", help="Train the detector on the tracked object.")] = False,
    save_as: Annotated[Path | None, typer.Option(metavar="FILE", help="Output model; required with --learn.")] = None,
    save_every: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Also save every N frames (default: only at the end).")
    ] = None,
    no_journal: Annotated[
        bool, typer.Option("--no-journal", help="Write no journal; what is learned cannot be unlearned.")
    ] = False,
    learn_above: Annotated[
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

    Press Ctrl-C to stop (exit code 130); whet saves everything until then. Learned frames are written to a journal,
    so that whet unlearn can undo them. Frames that cannot be read are skipped and listed (exit code 5).

    \b
    Examples:
      whet watch face film.mp4 --out seen.mp4
      whet watch face camera --learn --save-as mine.whet --save-every 1000
      whet watch face camera --show --port 8000
      whet watch face frames/ --lines seen.csv --resize 320x240 --every 2
    """
    _check_options(learn, save_as, save_every, learn_above, no_journal)
    if not show:
        refuse("without --show; add --show to serve the live page", host=host, port=port)
    if stop is not None and stop <= start:
        raise typer.BadParameter(f"got --start {start} and --stop {stop}; expected --stop above --start")
    size = _parse_size(resize)
    _check_different_files(model, out, lines, save_as)
    for path in (out, lines):
        _check_not_overwritten(path, source, force=force)
    start_quickly(quiet=quiet)
    from whet.detector.detector import load
    from whet.io.video import read_frames
    from whet.tracking.session import Session
    from whet.tracking.tracker import SelfTraining, Tracker

    detector, skipped = load(model), SkippedFrames()
    saved = None if save_as is None else _saved_model(model, detector, save_as, no_journal=no_journal, force=force)
    with usage_errors():
        tracker = Tracker(
            detector,
            learn=learn,
            self_training=SelfTraining(learn_above),
            min_score=parse_min_score(min_score),
            threads=threads,
        )
    frames = read_frames(source, every=every, start=start, stop=stop, resize=size, skipped=skipped.add)
    writer: VideoWriter | None = None
    try:
        with ctrl_c_between() as stoppable, ExitStack() as stack:
            page = stack.enter_context(live_page(model, source, learn, host, port)) if show else None
            callbacks, writer = file_callbacks(stack, lines, out, every)
            callbacks.append(stack.enter_context(progress_view(hidden=quiet, learns=learn)))
            callbacks += [] if page is None else [page.show]
            session = Session(tracker, tuple(callbacks), saved, save_every, lambda text: warn(f"Warning: {text}"))
            summary = session.run(stoppable(frames))
            if page is not None:
                page.end(summary)
    except KeyboardInterrupt:
        warn("stopped before the first frame; nothing was written")
        raise typer.Exit(CTRL_C) from None
    out = None if writer is None or not writer.is_finished else out
    if as_json:
        typer.echo(json.dumps(summary_table(summary, skipped, saved, out, lines), indent=1))
    elif not quiet:
        print_summary(summary, saved, learn, (out, lines))
    exit_with_reason(summary, skipped, source if stop is None else None)


def _check_options(
    learn: bool, save_as: Path | None, save_every: int | None, learn_above: float | None, no_journal: bool
) -> None:
    if learn and save_as is None:
        raise typer.BadParameter("--learn needs an output model; add --save-as FILE")
    if learn_above is not None and not isfinite(learn_above):
        raise typer.BadParameter(f"got --learn-above {learn_above}; expected a finite score, such as 20")
    if not learn:
        given = {"save_as": save_as, "save_every": save_every, "learn_above": learn_above, "no_journal": no_journal}
        refuse("without --learn; add --learn to train the detector", **given)


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


def _saved_model(model: str, detector: Detector, save_as: Path, *, no_journal: bool, force: bool) -> SavedModel:
    from whet.tracking.session import SavedModel

    target = Destination.from_options(model, detector, save_as, force=force, option="--save-as")
    return SavedModel(target.out, None if no_journal else target.journal, target.inherited)
