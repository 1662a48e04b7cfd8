"""What `whet watch` shows while it runs: a view that is drawn anew on a terminal, and a line now and then elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from whet.io.video import VideoFrame
    from whet.training.watch_session import Sink
    from whet.training.watching import Look

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

    from whet.training.watch_numbers import Tally

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
