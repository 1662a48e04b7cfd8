"""What was found, missed and falsely found, drawn into the picture itself. Needs Pillow alone."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from whet.evaluate.evaluation import PictureResult
from whet.evaluate.matching import Label
from whet.evaluate.overlap import Floats
from whet.io.atomic_file import write_atomically

if TYPE_CHECKING:
    from PIL.Image import Image

    from whet.training.watching import Look

FOUND, MISSED, FALSE_ALARM = (40, 190, 80), (220, 40, 40), (250, 150, 0)


def boxes_drawn(
    picture: NDArray[np.uint8], boxes: Floats, color: tuple[int, int, int] = FOUND, width: int = 2
) -> NDArray[np.uint8]:
    """A grey or colour picture with boxes (n, 4), x1, y1, x2, y2, half-open: (height, width, 3).

    >>> drawn = boxes_drawn(np.zeros((20, 20), dtype=np.uint8), np.array([[2.0, 2.0, 10.0, 10.0]]), width=1)
    >>> drawn.shape, drawn[2, 9].tolist(), drawn[2, 10].tolist()
    ((20, 20, 3), [40, 190, 80], [0, 0, 0])
    """
    from PIL import Image, ImageDraw

    image = Image.fromarray(picture).convert("RGB")
    pen = ImageDraw.Draw(image)
    for x1, y1, x2, y2 in np.round(boxes).tolist():
        if x2 > x1 and y2 > y1:
            pen.rectangle((x1, y1, x2 - 1, y2 - 1), outline=color, width=width)
    return np.asarray(image)


def file_drawn(path: Path, boxes: Floats, color: tuple[int, int, int] = FOUND) -> NDArray[np.uint8]:
    """A picture's file in its own colours, upright, with boxes (n, 4) drawn in lines that suit its size."""
    from PIL import Image, ImageOps

    with Image.open(path) as opened:
        upright = np.asarray(ImageOps.exif_transpose(opened).convert("RGB"))
    return boxes_drawn(upright, boxes, color, width=max(2, min(upright.shape[:2]) // 200))


def result_drawn(picture: NDArray[np.uint8], result: PictureResult, threshold: float = -np.inf) -> NDArray[np.uint8]:
    """Detections above a threshold in green where they are right and orange where not, and missed truths in red."""
    stands = result.scores > threshold
    right = stands & (result.matching.labels == Label.TRUE)
    drawn = boxes_drawn(picture, result.boxes[right], FOUND)
    drawn = boxes_drawn(drawn, result.boxes[result.false_alarms(threshold)], FALSE_ALARM)
    return boxes_drawn(drawn, result.truths[result.missed(threshold)], MISSED)


def look_drawn(picture: NDArray[np.uint8], look: Look, scale: float = 1.0) -> NDArray[np.uint8]:
    """What a watcher follows in green, thin where the detector does not accept it, and other detections in orange.

    `scale` is that of the picture, where it was made smaller since.
    """
    drawn = boxes_drawn(picture, look.elsewhere * scale, FALSE_ALARM, width=1)
    if look.box is None or look.sighting is None:
        return drawn
    return boxes_drawn(drawn, look.box[None] * scale, FOUND, width=2 if look.sighting.accepts else 1)


def save_picture(picture: NDArray[np.uint8], path: Path) -> Path:
    """Write a picture as PNG, whole or not at all."""
    from PIL import Image

    return save_image(Image.fromarray(picture), path)


def save_image(image: Image, path: Path) -> Path:
    """Write a Pillow image as PNG, whole or not at all."""
    content = BytesIO()
    image.save(content, format="PNG")
    write_atomically(path, content.getvalue())
    return path
