"""Live video in the studio: the newest frame with its detections as a stream of images, and a player that can pause.

Whoever reads the video only stores the frame. The threads of the viewers draw and encode it, once for all of them:
without viewers nothing is drawn, and the video never waits for a viewer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import BytesIO
from math import ceil
from pathlib import Path
from threading import Condition, Event, Lock, Thread

import numpy as np

from whet.arrays import Pixels
from whet.errors import NotNowError, WhetError
from whet.images.detections import Detections
from whet.io.video import VideoFrame, is_live, read_frames
from whet.plots.drawing import draw_boxes, draw_tracked_frame, score_text
from whet.tracking.session import FrameCounter, Summary
from whet.tracking.tracker import TrackedFrame
from whet.web.schemas import VideoView
from whet.web.workspace import Events, Workspace

log = logging.getLogger(__name__)

# Draws on an image that was made smaller by the factor.
Draw = Callable[[Pixels, float], Pixels]

DRAWN_EVERY = 1 / 15  # minimum seconds between two images
SHARE = 0.1  # of the time of one processor core may be spent on drawing
PUBLISHED_EVERY = 1 / 5  # minimum seconds between two events
IDLE = 0.5  # seconds without a new frame after which the last one is sent again
LONGEST = 1280  # pixels of the longer side; larger images are reduced by an integer factor
QUALITY = 80


class LiveImage:
    """The newest frame of a video, for viewers.

    >>> live = LiveImage()
    >>> live.show(np.zeros((60, 80, 3), np.uint8), lambda image, scale: image)
    >>> live.jpeg()[:2]
    b'\\xff\\xd8'
    """

    def __init__(self) -> None:
        self._turn = 0
        self._latest: tuple[Pixels, Draw] | None = None
        self._over = Event()
        self._changed = Condition()
        self._drawing = Lock()
        self._drawn = 0, b""  # the number of the frame that was drawn last, from 1, and its JPEG
        self._due = 0.0

    def show(self, image: Pixels, draw: Draw) -> None:
        """Replace the newest frame."""
        with self._changed:
            self._latest, self._turn = (image, draw), self._turn + 1
            self._changed.notify_all()

    def end(self) -> None:
        """Let all viewers go, after the last frame."""
        with self._changed:
            self._over.set()
            self._changed.notify_all()

    def jpeg(self) -> bytes:
        """The newest frame as JPEG, at most `DRAWN_EVERY` old; empty before the first one."""
        return self._newest()[1]

    def jpegs(self) -> Iterator[bytes]:
        """JPEG images until the video ends; a slow viewer skips frames.

        Browsers may show an image only when the next one starts, so that the last one is repeated after `IDLE` seconds.
        """
        seen = 0
        while True:
            is_over = self._wait(seen)
            self._over.wait(self._due - time.monotonic())
            seen, jpeg = self._newest()
            if seen:
                yield jpeg
            if is_over:
                if seen:
                    yield jpeg
                return

    def _wait(self, turn: int) -> bool:
        """Wait for a frame after this turn or for the end; returns whether the video has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._turn > turn or self._over.is_set(), IDLE)
            return self._over.is_set()

    def _newest(self) -> tuple[int, bytes]:
        """Draw the newest frame, unless it is drawn already or the last drawing was too recent."""
        with self._drawing:
            with self._changed:
                latest, turn = self._latest, self._turn
            now = time.monotonic()
            if latest is not None and turn != self._drawn[0] and (now >= self._due or self._over.is_set()):
                begin = time.thread_time()
                self._drawn = turn, as_jpeg(*latest)
                self._due = now + max(DRAWN_EVERY, (time.thread_time() - begin) / SHARE)
            return self._drawn


def as_jpeg(image: Pixels, draw: Draw) -> bytes:
    """Draw on an image that is not larger than a page, and encode it."""
    from PIL import Image

    content, factor = BytesIO(), ceil(max(image.shape[:2]) / LONGEST)
    if factor > 1:
        image = np.asarray(Image.fromarray(image).reduce(factor))
    Image.fromarray(draw(image, 1 / factor)).save(content, "JPEG", quality=QUALITY)
    return content.getvalue()


class Player:
    """Plays a file, a directory of frames or a camera with the detections of a workspace; pausing adds the frame."""

    def __init__(self, workspace: Workspace, source: str) -> None:
        self.live = LiveImage()
        self._workspace, self._source = workspace, source
        self._view = VideoView(Path(source).name, "waiting", None, None, 25.0, None, is_live(source), None)
        self._frame: VideoFrame | None = None
        self._changed = Condition()
        self._from: int | None = None
        self._error: WhetError | None = None
        self._is_paused = self._is_closed = self._wants_frame = False
        self._published = 0.0
        self._thread = Thread(target=self._run, name="video", daemon=True)
        self._thread.start()

    def view(self) -> VideoView:
        """What the page shows of it."""
        return self._view

    def act(self, action: str, frame: int | None = None) -> VideoView:
        """Play, pause, or go to a frame."""
        with self._changed:
            if action == "seek":
                if self._view.is_live:
                    raise NotNowError("a camera or stream has no earlier frames; expected a video file to seek in")
                if frame is None:
                    raise ValueError("got seek without a frame; expected its number, from 0")
                self._from, self._wants_frame = frame, self._is_paused
                self._view = replace(self._view, image=None)
            elif action == "pause":
                if self._frame is None:
                    raise NotNowError("no frame has come yet; wait until the video plays")
                if not self._is_paused:
                    self._is_paused, self._wants_frame = True, False
                    self._add_frame(self._frame)
            else:
                if self._view.state in ("ended", "failed"):
                    self._from = 0
                self._is_paused = self._wants_frame = False
                self._view = replace(self._view, image=None, state="playing", error=None)
            self._changed.notify_all()
        return self._view

    def _add_frame(self, frame: VideoFrame) -> None:
        """Add the frame that is shown to the images: it can be corrected as any other."""
        stem = Path(self._source).stem if not self._view.is_live else "camera"
        image = self._workspace.add_image(frame.image, f"{stem}-{frame.number:06d}.png")
        self._set(state="paused", frame=frame.number, seconds=frame.seconds, image=image.id)

    def wait_for_start(self, seconds: float) -> None:
        """Wait for the first frame; raises the error of a video that cannot be opened or has no frame."""
        with self._changed:
            self._changed.wait_for(lambda: self._view.state != "waiting", seconds)
            if self._error is None:
                return
        self.close()
        raise self._error

    def close(self) -> None:
        """Stop."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self.live.end()
        self._thread.join(5)

    def _set(self, **facts: object) -> None:
        with self._changed:
            self._view = replace(self._view, **facts)  # type: ignore[arg-type] # fields of the view
            self._changed.notify_all()
        now = time.monotonic()
        if "state" in facts or now >= self._published + PUBLISHED_EVERY:
            self._published = now
            publish(self._workspace.events, self._view)

    def _run(self) -> None:
        start = 0
        while not self._is_closed:
            try:
                again = self._play(start)
                if again is None:
                    self._set(state="ended")
            except WhetError as error:
                again, self._error = None, error
                self._set(state="failed", error=str(error))
                if self._frame is not None:  # else whoever started the video reports it
                    log.warning("Warning: the video stopped: %s", error)
            if again is None:
                with self._changed:
                    self._changed.wait_for(lambda: self._from is not None or self._is_closed)
                    again, self._from = self._from or 0, None
            start = again

    def _play(self, start: int) -> int | None:
        """Show all frames; returns the frame to go on from, or None at the end."""
        begin, shown_from = time.monotonic(), None
        for frame in read_frames(self._source, start=start, skipped=lambda _: None):
            with self._changed:
                if self._is_closed:
                    return None
                if self._from is not None:
                    again, self._from = self._from, None
                    return again
            shown_from = frame.seconds if shown_from is None else shown_from
            ahead = (frame.seconds - shown_from) - (time.monotonic() - begin)
            if not self._view.is_live and ahead < -2 / frame.rate and frame.number % 4:
                continue  # too late: detection is slower than the video
            self._show(frame)
            with self._changed:
                if ahead > 0 and not self._view.is_live:
                    self._changed.wait(ahead)
                if self._is_paused and not self._view.is_live:
                    self._changed.wait_for(lambda: not self._is_paused or self._from is not None or self._is_closed)
                    begin, shown_from = time.monotonic(), frame.seconds
        return None

    def _show(self, frame: VideoFrame) -> None:
        if self._is_paused and not self._wants_frame:
            return  # a camera goes on: its frames are dropped while one is corrected
        found = self._workspace.found_in(frame.image) if self._workspace.has_model else Detections()
        with self._changed:
            if self._is_paused and not self._wants_frame:  # paused meanwhile: the frame before stays
                return
            self._frame = frame
            texts = [score_text(score) for score in found.scores.tolist()]
            self.live.show(frame.image, lambda image, scale: draw_boxes(image, found.boxes * scale, texts=texts))
            if self._wants_frame:  # after a seek while it is paused
                self._wants_frame = False
                self._add_frame(frame)
            else:
                self._set(state="playing", frame=frame.number, seconds=round(frame.seconds, 3), rate=frame.rate)


class WatchedVideo:
    """The video of a `whet watch` session; its page shows it and cannot correct."""

    def __init__(self, events: Events, source: str) -> None:
        self.live = LiveImage()
        self._events, self._counter, self._published = events, FrameCounter(), 0.0
        self._view = VideoView(source, "waiting", None, None, 0.0, None, True, None)
        self._numbers: dict[str, object] = {}

    def view(self) -> VideoView:
        """What the page shows of it."""
        return self._view

    def act(self, action: str, frame: int | None) -> VideoView:  # noqa: ARG002 - the same as any video's
        """Refuse: the session goes on by itself."""
        raise NotNowError(
            f"cannot {action}: this page shows a `whet watch` session; use `whet serve` to correct a video"
        )

    def show(self, frame: VideoFrame, tracked: TrackedFrame) -> None:
        """Show a frame of the session; one of its callbacks."""
        self.live.show(frame.image, lambda image, scale: draw_tracked_frame(image, tracked, scale))
        now = self._counter.add(frame, tracked)
        names = ("learned", "rolled_back", "detected", "score", "accepted")
        self._numbers = {name: getattr(now, name) for name in names}
        rate = round(now.rate, 2)
        self._view = replace(self._view, state="playing", frame=now.frame, seconds=round(frame.seconds, 3), rate=rate)
        if time.monotonic() >= self._published + PUBLISHED_EVERY:
            self._published = time.monotonic()
            publish(self._events, self._view, **self._numbers)

    def end(self, summary: Summary) -> None:
        """Mark the session as ended, with its final numbers."""
        reason = "interrupted" if summary.interrupted else summary.error or ""
        self._view = replace(self._view, state="failed" if summary.error else "ended", error=summary.error)
        final = {"learned": summary.learned, "rolled_back": summary.rolled_back, "stop_reason": reason}
        publish(self._events, self._view, **self._numbers | final)
        self.live.end()

    def close(self) -> None:
        """Let all viewers go."""
        self.live.end()


Video = Player | WatchedVideo


def publish(events: Events, view: VideoView, **more: object) -> None:
    """Publish where a video is."""
    facts = {"state": view.state, "frame": view.frame, "seconds": view.seconds, "rate": view.rate}
    events.publish("video", **facts, image=view.image, source=view.source, error=view.error, **more)
