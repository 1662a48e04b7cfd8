"""A cascade over every window of images, in threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet._kernels.jit import SIMD_WIDTH
from whet._kernels.pixel_sums import RUN, integrate_channels
from whet._kernels.window_scan import (
    ENDS,
    FLAGS,
    JOINS,
    N_CORNERS,
    NODE,
    OPENS,
    SCORES,
    SPARE,
    SUBSET,
    THRESHOLD,
    FlatLearners,
    Windows,
    mark_around,
    scan_windows,
)
from whet._kernels.window_scan import WEIGHTS as FIRST_WEIGHT
from whet.arrays import Int32s
from whet.errors import ImageMemoryError
from whet.images.detections import FiredWindows
from whet.images.pyramid import Level, Pyramid, Span, WindowIndex
from whet.images.scan_memory import WindowCount
from whet.models.gslda.cascade import Cascade, Stage
from whet.models.gslda.integral import ScannedFamily
from whet.models.gslda.pools import weak_type
from whet.models.gslda.weak_learners import Stumps, Subsets, conditions_of
from whet.models.responses import Votes
from whet.parallel.threads import blocks, for_each_block

# A pattern has 4 x 4 corners, a Haar feature up to 9, three rectangles 12.
CORNERS = 16
WEIGHTS = 12


class Layout(NamedTuple):
    """How integral images lie in memory: `line` integrals a row, and columns apart by their remainder modulo `step`.

    Windows at every `step`-th column then read integrals that are neighbours, whatever the step. Of several `channels`,
    such as sums, squares and tilted sums, each has a line before the next row begins.

    >>> Layout(line=8, step=2).offset(np.array([0, 0, 0, 1]), np.array([0, 1, 2, 0]))
    array([0, 4, 1, 8])
    """

    line: int
    step: int
    channels: int = 1

    @classmethod
    def from_width(cls, width: int, step: int, channels: int = 1) -> Layout:
        """The layout for images of at most this width."""
        return cls((width + step) // step * step, step, channels)

    def offset(
        self, y: NDArray[np.integer], x: NDArray[np.integer], channel: int | NDArray[np.integer] = 0
    ) -> NDArray[np.integer]:
        """Places of the integrals at these rows and columns, seen from the window's own."""
        in_line = x % self.step * (self.line // self.step) + x // self.step
        return np.asarray((y * self.channels + channel) * self.line + in_line)

    def arrange(self, integral: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Integral images (height + 1, channels, line), or one (height + 1, line), in this layout, flat."""
        if self.step == 1:
            return integral.ravel()
        apart = integral.reshape(integral.size // self.line, -1, self.step)
        return np.ascontiguousarray(apart.transpose(0, 2, 1)).ravel()


@dataclass(frozen=True, eq=False)
class CompiledCascade:
    """What the scan needs of a cascade, in one layout of the integral images."""

    window: tuple[int, int]
    min_sigma: float
    layout: Layout
    learners: FlatLearners
    inner: Int32s

    @property
    def area(self) -> int:
        """Pixels of the inner rectangle, by which a window is normalised."""
        return (self.window[0] - 2) * (self.window[1] - 2)

    @property
    def row_step(self) -> int:
        """Integrals between a row of windows and the next."""
        return self.layout.step * self.layout.channels * self.layout.line


def compiled(cascade: Cascade, layout: Layout, votes: Votes) -> CompiledCascade:
    """Flatten a cascade for integral images of a layout, with the limits of some votes."""
    height, width = cascade.window
    y, x = np.array([1, 1, height - 1, height - 1]), np.array([1, width - 1, 1, width - 1])
    inner = layout.offset(y, x).astype(np.int32)
    learners = _learners(cascade.stages, votes, layout)
    return CompiledCascade(cascade.window, float(cascade.min_sigma), layout, learners, inner)


# Frames of a video have one size: 1,400 weak learners take a millisecond. Corrections of false positives leave the
# stages as they are.
@lru_cache(maxsize=8)
def _learners(stages: tuple[Stage, ...], votes: Votes, layout: Layout) -> FlatLearners:
    before: list[float] = [0.0, *votes.threshold.tolist()]
    last = before.pop()
    parts = [
        _stage_rows(stage, votes.limits[columns], threshold_before, number == votes.first_scoring, layout)
        for number, (stage, columns, threshold_before) in enumerate(zip(stages, votes.columns, before, strict=True))
    ]
    rows, reals = (np.concatenate(part) for part in zip(*parts, strict=True))
    return FlatLearners(rows, reals, float(last))


def channels_of(cascade: Cascade) -> int:
    """How many integral images the cascade looks at: sums and squares, and tilted sums for tilted features."""
    return max(conditions_of(stage.features, stage.weak)[0].channels for stage in cascade.stages)


def _stage_rows(
    stage: Stage, of_stage: NDArray[np.float64], threshold_before: float, scores_begin: bool, layout: Layout
) -> tuple[Int32s, NDArray[np.float64]]:
    """The rows of a stage's learners."""
    features, weak, first = conditions_of(stage.features, stage.weak)
    n, last = len(weak), first[1:] - 1
    coef, limits, joins, ends = np.ones(n), np.full(n, -np.inf), np.ones(n, np.bool_), np.zeros(n, np.bool_)
    coef[last], limits[last], joins[last], ends[last] = stage.coef, of_stage, False, np.diff(first) > 1
    rows = np.zeros((n, NODE), dtype=np.int32)
    weights = _write_corners(rows, features, weak, layout)
    match weak:
        case Subsets():
            above, below = coef, np.zeros(n)
            rows[:, SUBSET : SUBSET + 8] = np.ascontiguousarray(weak.subset).view(np.int32)
        case Stumps():
            flipped = weak.polarity < 0
            above, below = np.where(flipped, 0.0, coef), np.where(flipped, coef, 0.0)
            rows[:, FIRST_WEIGHT : FIRST_WEIGHT + WEIGHTS] = weights
            rows[:, THRESHOLD] = weak.threshold.view(np.int32)
            used = ((weights != 0) * np.arange(1, WEIGHTS + 1)).max(axis=1)
            rows[:, N_CORNERS] = np.maximum(-(-used // 3) * 3, 6)
    rows[:, FLAGS] = JOINS * joins + ENDS * ends
    rows[0, FLAGS] += OPENS + SCORES * scores_begin
    before = np.where(np.arange(n) == 0, threshold_before, 0.0)
    return rows, np.stack([above, below, limits, before], axis=1)


def _write_corners(rows: Int32s, features: ScannedFamily, weak: Stumps | Subsets, layout: Layout) -> Int32s:
    """Write the corners of features in the layout; returns the weights (T, 12), unused ones zero."""
    if not isinstance(weak, weak_type(features)):
        raise TypeError(f"no scan for {type(weak).__name__} on {type(features).__name__}")
    corners, weights = features.scan_corners(), np.zeros((len(weak), WEIGHTS), dtype=np.int32)
    if corners.y.shape[1] > CORNERS or (corners.weights is not None and corners.weights.shape[1] > WEIGHTS):
        raise TypeError(f"no scan for {type(features).__name__}: more than {CORNERS} corners or {WEIGHTS} weights")
    rows[:, : corners.y.shape[1]] = layout.offset(corners.y, corners.x, corners.channel[:, None])
    if corners.weights is not None:
        weights[:, : corners.weights.shape[1]] = corners.weights
    return weights


GreyImage = NDArray[np.uint8]
_NOWHERE = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp), np.empty(0)

# A coarse pass looks at every second row and column of windows, as `mark_around` expects.
COARSE = 2
# Rows of windows of a band at least, a multiple of `COARSE`; narrow images have more, to a limit of windows. A band is
# integrated on its own, window height included: with windows of 24 that is a quarter of the integrals twice, and the
# integrals of 640 columns, 600 KB, never leave the second-level cache.
BAND = 96
WINDOWS_AT_ONCE = 1 << 16
# Bytes of patches, with their integral images, that are looked at one by one.
MOST_PATCHES = 1 << 27
# Columns of windows of a band, a multiple of `COARSE`, and bytes of its integrals, of which each thread has one.
MOST_COLUMNS = 1 << 15
MOST_INTEGRALS = 1 << 28


@dataclass(frozen=True, eq=False)
class Scan:
    """The accepted windows of an image, by y and then x of their top left pixels, and what it took to find them."""

    y: NDArray[np.intp]
    x: NDArray[np.intp]
    scores: NDArray[np.float64]
    n_windows: int
    n_tested: int
    n_evaluated: int

    def __len__(self) -> int:
        return len(self.scores)


def scan_images(
    cascade: Cascade,
    images: Sequence[GreyImage],
    *,
    votes: Votes | None = None,
    step: int = 1,
    threads: int | None = None,
    count: WindowCount | None = None,
) -> list[Scan]:
    """Scan the windows of several images, such as the levels of a pyramid, at every `step`-th row and column.

    Accepts the same windows as `cascade.accepts` does, with the same scores. Windows of too little contrast are
    skipped; `n_evaluated` counts the weak learners, or conditions of leaves, that the others needed until they
    were rejected. The result does not depend on `threads`.

    With `votes`, their limits count instead of the cascade's own. Otherwise, a cascade with `coarse_stages` is scanned
    in two passes at step 1: these stages on every second row and column, and `stages` on the windows that they accept
    there and on the eight next to each. `count` counts accepted windows.

    >>> from whet.models.gslda.haar import HaarKind, HaarPool
    >>> from whet.models.gslda.weak_learners import Stumps
    >>> from whet.models.gslda.cascade import Stage
    >>> pool = HaarPool.from_window((4, 4), [HaarKind.X2])  # the last one: dark on the left, bright on the right
    >>> edge = Stumps(*(np.array([v]) for v in (len(pool) - 1, np.float32(3.9), np.int8(1), 0.0)))
    >>> cascade = Cascade((4, 4), (Stage(pool.take(edge.feature), edge, np.array([2.0]), threshold=0.5),))
    >>> (found,) = scan_images(cascade, [np.repeat(np.uint8([[0, 0, 0, 99, 99, 99]]), 5, axis=0)])
    >>> found.y, found.x, found.scores
    (array([0, 1]), array([1, 1]), array([1.5, 1.5]))
    """
    if step < 1:
        raise ValueError(f"got step={step}; windows are at least 1 pixel apart")
    # A step beyond the image has one window, as one as long as the image has.
    step = min(step, max((max(image.shape) for image in images), default=1) or 1)
    tallest, widest = (max((image.shape[axis] for image in images), default=0) for axis in (0, 1))
    widest = min(widest, (MOST_COLUMNS + COARSE) * step + cascade.window[1])
    coarse = None
    if votes is None and step == 1 and cascade.coarse:
        coarse = _compiled_for(cascade.coarse, tallest, widest, COARSE)
    runnable = _compiled_for(cascade if coarse is None else cascade.coarse_last, tallest, widest, step, votes)
    most = _most_rows(runnable)
    tasks = [(i, *band) for i, image in enumerate(images) for band in _bands(*_places(image, cascade, step), most)]
    bands: list[Scan | None] = [None] * len(tasks)

    def work(task: slice) -> None:
        i, rows, columns = tasks[task.start]
        bands[task.start] = band = _scan_band(runnable, coarse, images[i], rows, columns)
        if count is not None:
            count.add(len(band))

    for_each_block(work, len(tasks), 1, threads)
    return [
        _joined([band for (owner, *_), band in zip(tasks, bands, strict=True) if owner == i and band is not None])
        for i in range(len(images))
    ]


def _compiled_for(
    cascade: Cascade, tallest: int, widest: int, step: int, votes: Votes | None = None
) -> CompiledCascade:
    """Compile a cascade for images of at most this height and width."""
    layout = Layout.from_width(widest + SIMD_WIDTH * step + RUN, step, channels_of(cascade))
    # Kernels count in 32 bits, and every band has the integrals of a whole window.
    if 4 * min(cascade.window[0] + BAND * step, tallest) * layout.channels * layout.line > MOST_INTEGRALS:
        height, width = cascade.window
        raise ImageMemoryError(
            f"got an image of {widest} columns or more for windows of {width} x {height} and step={step}; expected a "
            "smaller image, smaller windows or a smaller step"
        )
    return compiled(cascade, layout, cascade.votes if votes is None else votes)


def _places(image: GreyImage, cascade: Cascade, step: int) -> tuple[int, int]:
    """Rows and columns of windows in an image; both 0 if it is smaller than the window."""
    rows, columns = ((side - length) // step + 1 for side, length in zip(image.shape, cascade.window, strict=True))
    return (rows, columns) if rows > 0 and columns > 0 else (0, 0)


def _most_rows(cascade: CompiledCascade) -> int:
    """Rows of windows of a band whose integrals fit; with a step above 2, they are copied once."""
    layout = cascade.layout
    line_bytes = 4 * layout.channels * layout.line * (2 if layout.step > 2 else 1)
    return (MOST_INTEGRALS // line_bytes - cascade.window[0]) // layout.step // COARSE * COARSE


def _bands(rows: int, columns: int, most: int) -> list[tuple[slice, slice]]:
    """Rows and columns of windows in bands, of which each begins at a row and at a column of a coarse pass."""
    n_rows = max(BAND, min(WINDOWS_AT_ONCE // max(min(columns, MOST_COLUMNS), 1) // COARSE * COARSE, most))
    return [(band, part) for band in blocks(rows, n_rows) for part in blocks(columns, MOST_COLUMNS)]


def _scan_band(
    cascade: CompiledCascade, coarse: CompiledCascade | None, image: GreyImage, rows: slice, columns: slice
) -> Scan:
    """Scan some rows and columns of windows; with a `coarse` cascade, only those next to a window that it accepts."""
    step, (height, width) = cascade.layout.step, cascade.window
    n_rows, n_columns = rows.stop - rows.start, columns.stop - columns.start
    candidates = None
    tested = evaluated = 0
    if coarse is not None:
        # The first row and column behind the band, too: the last ones of the band lie next to them.
        last, right = min(rows.stop, image.shape[0] - height), min(columns.stop, image.shape[1] - width)
        around = slice(rows.start // COARSE, last // COARSE + 1), slice(columns.start // COARSE, right // COARSE + 1)
        passed = _run(coarse, image, *around)
        tested, evaluated = passed.tested, passed.evaluated
        if not passed.found:
            return Scan(*_NOWHERE, n_rows * n_columns, tested, evaluated)
        candidates = np.zeros((n_rows, -(-n_columns // SIMD_WIDTH) + SPARE), np.uint8)
        mark_around(passed.places, passed.found, coarse.row_step, n_columns, candidates)
    run = _run(cascade, image, rows, columns, candidates)
    row, column = np.divmod(run.places[: run.found].astype(np.intp), cascade.row_step)
    counts = n_rows * n_columns, tested + run.tested, evaluated + run.evaluated
    return Scan((rows.start + row) * step, (columns.start + column) * step, run.scores[: run.found].copy(), *counts)


class _Run(NamedTuple):
    """What a kernel has written, and what it has counted."""

    places: NDArray[np.uint32]
    scores: NDArray[np.float64]
    found: int
    tested: int
    evaluated: int


def _run(
    cascade: CompiledCascade,
    image: GreyImage,
    rows: slice,
    columns: slice,
    candidates: NDArray[np.uint8] | None = None,
) -> _Run:
    """Scan windows in some rows and columns: all, or those with bits in `candidates` (rows, eighths and `SPARE`)."""
    step, (height, width) = cascade.layout.step, cascade.window
    down = slice(rows.start * step, (rows.stop - 1) * step + height)
    band = np.ascontiguousarray(image[down, columns.start * step : (columns.stop - 1) * step + width])
    line, channels = cascade.layout.line, cascade.layout.channels
    integrals = np.empty((len(band) + 1, channels, line), dtype=np.uint32)
    if step <= 2:
        integrate_channels(band, integrals, step)
        sums = integrals.ravel()
    else:
        integrate_channels(band, integrals, 1)
        sums = cascade.layout.arrange(integrals)
    n_rows, n_columns = rows.stop - rows.start, columns.stop - columns.start
    if candidates is None:
        candidates = np.full((n_rows, -(-n_columns // SIMD_WIDTH) + SPARE), 255, np.uint8)
    windows = Windows(n_rows, n_columns, cascade.row_step, cascade.inner, cascade.area, cascade.min_sigma)
    places, scores = np.empty(n_rows * n_columns, dtype=np.uint32), np.empty(n_rows * n_columns)
    factors, eight = np.empty(SIMD_WIDTH, dtype=np.float32), np.empty(SIMD_WIDTH)
    counts = scan_windows(sums, sums[line:], windows, candidates, cascade.learners, factors, eight, places, scores)
    return _Run(places, scores, *counts)


def _joined(bands: Sequence[Scan]) -> Scan:
    """The scan of a whole image, from those of its bands in order."""
    counts = (sum(getattr(band, name) for band in bands) for name in ("n_windows", "n_tested", "n_evaluated"))
    found = [band for band in bands if len(band)]
    if not found:
        return Scan(*_NOWHERE, *counts)
    y, x, scores = (np.concatenate([getattr(band, name) for band in found]) for name in ("y", "x", "scores"))
    if (np.diff(y) < 0).any():  # of bands beside one another
        order = np.lexsort((x, y))
        y, x, scores = y[order], x[order], scores[order]
    return Scan(y, x, scores, *counts)


def scan_pyramid(
    cascade: Cascade,
    pyramid: Pyramid,
    votes: Votes | None = None,
    *,
    spans: Mapping[float, Span] | None = None,
    threads: int | None = None,
) -> FiredWindows:
    """All windows of a pyramid that the cascade accepts, by level (largest first), y and x.

    With `votes`, their limits count instead of the cascade's own. `spans` choose the levels and the windows in them.
    """
    if spans is not None:
        return _scan_spans(cascade, pyramid, cascade.votes if votes is None else votes, spans, threads)
    scans, count = list[Scan](), WindowCount(pyramid.most_windows)
    # All levels at once, or one after the other where all of them would take too much memory.
    in_parts = any(level.is_in_parts for level in pyramid.levels)
    for levels in [[level] for level in pyramid.levels] if in_parts else [pyramid.levels]:
        images = [level.pixels for level in levels]
        scans += scan_images(cascade, images, votes=votes, step=pyramid.step, threads=threads, count=count)
    parts = zip(scans, pyramid.levels, pyramid.scales, strict=True)
    # Most levels have no window that fires: 20 us each.
    windows = [_fired(scan, level, scale, cascade.window) for scan, level, scale in parts if len(scan)]
    n_windows = sum(scan.n_tested for scan in scans)
    return replace(FiredWindows.concatenate(windows), n_windows=n_windows)


def _scan_spans(
    cascade: Cascade, pyramid: Pyramid, votes: Votes, spans: Mapping[float, Span], threads: int | None
) -> FiredWindows:
    """Windows in some spans of levels, cut out of these.

    Cuts are made wider, to as many windows in a row as are scanned at once. That costs nothing, and cuts of few widths
    are few layouts to compile a cascade for.
    """
    height, width = cascade.window
    levels = [pyramid.level(scale) for scale in spans]
    images = [
        np.ascontiguousarray(
            level.pixels[
                span.top : span.bottom + height - 1,
                span.left : span.left + width - 1 + -(-(span.right - span.left) // SIMD_WIDTH) * SIMD_WIDTH,
            ]
        )
        for level, span in zip(levels, spans.values(), strict=True)
    ]
    scans = scan_images(cascade, images, votes=votes, threads=threads)
    parts = []
    for (scale, span), level, scan in zip(spans.items(), levels, scans, strict=True):
        asked = scan.x < span.right - span.left
        y, x = scan.y[asked] + span.top, scan.x[asked] + span.left
        index = WindowIndex(np.full(len(y), scale), y, x)
        parts.append(FiredWindows(index, level.boxes(y, x, cascade.window), scan.scores[asked], scan.n_tested))
    return FiredWindows.concatenate(parts)


def looked_at(cascade: Cascade, pyramid: Pyramid, index: WindowIndex) -> NDArray[np.bool_]:
    """Which windows (n,) a scan looks at: all, or those next to one of the grid that the coarse stages accept."""
    if cascade.coarse is None or pyramid.step != 1 or not len(index):
        return np.ones(len(index), np.bool_)
    shapes = np.array([pyramid.level(scale).shape for scale in index.scale.tolist()], np.intp)
    last = shapes - np.array(cascade.window)
    near = np.zeros(len(index), np.bool_)
    for y in _on_grid(index.y, last[:, 0]):
        for x in _on_grid(index.x, last[:, 1]):
            on_grid = WindowIndex(index.scale, y, x)
            for rows in windows_at_once(cascade, len(index)):
                near[rows] |= cascade.coarse.accepts(pyramid.patches(on_grid.take(rows)))
    return near


def windows_at_once(cascade: Cascade, n: int) -> list[slice]:
    """So many windows in parts whose patches, integral images and responses fit into `MOST_PATCHES` bytes."""
    height, width = cascade.window
    return blocks(n, max(MOST_PATCHES // (16 * height * width + 2 * cascade.n_weak), 1))


def is_on_grid(index: WindowIndex) -> NDArray[np.bool_]:
    """Which windows (n,) a coarse pass looks at itself."""
    return np.asarray((index.y % COARSE == 0) & (index.x % COARSE == 0))


def _on_grid(places: NDArray[np.intp], last: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The places (n,) of the coarse grid before and after each; the same one twice where there is none after it."""
    before, after = places - places % COARSE, places + places % COARSE
    return before, np.where(after <= last, after, before)


def _fired(scan: Scan, level: Level, scale: float, window: tuple[int, int]) -> FiredWindows:
    """The accepted windows of one level."""
    index = WindowIndex(np.full(len(scan), scale), scan.y, scan.x)
    return FiredWindows(index, level.boxes(scan.y, scan.x, window), scan.scores, scan.n_tested)
