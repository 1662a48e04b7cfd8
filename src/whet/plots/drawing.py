"""Boxes and captions drawn into images, folders of drawn images, contact sheets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from whet.cascade.boxes import Floats
from whet.errors import WhetError
from whet.evaluation.evaluation import ImageResult, Mistake
from whet.evaluation.matching import Label
from whet.io.files import unique_stems, write_atomically
from whet.plots.figure import prepared_folder

if TYPE_CHECKING:
    from PIL.Image import Image

    from whet.tracking.tracker import TrackedFrame


# Pixels from one line to the next: Pillow's font has 10, and letters below the line.
LINE = 13


def caption(text: str, width: int, lines: int | None = None) -> NDArray[np.uint8]:
    """Text in black on white, (height, width, 3): a line a row, and what is too long for it by both of its ends.

    With `lines` there are so many rows, whatever the text has.

    >>> caption("a.png\\nmissed", 80).shape, caption("a.png", 80, lines=3).shape
    ((26, 80, 3), (39, 80, 3))
    """
    from PIL import Image, ImageDraw, ImageFont

    rows = _drawable(text).split("\n")
    strip = Image.new("RGB", (width, LINE * (len(rows) if lines is None else lines)), (255, 255, 255))
    pen, font = ImageDraw.Draw(strip), ImageFont.load_default()
    for number, row in enumerate(rows):
        short, left = row, len(row) - 1
        while pen.textlength(short, font) > width and left > 1:
            left -= 1
            short = f"{row[: left // 2]}...{row[len(row) - (left + 1) // 2 :]}"
        pen.text((0, LINE * number), short, (0, 0, 0), font)
    return np.asarray(strip)


def _drawable(text: str) -> str:
    """Names of files may be any bytes, and the font of a Pillow without FreeType has no others than Latin-1."""
    return text.encode("latin-1", "replace").decode("latin-1")


FOUND, MISSED, FALSE_POSITIVE = (40, 190, 80), (220, 40, 40), (250, 150, 0)


def boxes_drawn(
    image: NDArray[np.uint8], boxes: Floats, color: tuple[int, int, int] = FOUND, width: int = 2
) -> NDArray[np.uint8]:
    """A grey or colour image with boxes (n, 4), x1, y1, x2, y2, half-open: (height, width, 3).

    >>> drawn = boxes_drawn(np.zeros((20, 20), dtype=np.uint8), np.array([[2.0, 2.0, 10.0, 10.0]]), width=1)
    >>> drawn.shape, drawn[2, 9].tolist(), drawn[2, 10].tolist()
    ((20, 20, 3), [40, 190, 80], [0, 0, 0])
    """
    from PIL import Image, ImageDraw

    canvas = Image.fromarray(image).convert("RGB")
    pen = ImageDraw.Draw(canvas)
    for x1, y1, x2, y2 in np.round(boxes).tolist():
        if x2 > x1 and y2 > y1:
            pen.rectangle((x1, y1, x2 - 1, y2 - 1), outline=color, width=width)
    return np.asarray(canvas)


def file_drawn(path: Path, boxes: Floats, color: tuple[int, int, int] = FOUND) -> NDArray[np.uint8]:
    """An image's file in its own colours, upright, with boxes (n, 4) drawn in lines that suit its size."""
    from PIL import Image, ImageOps

    with Image.open(path) as opened:
        upright = np.asarray(ImageOps.exif_transpose(opened).convert("RGB"))
    return boxes_drawn(upright, boxes, color, width=max(2, min(upright.shape[:2]) // 200))


def result_drawn(image: NDArray[np.uint8], result: ImageResult, threshold: float = -np.inf) -> NDArray[np.uint8]:
    """Detections above a threshold in green where they are right and orange where not, and missed truths in red."""
    stands = result.scores > threshold
    right = stands & (result.matching.labels == Label.TRUE)
    drawn = boxes_drawn(image, result.boxes[right], FOUND)
    drawn = boxes_drawn(drawn, result.boxes[result.false_positives(threshold)], FALSE_POSITIVE)
    return boxes_drawn(drawn, result.truths[result.missed(threshold)], MISSED)


def look_drawn(image: NDArray[np.uint8], look: TrackedFrame, scale: float = 1.0) -> NDArray[np.uint8]:
    """What a watcher follows in green, thin where the detector does not accept it, and other detections in orange.

    `scale` is that of the image, where it was made smaller since.
    """
    drawn = boxes_drawn(image, look.elsewhere * scale, FALSE_POSITIVE, width=1)
    if look.box is None or look.track is None:
        return drawn
    return boxes_drawn(drawn, look.box[None] * scale, FOUND, width=2 if look.track.accepted else 1)


def save_image(image: NDArray[np.uint8], path: Path) -> Path:
    """Write an image as PNG, whole or not at all."""
    from PIL import Image

    return save_pillow(Image.fromarray(image), path)


def save_pillow(image: Image, path: Path) -> Path:
    """Write a Pillow image as PNG, whole or not at all."""
    content = BytesIO()
    image.save(content, format="PNG")
    write_atomically(path, content.getvalue())
    return path


@dataclass(eq=False)
class DrawnFolder:
    """Draws images into a folder, which is made if need be; files of one name in several places get numbers."""

    folder: Path
    paths: InitVar[Sequence[Path]]
    _places: dict[Path, Path] = field(init=False, repr=False)

    def __post_init__(self, paths: Sequence[Path]) -> None:
        self._places = dict(zip(paths, drawing_places(self.folder, paths), strict=True))

    def add(self, path: Path, boxes: Floats) -> Path:
        """Draw boxes (n, 4) into the image of a file; returns the file that was written, a PNG."""
        prepared_folder(self.folder)
        return save_image(file_drawn(path, boxes), self._places[path])


def drawing_places(folder: Path, paths: Sequence[Path]) -> list[Path]:
    """The file in a folder that each image is drawn to; a `WhetError` where that is one of the images."""
    places = [folder / f"{stem}.png" for stem in unique_stems(paths)]
    check_none_replaced(places, paths)
    return places


def check_none_replaced(places: Iterable[Path], images: Iterable[Path]) -> None:
    """Raise a `WhetError` if a file that is to be written is one of the images, by whatever name.

    >>> check_none_replaced([Path("drawn/a.png")], [Path("a.png")])
    """
    originals = {_identity(image) for image in images} - {None}
    for place in places:
        if _identity(place) in originals:
            raise WhetError(f"{place} would replace an image that was given: choose another folder than {place.parent}")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


TILE = 96
SURROUNDINGS = 1.6  # sides of the cut, in sides of the box
GAP = 4


def contact_sheet(
    images: Sequence[NDArray[np.uint8]],
    mistakes: Sequence[Mistake],
    most: int = 60,
    columns: int = 12,
    color: tuple[int, int, int] = FALSE_POSITIVE,
    captions: Sequence[str] = (),
) -> NDArray[np.uint8]:
    """The first of these mistakes, in their order, left to right and top to bottom: (height, width, 3).

    `images` are those that were evaluated, in the same order. A mistake at the edge of its image has grey beyond.
    `captions`, one for each mistake or none at all, stand below.

    >>> miss = Mistake(0, 0, np.array([2.0, 2.0, 8.0, 8.0]), -np.inf)
    >>> contact_sheet([np.zeros((20, 20), dtype=np.uint8)], [miss, miss, miss], columns=2).shape
    (204, 204, 3)
    """
    shown = mistakes[:most]
    rows = max(1, -(-len(shown) // columns))
    lines = max((text.count("\n") + 1 for text in captions), default=0)
    down, along = TILE + LINE * lines + GAP, TILE + GAP
    sheet = np.full((rows * down + GAP, min(columns, max(len(shown), 1)) * along + GAP, 3), 255, dtype=np.uint8)
    for number, mistake in enumerate(shown):
        row, column = divmod(number, columns)
        top, left = GAP + row * down, GAP + column * along
        sheet[top : top + TILE, left : left + TILE] = tile(images[mistake.image], mistake.box, color)
        if captions:
            sheet[top + TILE : top + down - GAP, left : left + TILE] = caption(captions[number], TILE, lines)
    return sheet


def tile(image: NDArray[np.uint8], box: Floats, color: tuple[int, int, int]) -> NDArray[np.uint8]:
    """A box and its surroundings, (TILE, TILE, 3), the box drawn in."""
    from PIL import Image

    centre, side = (box[:2] + box[2:]) / 2, max(float((box[2:] - box[:2]).max()), 1.0) * SURROUNDINGS
    corner = centre - side / 2
    size = max(1, round(side))
    x, y = np.round(corner).astype(int).tolist()
    canvas = Image.new("RGB", (size, size), (128, 128, 128))
    canvas.paste(Image.fromarray(image).convert("RGB"), (-x, -y))
    cut = np.asarray(canvas.resize((TILE, TILE), Image.Resampling.BILINEAR))
    return boxes_drawn(cut, (box - np.tile(corner, 2))[None] * (TILE / side), color, width=1)
