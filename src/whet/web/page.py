"""The image of a session that runs, for anybody who looks: the newest frame, with what was found drawn into it.

Who watches only leaves the frame here. It is drawn and encoded by the threads of those who look, for all of them
together, so that a session without a viewer does nothing more, and one that has them waits for none.
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
from whet.tracking.session import Numbers, Summary, Tally
from whet.tracking.tracker import Look

DRAWN_EVERY = 1 / 15  # seconds between two images, at least
SHARE = 0.1  # of a processor's time may go into drawing them
TOLD_EVERY = 1 / 5  # and between two lines of numbers
IDLE = 0.5  # seconds without a frame after which the last is sent again
LONGEST = 1280  # pixels of an image's longer side; what is larger is halved, or more
QUALITY = 80


@dataclass(frozen=True, eq=False)
class _Shot:
    """A drawn frame as JPEG; turns are counted from 1."""

    turn: int = 0
    jpeg: bytes = b""


class LiveImage:
    """The newest frame of a session, and its numbers; `show` is a sink of `Session`, all else is for other threads.

    >>> import whet
    >>> from whet.tracking.tracker import Watcher
    >>> live, black = LiveImage({"model": "face"}), np.zeros((60, 80), np.uint8)
    >>> live.show(VideoFrame(7, 0.0, black), Watcher(whet.load("face")).look(black))
    >>> live.jpeg()[:2], live.told()["frame"], live.told()["state"]
    (b'\\xff\\xd8', 7, 'live')
    """

    def __init__(self, about: dict[str, Any] | None = None) -> None:
        self._about = about or {}
        self._tally = Tally()
        self._turn = 0
        self._latest: tuple[VideoFrame, Look] | None = None
        self._numbers: Numbers | None = None
        self._ending = ""
        self._over = Event()
        self._changed = Condition()
        self._drawing = Lock()
        self._shot = _Shot()
        self._due = 0.0

    def show(self, frame: VideoFrame, look: Look) -> None:
        """Take the place of the frame before."""
        with self._changed:
            self._latest, self._turn = (frame, look), self._turn + 1
            self._numbers = self._tally.add(frame, look)
            self._changed.notify_all()

    def end(self, summary: Summary | None = None) -> None:
        """Tell all who look that no more frames come, and with a summary, why, and what was learned in the end."""
        with self._changed:
            if self._over.is_set():
                return
            if summary is not None:
                self._ending = "stopped" if summary.stopped else "the source broke off" if summary.ended else ""
                if self._numbers is not None:
                    learned, back, moved = summary.learned, summary.taken_back, summary.moved
                    self._numbers = replace(self._numbers, lessons=learned, taken_back=back, moved=moved)
            self._over.set()
            self._changed.notify_all()

    def jpeg(self) -> bytes:
        """The newest image, or one of a moment ago; nothing before the first frame."""
        return self._newest().jpeg

    def jpegs(self, is_gone: Callable[[], bool]) -> Iterator[bytes]:
        """Images as they come, until the end; each viewer goes at its own pace, and misses what came meanwhile.

        Browsers may show a part when the next one begins, so one that is not followed soon comes again.
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

    def told(self) -> dict[str, Any]:
        """The numbers as JSON has them; `state` is waiting, live or ended."""
        with self._changed:
            numbers, is_over = self._numbers, self._over.is_set()
        state = "ended" if is_over else "waiting" if numbers is None else "live"
        values = {} if numbers is None else {name: _plain(value) for name, value in asdict(numbers).items()}
        return {**self._about, **values, "state": state, "ending": self._ending}

    def news(self, is_gone: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        """The numbers at once and whenever they have changed, until the end, which is told last."""
        turn = self._turn
        yield self.told()
        while not is_gone() and not self._over.is_set():
            self._wait(turn, IDLE)
            if turn != self._turn and not self._over.is_set():
                turn = self._turn
                yield self.told()
            self._over.wait(TOLD_EVERY)
        if self._over.is_set():
            yield self.told()

    def _wait(self, turn: int, seconds: float) -> bool:
        """Wait for a frame after this turn, or the end; whether that has come."""
        with self._changed:
            self._changed.wait_for(lambda: self._turn > turn or self._over.is_set(), seconds)
            return self._over.is_set()

    def _newest(self) -> _Shot:
        """Draw the newest frame, if nobody has, and if that is due."""
        with self._drawing:
            with self._changed:
                latest, turn = self._latest, self._turn
            now = time.monotonic()
            if latest is not None and turn != self._shot.turn and (now >= self._due or self._over.is_set()):
                begin = time.thread_time()
                self._shot = _Shot(turn, _jpeg(*latest))
                self._due = now + max(DRAWN_EVERY, (time.thread_time() - begin) / SHARE)
            return self._shot


def _jpeg(frame: VideoFrame, look: Look) -> bytes:
    from PIL import Image

    image, content = frame.image, BytesIO()
    scale_factor = ceil(max(image.shape[:2]) / LONGEST)
    if scale_factor > 1:
        image = np.asarray(Image.fromarray(image).reduce(scale_factor))
    Image.fromarray(draw_tracked_frame(image, look, 1 / scale_factor)).save(content, "JPEG", quality=QUALITY)
    return content.getvalue()


def _plain(value: Any) -> Any:  # noqa: ANN401 - a number, or whether
    """Few digits, and nothing that JSON has no word for."""
    if isinstance(value, float):
        return round(value, 4) if isfinite(value) else None
    return value
