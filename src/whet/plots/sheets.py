"""Sheets of tiles: the mistakes of an evaluation, and the first features of a detector. Needs only Pillow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from whet.features.channels import CELL, ChannelTrees
from whet.features.haar import HaarPool
from whet.features.lbp import BlockPatternPool
from whet.features.rectangles import RectanglePool
from whet.features.weak_learners import LEAVES, LeafPool
from whet.io.images import as_rgb
from whet.plots.drawing import FALSE_POSITIVE, LINE, Color, RgbImage, draw_boxes, draw_caption

if TYPE_CHECKING:
    from whet.cascade.boxes import Floats
    from whet.cascade.stage import Stage
    from whet.detector.detector import Detector
    from whet.evaluation.evaluation import Mistake
    from whet.features.integral import FeatureFamily
    from whet.io.images import ImageLike

GAP = 6  # pixels between tiles
TILE = 128  # pixels of the sides of a tile of a contact sheet
SURROUNDINGS = 1.6  # side of the cutout, relative to the box
BEYOND = (128, 128, 128)  # outside of the image


def contact_sheet(
    images: Sequence[ImageLike],
    mistakes: Sequence[Mistake],
    most: int = 60,
    columns: int = 10,
    color: Color = FALSE_POSITIVE,
    captions: Sequence[str] = (),
) -> RgbImage:
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


def draw_tile(image: ImageLike, box: Floats, color: Color) -> RgbImage:
    """Cut a box and its surroundings out of an image, (TILE, TILE, 3), and draw the box."""
    from PIL import Image

    centre, side = (box[:2] + box[2:]) / 2, max(float((box[2:] - box[:2]).max()), 1.0) * SURROUNDINGS
    corner = centre - side / 2
    size = max(1, round(side))
    x, y = np.round(corner).astype(int).tolist()
    canvas = Image.new("RGB", (size, size), BEYOND)
    canvas.paste(Image.fromarray(as_rgb(image)), (-x, -y))
    cut = np.asarray(canvas.resize((TILE, TILE), Image.Resampling.BILINEAR))
    return draw_boxes(cut, (box - np.tile(corner, 2))[None] * (TILE / side), color, width=2)


ZOOM = 96  # pixels of the longer side of a feature tile
NARROWEST = 88  # pixels of the text below a feature tile
STRENGTH = 0.55  # opacity of a feature


def feature_sheet(detector: Detector, stages: int = 6, features: int = 8) -> RgbImage:
    """Draw the first features of the first stages, one row of tiles per stage: returns RGB (height, width, 3).

    White areas have positive weights, black areas negative ones. A local binary pattern shows its 3 x 3 blocks; a leaf
    of a tree shows all its conditions in one tile, and a tree on channels its three cells. The background is the mean
    positive example, or grey if the detector has none. The caption has the stage, the weak learner, and its current
    weight.

    >>> from whet.detector.storage import load
    >>> feature_sheet(load("face"), stages=2, features=3).shape
    (266, 312, 3)
    """
    mean = detector.base.mean_positive
    mean = np.full(detector.base.window, 128, np.uint8) if mean is None else mean
    shown = enumerate(detector.cascade.stages[:stages])
    rows = [_row(stage, f"stage {number}", mean, features) for number, stage in shown]
    width = max(row.shape[1] for row in rows)
    padded = [np.pad(row, ((0, 0), (0, width - row.shape[1]), (0, 0)), constant_values=255) for row in rows]
    sheet = np.concatenate(padded)
    return np.pad(sheet, ((GAP, 0), (GAP, 0), (0, 0)), constant_values=255)


def _row(stage: Stage, name: str, mean: RgbImage, most: int) -> RgbImage:
    weights = stage.coef[:most].tolist()
    tiles = [
        _captioned(draw_feature(stage.features, i, mean), f"{name}, no. {i}\nweight {weight:.3g}")
        for i, weight in enumerate(weights)
    ]
    return np.concatenate([np.pad(tile, ((0, GAP), (0, GAP), (0, 0)), constant_values=255) for tile in tiles], axis=1)


def _captioned(tile: RgbImage, text: str) -> RgbImage:
    """Add text below a tile; a tile that is narrower than the text is padded with white."""
    below = draw_caption(text, max(tile.shape[1], NARROWEST))
    beside = ((0, 0), (0, below.shape[1] - tile.shape[1]), (0, 0))
    return np.concatenate([np.pad(tile, beside, constant_values=255), below])


def draw_feature(pool: FeatureFamily, i: int, below: RgbImage) -> RgbImage:
    """Draw feature i of a pool over an enlarged image of its window: returns RGB (height, width, 3)."""
    zoom = max(1, ZOOM // max(pool.window))
    tile = np.kron(below, np.ones((zoom, zoom))).astype(np.float64)
    _draw(tile, pool, i, zoom)
    return np.repeat(np.rint(tile).astype(np.uint8)[:, :, None], 3, axis=2)


def _draw(tile: NDArray[np.float64], pool: FeatureFamily, i: int, zoom: int) -> None:
    match pool:
        case LeafPool():
            for condition in range(pool.first[i], pool.first[i + 1]):
                _draw(tile, pool.conditions, condition, zoom)
        case HaarPool():
            for x, y, width, height, weight in pool.parts(i):
                _shade(tile, (x, y, width, height), zoom, weight)
        case RectanglePool():
            for box, weight in zip(pool.boxes[i].tolist(), pool.weights[i].tolist(), strict=True):
                if pool.tilted[i]:
                    pixels = np.kron(tilted_pixels(pool.window, box), np.ones((zoom, zoom), dtype=np.bool_))
                    _tint(tile, pixels, weight)
                else:
                    _shade(tile, box, zoom, weight)
        case BlockPatternPool():
            x, y, width, height = pool.describe(i)
            for row in range(3):
                for column in range(3):
                    _outline(tile, (x + column * width, y + row * height, width, height), zoom)
        case ChannelTrees():
            for y, x in zip(pool.y[i // LEAVES].tolist(), pool.x[i // LEAVES].tolist(), strict=True):
                _outline(tile, (CELL * x, CELL * y, CELL, CELL), zoom)
        case _:  # a family without a drawing: the whole window
            _outline(tile, (0, 0, pool.window[1], pool.window[0]), zoom)


def tilted_pixels(window: tuple[int, int], box: Sequence[int]) -> NDArray[np.bool_]:
    """Return the pixels (height, width) of a tilted rectangle, as sums and differences of four triangles.

    >>> tilted_pixels((4, 4), (2, 0, 1, 2)).astype(int)
    array([[0, 1, 0, 0],
           [1, 1, 0, 0],
           [1, 0, 0, 0],
           [0, 0, 0, 0]])
    """
    x, y, width, height = box
    rows, columns = np.indices(window)

    def triangle(below: int, right: int) -> NDArray[np.int64]:
        return (abs(columns - right + 1) <= below - rows - 1).astype(np.int64)

    upper = triangle(y, x) - triangle(y + height, x - height)
    return np.asarray(upper - triangle(y + width, x + width) + triangle(y + width + height, x + width - height) == 1)


def _shade(tile: NDArray[np.float64], box: Sequence[int], zoom: int, weight: float) -> None:
    x, y, width, height = (zoom * side for side in box)
    _tint(tile, (slice(y, y + height), slice(x, x + width)), weight)


def _tint(tile: NDArray[np.float64], where: NDArray[np.bool_] | tuple[slice, slice], weight: float) -> None:
    tone = 255 if weight > 0 else 0
    tile[where] += STRENGTH * (tone - tile[where]) if weight else 0.0


def _outline(tile: NDArray[np.float64], box: Sequence[int], zoom: int) -> None:
    x, y, width, height = (zoom * side for side in box)
    for rows, columns in (((y, y + height), (x, x + 1)), ((y, y + height), (x + width - 1, x + width))):
        tile[slice(*rows), slice(*columns)] = 255
    for rows, columns in (((y, y + 1), (x, x + width)), ((y + height - 1, y + height), (x, x + width))):
        tile[slice(*rows), slice(*columns)] = 255
