"""A street that the project draws: no face in it, and much that looks like one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

SHAPE = (320, 480)


def drawn_scene(seed: int = 0) -> NDArray[np.uint8]:
    """A house, a car and a wall socket in grey (320, 480): eyes and mouths everywhere.

    >>> drawn_scene().shape
    (320, 480)
    """
    from PIL import Image, ImageDraw, ImageFilter

    height, width = SHAPE
    image = Image.fromarray(np.repeat(np.linspace(200, 140, height).astype(np.uint8)[:, None], width, axis=1))
    pen = ImageDraw.Draw(image)
    _house(pen)
    _car(pen)
    _socket(pen)
    blurred = np.asarray(image.filter(ImageFilter.GaussianBlur(1.5)), dtype=np.float64)
    return (blurred + np.random.default_rng(seed).normal(0, 4, SHAPE)).clip(0, 255).astype(np.uint8)


def _house(pen: ImageDraw) -> None:
    pen.rectangle((40, 90, 190, 260), fill=205)
    pen.polygon(((30, 90), (115, 30), (200, 90)), fill=95)
    for x in (62, 134):
        pen.rectangle((x, 120, x + 34, 150), fill=50)
        pen.line((x + 17, 120, x + 17, 150), fill=150, width=2)
    pen.rectangle((88, 205, 142, 228), fill=70)


def _car(pen: ImageDraw) -> None:
    pen.rounded_rectangle((250, 150, 440, 270), 30, fill=190)
    pen.rounded_rectangle((280, 110, 410, 165), 18, fill=80)
    for x in (290, 400):
        pen.ellipse((x - 20, 185, x + 20, 215), fill=50)
        pen.ellipse((x - 8, 193, x + 8, 205), fill=200)
    pen.rounded_rectangle((305, 232, 385, 250), 8, fill=60)


def _socket(pen: ImageDraw) -> None:
    pen.rounded_rectangle((300, 20, 370, 90), 12, fill=225)
    for x in (318, 352):
        pen.ellipse((x - 6, 42, x + 6, 56), fill=40)
    pen.rectangle((328, 68, 342, 74), fill=60)
