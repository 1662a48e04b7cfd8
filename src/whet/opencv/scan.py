"""OpenCV's scan of an image: its levels, its windows, and its grouping of rectangles."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet._kernels.boxes import connect_similar
from whet._kernels.integral import RUN
from whet._kernels.opencv_scan import Steps, resize_image, scan_bands
from whet._kernels.threads import available_threads, blocks, in_threads
from whet._kernels.trees import (
    LEFT,
    LEFT_SLOT,
    RIGHT,
    RIGHT_SLOT,
    SHARES_TREE,
    SLOT,
    THRESHOLD,
    WEIGHTS,
    SimdTrees,
    WalkedTrees,
)
from whet._kernels.windows import CORNERS, NODE, OPENCV_MIN_SIGMA, SUBSET
from whet.cascade.scan import CORNERS as MOST_CORNERS
from whet.cascade.scan import Layout
from whet.features.lbp import BlockPatternPool
from whet.features.rectangles import RectanglePool
from whet.opencv.cascade import OpenCVCascade, Trees

Int32s = NDArray[np.int32]

# Sums of whole leaves stay below this.
WHOLE = 2.0**30
# The third channel of the integral images.
TILTED = 2


def channels_of(cascade: OpenCVCascade) -> int:
    """Return the number of integral images: sums, squares for Haar features, tilted sums for tilted features."""
    if cascade.family == "LBP":
        return 1
    return 3 if cascade.has_tilted else 2


@lru_cache(maxsize=8)  # an image has two layouts, and frames of a video have one size
def simd_trees(cascade: OpenCVCascade, layout: Layout) -> SimdTrees:
    """Flatten a cascade, with leaves in whole numbers."""
    walked, trees, sizes = walked_trees(cascade, layout), cascade.trees, cascade.trees.sizes
    n_trees = np.diff(cascade.first_tree)
    scale = _scales(trees, cascade.first_tree)
    whole = np.rint(trees.leaves.astype(np.float64) * np.repeat(np.repeat(scale, n_trees), sizes + 1))
    stump = sizes == 1
    rows = _rows(walked, whole.astype(np.int32), np.repeat(stump, sizes))
    going_right = np.where(stump, rows[trees.first[:-1], RIGHT], 0)
    order, first_node = _parents_first(trees)
    threshold, doubt = cascade.threshold.astype(np.float64) * scale, n_trees / 2 + 1
    return SimdTrees(
        rows[order],
        first_node[cascade.first_tree],
        np.add.reduceat(going_right, cascade.first_tree[:-1], dtype=np.int32),
        np.floor(threshold - doubt).clip(-WHOLE, WHOLE).astype(np.int32),
        np.ceil(threshold + doubt).clip(-WHOLE, WHOLE).astype(np.int32),
        int(sizes.max()),
        walked,
    )


def _scales(trees: Trees, first_tree: Int32s) -> NDArray[np.float64]:
    """Powers of two (stages,) by which leaves are multiplied: no sum of a stage then reaches half of `WHOLE`."""
    leaves = abs(trees.leaves.astype(np.float64))
    largest = np.maximum.reduceat(leaves, trees.first[:-1] + np.arange(len(trees)))
    most = np.add.reduceat(largest, first_tree[:-1])
    return np.asarray(np.exp2(np.floor(np.log2(WHOLE / 2 / np.maximum(most, np.finfo(np.float32).tiny)))))


def _parents_first(trees: Trees) -> tuple[NDArray[np.intp], Int32s]:
    """Nodes that their root leads to, parents before their children; where each tree then begins (trees + 1,)."""
    first = np.repeat(trees.first[:-1], trees.sizes)
    depth = np.where(np.arange(len(first)) == first, 0, -1)
    for d in range(int(trees.sizes.max())):
        for child in (trees.left, trees.right):
            parents = (depth == d) & (child > 0)
            depth[(first + child)[parents]] = d + 1
    order = np.lexsort((depth, first))
    order = order[depth[order] >= 0]
    return order, np.searchsorted(first[order], trees.first).astype(np.int32)


def _rows(trees: WalkedTrees, leaves: Int32s, is_stump: NDArray[np.bool_]) -> Int32s:
    """Nodes as the kernel reads them."""
    rows = np.zeros((len(trees.left), NODE), dtype=np.int32)
    sizes = np.diff(trees.first_node)
    first = np.repeat(trees.first_node[:-1], sizes)
    first_leaf = first + np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    rows[:, CORNERS : CORNERS + trees.corners.shape[1]] = trees.corners
    if not trees.categorical:
        rows[:, WEIGHTS : WEIGHTS + 3] = trees.weights.view(np.int32)
        rows[:, THRESHOLD] = trees.threshold.view(np.int32)
    rows[:, SUBSET : SUBSET + 8] = trees.subset.view(np.int32)
    left, right = (
        np.where(child > 0, 0, leaves[first_leaf - np.minimum(child, 0)]) for child in (trees.left, trees.right)
    )
    rows[:, LEFT], rows[:, RIGHT], rows[:, SHARES_TREE] = np.where(is_stump, left - right, left), right, ~is_stump
    rows[:, SLOT] = np.arange(len(rows)) - first
    rows[:, LEFT_SLOT], rows[:, RIGHT_SLOT] = np.maximum(trees.left, 0), np.maximum(trees.right, 0)
    return rows


@lru_cache(maxsize=8)
def walked_trees(cascade: OpenCVCascade, layout: Layout) -> WalkedTrees:
    """Flatten any cascade."""
    trees, weights = cascade.trees, np.zeros((len(cascade.trees.left), 3), dtype=np.float32)
    match cascade.features:
        case RectanglePool() as pool:
            y, x = (places[trees.feature].reshape(-1, 12) for places in pool.corner_places)
            weights = pool.weights[trees.feature]
            corners = _offsets(cascade, layout, y, x, pool.tilted[trees.feature])
        case BlockPatternPool() as pool:
            corners = _block_offsets(cascade, layout, pool)
    return WalkedTrees(
        corners,
        weights,
        trees.threshold,
        trees.subset,
        trees.left,
        trees.right,
        trees.leaves,
        trees.first,
        cascade.first_tree,
        cascade.threshold.astype(np.float64),
        cascade.family == "LBP",
    )


def _offsets(cascade: OpenCVCascade, layout: Layout, y: Int32s, x: Int32s, tilted: NDArray[np.bool_]) -> Int32s:
    """Corners (nodes, 16), unused ones zero, from the window's own place in the channels."""
    corners = np.zeros((len(y), MOST_CORNERS), dtype=np.int32)
    channel = np.where(tilted, TILTED, 0)[:, None]
    places = (y * channels_of(cascade) + channel) * layout.line + layout.offset(np.zeros_like(x), x)
    corners[:, : y.shape[1]] = places
    return corners


def _block_offsets(cascade: OpenCVCascade, layout: Layout, pool: BlockPatternPool) -> Int32s:
    pixels = pool.corners().reshape(len(pool), MOST_CORNERS)[cascade.trees.feature]
    y, x = np.divmod(pixels, pool.window[1] + 1)
    return _offsets(cascade, layout, y, x, np.zeros(len(pixels), dtype=np.bool_))


GreyImage = NDArray[np.uint8]
Size = tuple[int, int]

# Grey of blue, green and red, as multiples of 2^-15.
GREY = np.array([3735, 19235, 9798], dtype=np.int32)
# A factor of 1.001 between windows of 3 pixels and of an image of 30,000 has 9,200 scales.
MOST_SCALES = 10_000


@dataclass(frozen=True)
class Level:
    """A level: its scale (a float32), its image's (height, width), and the step and numbers of its windows."""

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
    """Scales of windows (height, width) in an image of a shape; `least` and `most` are sizes (width, height).

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
            raise ValueError(f"got scaleFactor={factor}, i.e. over {MOST_SCALES:,} scales; use a larger factor")
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


def grey_of(image: NDArray[np.uint8]) -> GreyImage:
    """An image of one, three (BGR) or four (BGRA) channels in grey, rounded as OpenCV's `cvtColor` does.

    >>> grey_of(np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255]]], dtype=np.uint8))
    array([[ 29, 150,  76]], dtype=uint8)
    """
    if image.ndim == 2:
        return np.ascontiguousarray(image)
    if image.shape[2] == 1:
        return np.ascontiguousarray(image[..., 0])
    total = image[..., :3].astype(np.int32) @ GREY
    return ((total + (1 << 14)) >> 15).astype(np.uint8)


def resized_exactly(image: GreyImage, shape: tuple[int, int]) -> GreyImage:
    """An image in another size (height, width): OpenCV's `INTER_LINEAR_EXACT`.

    >>> resized_exactly(np.array([[0, 100, 200]], dtype=np.uint8), (1, 2))
    array([[ 25, 175]], dtype=uint8)
    """
    if shape == image.shape:
        return image
    out = np.empty(shape, dtype=np.uint8)
    if out.size:
        resize_image(image, out)
    return out


# Integrals of a band: 4 MB. What is read stays in the cache anyway, but memory that is new to a process costs time.
MOST_INTEGRALS = 2**20
# Several bands per thread, so that threads finish at about the same time.
BANDS_A_WORKER = 6


@dataclass(frozen=True, eq=False)
class FoundWindows:
    """Accepted windows as boxes (n, 4), x, y, width and height, by scale, y and x; and sums in the last stage (n,)."""

    boxes: NDArray[np.int32]
    scores: NDArray[np.float64]


def scan_levels(
    cascade: OpenCVCascade, image: GreyImage, scales: list[np.float32], threads: int | None = None
) -> FoundWindows:
    """Return the accepted windows of a grey image (height, width); the result does not depend on `threads`."""
    height, width = image.shape
    levels = levels_of((height, width), cascade.window, scales)
    workers = threads or available_threads()
    line = Layout.from_width(width + RUN, 2).line
    count = channels_of(cascade)
    bands = bands_of(levels, cascade.window, MOST_INTEGRALS // (line * count), workers)
    steps = steps_of(cascade, line)
    counter = np.zeros(1, dtype=np.int64)
    most_rows = int(((bands[:, 2] - 1) * bands[:, 4]).max(initial=0)) + cascade.window[0]
    parts: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []

    def work() -> None:
        channels = np.empty((most_rows + 1, count, line), dtype=np.uint32)
        parts.append(scan_bands(image, bands[:, 1:], steps, cascade.window, OPENCV_MIN_SIGMA, channels, counter))

    in_threads(work, min(workers, len(bands)))
    if not any(len(scores) for _, scores in parts):
        return FoundWindows(np.empty((0, 4), dtype=np.int32), np.empty(0))
    places, scores = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(places[:, 0], kind="stable")
    band, row, column = places[order].T
    level, first, step = bands[band, 0], bands[band, 1], bands[band, 4]
    scale = np.array(scales, dtype=np.float32)[level]
    return FoundWindows(_boxes((first + row) * step, column * step, scale, cascade.window), scores[order])


def bands_of(levels: list[Level], window: tuple[int, int], most_rows: int, workers: int) -> NDArray[np.int64]:
    """Bands (n, 7): their levels, then the fields of `Band`. Some for every worker, but no more rows of pixels each."""
    total = sum(level.rows * level.columns for level in levels)
    bands: list[tuple[int, ...]] = []
    for i, level in enumerate(levels):
        if level.rows and level.columns:
            share = -(-total // (workers * BANDS_A_WORKER * level.columns)) if workers > 1 else level.rows
            size = max(min(max(share, window[0]), (most_rows - window[0]) // level.step), 1)
            bands += [
                (i, rows.start, rows.stop - rows.start, level.columns, level.step, *level.shape)
                for rows in blocks(level.rows, size)
            ]
    return np.array(bands, dtype=np.int64).reshape(-1, 7)


@lru_cache(maxsize=8)
def steps_of(cascade: OpenCVCascade, line: int) -> Steps:
    """The cascade for both steps, in integral images of so many columns."""
    height, width = cascade.window
    y, x = np.array([1, 1, height - 1, height - 1]), np.array([1, width - 1, 1, width - 1])
    layouts = Layout(line, 1), Layout(line, 2)
    inner = [layout.offset(0 * y, x) + y * line * channels_of(cascade) for layout in layouts]
    one, two = (simd_trees(cascade, layout) for layout in layouts)
    return Steps(one, two, np.array(inner, dtype=np.int32))


def _boxes(
    y: NDArray[np.int64], x: NDArray[np.int64], scale: NDArray[np.float32], window: tuple[int, int]
) -> NDArray[np.int32]:
    """Windows in pixels of the image, each number rounded by itself."""
    boxes = np.empty((len(y), 4), dtype=np.int32)
    boxes[:, 0], boxes[:, 1] = np.rint(x.astype(np.float32) * scale), np.rint(y.astype(np.float32) * scale)
    boxes[:, 2], boxes[:, 3] = np.rint(np.float32(window[1]) * scale), np.rint(np.float32(window[0]) * scale)
    return boxes


Boxes = NDArray[np.int32]

EPS = 0.2


class Grouped(NamedTuple):
    """Boxes (n, 4) as x, y, width, height; how many windows each stands for; the greatest of their scores."""

    boxes: Boxes
    counts: NDArray[np.int32]
    score: NDArray[np.float64]


def group_rectangles(boxes: Boxes, scores: NDArray[np.float64], neighbours: int) -> Grouped:
    """Merge boxes (n, 4), x, y, width and height, that are similar, and keep groups of more than `neighbours`.

    A group's box is the mean. A group inside one of more windows is dropped.

    >>> boxes = np.array([[10, 10, 24, 24], [12, 10, 24, 24], [80, 80, 24, 24]], dtype=np.int32)
    >>> group_rectangles(boxes, np.array([1.0, 3.0, 2.0]), 1)
    Grouped(boxes=array([[11, 10, 24, 24]], dtype=int32), counts=array([2], dtype=int32), score=array([3.]))
    """
    if neighbours <= 0 or not len(boxes):
        return Grouped(boxes, np.ones(len(boxes), dtype=np.int32), scores)
    group = _classes(boxes)
    count = np.bincount(group)
    sums = np.stack([np.bincount(group, column) for column in boxes.T.astype(np.float64)], axis=-1)
    share = (np.float32(1) / count.astype(np.float32))[:, None]
    means = np.rint(sums.astype(np.float32) * share).astype(np.int64)
    score = np.full(len(count), -np.inf)
    np.maximum.at(score, group, scores)
    kept = [i for i in range(len(count)) if count[i] > neighbours and not _inside(i, means, count, neighbours)]
    return Grouped(means[kept].astype(np.int32), count[kept].astype(np.int32), score[kept])


def _classes(boxes: Boxes) -> NDArray[np.intp]:
    """The class of each box (n,), numbered by their first members."""
    order = np.argsort(boxes[:, 0], kind="stable")
    parent = np.empty(len(boxes), dtype=np.intp)
    connect_similar(boxes[order].astype(np.int64), EPS, parent)
    root = np.empty(len(boxes), dtype=np.intp)
    root[order] = order[parent]
    _, first, inverse = np.unique(root, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def _inside(i: int, boxes: NDArray[np.int64], count: NDArray[np.intp], neighbours: int) -> bool:
    """Return whether a group lies inside another group with more windows."""
    x, y, width, height = boxes.T
    dx, dy = np.rint(width * EPS), np.rint(height * EPS)
    around = (x[i] >= x - dx) & (y[i] >= y - dy)
    around &= (x[i] + width[i] <= x + width + dx) & (y[i] + height[i] <= y + height + dy)
    stronger = (count > neighbours) & ((count > max(3, int(count[i]))) | (count[i] < 3))
    stronger[i] = False
    return bool((around & stronger).any())
