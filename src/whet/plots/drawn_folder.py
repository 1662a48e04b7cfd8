"""A folder of pictures with boxes drawn in, named after the files that they come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from whet.evaluate.overlap import Floats
from whet.plots.drawn_boxes import file_drawn, save_picture
from whet.plots.figure import prepared_folder


@dataclass(eq=False)
class DrawnFolder:
    """Draws into a folder, which is made if need be; files of one name in several places get numbers."""

    folder: Path
    _names: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    def add(self, path: Path, boxes: Floats) -> Path:
        """Draw boxes (n, 4) into the picture of a file; returns the file that was written, a PNG."""
        prepared_folder(self.folder)
        n = self._names[path.stem] = self._names.get(path.stem, 0) + 1
        name = path.stem if n == 1 else f"{path.stem}-{n}"
        return save_picture(file_drawn(path, boxes), self.folder / f"{name}.png")
