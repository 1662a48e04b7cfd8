"""Video, frame by frame: files, streams and cameras by PyAV (extra `video`), and folders of pictures.

One frame is in memory at a time. What cannot be read is a `VideoError` that says how far reading came, so that who
watches can keep what was learned until then.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whet.errors import MissingExtraError, UnreadableImageError, VideoError
from whet.io.images import MOST_PIXELS, read_grey

if TYPE_CHECKING:
    Source = str | PathLike[str]

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".pgm", ".ppm", ".tif", ".tiff", ".webp"}
FOLDER_RATE = 25.0  # frames a second that a folder of pictures is taken for


@dataclass(frozen=True, eq=False)
class VideoFrame:
    """A frame's number in its source, its time in seconds, and its picture: grey (h, w) or colour (h, w, 3), uint8."""

    number: int
    seconds: float
    picture: NDArray[np.uint8]


def read_frames(
    source: Source,
    *,
    every: int = 1,
    start: int = 0,
    stop: int | None = None,
    resize: tuple[int, int] | None = None,
) -> Iterator[VideoFrame]:
    """Frames of a source, one after the other: every so many, from number `start` to before `stop`.

    A source is a video file, a folder of pictures in the order of their names (2 before 10), an address
    such as rtsp://..., or a camera: "camera" or "camera:1". `resize` is (width, height).

    >>> import tempfile
    >>> from PIL import Image
    >>> folder = Path(tempfile.mkdtemp())
    >>> for number in range(12):
    ...     Image.new("L", (8, 6), number).save(folder / f"{number}.png")
    >>> [(frame.number, int(frame.picture[0, 0])) for frame in read_frames(folder, every=5, start=1)]
    [(1, 1), (6, 6), (11, 11)]
    """
    if every < 1 or start < 0 or (stop is not None and stop <= start):
        raise VideoError(f"got every={every}, start={start}, stop={stop}: expected every >= 1 and 0 <= start < stop")
    if resize is not None and not (min(resize) >= 1 and resize[0] * resize[1] <= MOST_PIXELS):
        raise VideoError(f"got a size of {resize[0]} x {resize[1]}: expected from 1 to {MOST_PIXELS:,} pixels")
    n = 0
    for frame in islice(_all_frames(source), start, stop, every):
        n += 1
        yield frame if resize is None else VideoFrame(frame.number, frame.seconds, _resized(frame.picture, resize))
    if not n:
        raise VideoError(f"{_name(source)} has no frame from number {start} on")


def frame_rate(source: Source) -> float:
    """Frames a second of a source; 25 for folders, and where a stream does not say."""
    if Path(fspath(source)).is_dir():
        return FOLDER_RATE
    with _opened(source) as container:
        rate = container.streams.video[0].average_rate if container.streams.video else None
    return float(rate) if rate else FOLDER_RATE


def _all_frames(source: Source) -> Iterator[VideoFrame]:
    return _of_folder(Path(fspath(source))) if Path(fspath(source)).is_dir() else _of_container(source)


def _of_folder(folder: Path) -> Iterator[VideoFrame]:
    paths = [path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES]
    if not paths:
        raise VideoError(f"the folder {folder} has no pictures ({', '.join(sorted(SUFFIXES))})")
    for number, path in enumerate(sorted(paths, key=_in_order)):
        try:
            yield VideoFrame(number, number / FOLDER_RATE, read_grey(path))
        except UnreadableImageError as error:
            raise VideoError(f"frame {number} cannot be read: {error}") from error


def _in_order(path: Path) -> list[tuple[int, str]]:
    """Numbers in names count as numbers: 2 before 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path.name)]


def _of_container(source: Source) -> Iterator[VideoFrame]:
    import_av()
    from av.error import FFmpegError

    number = 0
    with _opened(source) as container:
        if not container.streams.video:
            raise VideoError(f"{_name(source)} has no pictures: no video stream in it")
        stream = container.streams.video[0]
        try:
            for decoded in container.decode(stream):
                if decoded.width * decoded.height > MOST_PIXELS:
                    raise VideoError(f"frame {number} has {decoded.width} x {decoded.height} pixels; make it smaller")
                yield VideoFrame(number, float(decoded.time or 0.0), decoded.to_ndarray(format="rgb24"))
                number += 1
        except (FFmpegError, OSError) as error:
            raise VideoError(f"{_name(source)} broke off after {number} frames: {_reason(error)}") from error
    if not number:
        raise VideoError(f"{_name(source)} has no frame that could be read: it is damaged, or empty")


def _opened(source: Source) -> Any:  # noqa: ANN401 - a PyAV container
    av = import_av()
    from av.error import FFmpegError

    name, options = _address(source)
    try:
        return av.open(name, **options)
    except (FFmpegError, OSError, ValueError) as error:
        raise VideoError(f"{_name(source)} cannot be opened as a video: {_reason(error)}") from error


def _address(source: Source) -> tuple[str, dict[str, Any]]:
    """What PyAV opens, and how; cameras have another name on each system."""
    name = fspath(source)
    camera = re.fullmatch(r"camera(?::(\d+))?", name)
    if camera is None:
        return name, {}
    number = int(camera[1] or 0)
    if sys.platform == "darwin":
        return str(number), {"format": "avfoundation", "options": {"framerate": "30"}}
    if sys.platform == "win32":
        return f"video={number}", {"format": "dshow"}
    return f"/dev/video{number}", {"format": "v4l2"}


def import_av() -> Any:  # noqa: ANN401 - a module
    """PyAV, or `MissingExtraError`."""
    try:
        import av
    except ImportError as error:
        raise MissingExtraError("av", "video") from error
    # Its logs stay off, as they are by default: with any level set, FFmpeg's threads call into Python, and a container
    # that is closed meanwhile waits for them for ever.
    return av


def _resized(picture: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    from PIL import Image

    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BILINEAR))


def _name(source: Source) -> str:
    return f"the source {fspath(source)!r}"


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
