"""A tracker on a video source: saving, statistics and interruptions."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whet.corrections.reference import Estimate
from whet.detector.detector import Detector
from whet.detector.storage import to_sound_bytes
from whet.errors import ModelChangedError, ModelFileError, VideoError
from whet.io.files import locked, write_locked
from whet.io.video import VideoFrame
from whet.tracking.tracker import TrackedFrame, Tracker


@dataclass(eq=False)
class SavedModel:
    """The file of a tracker's detector, which other people may correct while the session runs.

    A save changes the records of this session, and keeps what others wrote: under a lock the file is read again, and
    written as a whole. The tracker then goes on with what the file holds. Records that someone else unlearned stay
    unlearned. `in_place` is set if the detector was loaded from this file; else a file that exists now is replaced.

    >>> import tempfile
    >>> import whet
    >>> path = Path(tempfile.mkdtemp()) / "mine.whet"
    >>> SavedModel(path).save(Tracker(whet.load("face")))
    >>> whet.load(path).records
    []
    """

    path: Path
    in_place: bool = False
    # The hash of what this session has seen of the file, and the ids of its records in there.
    _seen: str | None = field(default=None, repr=False)
    _saved: frozenset[str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.in_place and self.path.is_file():
            self._seen = _hash(self.path.read_bytes())

    def start(self, tracker: Tracker) -> None:
        """Note which records of the file are this session's: those that it took over from an earlier one."""
        self._saved = frozenset(record.id for record in tracker.kept) if self.in_place else frozenset()

    def save(self, tracker: Tracker) -> None:
        """Write what the tracker keeps, and let the tracker go on with all that is in the file."""
        if self._saved is None:
            self.start(tracker)
        with locked(self.path):
            now = self.path.read_bytes() if self.path.is_file() else None
            is_ours = now is None or _hash(now) == self._seen
            merged = tracker.detector if now is None or is_ours else self._merged(now, tracker)
            data = to_sound_bytes(merged)
            write_locked(self.path, data)
        if not is_ours:
            tracker.adopt(merged)
        self._seen, self._saved = _hash(data), frozenset(record.id for record in tracker.kept)

    def _merged(self, now: bytes, tracker: Tracker) -> Detector:
        """What someone else has written, with the records that the tracker keeps now."""
        try:
            detector = Detector.from_bytes(now)
        except ModelFileError as error:
            raise ModelFileError(f"{self.path}: {error}") from error
        if detector.base_id != tracker.detector.base_id:
            raise ModelChangedError(
                f"{self.path} was replaced by another model during the session, and is left as it is; what was learned "
                "since the last save is lost. Use another output file"
            )
        there = {record.id: record for record in detector.records}
        saved, kept = self._saved or frozenset(), {record.id: record for record in tracker.kept}
        # What was saved and is gone, someone else has unlearned.
        new = [record for key, record in kept.items() if key in there or key not in saved]
        detector.only.replace_records(
            new, [record for key, record in there.items() if key in saved and key not in kept]
        )
        return detector


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


RECENT = 30  # frames that the current frame rate is averaged over


@dataclass(frozen=True)
class FrameStatus:
    """The state of a session after one frame.

    `rate` is the current number of frames per second, `score` that of the tracked window, `accepted` whether the
    detector accepts this window. `learned` and `rolled_back` count updates since the start.
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
class FrameCounter:
    """Adds up the updates of all frames, and measures the frame rate."""

    learned: int = 0
    rolled_back: int = 0
    _times: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT), repr=False)

    def add(self, frame: VideoFrame, tracked: TrackedFrame) -> FrameStatus:
        """Count one more frame."""
        self.learned += tracked.n_learned
        self.rolled_back += tracked.n_rolled_back
        self._times.append(time.perf_counter())
        passed = self._times[-1] - self._times[0]
        track = tracked.track
        return FrameStatus(
            frame.number,
            (len(self._times) - 1) / passed if passed else 0.0,
            len(tracked.detections),
            None if track is None else track.score,
            track is not None and track.accepted,
            self.learned,
            self.rolled_back,
            tracked.weight_change,
        )


# Called after every frame: draws it, writes a line, or sends it to a browser.
FrameCallback = Callable[[VideoFrame, TrackedFrame], None]


@dataclass
class Summary:
    """The result of a session: frames, detections, updates, and the reason why it stopped.

    A tracked window was learned if it scored above `learn_min_score`; `best_score` is the highest score of any tracked
    window. `before` and `after` are estimates on the reference set, None without one. `error` is the message of a
    source that failed, `interrupted` is set after Ctrl-C.
    """

    frames: int = 0
    with_detections: int = 0
    longest_without: int = 0
    learned: int = 0
    rolled_back: int = 0
    weight_change: float = 0.0
    seconds: float = 0.0
    learn_min_score: float = 0.0
    best_score: float | None = None
    before: Estimate | None = None
    after: Estimate | None = None
    error: str | None = None
    interrupted: bool = False
    saved: bool = False

    @property
    def rate(self) -> float:
        """Frames per second."""
        return self.frames / self.seconds if self.seconds else 0.0


@dataclass(eq=False)
class Session:
    """Passes all frames of a source to a tracker, and saves the model every `save_every` frames and at the end.

    The session also ends, and saves, if the source fails or on Ctrl-C; the summary then has the reason. A source that
    fails before its first frame raises `VideoError`.

    >>> import numpy as np
    >>> import whet
    >>> frames = [VideoFrame(number, number / 25, np.zeros((60, 80), np.uint8)) for number in range(3)]
    >>> summary = Session(Tracker(whet.load("face"))).run(frames)
    >>> summary.frames, summary.with_detections
    (3, 0)
    """

    tracker: Tracker
    callbacks: tuple[FrameCallback, ...] = ()
    save_as: SavedModel | None = None
    save_every: int | None = None
    warn: Callable[[str], None] = lambda _: None

    def run(self, frames: Iterable[VideoFrame]) -> Summary:
        """Track the object through all frames."""
        summary, begin, without = Summary(learn_min_score=self.tracker.learn_min_score), time.perf_counter(), 0
        summary.before = summary.after = self.tracker.detector.estimate
        if self.save_as is not None:
            self.save_as.start(self.tracker)
        try:
            for frame in frames:
                tracked = self.tracker.update(frame.image)
                without = 0 if len(tracked.detections) else without + 1
                self._count(summary, tracked, without)
                summary.seconds = time.perf_counter() - begin
                for callback in self.callbacks:
                    callback(frame, tracked)
                if self.save_every and summary.frames % self.save_every == 0:
                    self._save(summary)
        except VideoError as error:
            if not summary.frames:
                raise
            summary.error = str(error)
        except KeyboardInterrupt:
            if not summary.frames:
                raise
            summary.interrupted = True
        finally:
            if summary.frames:
                self._finish(summary)
        return summary

    def _count(self, summary: Summary, tracked: TrackedFrame, without: int) -> None:
        summary.frames += 1
        summary.with_detections += without == 0
        summary.longest_without = max(summary.longest_without, without)
        summary.learned += tracked.n_learned
        summary.rolled_back += tracked.n_rolled_back
        summary.weight_change = tracked.weight_change
        if tracked.track is not None:
            score = tracked.track.score
            summary.best_score = score if summary.best_score is None else max(score, summary.best_score)
        # After this many frames in a row without a detection, the session warns.
        if without and without % 1000 == 0:
            self.warn(f"no detection in the last {without:,} frames; check the camera, or lower the minimum score")

    def _finish(self, summary: Summary) -> None:
        learned, rolled_back = self.tracker.finish()
        summary.learned, summary.rolled_back = summary.learned + learned, summary.rolled_back + rolled_back
        self._save(summary)
        summary.weight_change, summary.after = self.tracker.weight_change, self.tracker.detector.estimate

    def _save(self, summary: Summary) -> None:
        if self.save_as is not None:
            self.save_as.save(self.tracker)
            summary.saved = True


def frame_row(frame: VideoFrame, tracked: TrackedFrame) -> dict[str, Any]:
    """One frame for `whet.io.detection_files.FrameLines`: all boxes, and the tracked box with its score."""
    return {
        "frame": frame.number,
        "seconds": round(frame.seconds, 4),
        "tracked": None if tracked.box is None else [round(side, 2) for side in tracked.box.tolist()],
        "score": None if tracked.track is None else round(tracked.track.score, 3),
        "accepted": tracked.track is not None and tracked.track.accepted,
        "boxes": [[round(side, 2) for side in box] for box in tracked.detections.boxes.tolist()],
        "scores": [round(score, 3) for score in tracked.detections.scores.tolist()],
        "learned": tracked.n_learned,
        "rolled_back": tracked.n_rolled_back,
        "weight_change": round(tracked.weight_change, 6),
    }
