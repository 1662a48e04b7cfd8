"""The first features of each stage, drawn over what the object looks like on average. Needs Pillow alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from whet.cascade.cascade import Stage
from whet.detector.detector import Detector
from whet.features.haar import HaarPool
from whet.features.integral import FeatureFamily
from whet.features.lbp import BlockPatternPool
from whet.features.rectangles import RectanglePool
from whet.features.weak_learners import LeafPool
from whet.plots.drawing import caption

GreyImage = NDArray[np.uint8]

ZOOM = 96  # pixels of a tile's longer side
GAP = 4
NARROWEST = 72  # pixels that a line below a tile takes
STRENGTH = 0.55


def feature_sheet(detector: Detector, stages: int = 6, features: int = 8) -> GreyImage:
    """A row of tiles for each of the first stages: its first features, white where they count up, black where down.

    A local binary pattern has its 3 x 3 blocks outlined; a leaf of a tree has all its conditions in one tile. Behind
    is the mean positive, or grey where it is not known; below are the number of the stage, that of the weak learner in
    it, and the weight of its vote as it is now.

    >>> from whet.detector.detector import load
    >>> feature_sheet(load("face"), stages=2, features=3).shape
    (256, 304, 3)
    """
    mean = detector.base.mean_positive
    mean = np.full(detector.base.window, 128, np.uint8) if mean is None else mean
    shown = enumerate(detector.cascade.stages[:stages])
    rows = [_row(stage, f"stage {number}", mean, features) for number, stage in shown]
    width = max(row.shape[1] for row in rows)
    padded = [np.pad(row, ((0, 0), (0, width - row.shape[1]), (0, 0)), constant_values=255) for row in rows]
    sheet = np.concatenate(padded)
    return np.pad(sheet, ((GAP, 0), (GAP, 0), (0, 0)), constant_values=255)


def _row(stage: Stage, name: str, mean: GreyImage, most: int) -> GreyImage:
    weights = stage.coef[:most].tolist()
    tiles = [
        _captioned(feature_drawn(stage.features, i, mean), f"{name}, no. {i}\nweight {weight:.3g}")
        for i, weight in enumerate(weights)
    ]
    return np.concatenate([np.pad(tile, ((0, GAP), (0, GAP), (0, 0)), constant_values=255) for tile in tiles], axis=1)


def _captioned(tile: GreyImage, text: str) -> GreyImage:
    """A tile, and text below it; a tile that is narrower than the text gets white beside it."""
    below = caption(text, max(tile.shape[1], NARROWEST))
    beside = ((0, 0), (0, below.shape[1] - tile.shape[1]), (0, 0))
    return np.concatenate([np.pad(tile, beside, constant_values=255), below])


def feature_drawn(pool: FeatureFamily, i: int, below: GreyImage) -> GreyImage:
    """Feature i of a pool over an image of its window, enlarged: (height, width, 3)."""
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


def tilted_pixels(window: tuple[int, int], box: Sequence[int]) -> NDArray[np.bool_]:
    """The pixels (height, width) of a tilted rectangle: four triangles that open upwards, added and taken off.

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
