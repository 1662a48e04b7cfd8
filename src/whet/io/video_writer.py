"""Annotated video out: frames to one H.264 file, which is there when it is closed."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from whet.errors import VideoError
from whet.io.video_stream import import_av

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

    def write(self, picture: NDArray[np.uint8]) -> None:
        """Add a frame (height, width, 3)."""
        with self._given_up_on_failure():
            if self._stream is None:
                self._begin(*picture.shape[:2])
            frame = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
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
