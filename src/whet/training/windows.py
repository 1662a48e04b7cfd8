"""Random windows of pictures: negatives before there is a detector to mine them with."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.detect.pyramid import FACTOR, level_at
from whet.errors import UnreadableImageError
from whet.io.images import read_grey
from whet.training.forbidden import Forbidden, forbidden_places

Pictures = NDArray[np.uint8]


class SkippedPicturesWarning(UserWarning):
    """Some pictures could not be used; the message says which and why."""


def usable_pictures(paths: Sequence[Path], window: tuple[int, int]) -> list[Path]:
    """The pictures that can be opened and hold a window; a `SkippedPicturesWarning` tells of the others.

    Only headers are read: a file that turns out to be cut short is skipped later.
    """
    faults = picture_faults(paths, window)
    _tell_skipped(list(faults.values()))
    return [path for path in paths if path not in faults]


def picture_faults(paths: Sequence[Path], window: tuple[int, int]) -> dict[Path, str]:
    """What is wrong with those pictures that cannot be opened or hold no window, by their headers."""
    faults = {path: _fault(path, window) for path in paths}
    return {path: fault for path, fault in faults.items() if fault is not None}


def _fault(path: Path, window: tuple[int, int]) -> str | None:
    from PIL import Image

    try:
        with Image.open(path) as opened:
            sides = sorted(opened.size)  # not yet turned upright
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, NotImplementedError) as error:
        return f"{path} cannot be read as an image: {error}"
    least = sorted(window)
    is_large = sides[0] >= least[0] and sides[1] >= least[1]
    return None if is_large else f"{path.name}: smaller than the window"


def _tell_skipped(skipped: list[str]) -> None:
    if skipped:
        warnings.warn(
            f"skipped {len(skipped)} pictures: " + "; ".join(skipped[:3]), SkippedPicturesWarning, stacklevel=3
        )


def random_windows(
    picture: Pictures,
    n: int,
    window: tuple[int, int],
    rng: np.random.Generator,
    factor: float = FACTOR,
    forbidden: NDArray[np.float64] | None = None,
) -> Pictures:
    """`n` windows (n, height, width) of a picture, at random places and at random steps of scale.

    All scales are as likely, where most windows of a scan are small ones. A picture smaller than the window
    has none; nor has one of which the boxes (m, 4) that are `forbidden` leave no window free.

    >>> windows = random_windows(np.zeros((48, 60), dtype=np.uint8), 5, (24, 24), np.random.default_rng(0))
    >>> windows.shape
    (5, 24, 24)
    """
    height, width = window
    largest = min(picture.shape[0] / height, picture.shape[1] / width)
    if largest < 1:
        return np.empty((0, height, width), dtype=np.uint8)
    n_scales = int(np.log(largest) / np.log(factor) + 1e-9) + 1
    if forbidden is not None and len(forbidden):
        return _outside(picture, n, window, rng, [factor**step for step in range(n_scales)], forbidden)
    steps = rng.integers(0, n_scales, n)
    windows = np.empty((n, height, width), dtype=np.uint8)
    for step in np.unique(steps):
        level = level_at(picture, factor ** float(step)).picture
        rows = np.flatnonzero(steps == step)
        views = np.lib.stride_tricks.sliding_window_view(level, window)
        y, x = (rng.integers(0, side, len(rows)) for side in views.shape[:2])
        windows[rows] = views[y, x]
    return windows


def _outside(
    picture: Pictures,
    n: int,
    window: tuple[int, int],
    rng: np.random.Generator,
    scales: Sequence[float],
    forbidden: NDArray[np.float64],
) -> Pictures:
    """Windows that no box forbids, at those scales that have any."""
    height, width = window
    levels = [level_at(picture, scale) for scale in scales]
    free = [np.argwhere(~forbidden_places(level, window, forbidden)) for level in levels]
    usable = [step for step, places in enumerate(free) if len(places)]
    if not usable:
        return np.empty((0, height, width), dtype=np.uint8)
    windows = np.empty((n, height, width), dtype=np.uint8)
    for row, step in enumerate(rng.choice(usable, n).tolist()):
        y, x = free[step][rng.integers(len(free[step]))]
        windows[row] = levels[step].picture[y : y + height, x : x + width]
    return windows


def windows_of_pictures(
    paths: Sequence[Path],
    n: int,
    window: tuple[int, int],
    rng: np.random.Generator,
    progress: Callable[[float], None] = lambda _: None,
    forbidden: Forbidden | None = None,
) -> Pictures:
    """`n` random windows (n, height, width), as evenly from the pictures as can be, in a random order.

    Windows that show more than a little of a picture's `forbidden` boxes are not among them. Pictures that cannot be
    read or are too small are skipped, and a `SkippedPicturesWarning` says so.
    """
    found: list[Pictures] = []
    missing, skipped = n, []
    usable = rng.permutation(len(paths)).tolist()
    while missing and usable:  # a second time only to make up for pictures that were skipped at the end
        turn, usable = usable, []
        for number, i in enumerate(turn):
            share = -(-missing // (len(turn) - number))
            try:
                boxes = None if forbidden is None else forbidden.get(paths[i])
                windows = random_windows(read_grey(paths[i]), share, window, rng, forbidden=boxes)
            except UnreadableImageError as error:
                skipped.append(str(error))
                continue
            if share and not len(windows):
                skipped.append(f"{paths[i].name}: smaller than the window, or full of objects")
                continue
            found.append(windows)
            missing -= len(windows)
            usable.append(i)
            progress(1 - missing / n)
    _tell_skipped(skipped)
    if missing or not found:
        reasons = "; ".join(skipped[:3]) or "there are none"
        raise UnreadableImageError(f"none of the {len(paths)} pictures could be used: {reasons}")
    windows = np.concatenate(found)
    return np.asarray(windows[rng.permutation(len(windows))])
