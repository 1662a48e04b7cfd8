"""One photograph of an object seen many ways: what a few examples leave out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from whet.detect.pyramid import resized

Grey = NDArray[np.uint8]
Patches = NDArray[np.uint8]


@dataclass(frozen=True)
class Variations:
    """How far windows around a box are moved, scaled, turned, blurred and made noisy, at random.

    `shift` and `scale` are standard deviations, in sides of the box and in its logarithm; `angle` is one in degrees;
    `noise`, in deviations of the window's own grey, and `blur`, in pixels of the window, are the most of a uniform
    draw. The defaults were chosen on faces pasted into other pictures (docs/opencv.md).

    >>> picture = np.tile(np.arange(60, dtype=np.uint8) * 4, (60, 1))
    >>> windows = Variations().cut(picture, (15, 15, 45, 45), (24, 24), 4, np.random.default_rng(0))
    >>> windows.shape, windows.dtype
    ((4, 24, 24), dtype('uint8'))
    """

    shift: float = 0.02
    scale: float = 0.05
    angle: float = 7.0
    noise: float = 0.4
    blur: float = 1.0
    mirror: bool = True

    def __post_init__(self) -> None:
        spreads = (self.shift, self.scale, self.angle, self.noise, self.blur)
        if not (np.isfinite(spreads).all() and min(spreads) >= 0):
            raise ValueError(f"got {self}; expected finite numbers from 0 on")

    def cut(
        self, picture: Grey, box: Sequence[float], window: tuple[int, int], n: int, rng: np.random.Generator
    ) -> Patches:
        """Windows (n, height, width) of a grey picture around a box x1, y1, x2, y2."""
        height, width = picture.shape
        x1, y1, x2, y2 = map(float, box)
        if not (0 <= x1 < x2 <= width and 0 <= y1 < y2 <= height):
            raise ValueError(f"got the box {list(box)} in a picture of {width} x {height}; expected one inside it")
        return np.array([self._one(picture, (x1, y1, x2, y2), window, rng) for _ in range(n)], dtype=np.uint8)

    def _one(
        self, picture: Grey, box: tuple[float, float, float, float], window: tuple[int, int], rng: np.random.Generator
    ) -> Grey:
        x1, y1, x2, y2 = box
        if self.mirror and rng.random() < 0.5:
            picture, x1, x2 = picture[:, ::-1], picture.shape[1] - x2, picture.shape[1] - x1
        sides = np.array([x2 - x1, y2 - y1])
        centre = np.array([x1 + x2, y1 + y2]) / 2 + rng.normal(0, self.shift, 2) * sides
        sides = sides * np.exp(rng.normal(0, self.scale))
        turned = Image.fromarray(picture).rotate(
            rng.normal(0, self.angle), Image.Resampling.BILINEAR, center=(float(centre[0]), float(centre[1]))
        )
        room = np.array(turned.size)
        size = np.clip(sides.round().astype(int), 1, room)
        x, y = np.clip((centre - size / 2).round().astype(int), 0, room - size).tolist()
        cut = np.ascontiguousarray(np.asarray(turned)[y : y + size[1], x : x + size[0]])
        return self.grained(resized(cut, window), rng)

    def grained(self, patch: Grey, rng: np.random.Generator) -> Grey:
        """A window (height, width) as a worse camera shows it, blurred and noisy."""
        from scipy.ndimage import gaussian_filter

        soft = gaussian_filter(patch.astype(np.float64), rng.uniform(0, self.blur))
        grain = rng.normal(0, rng.uniform(0, self.noise) * soft.std(), soft.shape)
        return np.asarray((soft + grain).clip(0, 255).round().astype(np.uint8))
