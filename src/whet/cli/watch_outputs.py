"""The files that `whet watch` writes while it runs: a line a frame, and an annotated video."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whet.io.video import VideoFrame
    from whet.io.video_writer import VideoWriter
    from whet.training.watch_session import Sink
    from whet.training.watching import Look


def outputs(
    stack: ExitStack, lines: Path | None, out: Path | None, every: int
) -> tuple[list[Sink], VideoWriter | None]:
    """What hears of every frame and writes it, closed by the stack; and the video among it, if there is one."""
    from whet.io.frame_lines import FrameLines
    from whet.io.video_writer import VideoWriter
    from whet.training.watch_session import line_of

    sinks: list[Sink] = []
    writer = None
    if lines is not None:
        table = stack.enter_context(FrameLines(lines))
        sinks.append(lambda frame, look: table.write(line_of(frame, look)))
    if out is not None:
        from whet.plots.drawn_boxes import look_drawn

        writer = film = stack.enter_context(VideoWriter(out))

        def draw(frame: VideoFrame, look: Look) -> None:
            film.rate = frame.rate / every
            film.write(look_drawn(frame.picture, look))

        sinks.append(draw)
    return sinks, writer
