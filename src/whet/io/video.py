"""Read and write video frames: files, streams and cameras with PyAV (extra `video`), and directories of images."""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import islice
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from whet.arrays import Pixels
from whet.errors import MissingExtraError, UnreadableImageError, VideoError, VideoNotFoundError
from whet.io.image_files import MAX_PIXELS, as_array, natural_order

if TYPE_CHECKING:
    Source = str | PathLike[str]


DEFAULT_RATE = 25.0  # frames per second, if the source does not state it
# Timeouts in seconds for opening a camera or a stream, and for each read: a lost sender may not close the connection.
OPENING, SILENCE = 30.0, 10.0


# A frame that is not decoded yet: number, seconds, rate, and what returns its image or raises `VideoError`.
Encoded = tuple[int, float, float, Callable[[], Pixels]]


def is_live(source: Source) -> bool:
    """Return whether a source is a camera or a stream, which the sender ends.

    >>> is_live("camera:1"), is_live("rtsp://10.0.0.7/live"), is_live("film.mp4")
    (True, True, False)
    """
    name = fspath(source)
    return bool(re.fullmatch(r"camera(:\d+)?|(?!file:)[a-z][a-z0-9+.-]+://.*", name, re.IGNORECASE))


def stream_frames(source: Source) -> Iterator[Encoded]:
    """Iterate over the frames of a video file, a stream or a camera."""
    import_av()
    from av.error import FFmpegError

    number = 0
    with _opened(source) as container:
        if not container.streams.video:
            raise VideoError(f"{name_of(source)} has no video stream; expected a video")
        stream = container.streams.video[0]
        rate = float(stream.average_rate or DEFAULT_RATE)
        try:
            for packet in container.demux(stream):
                for seconds, read in _of_packet(packet, number):
                    yield number, seconds, rate, read
                    number += 1
        except (FFmpegError, OSError) as error:
            raise VideoError(f"{name_of(source)} stopped after {number} frames: {_reason(error)}") from error
    if not number:
        raise VideoError(f"{name_of(source)} has no readable frame; the file is damaged or empty")


def _of_packet(packet: Any, number: int) -> Iterator[tuple[float, Callable[[], Pixels]]]:  # noqa: ANN401 - of PyAV
    """Decode a packet: iterate over time and reader of its frames; a damaged packet counts as one frame."""
    from av.error import InvalidDataError

    try:
        decoded = packet.decode()
    except InvalidDataError as error:
        reason = _reason(error)

        def fail() -> Pixels:
            raise VideoError(f"frame {number} cannot be read: {reason}")

        yield float(packet.pts * packet.time_base) if packet.pts is not None else 0.0, fail
        return
    for at, frame in enumerate(decoded, start=number):
        if frame.width * frame.height > MAX_PIXELS:
            size = f"{frame.width} x {frame.height}"
            raise VideoError(f"frame {at} has {size} pixels; expected at most {MAX_PIXELS:,}: resize the video")
        yield float(frame.time or 0.0), partial(_of_frame, at, frame)


def _of_frame(number: int, frame: Any) -> Pixels:  # noqa: ANN401 - of PyAV
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
            raise VideoNotFoundError(f"no such file or directory: {name}") from error
        if isinstance(error, FileNotFoundError) and "format" in options:
            raise VideoNotFoundError(
                f"{name_of(source)} cannot be opened: no such device: {name}; connect a camera, or use camera:N for "
                "another one"
            ) from error
        raise VideoError(f"{name_of(source)} cannot be opened as a video: {_reason(error)}") from error


def _address(source: Source) -> tuple[str, dict[str, Any]]:
    """Return name and options for PyAV; each system names cameras in its own way."""
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
    """Return the text for a source in messages."""
    return f"the source {fspath(source)!r}"


def import_av() -> Any:  # noqa: ANN401 - a module
    """Import PyAV, or raise `MissingExtraError`."""
    try:
        import av
    except ImportError as error:
        raise MissingExtraError("av", "video") from error
    # Keep its logs off: with a log level, FFmpeg's threads call into Python, and closing a container can deadlock.
    return av


def _reason(error: BaseException) -> str:
    if type(error).__name__ == "ExitError":  # PyAV's error for a timeout
        return f"connection timed out after {SILENCE:.0f} s"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".pgm", ".ppm", ".tif", ".tiff", ".webp"}
MAX_UNREADABLE = 100  # consecutive unreadable frames before reading stops


@dataclass(frozen=True, eq=False)
class VideoFrame:
    """A video frame: number, time in seconds, and image, grey (height, width) or RGB (height, width, 3) of uint8.

    `rate` is the number of frames per second of the source; 25 for directories and if a stream does not state it.
    """

    number: int
    seconds: float
    image: Pixels
    rate: float = DEFAULT_RATE


def read_frames(
    source: Source,
    *,
    every: int = 1,
    start: int = 0,
    stop: int | None = None,
    resize: tuple[int, int] | None = None,
    skipped: Callable[[VideoError], None] | None = None,
) -> Iterator[VideoFrame]:
    """Iterate over the frames of a video: every `every`-th frame from number `start` up to, not including, `stop`.

    `source` is a video file, a directory of images in natural order (2 before 10), an address such as rtsp://..., or a
    camera: "camera" or "camera:1". `resize` is (width, height). An unreadable frame raises `VideoError`; with the
    callback `skipped` it is skipped and passed to the callback, up to 100 consecutive frames.

    >>> import tempfile
    >>> from PIL import Image
    >>> folder = Path(tempfile.mkdtemp())
    >>> for number in range(12):
    ...     Image.new("L", (8, 6), number).save(folder / f"{number}.png")
    >>> [(frame.number, int(frame.image[0, 0])) for frame in read_frames(folder, every=5, start=1)]
    [(1, 1), (6, 6), (11, 11)]
    """
    if every < 1 or start < 0 or (stop is not None and stop <= start):
        raise VideoError(f"got every={every}, start={start}, stop={stop}; expected every >= 1 and 0 <= start < stop")
    if resize is not None and not (min(resize) >= 1 and resize[0] * resize[1] <= MAX_PIXELS):
        raise VideoError(f"got resize={resize[0]} x {resize[1]}; expected 1 to {MAX_PIXELS:,} pixels")
    unread: list[VideoError] = []  # in a row
    n = 0
    folder = Path(fspath(source))
    frames = _of_folder(folder) if folder.is_dir() else stream_frames(source)
    for number, seconds, rate, read in islice(frames, start, stop, every):
        try:
            image = read()
        except VideoError as error:
            if skipped is None:
                raise
            unread.append(error)
            skipped(error)
            if len(unread) > MAX_UNREADABLE:
                raise VideoError(
                    f"{name_of(source)} has {len(unread)} consecutive unreadable frames; stopped. First error: "
                    f"{unread[0]}"
                ) from error
            continue
        unread.clear()
        n += 1
        if resize is not None:
            from PIL import Image

            image = np.asarray(Image.fromarray(image).resize(resize, Image.Resampling.BILINEAR))
        yield VideoFrame(number, seconds, image, rate)
    if not n:
        why = f": {unread[0]}" if unread else ""
        raise VideoError(f"{name_of(source)} has no {'readable ' * bool(why)}frame from number {start} on{why}")


def _of_folder(folder: Path) -> Iterator[Encoded]:
    paths = [path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES]
    if not paths:
        raise VideoNotFoundError(f"the directory {folder} has no images; expected {', '.join(sorted(SUFFIXES))}")
    for number, path in enumerate(sorted(paths, key=lambda path: natural_order(Path(path.name)))):
        yield number, number / DEFAULT_RATE, DEFAULT_RATE, partial(_of_file, number, path)


def _of_file(number: int, path: Path) -> Pixels:
    try:
        return as_array(path)
    except UnreadableImageError as error:
        raise VideoError(f"frame {number} cannot be read: {error}") from error


CODECS = ("libx264", "mpeg4")


class VideoWriter:
    """Writes RGB frames (height, width, 3) to a video file with PyAV (extra `video`).

    All frames are resized to the first one, rounded up to even sides for the codec. Closing the writer gives the file
    its name, also after an error: the frames written so far are a valid video.
    """

    def __init__(self, path: Path, rate: float = 25.0) -> None:
        self._av = import_av()
        if not path.parent.is_dir() or path.is_dir():
            raise VideoError(f"{path} cannot be written: it is a directory, or {path.parent} does not exist")
        if path.suffix.lower() not in (".mp4", ".mkv", ".avi", ".mov"):
            raise VideoError(f"got {path.name}; expected the suffix .mp4, .mkv, .avi or .mov")
        self.path = path
        self.is_finished = False
        self._part = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{path.suffix}")
        self.rate = rate  # read when the first frame is written
        self._container: Any = None
        self._stream: Any = None

    def write(self, image: Pixels) -> None:
        """Add a frame (height, width, 3)."""
        with self._deleted_on_failure():
            if self._stream is None:
                self._begin(*image.shape[:2])
            frame = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
            frame = frame.reformat(self._stream.width, self._stream.height)
            self._container.mux(self._stream.encode(frame))

    def close(self) -> None:
        """Finish the file and give it its name; without frames, no file is written."""
        if self._container is None:
            return
        with self._deleted_on_failure():
            self._container.mux(self._stream.encode())
            self._container.close()
            self._part.replace(self.path)
        self.is_finished = True
        self._container = None

    def _begin(self, height: int, width: int) -> None:
        known = self._av.codecs_available
        codec = next((name for name in CODECS if name in known), None)
        if codec is None:
            raise VideoError(f"this PyAV has no encoder for {' or '.join(CODECS)}; install another build of av")
        self._container = self._av.open(str(self._part), "w")
        self._stream = self._container.add_stream(codec, rate=Fraction(self.rate).limit_denominator(1000))
        self._stream.width, self._stream.height = width + width % 2, height + height % 2
        self._stream.pix_fmt = "yuv420p"

    @contextmanager
    def _deleted_on_failure(self) -> Iterator[None]:
        """Delete the partial file if the disk is full or the size cannot be encoded."""
        from av.error import FFmpegError

        try:
            yield
        except (FFmpegError, OSError) as error:
            container, self._container = self._container, None
            if container is not None:
                with suppress(FFmpegError, OSError):
                    container.close()
            self._part.unlink(missing_ok=True)
            raise VideoError(f"{self.path} cannot be written: {getattr(error, 'strerror', None) or error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
