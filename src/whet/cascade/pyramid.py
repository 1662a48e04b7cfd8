"""An image at falling sizes: windows of one size then cover objects of all sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log

import numpy as np
from numpy.typing import NDArray

from whet._kernels.threads import for_each_block

GreyImage = NDArray[np.uint8]

SCALE_FACTOR = 1.2
# Enlarged further, an image shows nothing new, and takes sixteen times the memory.
SMALLEST = 0.25


@dataclass(frozen=True, eq=False)
class Level:
    """An image made smaller, and how many pixels of the original one of its pixels covers, down and across."""

    image: GreyImage
    scale_y: float
    scale_x: float

    def boxes(self, y: NDArray[np.intp], x: NDArray[np.intp], window: tuple[int, int]) -> NDArray[np.float64]:
        """Boxes (n, 4) in the original, x1, y1, x2, y2, of windows (height, width) at these places of the level.

        >>> level = Level(np.zeros((50, 100), dtype=np.uint8), scale_y=2.0, scale_x=1.5)
        >>> level.boxes(np.array([10]), np.array([20]), (24, 24))
        array([[30., 20., 66., 68.]])
        """
        height, width = window
        corners = np.stack([x, y, x + width, y + height], axis=-1).astype(np.float64)
        return corners * [self.scale_x, self.scale_y, self.scale_x, self.scale_y]


def pyramid(
    image: GreyImage,
    window: tuple[int, int],
    *,
    scale_factor: float = SCALE_FACTOR,
    min_size: float | None = None,
    max_size: float | None = None,
    threads: int | None = None,
) -> list[Level]:
    """The levels at which windows (height, width) cover objects from `min_size` to `max_size`, largest level first.

    Sizes are the longer side of an object in pixels of the image (height, width). Objects grow by `scale_factor` from
    the window's own size on: the limits choose among these levels and do not move them. Only a `min_size` below the
    window's own adds levels, on which the image is enlarged.

    >>> levels = pyramid(np.zeros((60, 80), dtype=np.uint8), (24, 24), scale_factor=1.5)
    >>> [level.image.shape for level in levels]
    [(60, 80), (40, 53), (27, 36)]
    """
    return levels_at(image, level_scales(image.shape, window, scale_factor, min_size, max_size), threads)


def levels_at(image: GreyImage, scales: Sequence[float], threads: int | None = None) -> list[Level]:
    """The levels of these scales."""
    levels: list[Level | None] = [None] * len(scales)

    def work(rows: slice) -> None:
        levels[rows.start] = level_at(image, scales[rows.start])

    for_each_block(work, len(scales), 1, threads)
    return [level for level in levels if level is not None]


def level_scales(
    shape: tuple[int, ...],
    window: tuple[int, int],
    scale_factor: float = SCALE_FACTOR,
    min_size: float | None = None,
    max_size: float | None = None,
) -> list[float]:
    """How many times smaller than an image (height, width) each level is; below 1, it is enlarged.

    >>> [round(scale, 2) for scale in level_scales((100, 60), (24, 24), min_size=30)]
    [1.44, 1.73, 2.07, 2.49]
    >>> [round(scale, 2) for scale in level_scales((30, 30), (24, 24), min_size=16)]
    [0.69, 0.83, 1.0, 1.2]
    """
    if not scale_factor > 1:
        raise ValueError(f"got scale_factor={scale_factor}; levels shrink by a factor above 1, such as {SCALE_FACTOR}")
    longer = max(window)
    # Half a pixel of the level is what rounding its size can lose.
    largest = min((side + 0.5) / length for side, length in zip(shape, window, strict=True))
    smallest = 1.0 if min_size is None else min(min_size / longer, 1.0)
    if not smallest >= SMALLEST:
        raise ValueError(f"got min_size={min_size}; windows of {longer} find objects from {SMALLEST * longer:g} pixels")
    first, last = (floor(log(max(limit, SMALLEST)) / log(scale_factor)) for limit in (smallest, largest))
    low, high = min_size or 0.0, np.inf if max_size is None else max_size
    scales = [scale_factor**k for k in range(first, last + 1)]
    return [scale for scale in scales if low <= scale * longer <= high and _holds_window(shape, scale, window)]


def level_shape(shape: tuple[int, ...], scale: float) -> tuple[int, int]:
    """Height and width of an image that was made smaller."""
    return round(shape[0] / scale), round(shape[1] / scale)


def level_at(image: GreyImage, scale: float) -> Level:
    """The level of a pyramid whose pixels are `scale` times as large."""
    smaller = resized(image, level_shape(image.shape, scale))
    return Level(smaller, image.shape[0] / smaller.shape[0], image.shape[1] / smaller.shape[1])


def resized(image: GreyImage, shape: tuple[int, int]) -> GreyImage:
    """An image in another size (height, width): the one way in which whet makes images smaller.

    Each pixel is a mean of all that it covers, weighted by a triangle, as Pillow's bilinear filter does it.

    >>> resized(np.array([[0, 0, 100, 100]] * 4, dtype=np.uint8), (2, 2))
    array([[14, 86],
           [14, 86]], dtype=uint8)
    """
    if shape == image.shape:
        return image
    from PIL import Image

    return np.asarray(Image.fromarray(image).resize(shape[::-1], Image.Resampling.BILINEAR))


def _holds_window(shape: tuple[int, ...], scale: float, window: tuple[int, int]) -> bool:
    height, width = level_shape(shape, scale)
    return height >= window[0] and width >= window[1]
