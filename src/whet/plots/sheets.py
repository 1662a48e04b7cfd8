"""Sheets of tiles: the mistakes of an evaluation, and the first features of a detector. Needs only Pillow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from whet.arrays import Bools, Floats, Int64s, Pixels
from whet.io.image_files import as_rgb
from whet.models.contract import Area, family_of
from whet.plots.drawing import FALSE_POSITIVE, LINE, Color, draw_boxes, draw_caption

if TYPE_CHECKING:
    from whet.detector.detector import Detector
    from whet.evaluation.evaluation import Mistake
    from whet.io.image_files import ImageLike
    from whet.models.contract import Model

GAP = 6  # pixels between tiles
TILE = 128  # pixels of the sides of a tile of a contact sheet


def contact_sheet(
    images: Sequence[ImageLike],
    mistakes: Sequence[Mistake],
    most: int = 60,
    columns: int = 10,
    color: Color = FALSE_POSITIVE,
    captions: Sequence[str] = (),
) -> Pixels:
    """Draw the first mistakes of an evaluation as tiles, row by row: returns RGB (height, width, 3).

    `images` are the evaluated images, in their order: paths or arrays. Tiles are in the colours of the image, and grey
    outside of it. `captions` are the texts below the tiles: one for each mistake, or none at all.

    >>> from whet.evaluation.evaluation import Mistake
    >>> miss = Mistake(0, 0, np.array([2.0, 2.0, 8.0, 8.0]), -np.inf)
    >>> contact_sheet([np.zeros((20, 20), dtype=np.uint8)], [miss, miss, miss], columns=2).shape
    (274, 274, 3)
    """
    shown = mistakes[:most]
    rows = max(1, -(-len(shown) // columns))
    lines = max((text.count("\n") + 1 for text in captions), default=0)
    down, along = TILE + LINE * lines + GAP, TILE + GAP
    sheet = np.full((rows * down + GAP, min(columns, max(len(shown), 1)) * along + GAP, 3), 255, dtype=np.uint8)
    for number, mistake in enumerate(shown):
        row, column = divmod(number, columns)
        top, left = GAP + row * down, GAP + column * along
        sheet[top : top + TILE, left : left + TILE] = draw_tile(images[mistake.image], mistake.box, color)
        if captions:
            sheet[top + TILE : top + down - GAP, left : left + TILE] = draw_caption(captions[number], TILE, lines)
    return sheet


def draw_tile(image: ImageLike, box: Floats, color: Color) -> Pixels:
    """Cut a box and its surroundings out of an image, (TILE, TILE, 3), and draw the box."""
    from PIL import Image

    centre, side = (box[:2] + box[2:]) / 2, max(float((box[2:] - box[:2]).max()), 1.0) * 1.6
    corner = centre - side / 2
    size = max(1, round(side))
    x, y = np.round(corner).astype(int).tolist()
    canvas = Image.new("RGB", (size, size), (128, 128, 128))
    canvas.paste(Image.fromarray(as_rgb(image)), (-x, -y))
    cut = np.asarray(canvas.resize((TILE, TILE), Image.Resampling.BILINEAR))
    return draw_boxes(cut, (box - np.tile(corner, 2))[None] * (TILE / side), color, width=2)


def feature_sheet(detector: Detector, stages: int = 6, features: int = 8) -> Pixels:
    """Draw the first features of the first stages, one row of tiles per stage: returns RGB (height, width, 3).

    White areas have positive weights, black areas negative ones. A local binary pattern shows its 3 x 3 blocks; a leaf
    of a tree shows all its conditions in one tile, and a tree on channels its three cells. The background is the mean
    positive example, or grey if the detector has none. The caption has the stage, the weak learner, and its current
    weight.

    >>> from whet.detector.storage import load
    >>> feature_sheet(load("face"), stages=2, features=3).shape
    (266, 312, 3)
    """
    mean = detector.only.current.mean_positive
    mean = np.full(detector.window, 128, np.uint8) if mean is None else mean
    shown = enumerate(detector.model.votes.columns[:stages])
    rows = [_row(detector.model, columns, f"stage {number}", mean, features) for number, columns in shown]
    width = max(row.shape[1] for row in rows)
    padded = [np.pad(row, ((0, 0), (0, width - row.shape[1]), (0, 0)), constant_values=255) for row in rows]
    sheet = np.concatenate(padded)
    return np.pad(sheet, ((GAP, 0), (GAP, 0), (0, 0)), constant_values=255)


def _row(model: Model, columns: slice, name: str, mean: Pixels, most: int) -> Pixels:
    weights = model.votes.coef[columns][:most].tolist()
    tiles = []
    for i, weight in enumerate(weights):
        tile = draw_feature(model, columns.start + i, mean)
        below = draw_caption(f"{name}, no. {i}\nweight {weight:.3g}", max(tile.shape[1], 88))
        beside = ((0, 0), (0, below.shape[1] - tile.shape[1]), (0, 0))  # a tile may be narrower than its text
        tile = np.concatenate([np.pad(tile, beside, constant_values=255), below])
        tiles.append(np.pad(tile, ((0, GAP), (0, GAP), (0, 0)), constant_values=255))
    return np.concatenate(tiles, axis=1)


def draw_feature(model: Model, learner: int, below: Pixels) -> Pixels:
    """Draw a weak learner of a model over an enlarged image of its window: returns RGB (height, width, 3)."""
    zoom = max(1, 96 // max(model.window))  # pixels of the longer side
    tile = np.kron(below, np.ones((zoom, zoom))).astype(np.float64)
    height, width = model.window
    for area in family_of(model.family).areas(model, learner) or [Area(0, 0, width, height)]:
        x, y, w, h = (zoom * side for side in area[:4])
        if area.is_tilted:
            pixels = np.kron(tilted_pixels(model.window, area[:4]), np.ones((zoom, zoom), dtype=np.bool_))
            _tint(tile, pixels, area.weight)
        elif area.weight:
            _tint(tile, (slice(y, y + h), slice(x, x + w)), area.weight)
        else:  # an outline
            tile[y : y + h, [x, x + w - 1]] = 255
            tile[[y, y + h - 1], x : x + w] = 255
    return np.repeat(np.rint(tile).astype(np.uint8)[:, :, None], 3, axis=2)


def tilted_pixels(window: tuple[int, int], box: Sequence[int]) -> Bools:
    """Return the pixels (height, width) of a tilted rectangle, as sums and differences of four triangles.

    >>> tilted_pixels((4, 4), (2, 0, 1, 2)).astype(int)
    array([[0, 1, 0, 0],
           [1, 1, 0, 0],
           [1, 0, 0, 0],
           [0, 0, 0, 0]])
    """
    x, y, width, height = box
    rows, columns = np.indices(window)

    def triangle(below: int, right: int) -> Int64s:
        return (abs(columns - right + 1) <= below - rows - 1).astype(np.int64)

    upper = triangle(y, x) - triangle(y + height, x - height)
    return np.asarray(upper - triangle(y + width, x + width) + triangle(y + width + height, x + width - height) == 1)


def _tint(tile: Floats, where: Bools | tuple[slice, slice], weight: float) -> None:
    tone = 255 if weight > 0 else 0
    tile[where] += 0.55 * (tone - tile[where]) if weight else 0.0
