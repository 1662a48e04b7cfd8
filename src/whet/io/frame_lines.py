"""What was seen in each frame, a line a frame, as JSON or CSV: whole lines, written as they come."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

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
        if path.is_dir() or not path.parent.is_dir():
            raise VideoError(f"{path} cannot be written: it is a folder, or in no folder that there is")
        self.path = path
        self._file: TextIO | None = None
        self._table: csv.DictWriter[str] | None = None

    def write(self, seen: Mapping[str, Any]) -> None:
        """Add a line; who reads along never sees half of it."""
        try:
            file = self._opened()
            if self._table is None:
                file.write(json.dumps(dict(seen)) + "\n")
            else:
                self._table.writerow(dict(seen) | {"detections": len(seen["detections"] or ())})
            file.flush()
        except OSError as error:
            with suppress(OSError):  # what could not be written is not tried again
                self._close()
            raise VideoError(f"{self.path} cannot be written: {error.strerror}") from error

    def _opened(self) -> TextIO:
        """The file, from the first line on: until then what was there stays."""
        if self._file is None:
            self._file = self.path.open("w", newline="")
            if self.path.suffix.lower() == ".csv":
                self._table = csv.DictWriter(self._file, FIELDS)
                self._table.writeheader()
        return self._file

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
