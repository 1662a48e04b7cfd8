"""The live image of a running session: the newest frame with its detections, and the numbers of the session.

The session only stores the frame. The threads of the viewers draw and encode it, once for all of them: without viewers
nothing is drawn, and the session never waits for a viewer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from io import BytesIO
from math import ceil, isfinite
from threading import Condition, Event, Lock
from typing import Any

import numpy as np

from whet.io.video import VideoFrame
from whet.plots.drawing import draw_tracked_frame
from whet.tracking.session import FrameCounter, FrameStatus, Summary
from whet.tracking.tracker import TrackedFrame

DRAWN_EVERY = 1 / 15  # minimum seconds between two images
SHARE = 0.1  # of the time of one processor core may be spent on drawing
STATUS_EVERY = 1 / 5  # minimum seconds between two status messages
IDLE = 0.5  # seconds without a new frame after which the last one is sent again
LONGEST = 1280  # pixels of the longer side; larger images are reduced by an integer factor
QUALITY = 80


@dataclass(frozen=True, eq=False)
class _Shot:
    """A drawn frame as JPEG; `turn` counts frames from 1."""

    turn: int = 0
    jpeg: bytes = b""


class LiveImage:
    """The newest frame and the numbers of a session; `show` is a callback of `Session`, the rest is for viewers.

    >>> import whet
    >>> from whet.tracking.tracker import Tracker
    >>> live, black = LiveImage({"model": "face"}), np.zeros((60, 80), np.uint8)
    >>> live.show(VideoFrame(7, 0.0, black), Tracker(whet.load("face")).update(black))
    >>> live.jpeg()[:2], live.status()["frame"], live.status()["state"]
    (b'\\xff\\xd8', 7, 'live')
    """

    def __init__(self, about: dict[str, Any] | None = None) -> None:
        self._about = about or {}
        self._counter = FrameCounter()
        self._turn = 0
        self._latest: tuple[VideoFrame, TrackedFrame] | None = None
        self._numbers: FrameStatus | None = None
        self._stop_reason = ""
        self._over = Event()
        self._changed = Condition()
        self._drawing = Lock()
        self._shot = _Shot()
        self._due = 0.0

    def show(self, frame: VideoFrame, tracked: TrackedFrame) -> None:
        """Replace the newest frame."""
        with self._changed:
            self._latest, self._turn = (frame, tracked), self._turn + 1
            self._numbers = self._counter.add(frame, tracked)
            self._changed.notify_all()

    def end(self, summary: Summary | None = None) -> None:
        """Mark the session as ended; a summary adds the stop reason and the final numbers."""
        with self._changed:
            if self._over.is_set():
                return
            if summary is not None:
                self._stop_reason = "interrupted" if summary.interrupted else "source failed" if summary.error else ""
                if self._numbers is not None:
                    learned, back, weight_change = summary.learned, summary.rolled_back, summary.weight_change
                    self._numbers = replace(
                        self._numbers, learned=learned, rolled_back=back, weight_change=weight_change
                    )
            self._over.set()
            self._changed.notify_all()

    def jpeg(self) -> bytes:
        """Return the newest JPEG image, at most `DRAWN_EVERY` old; empty before the first frame."""
        return self._newest().jpeg

    def jpegs(self, is_gone: Callable[[], bool]) -> Iterator[bytes]:
        """Iterate over JPEG images until the session ends; a slow viewer skips frames.

        Browsers may show an image only when the next one starts, so that the last one is repeated after `IDLE` seconds.
        """
        seen = 0
        while not is_gone():
            is_over = self._wait(seen, IDLE)
            self._over.wait(self._due - time.monotonic())
            shot = self._newest()
            if shot.turn and (shot.turn > seen or shot.turn == self._turn):
                yield shot.jpeg
            if is_over:
                if shot.turn:
                    yield shot.jpeg
                return
            seen = shot.turn

    def status(self) -> dict[str, Any]:
        """Return the numbers as a JSON object; `state` is waiting, live or ended, `stop_reason` is set at the end."""
        with self._changed:
            numbers, is_over = self._numbers, self._over.is_set()
        state = "ended" if is_over else "waiting" if numbers is None else "live"
        values = {} if numbers is None else {name: _plain(value) for name, value in asdict(numbers).items()}
        return {**self._about, **values, "state": state, "stop_reason": self._stop_reason}

    def updates(self, is_gone: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        """Iterate over the status: now, after each change, and once more when the session ends."""
        turn = self._turn
        yield self.status()
        while not is_gone() and not self._over.is_set():
            self._wait(turn, IDLE)
            if turn != self._turn and not self._over.is_set():
                turn = self._turn
                yield self.status()
            self._over.wait(STATUS_EVERY)
        if self._over.is_set():
            yield self.status()

    def _wait(self, turn: int, seconds: float) -> bool:
        """Wait for a frame after this turn or for the end; returns whether the session has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._turn > turn or self._over.is_set(), seconds)
            return self._over.is_set()

    def _newest(self) -> _Shot:
        """Draw the newest frame, unless it is drawn already or the last drawing was too recent."""
        with self._drawing:
            with self._changed:
                latest, turn = self._latest, self._turn
            now = time.monotonic()
            if latest is not None and turn != self._shot.turn and (now >= self._due or self._over.is_set()):
                begin = time.thread_time()
                self._shot = _Shot(turn, _jpeg(*latest))
                self._due = now + max(DRAWN_EVERY, (time.thread_time() - begin) / SHARE)
            return self._shot


def _jpeg(frame: VideoFrame, tracked: TrackedFrame) -> bytes:
    from PIL import Image

    image, content = frame.image, BytesIO()
    scale_factor = ceil(max(image.shape[:2]) / LONGEST)
    if scale_factor > 1:
        image = np.asarray(Image.fromarray(image).reduce(scale_factor))
    Image.fromarray(draw_tracked_frame(image, tracked, 1 / scale_factor)).save(content, "JPEG", quality=QUALITY)
    return content.getvalue()


def _plain(value: Any) -> Any:  # noqa: ANN401 - a number or a bool
    """Round to 4 digits, and replace numbers that JSON cannot represent by None."""
    if isinstance(value, float):
        return round(value, 4) if isfinite(value) else None
    return value
