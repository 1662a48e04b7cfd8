"""The pyramid of OpenCV's cascade classifier: its scales, its sizes, its steps, its resize, to the last bit.

All of it is read off `detectMultiScaleNoGrouping` and `updateScaleData` in modules/objdetect/src/cascadedetect.cpp and
`interpolationLinear` in modules/imgproc/src/resize.cpp (branch 4.x of opencv/opencv).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet.kernels.exact_resize import resize_picture

Picture = NDArray[np.uint8]
Size = tuple[int, int]

# Grey of blue, green and red, as multiples of 2^-15.
GREY = np.array([3735, 19235, 9798], dtype=np.int32)
# A factor of 1.001 between windows of 3 pixels and of a picture of 30,000 has 9,200 scales.
MOST_SCALES = 10_000


@dataclass(frozen=True)
class Level:
    """A level: its scale (a float32), its picture's (height, width), and the step and numbers of its windows."""

    scale: np.float32
    shape: tuple[int, int]
    step: int
    rows: int
    columns: int


def rounded(value: float | np.floating) -> int:
    """To the nearest whole number, halves to the even one, as OpenCV's `cvRound`."""
    return int(np.rint(value))


def scales_between(
    shape: tuple[int, int], window: tuple[int, int], factor: float, least: Size, most: Size
) -> list[np.float32]:
    """Scales of windows (height, width) in a picture of a shape; `least` and `most` are sizes (width, height).

    Where no scale lies between the sizes, the one nearest to `least` is taken.

    >>> [float(s) for s in scales_between((100, 60), (24, 24), 1.5, (0, 0), (60, 100))]
    [1.0, 1.5, 2.25]
    >>> [float(s) for s in scales_between((100, 60), (24, 24), 1.5, (40, 40), (40, 40))]
    [1.5]
    """
    height, width = window
    every: list[np.float32] = []
    scale = 1.0
    while rounded(width * scale) <= shape[1] and rounded(height * scale) <= shape[0]:
        if len(every) == MOST_SCALES:
            raise ValueError(f"got scaleFactor={factor}, which makes over {MOST_SCALES:,} scales: take a larger one")
        every.append(np.float32(scale))
        scale *= factor
    sizes = [(rounded(np.float32(width) * s), rounded(np.float32(height) * s)) for s in every]
    chosen = []
    for s, (w, h) in zip(every, sizes, strict=True):
        if w > most[0] or h > most[1]:
            break
        if w >= least[0] and h >= least[1]:
            chosen.append(s)
    if chosen or not every:
        return chosen
    distances = [(least[0] - w) ** 2 + (least[1] - h) ** 2 for w, h in sizes]
    return [every[int(np.argmin(distances))]]


def levels_of(shape: tuple[int, int], window: tuple[int, int], scales: list[np.float32]) -> list[Level]:
    """The levels at these scales.

    Windows move by 2 pixels below scale 2 and by 1 from there on. OpenCV deals the rows of windows out to stripes of
    equal height, whose number follows from the width of the first level; rows beyond the last stripe are not visited.
    """
    sizes = [(rounded(np.float32(shape[0]) / s), rounded(np.float32(shape[1]) / s)) for s in scales]
    stripes = -(-(sizes[0][1] + 1 - window[1]) // 32) if sizes else 0
    levels = []
    for scale, (height, width) in zip(scales, sizes, strict=True):
        step = 1 if scale >= 2 else 2
        down, across = max(height + 1 - window[0], 0), max(width + 1 - window[1], 0)
        stripe = max((down // step + stripes - 1) // stripes, 1) * step
        rows, columns = -(-min(stripes * stripe, down) // step), -(-across // step)
        levels.append(Level(scale, (height, width), step, rows, columns))
    return levels


def grey_of(image: NDArray[np.uint8]) -> Picture:
    """A picture of one, three (BGR) or four (BGRA) channels in grey, rounded as OpenCV's `cvtColor` does.

    >>> grey_of(np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255]]], dtype=np.uint8))
    array([[ 29, 150,  76]], dtype=uint8)
    """
    if image.ndim == 2:
        return np.ascontiguousarray(image)
    if image.shape[2] == 1:
        return np.ascontiguousarray(image[..., 0])
    total = image[..., :3].astype(np.int32) @ GREY
    return ((total + (1 << 14)) >> 15).astype(np.uint8)


def resized_exactly(picture: Picture, shape: tuple[int, int]) -> Picture:
    """A picture in another size (height, width): OpenCV's `INTER_LINEAR_EXACT`.

    >>> resized_exactly(np.array([[0, 100, 200]], dtype=np.uint8), (1, 2))
    array([[ 25, 175]], dtype=uint8)
    """
    if shape == picture.shape:
        return picture
    out = np.empty(shape, dtype=np.uint8)
    if out.size:
        resize_picture(picture, out)
    return out
