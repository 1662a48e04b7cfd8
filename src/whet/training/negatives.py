"""Negatives: random windows, and windows outside every box."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet._kernels.threads import map_in_order
from whet.cascade.boxes import areas
from whet.cascade.cascade import Cascade
from whet.cascade.pyramid import SCALE_FACTOR, Level, level_at
from whet.cascade.scan import Scan
from whet.errors import UnreadableImageError
from whet.features.integral import IntegralStack
from whet.io.annotations.annotation import Annotations
from whet.io.images import read_grey

GreyImages = NDArray[np.uint8]


class SkippedImagesWarning(UserWarning):
    """Some images could not be used; the message says which and why."""


def usable_images(paths: Sequence[Path], window: tuple[int, int]) -> list[Path]:
    """The images that can be opened and hold a window; a `SkippedImagesWarning` tells of the others.

    Only headers are read: a file that turns out to be cut short is skipped later.
    """
    faults = image_faults(paths, window)
    _tell_skipped(list(faults.values()))
    return [path for path in paths if path not in faults]


def image_faults(paths: Sequence[Path], window: tuple[int, int]) -> dict[Path, str]:
    """What is wrong with those images that cannot be opened or hold no window, by their headers."""
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
        warnings.warn(f"skipped {len(skipped)} images: " + "; ".join(skipped[:3]), SkippedImagesWarning, stacklevel=3)


def random_windows(
    image: GreyImages,
    n: int,
    window: tuple[int, int],
    rng: np.random.Generator,
    scale_factor: float = SCALE_FACTOR,
    forbidden: NDArray[np.float64] | None = None,
) -> GreyImages:
    """`n` windows (n, height, width) of an image, at random places and at random steps of scale.

    All scales are as likely, where most windows of a scan are small ones. An image smaller than the window
    has none; nor has one of which the boxes (m, 4) that are `forbidden` leave no window free.

    >>> windows = random_windows(np.zeros((48, 60), dtype=np.uint8), 5, (24, 24), np.random.default_rng(0))
    >>> windows.shape
    (5, 24, 24)
    """
    height, width = window
    largest = min(image.shape[0] / height, image.shape[1] / width)
    if largest < 1:
        return np.empty((0, height, width), dtype=np.uint8)
    n_scales = int(np.log(largest) / np.log(scale_factor) + 1e-9) + 1
    if forbidden is not None and len(forbidden):
        return _outside(image, n, window, rng, [scale_factor**step for step in range(n_scales)], forbidden)
    steps = rng.integers(0, n_scales, n)
    windows = np.empty((n, height, width), dtype=np.uint8)
    for step in np.unique(steps):
        level = level_at(image, scale_factor ** float(step)).image
        rows = np.flatnonzero(steps == step)
        views = np.lib.stride_tricks.sliding_window_view(level, window)
        y, x = (rng.integers(0, side, len(rows)) for side in views.shape[:2])
        windows[rows] = views[y, x]
    return windows


def _outside(
    image: GreyImages,
    n: int,
    window: tuple[int, int],
    rng: np.random.Generator,
    scales: Sequence[float],
    forbidden: NDArray[np.float64],
) -> GreyImages:
    """Windows that no box forbids, at those scales that have any."""
    height, width = window
    levels = [level_at(image, scale) for scale in scales]
    free = [np.argwhere(~forbidden_places(level, window, forbidden)) for level in levels]
    usable = [step for step, places in enumerate(free) if len(places)]
    if not usable:
        return np.empty((0, height, width), dtype=np.uint8)
    windows = np.empty((n, height, width), dtype=np.uint8)
    for row, step in enumerate(rng.choice(usable, n).tolist()):
        y, x = free[step][rng.integers(len(free[step]))]
        windows[row] = levels[step].image[y : y + height, x : x + width]
    return windows


def windows_of_images(
    paths: Sequence[Path],
    n: int,
    window: tuple[int, int],
    rng: np.random.Generator,
    progress: Callable[[float], None] = lambda _: None,
    forbidden: Forbidden | None = None,
) -> GreyImages:
    """`n` random windows (n, height, width), as evenly from the images as can be, in a random order.

    Windows that show more than a little of an image's `forbidden` boxes are not among them. Images that cannot be
    read or are too small are skipped, and a `SkippedImagesWarning` says so.
    """
    found: list[GreyImages] = []
    missing, skipped = n, []
    usable = rng.permutation(len(paths)).tolist()
    while missing and usable:  # a second time only to make up for images that were skipped at the end
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
        raise UnreadableImageError(f"none of the {len(paths)} images could be used: {reasons}")
    windows = np.concatenate(found)
    return np.asarray(windows[rng.permutation(len(windows))])


Boxes = NDArray[np.float64]
Flags = NDArray[np.bool_]
Forbidden = Mapping[Path, Boxes]

# A window may lie in a box by this share of its own area. Intersection over union is never more than that share.
MOST_OVERLAP = 0.2
# Of an image that is a crop of the object there is nothing left to look at.
MOST_COVERED = 0.8


def backgrounds_of(annotations: Annotations) -> dict[Path, Boxes]:
    """The images of a data set to mine, each with the boxes (n, 4) that no negative may show, ignored ones included.

    Images of which one box covers nearly all are left out, and so are those that are not complete.
    """
    return {
        image.path: image.boxes
        for image in annotations.images
        if image.is_complete and areas(image.boxes).max(initial=0) <= MOST_COVERED * image.shape[0] * image.shape[1]
    }


def forbidden_places(level: Level, window: tuple[int, int], boxes: Boxes, most: float = MOST_OVERLAP) -> Flags:
    """Of each window (height, width) of a level, by the y and x of its top left pixel, whether a box forbids it.

    >>> level = Level(np.zeros((4, 10), dtype=np.uint8), scale_y=2.0, scale_x=2.0)
    >>> forbidden_places(level, (4, 4), np.array([[0.0, 0.0, 8.0, 8.0]])).astype(int)
    array([[1, 1, 1, 1, 0, 0, 0]])
    """
    height, width = window
    rows, columns = (max(side - length + 1, 0) for side, length in zip(level.image.shape, window, strict=True))
    found = np.zeros((rows, columns), dtype=np.bool_)
    for x1, y1, x2, y2 in boxes.tolist():
        across = _shares(columns, width, level.scale_x, x1, x2)
        down = _shares(rows, height, level.scale_y, y1, y2)
        # A window's share of a box is the product of the two, so where either is small nothing is forbidden.
        y, x = np.flatnonzero(down > most), np.flatnonzero(across > most)
        if len(y) and len(x):
            part = found[y[0] : y[-1] + 1, x[0] : x[-1] + 1]
            part |= np.outer(down[y], across[x]) > most
    return found


def _shares(n: int, length: int, scale: float, low: float, high: float) -> NDArray[np.float64]:
    """Share of each of n windows of a length, side by side, that lies between two places of the image."""
    start = np.arange(n) * scale
    common = np.minimum(start + length * scale, high) - np.maximum(start, low)
    return np.asarray(np.clip(common, 0, None) / (length * scale))


def without_forbidden(
    scans: Sequence[Scan], levels: Sequence[Level], window: tuple[int, int], boxes: Boxes, step: int = 1
) -> list[Scan]:
    """Scans of the levels of an image without what its boxes forbid.

    A scan does not tell which windows it looked at. Those forbidden are taken to have contrast as often as the others.
    """
    if not len(boxes):
        return list(scans)
    return [
        _without(scan, forbidden_places(level, window, boxes), step) for scan, level in zip(scans, levels, strict=True)
    ]


def _without(scan: Scan, forbidden: Flags, step: int) -> Scan:
    free = ~forbidden[scan.y, scan.x]
    places = forbidden[::step, ::step]
    left = 1.0 if not places.size else 1 - float(places.mean())
    n_tested = max(round(scan.n_tested * left), int(free.sum()))
    return replace(
        scan,
        y=scan.y[free],
        x=scan.x[free],
        scores=scan.scores[free],
        n_windows=round(scan.n_windows * left),
        n_tested=n_tested,
    )


AT_ONCE = 2000


def rejected_by_stage(
    cascade: Cascade, images: Sequence[Path], n: int = 20_000, seed: int = 0, threads: int | None = None
) -> list[int]:
    """Of `n` random windows of images, how many are too flat to be looked at, and how many each stage rejects.

    The first number is that of flat windows; then one for each stage, of what the stages before let through. What is
    left of `n` passes the whole cascade.
    """
    windows = windows_of_images(images, n, cascade.window, np.random.default_rng(seed))

    def count(start: int) -> NDArray[np.int64]:
        counts = np.zeros(1 + len(cascade.stages), np.int64)
        left = windows[start : start + AT_ONCE]
        has_contrast = IntegralStack.from_patches(left, cascade.min_sigma).has_contrast
        counts[0] += len(left) - int(has_contrast.sum())
        left = left[has_contrast]
        for number, stage in enumerate(cascade.stages, start=1):
            passed = stage.accepts(left)
            counts[number] += len(left) - int(passed.sum())
            left = left[passed]
        return counts

    every = np.sum(list(map_in_order(count, range(0, n, AT_ONCE), threads)), axis=0)
    return [int(each) for each in every]
