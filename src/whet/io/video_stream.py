"""Video files, streams and cameras, by PyAV (extra `video`): frames that come one after the other."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whet.errors import MissingExtraError, VideoError, VideoNotFoundError
from whet.io.images import MOST_PIXELS

if TYPE_CHECKING:
    Source = str | PathLike[str]

Picture = NDArray[np.uint8]

USUAL_RATE = 25.0  # frames a second, where a source does not say
# Seconds that a camera or an address may take to answer, and be silent later: one that is gone may say nothing at all.
OPENING, SILENCE = 30.0, 10.0


@dataclass(frozen=True, eq=False)
class Coming:
    """A frame that is not read yet: `read` gives its picture, or raises VideoError."""

    number: int
    seconds: float
    rate: float
    read: Callable[[], Picture]


def is_live(source: Source) -> bool:
    """Whether a source is a camera or an address: its end is then the sender's doing.

    >>> is_live("camera:1"), is_live("rtsp://10.0.0.7/live"), is_live("film.mp4")
    (True, True, False)
    """
    name = fspath(source)
    return bool(re.fullmatch(r"camera(:\d+)?|(?!file:)[a-z][a-z0-9+.-]+://.*", name, re.IGNORECASE))


def stream_frames(source: Source) -> Iterator[Coming]:
    """All frames of a file, an address or a camera."""
    import_av()
    from av.error import FFmpegError

    number = 0
    with _opened(source) as container:
        if not container.streams.video:
            raise VideoError(f"{name_of(source)} has no pictures: no video stream in it")
        stream = container.streams.video[0]
        rate = float(stream.average_rate or USUAL_RATE)
        try:
            for packet in container.demux(stream):
                for seconds, read in _of_packet(packet, number):
                    yield Coming(number, seconds, rate, read)
                    number += 1
        except (FFmpegError, OSError) as error:
            raise VideoError(f"{name_of(source)} broke off after {number} frames: {_reason(error)}") from error
    if not number:
        raise VideoError(f"{name_of(source)} has no frame that could be read: it is damaged, or empty")


def _of_packet(packet: Any, number: int) -> Iterator[tuple[float, Callable[[], Picture]]]:  # noqa: ANN401 - of PyAV
    """The frames that a packet completes, from this number on, each with its time; a damaged packet counts as one."""
    from av.error import InvalidDataError

    try:
        decoded = packet.decode()
    except InvalidDataError as error:
        reason = _reason(error)

        def fail() -> Picture:
            raise VideoError(f"frame {number} cannot be read: {reason}")

        yield float(packet.pts * packet.time_base) if packet.pts is not None else 0.0, fail
        return
    for at, frame in enumerate(decoded, start=number):
        if frame.width * frame.height > MOST_PIXELS:
            raise VideoError(f"frame {at} has {frame.width} x {frame.height} pixels; make it smaller")
        yield float(frame.time or 0.0), partial(_of_frame, at, frame)


def _of_frame(number: int, frame: Any) -> Picture:  # noqa: ANN401 - of PyAV
    if frame.is_corrupt:
        raise VideoError(f"frame {number} cannot be read: it is damaged")
    from av.error import FFmpegError

    try:
        return np.asarray(frame.to_ndarray(format="rgb24"))
    except (FFmpegError, ValueError) as error:
        raise VideoError(f"frame {number} cannot be read: {_reason(error)}") from error


def _opened(source: Source) -> Any:  # noqa: ANN401 - a PyAV container
    av = import_av()
    from av.error import FFmpegError

    name, options = _address(source)
    try:
        return av.open(name, timeout=(OPENING, SILENCE) if is_live(source) else None, **options)
    except (FFmpegError, OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError) and not is_live(source):
            raise VideoNotFoundError(f"there is no file or folder {name}") from error
        raise VideoError(f"{name_of(source)} cannot be opened as a video: {_reason(error)}") from error


def _address(source: Source) -> tuple[str, dict[str, Any]]:
    """What PyAV opens, and how; cameras have another name on each system."""
    name = fspath(source)
    camera = re.fullmatch(r"camera(?::(\d+))?", name, re.IGNORECASE)
    if camera is None:
        return name, {}
    number = int(camera[1] or 0)
    if sys.platform == "darwin":
        return str(number), {"format": "avfoundation", "options": {"framerate": "30"}}
    if sys.platform == "win32":
        return f"video={number}", {"format": "dshow"}
    return f"/dev/video{number}", {"format": "v4l2"}


def name_of(source: Source) -> str:
    """A source in a message."""
    return f"the source {fspath(source)!r}"


def import_av() -> Any:  # noqa: ANN401 - a module
    """PyAV, or `MissingExtraError`."""
    try:
        import av
    except ImportError as error:
        raise MissingExtraError("av", "video") from error
    # Its logs stay off, as they are by default: with any level set, FFmpeg's threads call into Python, and a container
    # that is closed meanwhile waits for them for ever.
    return av


def _reason(error: BaseException) -> str:
    if type(error).__name__ == "ExitError":  # how PyAV says that its time limit has passed
        return "nothing came for too long"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
