"""What was seen in each frame, a line a frame, as JSON or CSV: whole lines, written as they come."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from whet.errors import VideoError

FIELDS = (
    "frame",
    "seconds",
    "x1",
    "y1",
    "x2",
    "y2",
    "score",
    "accepted",
    "detections",
    "learned",
    "taken_back",
    "moved",
)


class FrameLines:
    """Writes mappings with the keys `FIELDS`, as JSON lines or, to a file that ends in .csv, as a table.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "seen.jsonl"
    >>> with FrameLines(path) as lines:
    ...     lines.write(dict.fromkeys(FIELDS) | {"frame": 3})
    >>> json.loads(path.read_text())["frame"]
    3
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("w", newline="")
        except OSError as error:
            raise VideoError(f"{path} cannot be written: {error.strerror}") from error
        self._table = csv.DictWriter(self._file, FIELDS) if path.suffix.lower() == ".csv" else None
        if self._table is not None:
            self._table.writeheader()

    def write(self, seen: Mapping[str, Any]) -> None:
        """Add a line; who reads along never sees half of it."""
        try:
            if self._table is None:
                self._file.write(json.dumps(dict(seen)) + "\n")
            else:
                self._table.writerow(dict(seen) | {"detections": len(seen["detections"] or ())})
            self._file.flush()
        except OSError as error:
            with suppress(OSError):  # what could not be written is not tried again
                self._file.close()
            raise VideoError(f"{self._file.name} cannot be written: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
