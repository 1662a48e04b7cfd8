"""Video, frame by frame: files, streams and cameras by PyAV (extra `video`), and folders of pictures.

One frame is in memory at a time. What cannot be read is a `VideoError` that says how far reading came, so that who
watches can keep what was learned until then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from whet.errors import UnreadableImageError, VideoError, VideoNotFoundError
from whet.io.images import MOST_PIXELS, read_grey
from whet.io.video_stream import USUAL_RATE, Coming, name_of, stream_frames

if TYPE_CHECKING:
    Source = str | PathLike[str]

Picture = NDArray[np.uint8]

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".pgm", ".ppm", ".tif", ".tiff", ".webp"}
MOST_UNREAD = 100  # frames in a row that cannot be read before a source is given up


@dataclass(frozen=True, eq=False)
class VideoFrame:
    """A frame's number in its source, its time in seconds, and its picture: grey (h, w) or colour (h, w, 3), uint8.

    `rate` is how many frames a second the source has; 25 for folders, and where a stream does not say.
    """

    number: int
    seconds: float
    picture: Picture
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

    A source is a video file, a folder of pictures in the order of their names (2 before 10), an address
    such as rtsp://..., or a camera: "camera" or "camera:1". `resize` is (width, height). A frame that cannot be read
    ends it; where `skipped` is given, it is told, and only more than a hundred such frames in a row are an end.

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
    unread: list[VideoError] = []  # in a row
    n = 0
    for coming in _chosen(_coming(source), every, start, stop):
        try:
            picture = coming.read()
        except VideoError as error:
            if skipped is None:
                raise
            unread.append(error)
            skipped(error)
            _check_unread(unread, source)
            continue
        unread.clear()
        n += 1
        picture = picture if resize is None else _resized(picture, resize)
        yield VideoFrame(coming.number, coming.seconds, picture, coming.rate)
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
        raise VideoNotFoundError(f"the folder {folder} has no pictures ({', '.join(sorted(SUFFIXES))})")
    for number, path in enumerate(sorted(paths, key=_in_order)):
        yield Coming(number, number / USUAL_RATE, USUAL_RATE, partial(_of_file, number, path))


def _of_file(number: int, path: Path) -> Picture:
    try:
        return read_grey(path)
    except UnreadableImageError as error:
        raise VideoError(f"frame {number} cannot be read: {error}") from error


def _in_order(path: Path) -> list[tuple[int, str]]:
    """Numbers in names count as numbers: 2 before 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path.name)]


def _resized(picture: Picture, size: tuple[int, int]) -> Picture:
    from PIL import Image

    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BILINEAR))
