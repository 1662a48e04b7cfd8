"""`CascadeClassifier` with the methods, arguments and results of OpenCV 4: its levels, its windows and its grouping."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet._kernels.box_overlaps import connect_similar
from whet._kernels.opencv_scan import Steps, scan_bands
from whet._kernels.pixel_sums import RUN
from whet._kernels.window_scan import OPENCV_MIN_SIGMA
from whet.arrays import Floats, Indices, Int32s, Int64s, Pixels
from whet.errors import CascadeFileError, EmptyClassifierError
from whet.models.gslda.cascade_scan import Layout
from whet.opencv.tree_cascade import OpenCVCascade, channels_of, simd_trees
from whet.opencv.xml_reader import read_opencv
from whet.parallel.threads import available_threads, blocks, in_threads

Size = Sequence[int] | None
# OpenCV returns an empty tuple if it finds nothing.
IntsOrNone = Int32s | tuple[()]


class CascadeClassifier:
    """A replacement for `cv2.CascadeClassifier` that reads XML files in the new format (Haar or LBP) and the old one.

    As in OpenCV, an invalid file leaves the classifier empty; `whet.opencv.read_opencv` raises an error that names the
    cause. `threads` is the number of threads (default: all); results do not depend on it.

    >>> faces = CascadeClassifier("missing.xml")
    >>> faces.empty()
    True
    """

    def __init__(self, filename: str | Path | None = None, *, threads: int | None = None) -> None:
        self.cascade: OpenCVCascade | None = None
        self.threads = threads
        if filename is not None:
            self.load(filename)

    def load(self, filename: str | Path) -> bool:
        """Read a file; returns False, and leaves the classifier empty, if it is not a cascade."""
        try:
            self.cascade = read_opencv(filename)
        except CascadeFileError:
            self.cascade = None
        return not self.empty()

    def empty(self) -> bool:
        """Return whether no cascade is loaded."""
        return self.cascade is None

    def getOriginalWindowSize(self) -> tuple[int, int]:  # noqa: N802 - OpenCV's names
        """Return the width and height of the training windows."""
        height, width = self._loaded().window
        return width, height

    def getFeatureType(self) -> int:  # noqa: N802
        """Return 0 for Haar features, 1 for local binary patterns."""
        return {"HAAR": 0, "LBP": 1}[self._loaded().family]

    def isOldFormatCascade(self) -> bool:  # noqa: N802
        """Return False: like OpenCV 4, whet converts old files when it reads them."""
        self._loaded()
        return False

    def detectMultiScale(  # noqa: N802
        self,
        image: Pixels | None,
        scaleFactor: float = 1.1,
        minNeighbors: int = 3,
        flags: int = 0,
        minSize: Size = None,
        maxSize: Size = None,
    ) -> IntsOrNone:
        """Detect objects in a grey or BGR image; returns boxes (n, 4) as x, y, width, height, or `()` if none.

        Windows grow by `scaleFactor`. More than `minNeighbors` similar windows become one box; 0 returns every window.
        Sizes are (width, height). `flags` are ignored, as in OpenCV 4.
        """
        del flags
        boxes: IntsOrNone = _or_nothing(self._detect(image, scaleFactor, minNeighbors, minSize, maxSize).boxes)
        return boxes

    def detectMultiScale2(  # noqa: N802
        self,
        image: Pixels | None,
        scaleFactor: float = 1.1,
        minNeighbors: int = 3,
        flags: int = 0,
        minSize: Size = None,
        maxSize: Size = None,
    ) -> tuple[IntsOrNone, IntsOrNone]:
        """Return boxes, and the number of windows behind each box."""
        del flags
        grouped = self._detect(image, scaleFactor, minNeighbors, minSize, maxSize)
        return _or_nothing(grouped.boxes), _or_nothing(grouped.counts)

    def detectMultiScale3(  # noqa: N802
        self,
        image: Pixels | None,
        scaleFactor: float = 1.1,
        minNeighbors: int = 3,
        flags: int = 0,
        minSize: Size = None,
        maxSize: Size = None,
        outputRejectLevels: bool = False,
    ) -> tuple[IntsOrNone, IntsOrNone, Floats | tuple[()]]:
        """Return boxes, the number of stages passed (all of them, as in OpenCV 4), and the sums of the last stage.

        The sum of a box is the maximum over its windows. Without `outputRejectLevels`, levels and weights are empty;
        OpenCV raises an error instead if it finds an object.
        """
        del flags
        if not outputRejectLevels:
            return self.detectMultiScale(image, scaleFactor, minNeighbors, 0, minSize, maxSize), (), ()
        grouped = self._detect(image, scaleFactor, minNeighbors, minSize, maxSize)
        levels = np.full(len(grouped.boxes), len(self._loaded()), dtype=np.int32)
        return _or_nothing(grouped.boxes), _or_nothing(levels), _or_nothing(grouped.score)

    def _detect(self, image: Pixels | None, factor: float, neighbours: int, least: Size, most: Size) -> Grouped:
        cascade = self._loaded()
        pixels = _checked(image)
        if not factor > 1:
            raise ValueError(f"got scaleFactor={factor}; expected a number above 1, such as 1.1")
        height, width = pixels.shape[:2]
        smallest, largest = _size(least, "minSize"), _size(most, "maxSize")
        if 0 in largest:
            largest = (width, height)
        scales = scales_between((height, width), cascade.window, factor, smallest, largest)
        grouped = group_rectangles(*scan_levels(cascade, grey_of(pixels), scales, self.threads), neighbours)
        # Rounding can move a window beyond the edges of the image.
        x, y, w, h = grouped.boxes.T
        left, top = np.maximum(x, 0), np.maximum(y, 0)
        right, bottom = np.minimum(x + w, width), np.minimum(y + h, height)
        kept = (right > left) & (bottom > top)
        boxes = np.stack([left, top, right - left, bottom - top], axis=-1)
        return Grouped(boxes[kept].astype(np.int32), grouped.counts[kept], grouped.score[kept])

    def _loaded(self) -> OpenCVCascade:
        if self.cascade is None:
            raise EmptyClassifierError("the classifier is empty; load a cascade and check that `load` returns True")
        return self.cascade


def _checked(image: Any) -> Pixels:  # noqa: ANN401 - whatever a script passes
    """Check for uint8 and 1, 3 or 4 channels; None, which `imread` returns for a missing file, is an empty image."""
    pixels = np.zeros((0, 0), dtype=np.uint8) if image is None else np.asarray(image)
    if pixels.dtype != np.uint8:
        raise ValueError(f"got an image of {image.dtype}; expected uint8")
    if pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (1,), (3,), (4,)):
        raise ValueError(f"got an image of shape {image.shape}; expected (height, width), or 1, 3 or 4 channels")
    return pixels


def _size(size: Size, name: str) -> tuple[int, int]:
    if size is None or not len(size):
        return 0, 0
    if len(size) != 2:
        raise ValueError(f"got {name}={size!r}; expected (width, height)")
    return int(size[0]), int(size[1])


def _or_nothing(values: NDArray[Any]) -> Any:  # noqa: ANN401
    return values if len(values) else ()


# --- Levels and windows ---

# Grey of blue, green and red, as multiples of 2^-15.
GREY = np.array([3735, 19235, 9798], dtype=np.int32)
# A factor of 1.001 between windows of 3 pixels and of an image of 30,000 has 9,200 scales.
MOST_SCALES = 10_000


class Level(NamedTuple):
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
    shape: tuple[int, int], window: tuple[int, int], factor: float, least: tuple[int, int], most: tuple[int, int]
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


def grey_of(image: Pixels) -> Pixels:
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


def scan_levels(
    cascade: OpenCVCascade, image: Pixels, scales: list[np.float32], threads: int | None = None
) -> tuple[Int32s, Floats]:
    """Accepted windows of a grey image (height, width), by scale, y and x; the result does not depend on `threads`.

    They are boxes (n, 4), x, y, width and height, and sums in the last stage (n,).
    """
    height, width = image.shape
    levels = levels_of((height, width), cascade.window, scales)
    workers = threads or available_threads()
    line = Layout.from_width(width + RUN, 2).line
    count = channels_of(cascade)
    # Integrals of a band: 4 MB. What is read stays in the cache anyway, but memory that is new to a process costs time.
    bands = bands_of(levels, cascade.window, 2**20 // (line * count), workers)
    steps = steps_of(cascade, line)
    counter = np.zeros(1, dtype=np.int64)
    most_rows = int(((bands[:, 2] - 1) * bands[:, 4]).max(initial=0)) + cascade.window[0]
    parts: list[tuple[Int64s, Floats]] = []

    def work() -> None:
        channels = np.empty((most_rows + 1, count, line), dtype=np.uint32)
        parts.append(scan_bands(image, bands[:, 1:], steps, cascade.window, OPENCV_MIN_SIGMA, channels, counter))

    in_threads(work, min(workers, len(bands)))
    if not any(len(scores) for _, scores in parts):
        return np.empty((0, 4), dtype=np.int32), np.empty(0)
    places, scores = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(places[:, 0], kind="stable")
    band, row, column = places[order].T
    level, first, step = bands[band, 0], bands[band, 1], bands[band, 4]
    scale = np.array(scales, dtype=np.float32)[level]
    y, x = (((first + row) * step).astype(np.float32), (column * step).astype(np.float32))
    size = np.array(cascade.window[::-1], dtype=np.float32)
    sides = [np.rint(side * scale) for side in (x, y, size[0], size[1])]  # each number rounded by itself
    return np.stack(sides, axis=-1).astype(np.int32), scores[order]


def bands_of(levels: list[Level], window: tuple[int, int], most_rows: int, workers: int) -> Int64s:
    """Bands (n, 7): their levels, then the fields of `Band`. Some for every worker, but no more rows of pixels each."""
    total = sum(level.rows * level.columns for level in levels)
    bands: list[tuple[int, ...]] = []
    for i, level in enumerate(levels):
        if level.rows and level.columns:
            # Several bands per thread, so that threads finish at about the same time.
            share = -(-total // (workers * 6 * level.columns)) if workers > 1 else level.rows
            size = max(min(max(share, window[0]), (most_rows - window[0]) // level.step), 1)
            bands += [
                (i, rows.start, rows.stop - rows.start, level.columns, level.step, *level.shape)
                for rows in blocks(level.rows, size)
            ]
    return np.array(bands, dtype=np.int64).reshape(-1, 7)


@lru_cache(maxsize=8)
def steps_of(cascade: OpenCVCascade, line: int) -> Steps:
    """The cascade for both steps, in integral images of `line` columns."""
    height, width = cascade.window
    y, x = np.array([1, 1, height - 1, height - 1]), np.array([1, width - 1, 1, width - 1])
    layouts = Layout(line, 1), Layout(line, 2)
    inner = [layout.offset(0 * y, x) + y * line * channels_of(cascade) for layout in layouts]
    one, two = (simd_trees(cascade, layout) for layout in layouts)
    return Steps(one, two, np.array(inner, dtype=np.int32))


EPS = 0.2


class Grouped(NamedTuple):
    """Boxes (n, 4) as x, y, width, height; how many windows each stands for; the greatest of their scores."""

    boxes: Int32s
    counts: Int32s
    score: Floats


def group_rectangles(boxes: Int32s, scores: Floats, neighbours: int) -> Grouped:
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
    kept = [i for i in range(len(count)) if count[i] > neighbours and not _is_inside(i, means, count, neighbours)]
    return Grouped(means[kept].astype(np.int32), count[kept].astype(np.int32), score[kept])


def _classes(boxes: Int32s) -> Indices:
    """The class of each box (n,), numbered by their first members."""
    order = np.argsort(boxes[:, 0], kind="stable")
    parent = np.empty(len(boxes), dtype=np.intp)
    connect_similar(boxes[order].astype(np.int64), EPS, parent)
    root = np.empty(len(boxes), dtype=np.intp)
    root[order] = order[parent]
    _, first, inverse = np.unique(root, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def _is_inside(i: int, boxes: Int64s, count: Indices, neighbours: int) -> bool:
    """Return whether a group lies inside another group with more windows."""
    x, y, width, height = boxes.T
    dx, dy = np.rint(width * EPS), np.rint(height * EPS)
    around = (x[i] >= x - dx) & (y[i] >= y - dy)
    around &= (x[i] + width[i] <= x + width + dx) & (y[i] + height[i] <= y + height + dy)
    stronger = (count > neighbours) & ((count > max(3, int(count[i]))) | (count[i] < 3))
    stronger[i] = False
    return bool((around & stronger).any())
