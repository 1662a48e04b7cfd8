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
from whet.detector.journal import Entry, Journal
from whet.detector.model_journal import journal_beside, restored_on_failure
from whet.errors import VideoError
from whet.io.video import VideoFrame
from whet.tracking.tracker import Look, Watcher


@dataclass(eq=False)
class WatchedModel:
    """Where a watcher's detector is saved, again and again, with a journal if it has one.

    What comes `along` is in the journal before the lessons: entries that the detector had learned already. With None,
    the journal's own lines stay as they are.

    >>> import tempfile
    >>> import whet
    >>> from whet.detector.model_journal import journal_beside
    >>> path = Path(tempfile.mkdtemp()) / "mine.whet"
    >>> WatchedModel(path, journal_beside(path)).save(whet.load("face"), [])
    >>> [file.name for file in path.parent.iterdir()]  # nothing learned, no journal
    ['mine.whet']
    """

    path: Path
    journal: Journal | None = None
    along: tuple[Entry, ...] | None = ()
    _before: bytes = field(default=b"", repr=False)
    _saved: list[Entry] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        if self.along is None and self.journal is not None and self.journal.path.exists():
            self._before = self.journal.path.read_bytes()

    def save(self, detector: Detector, remembered: Sequence[Entry]) -> None:
        """Write the detector, and in its journal what it remembers of the stream; both or none."""
        if self.journal is None:
            detector.save(self.path)
            if self.along is not None:  # another model's, which is replaced
                journal_beside(self.path).path.unlink(missing_ok=True)
            return
        gone = list((Counter(self._saved) - Counter(remembered)).elements())
        with restored_on_failure(self.journal.path):
            self._write(self.journal, [*gone, *remembered])
            detector.save(self.path)
        self._saved = list(remembered)
        if gone:
            self._write(self.journal, remembered)

    def _write(self, journal: Journal, entries: Sequence[Entry]) -> None:
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
    lessons: int
    taken_back: int
    moved: float


@dataclass(eq=False)
class Tally:
    """Adds up what each frame brings."""

    lessons: int = 0
    taken_back: int = 0
    _times: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT), repr=False)

    def add(self, frame: VideoFrame, look: Look) -> Numbers:
        """The numbers after one more frame."""
        self.lessons += look.n_learned
        self.taken_back += look.n_taken_back
        self._times.append(time.perf_counter())
        passed = self._times[-1] - self._times[0]
        sighting = look.sighting
        return Numbers(
            frame.number,
            (len(self._times) - 1) / passed if passed else 0.0,
            len(look.detections),
            None if sighting is None else sighting.score,
            sighting is not None and sighting.accepts,
            self.lessons,
            self.taken_back,
            look.moved,
        )


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
                look = self.watcher.look(frame.image)
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
    """One frame for `whet.io.detections`."""
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
