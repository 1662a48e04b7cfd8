"""A watcher at work on a source: who is told, when it is saved, and what happens when the source breaks off."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from whet.errors import VideoError
from whet.io.video import VideoFrame
from whet.training.watched_model import WatchedModel
from whet.training.watching import Look, Watcher

# Hears of every frame: to draw it, to write it down, or to send it to a browser.
Sink = Callable[[VideoFrame, Look], None]

# So many frames without a detection are worth a word.
LONG = 1000


@dataclass
class Summary:
    """What became of a session: frames, how many had a detection (`seen`), lessons, and how it ended.

    `gate` is the score that a followed window needed to teach, and `best` the highest that one had, if there was one.
    `ended` says why the source broke off, if it did, and `stopped` that somebody ended it.
    """

    frames: int = 0
    seen: int = 0
    learned: int = 0
    taken_back: int = 0
    moved: float = 0.0
    seconds: float = 0.0
    longest_unseen: int = 0
    gate: float = 0.0
    best: float | None = None
    ended: str | None = None
    stopped: bool = False
    saved: bool = False

    @property
    def rate(self) -> float:
        """Frames a second."""
        return self.frames / self.seconds if self.seconds else 0.0


@dataclass(eq=False)
class Session:
    """Shows all frames to a watcher. Saves to `save_as` every `save_every` frames, and in the end, whatever ends it.

    A source that breaks off ends the session, and is named in the summary: what was learned until then is saved. So
    does Ctrl-C. A source without a single frame is an error.
    """

    watcher: Watcher
    sinks: tuple[Sink, ...] = ()
    save_as: WatchedModel | None = None
    save_every: int | None = None
    tell: Callable[[str], None] = lambda _: None

    def run(self, frames: Iterable[VideoFrame]) -> Summary:
        """Look at all frames."""
        summary, begin, unseen = Summary(gate=self.watcher.gate), time.perf_counter(), 0
        try:
            for frame in frames:
                look = self.watcher.look(frame.picture)
                unseen = 0 if len(look.detections) else unseen + 1
                self._count(summary, look, unseen)
                summary.seconds = time.perf_counter() - begin
                for sink in self.sinks:
                    sink(frame, look)
                if self.save_every and summary.frames % self.save_every == 0:
                    self._save(summary)
        except VideoError as error:
            if not summary.frames:
                raise
            summary.ended = str(error)
        except KeyboardInterrupt:
            if not summary.frames:
                raise
            summary.stopped = True
        finally:
            if summary.frames:
                self._finish(summary)
        return summary

    def _count(self, summary: Summary, look: Look, unseen: int) -> None:
        summary.frames += 1
        summary.seen += unseen == 0
        summary.learned += look.n_learned
        summary.taken_back += look.n_taken_back
        summary.moved = look.moved
        if look.sighting is not None:
            summary.best = max(look.sighting.score, look.sighting.score if summary.best is None else summary.best)
        summary.longest_unseen = max(summary.longest_unseen, unseen)
        if unseen and unseen % LONG == 0:
            self.tell(
                f"nothing was detected in the last {unseen:,} frames: is the camera covered, or the threshold high?"
            )

    def _finish(self, summary: Summary) -> None:
        learned, taken_back = self.watcher.finish()
        summary.learned, summary.taken_back = summary.learned + learned, summary.taken_back + taken_back
        summary.moved = self.watcher.moved
        self._save(summary)

    def _save(self, summary: Summary) -> None:
        if self.save_as is not None:
            self.save_as.save(self.watcher.detector, self.watcher.remembered)
            summary.saved = True


def line_of(frame: VideoFrame, look: Look) -> dict[str, Any]:
    """One frame for `whet.io.frame_lines`."""
    corners = [None] * 4 if look.box is None else [round(side, 2) for side in look.box.tolist()]
    rows = zip(look.detections.boxes.tolist(), look.detections.scores.tolist(), strict=True)
    return {
        "frame": frame.number,
        "seconds": round(frame.seconds, 4),
        **dict(zip(("x1", "y1", "x2", "y2"), corners, strict=True)),
        "score": None if look.sighting is None else round(look.sighting.score, 3),
        "accepted": look.sighting is not None and look.sighting.accepts,
        "detections": [[*(round(side, 2) for side in box), round(score, 3)] for box, score in rows],
        "learned": look.n_learned,
        "taken_back": look.n_taken_back,
        "moved": round(look.moved, 6),
    }
