"""Video, frame by frame: files, streams and cameras by PyAV (extra `video`), and folders of images."""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from whet.errors import MissingExtraError, UnreadableImageError, VideoError, VideoNotFoundError
from whet.io.images import MAX_PIXELS, read_grey

if TYPE_CHECKING:
    Source = str | PathLike[str]

GreyImage = NDArray[np.uint8]

USUAL_RATE = 25.0  # frames a second, where a source does not say
# Seconds that a camera or an address may take to answer, and be silent later: one that is gone may say nothing at all.
OPENING, SILENCE = 30.0, 10.0


@dataclass(frozen=True, eq=False)
class Coming:
    """A frame that is not read yet: `read` gives its image, or raises VideoError."""

    number: int
    seconds: float
    rate: float
    read: Callable[[], GreyImage]


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
            raise VideoError(f"{name_of(source)} has no images: no video stream in it")
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


def _of_packet(packet: Any, number: int) -> Iterator[tuple[float, Callable[[], GreyImage]]]:  # noqa: ANN401 - of PyAV
    """The frames that a packet completes, from this number on, each with its time; a damaged packet counts as one."""
    from av.error import InvalidDataError

    try:
        decoded = packet.decode()
    except InvalidDataError as error:
        reason = _reason(error)

        def fail() -> GreyImage:
            raise VideoError(f"frame {number} cannot be read: {reason}")

        yield float(packet.pts * packet.time_base) if packet.pts is not None else 0.0, fail
        return
    for at, frame in enumerate(decoded, start=number):
        if frame.width * frame.height > MAX_PIXELS:
            raise VideoError(f"frame {at} has {frame.width} x {frame.height} pixels; make it smaller")
        yield float(frame.time or 0.0), partial(_of_frame, at, frame)


def _of_frame(number: int, frame: Any) -> GreyImage:  # noqa: ANN401 - of PyAV
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


SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".pgm", ".ppm", ".tif", ".tiff", ".webp"}
MOST_UNREAD = 100  # frames in a row that cannot be read before a source is given up


@dataclass(frozen=True, eq=False)
class VideoFrame:
    """A frame's number in its source, its time in seconds, and its image: grey (h, w) or colour (h, w, 3), uint8.

    `rate` is how many frames a second the source has; 25 for folders, and where a stream does not say.
    """

    number: int
    seconds: float
    image: GreyImage
    rate: float = USUAL_RATE


def read_frames(
    source: Source,
    *,
    every: int = 1,
    start: int = 0,
    stop: int | None = None,
    resize: tuple[int, int] | None = None,
    skipped: Callable[[VideoError], None] | None = None,
) -> Iterator[VideoFrame]:
    """Frames of a source, one after the other: every so many, from number `start` to before `stop`.

    A source is a video file, a folder of images in the order of their names (2 before 10), an address
    such as rtsp://..., or a camera: "camera" or "camera:1". `resize` is (width, height). A frame that cannot be read
    ends it; where `skipped` is given, it is told, and only more than a hundred such frames in a row are an end.

    >>> import tempfile
    >>> from PIL import Image
    >>> folder = Path(tempfile.mkdtemp())
    >>> for number in range(12):
    ...     Image.new("L", (8, 6), number).save(folder / f"{number}.png")
    >>> [(frame.number, int(frame.image[0, 0])) for frame in read_frames(folder, every=5, start=1)]
    [(1, 1), (6, 6), (11, 11)]
    """
    if every < 1 or start < 0 or (stop is not None and stop <= start):
        raise VideoError(f"got every={every}, start={start}, stop={stop}: expected every >= 1 and 0 <= start < stop")
    if resize is not None and not (min(resize) >= 1 and resize[0] * resize[1] <= MAX_PIXELS):
        raise VideoError(f"got a size of {resize[0]} x {resize[1]}: expected from 1 to {MAX_PIXELS:,} pixels")
    unread: list[VideoError] = []  # in a row
    n = 0
    for coming in _chosen(_coming(source), every, start, stop):
        try:
            image = coming.read()
        except VideoError as error:
            if skipped is None:
                raise
            unread.append(error)
            skipped(error)
            _check_unread(unread, source)
            continue
        unread.clear()
        n += 1
        image = image if resize is None else _resized(image, resize)
        yield VideoFrame(coming.number, coming.seconds, image, coming.rate)
    if not n:
        why = f": {unread[0]}" if unread else ""
        raise VideoError(f"{name_of(source)} has no frame from number {start} on{' that can be read' * bool(why)}{why}")


def _chosen(frames: Iterator[Coming], every: int, start: int, stop: int | None) -> Iterator[Coming]:
    """By number: a frame that cannot be read has one, too."""
    for coming in frames:
        if coming.number >= start and (coming.number - start) % every == 0:
            yield coming
        if stop is not None and coming.number + 1 >= stop:
            return


def _check_unread(unread: list[VideoError], source: Source) -> None:
    if len(unread) > MOST_UNREAD:
        raise VideoError(
            f"{name_of(source)} is given up: {len(unread)} frames in a row could not be read; the first: {unread[0]}"
        )


def _coming(source: Source) -> Iterator[Coming]:
    return _of_folder(Path(fspath(source))) if Path(fspath(source)).is_dir() else stream_frames(source)


def _of_folder(folder: Path) -> Iterator[Coming]:
    paths = [path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES]
    if not paths:
        raise VideoNotFoundError(f"the folder {folder} has no images ({', '.join(sorted(SUFFIXES))})")
    for number, path in enumerate(sorted(paths, key=_in_order)):
        yield Coming(number, number / USUAL_RATE, USUAL_RATE, partial(_of_file, number, path))


def _of_file(number: int, path: Path) -> GreyImage:
    try:
        return read_grey(path)
    except UnreadableImageError as error:
        raise VideoError(f"frame {number} cannot be read: {error}") from error


def _in_order(path: Path) -> list[tuple[int, str]]:
    """Numbers in names count as numbers: 2 before 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path.name)]


def _resized(image: GreyImage, size: tuple[int, int]) -> GreyImage:
    from PIL import Image

    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BILINEAR))


CODECS = ("libx264", "mpeg4")


class VideoWriter:
    """Writes frames (height, width, 3) to a video file, by PyAV (extra `video`).

    All frames get the size of the first, made even, as the codec wants it. The file appears under its name when the
    writer is closed, also after an error: what was written until then is a whole video.
    """

    def __init__(self, path: Path, rate: float = 25.0) -> None:
        self._av = import_av()
        if not path.parent.is_dir() or path.is_dir():
            raise VideoError(f"{path} cannot be written: it is a folder, or there is no folder {path.parent}")
        if path.suffix.lower() not in (".mp4", ".mkv", ".avi", ".mov"):
            raise VideoError(f"got {path.name}; expected the name of a video: .mp4, .mkv, .avi or .mov")
        self.path = path
        self.is_finished = False
        self._part = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{path.suffix}")
        self.rate = rate  # that of the first frame's moment counts
        self._container: Any = None
        self._stream: Any = None

    def write(self, image: NDArray[np.uint8]) -> None:
        """Add a frame (height, width, 3)."""
        with self._given_up_on_failure():
            if self._stream is None:
                self._begin(*image.shape[:2])
            frame = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
            frame = frame.reformat(self._stream.width, self._stream.height)
            self._container.mux(self._stream.encode(frame))

    def close(self) -> None:
        """Finish the file and give it its name; without frames there is none."""
        if self._container is None:
            return
        with self._given_up_on_failure():
            self._container.mux(self._stream.encode())
            self._container.close()
            self._part.replace(self.path)
        self.is_finished = True
        self._container = None

    def _begin(self, height: int, width: int) -> None:
        known = self._av.codecs_available
        codec = next((name for name in CODECS if name in known), None)
        if codec is None:
            raise VideoError(f"this PyAV can encode none of {', '.join(CODECS)}: install another build")
        self._container = self._av.open(str(self._part), "w")
        self._stream = self._container.add_stream(codec, rate=Fraction(self.rate).limit_denominator(1000))
        self._stream.width, self._stream.height = width + width % 2, height + height % 2
        self._stream.pix_fmt = "yuv420p"

    @contextmanager
    def _given_up_on_failure(self) -> Iterator[None]:
        """A disk that is full, a size that cannot be encoded: what was written is no video, and is taken away."""
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
