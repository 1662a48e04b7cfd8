"""A folder of pictures with boxes drawn in, named after the files that they come from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path

from whet.errors import WhetError
from whet.evaluate.overlap import Floats
from whet.io.annotations.unique_names import unique_stems
from whet.plots.drawn_boxes import file_drawn, save_picture
from whet.plots.figure import prepared_folder


@dataclass(eq=False)
class DrawnFolder:
    """Draws pictures into a folder, which is made if need be; files of one name in several places get numbers."""

    folder: Path
    paths: InitVar[Sequence[Path]]
    _places: dict[Path, Path] = field(init=False, repr=False)

    def __post_init__(self, paths: Sequence[Path]) -> None:
        self._places = dict(zip(paths, drawing_places(self.folder, paths), strict=True))

    def add(self, path: Path, boxes: Floats) -> Path:
        """Draw boxes (n, 4) into the picture of a file; returns the file that was written, a PNG."""
        prepared_folder(self.folder)
        return save_picture(file_drawn(path, boxes), self._places[path])


def drawing_places(folder: Path, paths: Sequence[Path]) -> list[Path]:
    """The file in a folder that each picture is drawn to; a `WhetError` where that is one of the pictures."""
    places = [folder / f"{stem}.png" for stem in unique_stems(paths)]
    check_none_replaced(places, paths)
    return places


def check_none_replaced(places: Iterable[Path], pictures: Iterable[Path]) -> None:
    """Raise a `WhetError` if a file that is to be written is one of the pictures, by whatever name.

    >>> check_none_replaced([Path("drawn/a.png")], [Path("a.png")])
    """
    originals = {_identity(picture) for picture in pictures} - {None}
    for place in places:
        if _identity(place) in originals:
            raise WhetError(
                f"{place} would replace a picture that was given: choose another folder than {place.parent}"
            )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
