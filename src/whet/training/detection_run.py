"""A detector over many pictures: in their order, several at a time, with those that cannot be read named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.detect.detections import Detections
from whet.errors import UnreadableImageError
from whet.features.parallel import available_threads, map_in_order
from whet.training.detector import Detector


@dataclass(frozen=True, eq=False)
class DetectedPicture:
    """A picture's file, and what was found in it; or, where it could not be read, the error that says why."""

    path: Path
    found: Detections | None
    error: UnreadableImageError | None = None


def detect_many(
    detector: Detector,
    paths: Sequence[Path],
    *,
    threads: int | None = None,
    **options: Any,  # noqa: ANN401 - those of Detector.detect, which checks them
) -> Iterator[DetectedPicture]:
    """Detect in pictures, with the options of `Detector.detect`; results come in the order of the pictures.

    Each thread reads and scans a picture of its own; where there are fewer pictures than threads, several scan one.
    A picture that cannot be read is reported in its place, and the others go on.

    >>> import tempfile
    >>> from whet.training.detector import load
    >>> broken = Path(tempfile.mkdtemp()) / "broken.png"
    >>> broken.write_bytes(b"no picture")
    10
    >>> [one.found for one in detect_many(load("face"), [broken])]
    [None]
    """
    workers = threads or available_threads()
    inner = max(1, workers // max(len(paths), 1))

    def look(path: Path) -> DetectedPicture:
        try:
            return DetectedPicture(path, detector.detect(path, threads=inner, **options))
        except UnreadableImageError as error:
            return DetectedPicture(path, None, error)

    return map_in_order(look, paths, workers)
