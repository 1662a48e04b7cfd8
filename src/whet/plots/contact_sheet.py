"""The worst mistakes at a glance: each cut out of its picture with some surroundings, in rows. Needs Pillow alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from whet.evaluate.evaluation import Mistake
from whet.evaluate.overlap import Floats
from whet.plots.captions import LINE, caption
from whet.plots.drawn_boxes import FALSE_ALARM, boxes_drawn

TILE = 96
SURROUNDINGS = 1.6  # sides of the cut, in sides of the box
GAP = 4


def contact_sheet(
    pictures: Sequence[NDArray[np.uint8]],
    mistakes: Sequence[Mistake],
    most: int = 60,
    columns: int = 12,
    color: tuple[int, int, int] = FALSE_ALARM,
    captions: Sequence[str] = (),
) -> NDArray[np.uint8]:
    """The first of these mistakes, in their order, left to right and top to bottom: (height, width, 3).

    `pictures` are those that were evaluated, in the same order. A mistake at the edge of its picture has grey beyond.
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
        sheet[top : top + TILE, left : left + TILE] = tile(pictures[mistake.picture], mistake.box, color)
        if captions:
            sheet[top + TILE : top + down - GAP, left : left + TILE] = caption(captions[number], TILE, lines)
    return sheet


def tile(picture: NDArray[np.uint8], box: Floats, color: tuple[int, int, int]) -> NDArray[np.uint8]:
    """A box and its surroundings, (TILE, TILE, 3), the box drawn in."""
    from PIL import Image

    centre, side = (box[:2] + box[2:]) / 2, max(float((box[2:] - box[:2]).max()), 1.0) * SURROUNDINGS
    corner = centre - side / 2
    size = max(1, round(side))
    x, y = np.round(corner).astype(int).tolist()
    canvas = Image.new("RGB", (size, size), (128, 128, 128))
    canvas.paste(Image.fromarray(picture).convert("RGB"), (-x, -y))
    cut = np.asarray(canvas.resize((TILE, TILE), Image.Resampling.BILINEAR))
    return boxes_drawn(cut, (box - np.tile(corner, 2))[None] * (TILE / side), color, width=1)
