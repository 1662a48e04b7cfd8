"""A tracker at work on a source: saving, numbers, interruptions."""

from __future__ import annotations

import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whet.detector.detector import Detector
from whet.detector.journal import Journal, journal_beside, restored_on_failure
from whet.detector.records import Record
from whet.errors import VideoError
from whet.io.video import VideoFrame
from whet.tracking.tracker import TrackedFrame, Tracker


@dataclass(eq=False)
class TrackedModel:
    """Where a watcher's detector is saved, again and again, with a journal if it has one.

    What comes `along` is in the journal before the lessons: entries that the detector had learned already. With None,
    the journal's own lines stay as they are.

    >>> import tempfile
    >>> import whet
    >>> from whet.detector.journal import journal_beside
    >>> path = Path(tempfile.mkdtemp()) / "mine.whet"
    >>> WatchedModel(path, journal_beside(path)).save(whet.load("face"), [])
    >>> [file.name for file in path.parent.iterdir()]  # nothing learned, no journal
    ['mine.whet']
    """

    path: Path
    journal: Journal | None = None
    along: tuple[Record, ...] | None = ()
    _before: bytes = field(default=b"", repr=False)
    _saved: list[Record] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        if self.along is None and self.journal is not None and self.journal.path.exists():
            self._before = self.journal.path.read_bytes()

    def save(self, detector: Detector, kept: Sequence[Record]) -> None:
        """Write the detector, and in its journal what it remembers of the stream; both or none."""
        if self.journal is None:
            detector.save(self.path)
            if self.along is not None:  # another model's, which is replaced
                journal_beside(self.path).path.unlink(missing_ok=True)
            return
        gone = list((Counter(self._saved) - Counter(kept)).elements())
        with restored_on_failure(self.journal.path):
            self._write(self.journal, [*gone, *kept])
            detector.save(self.path)
        self._saved = list(kept)
        if gone:
            self._write(self.journal, kept)

    def _write(self, journal: Journal, entries: Sequence[Record]) -> None:
        """The journal anew, as a whole."""
        lines = [*(self.along or ()), *entries]
        if not (self._before or lines):
            journal.path.unlink(missing_ok=True)
            return
        beside = Journal(journal.path.with_name(f".{journal.path.name}.{secrets.token_hex(4)}.tmp"))
        try:
            beside.path.write_bytes(self._before)
            beside.add_learned(lines)
            beside.path.replace(journal.path)
        finally:
            beside.path.unlink(missing_ok=True)


RECENT = 30  # frames over which their rate is taken


@dataclass(frozen=True)
class Numbers:
    """A frame's number, frames a second of late, detections, the followed window's score, and lessons since the start.

    `moved` is how far the weights have turned, in lengths of them.
    """

    frame: int
    rate: float
    detected: int
    score: float | None
    accepted: bool
    learned: int
    rolled_back: int
    weight_change: float


@dataclass(eq=False)
class Tally:
    """Adds up what each frame brings."""

    learned: int = 0
    rolled_back: int = 0
    _times: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT), repr=False)

    def add(self, frame: VideoFrame, tracked: TrackedFrame) -> Numbers:
        """The numbers after one more frame."""
        self.learned += tracked.n_learned
        self.rolled_back += tracked.n_rolled_back
        self._times.append(time.perf_counter())
        passed = self._times[-1] - self._times[0]
        track = tracked.track
        return Numbers(
            frame.number,
            (len(self._times) - 1) / passed if passed else 0.0,
            len(tracked.detections),
            None if track is None else track.score,
            track is not None and track.accepted,
            self.learned,
            self.rolled_back,
            tracked.weight_change,
        )


# Hears of every frame: to draw it, to write it down, or to send it to a browser.
Sink = Callable[[VideoFrame, TrackedFrame], None]

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
    rolled_back: int = 0
    weight_change: float = 0.0
    seconds: float = 0.0
    longest_unseen: int = 0
    learn_above: float = 0.0
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

    tracker: Tracker
    sinks: tuple[Sink, ...] = ()
    save_as: TrackedModel | None = None
    save_every: int | None = None
    tell: Callable[[str], None] = lambda _: None

    def run(self, frames: Iterable[VideoFrame]) -> Summary:
        """Look at all frames."""
        summary, begin, unseen = Summary(learn_above=self.tracker.learn_above), time.perf_counter(), 0
        try:
            for frame in frames:
                tracked = self.tracker.update(frame.image)
                unseen = 0 if len(tracked.detections) else unseen + 1
                self._count(summary, tracked, unseen)
                summary.seconds = time.perf_counter() - begin
                for sink in self.sinks:
                    sink(frame, tracked)
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

    def _count(self, summary: Summary, tracked: TrackedFrame, unseen: int) -> None:
        summary.frames += 1
        summary.seen += unseen == 0
        summary.learned += tracked.n_learned
        summary.rolled_back += tracked.n_rolled_back
        summary.weight_change = tracked.weight_change
        if tracked.track is not None:
            summary.best = max(tracked.track.score, tracked.track.score if summary.best is None else summary.best)
        summary.longest_unseen = max(summary.longest_unseen, unseen)
        if unseen and unseen % LONG == 0:
            self.tell(
                f"nothing was detected in the last {unseen:,} frames: is the camera covered, or the threshold high?"
            )

    def _finish(self, summary: Summary) -> None:
        learned, rolled_back = self.tracker.finish()
        summary.learned, summary.rolled_back = summary.learned + learned, summary.rolled_back + rolled_back
        summary.weight_change = self.tracker.weight_change
        self._save(summary)

    def _save(self, summary: Summary) -> None:
        if self.save_as is not None:
            self.save_as.save(self.tracker.detector, self.tracker.kept)
            summary.saved = True


def line_of(frame: VideoFrame, tracked: TrackedFrame) -> dict[str, Any]:
    """One frame for `whet.io.detections`."""
    corners = [None] * 4 if tracked.box is None else [round(side, 2) for side in tracked.box.tolist()]
    rows = zip(tracked.detections.boxes.tolist(), tracked.detections.scores.tolist(), strict=True)
    return {
        "frame": frame.number,
        "seconds": round(frame.seconds, 4),
        **dict(zip(("x1", "y1", "x2", "y2"), corners, strict=True)),
        "score": None if tracked.track is None else round(tracked.track.score, 3),
        "accepted": tracked.track is not None and tracked.track.accepted,
        "detections": [[*(round(side, 2) for side in box), round(score, 3)] for box, score in rows],
        "learned": tracked.n_learned,
        "rolled_back": tracked.n_rolled_back,
        "moved": round(tracked.weight_change, 6),
    }
