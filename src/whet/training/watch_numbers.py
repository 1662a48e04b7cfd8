"""What somebody who looks on wants to know while a session runs: its numbers as of the last frame."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from whet.io.video import VideoFrame
from whet.training.watching import Look

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
