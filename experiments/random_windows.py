"""Random windows of images without the object, as negatives of the experiments and benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.errors import UnreadableImageError
from whet.images.pyramid import SCALE_FACTOR, level_at
from whet.io.image_files import read_grey
from whet.parallel.threads import map_in_order

GreyImages = NDArray[np.uint8]


def random_windows(image: GreyImages, n: int, window: tuple[int, int], rng: np.random.Generator) -> GreyImages:
    """`n` windows (n, height, width) of an image, at random places and scales; none of an image that is too small.

    All scales are equally likely, although most windows of a scan are small.

    >>> random_windows(np.zeros((48, 60), dtype=np.uint8), 5, (24, 24), np.random.default_rng(0)).shape
    (5, 24, 24)
    """
    height, width = window
    largest = min(image.shape[0] / height, image.shape[1] / width)
    if largest < 1:
        return np.empty((0, height, width), dtype=np.uint8)
    n_scales = int(np.log(largest) / np.log(SCALE_FACTOR) + 1e-9) + 1
    steps = rng.integers(0, n_scales, n)
    windows = np.empty((n, height, width), dtype=np.uint8)
    for step in np.unique(steps):
        level = level_at(image, SCALE_FACTOR ** float(step))
        rows = np.flatnonzero(steps == step)
        y, x = (rng.integers(0, level.image.shape[axis] - window[axis] + 1, len(rows)) for axis in (0, 1))
        windows[rows] = [level.patch(*place, window) for place in zip(y.tolist(), x.tolist(), strict=True)]
    return windows


def windows_of_images(paths: Sequence[Path], n: int, window: tuple[int, int], rng: np.random.Generator) -> GreyImages:
    """`n` random windows (n, height, width), evenly from all images, in random order.

    Unreadable and too small images are left out; others make up for them.
    """
    seed, usable = int(rng.integers(1 << 62)), rng.permutation(len(paths)).tolist()
    parts: list[GreyImages] = []
    missing, turn = n, 0
    while missing and usable:  # a second turn replaces windows of images that were left out
        shares = [missing // len(usable) + (k < missing % len(usable)) for k in range(len(usable))]
        tried = [(i, share) for i, share in zip(usable, shares, strict=True) if share]
        of_image = partial(_windows_of_image, paths, window, (seed, turn))
        for (i, _), windows in zip(tried, map_in_order(of_image, tried), strict=True):
            if len(windows):
                parts.append(windows)
                missing -= len(windows)
            else:
                usable.remove(i)
        turn += 1
    if missing or not parts:
        raise UnreadableImageError(f"none of the {len(paths)} images could be used; add readable images")
    windows = np.concatenate(parts)
    return np.asarray(windows[rng.permutation(len(windows))])


def _windows_of_image(
    paths: Sequence[Path], window: tuple[int, int], seed: tuple[int, int], tried: tuple[int, int]
) -> GreyImages:
    number, n = tried
    try:
        return random_windows(read_grey(paths[number]), n, window, np.random.default_rng((*seed, number)))
    except UnreadableImageError:
        return np.empty((0, *window), dtype=np.uint8)
