"""Negatives: random windows of images, outside excluded boxes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet._kernels.threads import map_in_order
from whet._kernels.workers import ALL_THREADS, Workers, lost_image
from whet.cascade.boxes import areas
from whet.cascade.cascade import Cascade
from whet.cascade.pyramid import SCALE_FACTOR, Level, Pyramid, WindowIndex, level_at
from whet.cascade.scan import Scan
from whet.errors import TrainingDataError, UnreadableImageError
from whet.features.integral import IntegralStack
from whet.io.annotations.annotation import Annotations, Problem, ProblemKind
from whet.io.files import map_files
from whet.io.images import as_rgb, find_images, read_grey, shape_or_error

GreyImages = NDArray[np.uint8]
Shape = tuple[int, int]


class SkippedImagesWarning(UserWarning):
    """Some images are unusable; the message says which and why."""


def usable_images(paths: Sequence[Path], window: tuple[int, int]) -> list[Path]:
    """The images that can be opened and are at least as large as the window; warns about the others.

    This reads only headers: a truncated file is skipped later.
    """
    faults = image_faults(paths, window)
    _warn_skipped(list(faults.values()))
    return [path for path in paths if path not in faults]


def image_faults(
    paths: Sequence[Path], window: tuple[int, int], shapes: Mapping[Path, Shape] | None = None
) -> dict[Path, str]:
    """The problems of images that cannot be opened or are smaller than the window, by their headers.

    Images with `shapes` (height, width) were opened before, and are not opened again.
    """
    known = {} if shapes is None else shapes
    unknown = [path for path in paths if path not in known]
    found = {**known, **dict(zip(unknown, map_files(shape_or_error, unknown), strict=True))}
    faults = {path: _fault(path, found[path], window) for path in paths}
    return {path: fault for path, fault in faults.items() if fault is not None}


def images_to_mine(
    annotated: Iterable[Path],
    negatives: Sequence[str],
    known: set[Path],
    window: tuple[int, int],
    shapes: Mapping[Path, Shape],
) -> tuple[list[Path], tuple[Problem, ...]]:
    """Images to take negatives from, and those that cannot be used: smaller than a window, or unreadable.

    They are annotated ones and `negatives`, but for images that are `known` from other parts of the set. `shapes` are
    those of the annotated images.
    """
    others = find_images(negatives) if negatives else []
    mined = list(dict.fromkeys([*annotated, *(path for path in others if path.resolve() not in known)]))
    faults = image_faults(mined, window, shapes)
    images = [path for path in mined if path not in faults]
    if not images:
        raise TrainingDataError(
            "no images to take negatives from: boxes cover the annotated images, or --no-backgrounds is set "
            "(backgrounds=False); add images without the object with --negatives (negatives=), better hundreds"
        )
    return images, tuple(Problem(ProblemKind.UNREADABLE_IMAGE, "", None, fault) for fault in faults.values())


def _fault(path: Path, shape: Shape | UnreadableImageError, window: tuple[int, int]) -> str | None:
    if isinstance(shape, UnreadableImageError):
        return str(shape)
    sides, least = sorted(shape), sorted(window)
    is_large = sides[0] >= least[0] and sides[1] >= least[1]
    return None if is_large else f"{path.name}: smaller than the window"


def _warn_skipped(skipped: list[str]) -> None:
    if skipped:
        warnings.warn(f"skipped {len(skipped)} images: " + "; ".join(skipped[:3]), SkippedImagesWarning, stacklevel=3)


def random_windows(
    image: GreyImages,
    n: int,
    window: tuple[int, int],
    rng: np.random.Generator,
    scale_factor: float = SCALE_FACTOR,
    excluded_boxes: NDArray[np.float64] | None = None,
) -> GreyImages:
    """`n` windows (n, height, width) of an image, at random places and scales.

    All scales are equally likely, although most windows of a scan are small. An image that is smaller than the window,
    or in which `excluded_boxes` (m, 4) leave no free window, has none.

    >>> windows = random_windows(np.zeros((48, 60), dtype=np.uint8), 5, (24, 24), np.random.default_rng(0))
    >>> windows.shape
    (5, 24, 24)
    """
    height, width = window
    largest = min(image.shape[0] / height, image.shape[1] / width)
    if largest < 1:
        return np.empty((0, height, width), dtype=np.uint8)
    n_scales = int(np.log(largest) / np.log(scale_factor) + 1e-9) + 1
    if excluded_boxes is not None and len(excluded_boxes):
        return _outside(image, n, window, rng, [scale_factor**step for step in range(n_scales)], excluded_boxes)
    steps = rng.integers(0, n_scales, n)
    windows = np.empty((n, height, width), dtype=np.uint8)
    for step in np.unique(steps):
        level = level_at(image, scale_factor ** float(step))
        rows = np.flatnonzero(steps == step)
        y, x = (rng.integers(0, level.image.shape[axis] - window[axis] + 1, len(rows)) for axis in (0, 1))
        windows[rows] = [level.patch(*place, window) for place in zip(y.tolist(), x.tolist(), strict=True)]
    return windows


def _outside(
    image: GreyImages,
    n: int,
    window: tuple[int, int],
    rng: np.random.Generator,
    scales: Sequence[float],
    excluded_boxes: NDArray[np.float64],
) -> GreyImages:
    """Windows outside the excluded boxes, at the scales that have any."""
    height, width = window
    levels = [level_at(image, scale) for scale in scales]
    free = [np.argwhere(~excluded_places(level, window, excluded_boxes)) for level in levels]
    usable = [step for step, places in enumerate(free) if len(places)]
    if not usable:
        return np.empty((0, height, width), dtype=np.uint8)
    windows = np.empty((n, height, width), dtype=np.uint8)
    for row, step in enumerate(rng.choice(usable, n).tolist()):
        y, x = free[step][rng.integers(len(free[step]))]
        windows[row] = levels[step].patch(y, x, window)
    return windows


def windows_of_images(
    paths: Sequence[Path],
    n: int,
    window: tuple[int, int],
    rng: np.random.Generator,
    progress: Callable[[float], None] = lambda _: None,
    excluded_boxes: ExcludedBoxes | None = None,
    workers: Workers = ALL_THREADS,
) -> GreyImages:
    """`n` random windows (n, height, width), evenly from all images, in random order.

    Windows lie outside the `excluded_boxes` of their image, up to `MOST_OVERLAP`. Unreadable and too small images are
    skipped with a `SkippedImagesWarning`. The result depends on `rng`, not on `workers`.
    """
    seed, usable = int(rng.integers(1 << 62)), rng.permutation(len(paths)).tolist()
    boxes = {} if excluded_boxes is None else excluded_boxes
    found: list[GreyImages] = []
    missing, skipped, turn = n, [], 0
    while missing and usable:  # a second turn replaces windows of images that were skipped
        shares = [missing // len(usable) + (k < missing % len(usable)) for k in range(len(usable))]
        tried = [(i, share) for i, share in zip(usable, shares, strict=True) if share]
        chosen = [paths[i] for i, _ in tried]
        seeds, wanted = [(seed, turn, i) for i, _ in tried], [share for _, share in tried]
        results = workers.map(
            _windows_of_image, chosen, wanted, seeds, map(boxes.get, chosen), repeat(window), lost=_lost_reason
        )
        for (i, _), windows in zip(tried, results, strict=True):
            if isinstance(windows, str):
                skipped.append(windows)
                usable.remove(i)
            else:
                found.append(windows)
                missing -= len(windows)
                progress(1 - missing / n)
        turn += 1
    _warn_skipped(skipped)
    if missing or not found:
        reasons = "; ".join(skipped[:3]) or "the list is empty"
        raise UnreadableImageError(
            f"none of the {len(paths)} images could be used ({reasons}): add readable images without the object"
        )
    windows = np.concatenate(found)
    return np.asarray(windows[rng.permutation(len(windows))])


def _windows_of_image(
    path: Path, n: int, seed: tuple[int, ...], boxes: NDArray[np.float64] | None, window: tuple[int, int]
) -> GreyImages | str:
    """Random windows of an image, or why there are none."""
    try:
        windows = random_windows(read_grey(path), n, window, np.random.default_rng(seed), excluded_boxes=boxes)
    except UnreadableImageError as error:
        return str(error)
    return windows if len(windows) else f"{path.name}: smaller than the window, or covered by boxes"


def _lost_reason(path: Path, *_: object) -> str:
    return str(lost_image(path))


Boxes = NDArray[np.float64]
Flags = NDArray[np.bool_]
ExcludedBoxes = Mapping[Path, Boxes]

# A negative window may overlap a box by this share of its own area. Its IoU with the box is never larger.
MOST_OVERLAP = 0.2
# An image whose box covers more than this share is a crop of the object and has no background.
MOST_COVERED = 0.8


def backgrounds_of(annotations: Annotations) -> dict[Path, Boxes]:
    """The annotated images to mine, each with its excluded boxes (n, 4), ignored boxes included.

    Images that one box covers almost entirely, and images with incomplete annotations, are omitted.
    """
    return {
        image.path: image.boxes
        for image in annotations.images
        if image.is_complete and areas(image.boxes).max(initial=0) <= MOST_COVERED * image.shape[0] * image.shape[1]
    }


def excluded_places(level: Level, window: tuple[int, int], boxes: Boxes, most: float = MOST_OVERLAP) -> Flags:
    """Whether a box excludes the window at each place (y, x) of a pyramid level.

    >>> level = Level(np.zeros((4, 10), dtype=np.uint8), scale_y=2.0, scale_x=2.0)
    >>> excluded_places(level, (4, 4), np.array([[0.0, 0.0, 8.0, 8.0]])).astype(int)
    array([[1, 1, 1, 1, 0, 0, 0]])
    """
    height, width = window
    rows, columns = (max(side - length + 1, 0) for side, length in zip(level.image.shape, window, strict=True))
    found = np.zeros((rows, columns), dtype=np.bool_)
    for x1, y1, x2, y2 in boxes.tolist():
        across = _shares(columns, width, level.scale_x, x1, x2)
        down = _shares(rows, height, level.scale_y, y1, y2)
        # The overlap is the product of the two shares: where either is small, no window is excluded.
        y, x = np.flatnonzero(down > most), np.flatnonzero(across > most)
        if len(y) and len(x):
            part = found[y[0] : y[-1] + 1, x[0] : x[-1] + 1]
            part |= np.outer(down[y], across[x]) > most
    return found


def _shares(n: int, length: int, scale: float, low: float, high: float) -> NDArray[np.float64]:
    """The overlap of each of n neighbouring windows with an interval of the image, as a share of the window length."""
    start = np.arange(n) * scale
    common = np.minimum(start + length * scale, high) - np.maximum(start, low)
    return np.asarray(np.clip(common, 0, None) / (length * scale))


def without_excluded(
    scans: Sequence[Scan], levels: Sequence[Level], window: tuple[int, int], boxes: Boxes, step: int = 1
) -> list[Scan]:
    """Scans of the levels of an image without windows that its boxes exclude.

    A scan does not list the windows that it evaluated. The count assumes that excluded windows have enough contrast as
    often as the others.
    """
    if not len(boxes):
        return list(scans)
    return [
        _without(scan, excluded_places(level, window, boxes), step) for scan, level in zip(scans, levels, strict=True)
    ]


def _without(scan: Scan, excluded: Flags, step: int) -> Scan:
    free = ~excluded[scan.y, scan.x]
    places = excluded[::step, ::step]
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
    """Of `n` random windows of images, how many have too little contrast, and how many each stage rejects.

    The first number counts windows with too little contrast; each further number counts the windows that one stage
    rejects of those that all earlier stages accept. The cascade accepts the rest.
    """
    if cascade.uses_channels:
        return _rejected_by_trees(cascade, images, n, seed)
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


def _rejected_by_trees(cascade: Cascade, images: Sequence[Path], n: int, seed: int) -> list[int]:
    """The same for a cascade with channels, whose windows are never too uniform."""
    rng, left, rejected = np.random.default_rng(seed), n, 0
    for number, path in enumerate(images):
        pyramid = Pyramid.from_image(as_rgb(path), cascade.window, grid=cascade.grid)
        share = -(-left // (len(images) - number))
        if not pyramid.levels:
            _warn_skipped([f"{path.name}: smaller than the window"])
            continue
        level = rng.integers(0, len(pyramid.levels), share)
        sides = np.array([pyramid.levels[i].shape for i in level]).T - np.array(cascade.window)[:, None]
        y, x = (rng.random((2, share)) * (sides // pyramid.step + 1)).astype(np.intp) * pyramid.step
        responses = cascade.responses(pyramid, WindowIndex(np.array(pyramid.scales)[level], y, x))
        rejected += int((cascade.scores_of_responses(responses) <= 0).sum())
        left -= share
    if left:
        raise UnreadableImageError(f"none of the {len(images)} images is as large as the window: add larger images")
    return [0, rejected]
