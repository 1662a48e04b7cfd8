"""Small print under pictures, in the font that comes with Pillow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
