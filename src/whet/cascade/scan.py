"""A cascade over every window of images, in threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet._kernels.images import RUN, integrate_channels
from whet._kernels.jit import SIMD_WIDTH
from whet._kernels.scan import (
    ENDS,
    FLAGS,
    JOINS,
    N_CORNERS,
    OPENS,
    SCORES,
    SPARE,
    THRESHOLD,
    FlatLearners,
    mark_around,
    scan_windows,
)
from whet._kernels.scan import WEIGHTS as FIRST_WEIGHT
from whet._kernels.threads import blocks, for_each_block
from whet._kernels.windows import NODE, SUBSET, Windows
from whet.cascade.cascade import Cascade
from whet.cascade.detections import FiredWindows
from whet.cascade.pyramid import Level, Pyramid, WindowIndex
from whet.cascade.stage import Stage
from whet.features.families import weak_type
from whet.features.integral import ScannedFamily
from whet.features.weak_learners import Stumps, Subsets, conditions_of

Int32s = NDArray[np.int32]

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


def compiled(cascade: Cascade, layout: Layout, reject: bool = True) -> CompiledCascade:
    """Flatten a cascade for integral images of a layout; without `reject`, no stage rejects a window."""
    height, width = cascade.window
    y, x = np.array([1, 1, height - 1, height - 1]), np.array([1, width - 1, 1, width - 1])
    inner = layout.offset(y, x).astype(np.int32)
    learners = _learners(cascade.stages, cascade.first_scoring, layout, reject)
    return CompiledCascade(cascade.window, float(cascade.min_sigma), layout, learners, inner)


# Frames of a video have one size: 1,400 weak learners take a millisecond. Corrections of false positives leave the
# stages as they are.
@lru_cache(maxsize=8)
def _learners(stages: tuple[Stage, ...], first_scoring: int, layout: Layout, reject: bool) -> FlatLearners:
    *before, last = (0.0, *(stage.threshold for stage in stages))
    parts = [
        _stage_rows(stage, threshold_before, number == first_scoring, layout, reject)
        for number, (stage, threshold_before) in enumerate(zip(stages, before, strict=True))
    ]
    rows, reals = (np.concatenate(part) for part in zip(*parts, strict=True))
    return FlatLearners(rows, reals, float(last))


def channels_of(cascade: Cascade) -> int:
    """How many integral images the cascade looks at: sums and squares, and tilted sums for tilted features."""
    return max(conditions_of(stage.features, stage.weak)[0].channels for stage in cascade.stages)


def _stage_rows(
    stage: Stage, threshold_before: float, scores_begin: bool, layout: Layout, reject: bool
) -> tuple[Int32s, NDArray[np.float64]]:
    """The rows of a stage's learners."""
    features, weak, first = conditions_of(stage.features, stage.weak)
    n, last = len(weak), first[1:] - 1
    coef, rejection_thresholds, joins, ends = (
        np.ones(n),
        np.full(n, -np.inf),
        np.ones(n, np.bool_),
        np.zeros(n, np.bool_),
    )
    coef[last], joins[last], ends[last] = stage.coef, False, np.diff(first) > 1
    if reject and stage.rejection_thresholds is not None:
        rejection_thresholds[last] = stage.rejection_thresholds
    if reject:
        rejection_thresholds[-1] = max(rejection_thresholds[-1], stage.threshold)
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
    return rows, np.stack([above, below, rejection_thresholds, before], axis=1)


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
# Rows of windows of a band at least, a multiple of `COARSE`; narrow images have more, up to so many windows. A band is
# integrated on its own, window height included: with windows of 24 that is a quarter of the integrals twice, and the
# integrals of 640 columns, 600 KB, never leave the second-level cache.
BAND = 96
WINDOWS_AT_ONCE = 1 << 16


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


def scan(cascade: Cascade, image: GreyImage, *, step: int = 1, threads: int | None = None) -> Scan:
    """Run a cascade on the windows of an image (height, width), at every `step`-th row and column.

    Accepts the same windows as `cascade.accepts` does, with the same scores. Windows of too little contrast are
    skipped; `n_evaluated` counts the weak learners, or conditions of leaves, that the others needed until they
    were rejected.

    >>> from whet.features.haar import HaarKind, HaarPool
    >>> from whet.features.weak_learners import Stumps
    >>> from whet.cascade.stage import Stage
    >>> pool = HaarPool.from_window((4, 4), [HaarKind.X2])  # the last one: dark on the left, bright on the right
    >>> edge = Stumps(*(np.array([v]) for v in (len(pool) - 1, np.float32(3.9), np.int8(1), 0.0)))
    >>> cascade = Cascade((4, 4), (Stage(pool.take(edge.feature), edge, np.array([2.0]), threshold=0.5),))
    >>> image = np.repeat(np.uint8([[0, 0, 0, 99, 99, 99]]), 5, axis=0)
    >>> found = scan(cascade, image)
    >>> found.y, found.x, found.scores
    (array([0, 1]), array([1, 1]), array([1.5, 1.5]))
    """
    return scan_images(cascade, [image], step=step, threads=threads)[0]


def scan_images(
    cascade: Cascade,
    images: Sequence[GreyImage],
    *,
    step: int = 1,
    reject: bool = True,
    threads: int | None = None,
) -> list[Scan]:
    """Scan several images, such as the levels of a pyramid. The result does not depend on `threads`.

    The stages alone decide: corrections are applied by `scan_pyramid`. With `reject=False`, all windows with contrast
    are accepted and have their scores. A cascade with `coarse_stages` is scanned in two passes at step 1: these stages
    on every second row and column, and `stages` on the windows that they accept there and on the eight next to each.
    """
    if step < 1:
        raise ValueError(f"got step={step}; windows are at least 1 pixel apart")
    # A step beyond the image has one window, as one as long as the image has.
    step = min(step, max((max(image.shape) for image in images), default=1) or 1)
    widest = max((image.shape[1] for image in images), default=0)
    coarse = _compiled_for(cascade.coarse, widest, COARSE) if reject and step == 1 and cascade.coarse else None
    runnable = _compiled_for(cascade if coarse is None else cascade.around, widest, step, reject)
    tasks = [(i, rows) for i, image in enumerate(images) for rows in _bands(*_places(image, cascade, step))]
    bands: list[Scan | None] = [None] * len(tasks)

    def work(task: slice) -> None:
        i, rows = tasks[task.start]
        bands[task.start] = _scan_band(runnable, coarse, images[i], rows)

    for_each_block(work, len(tasks), 1, threads)
    return [
        _joined([band for (owner, _), band in zip(tasks, bands, strict=True) if owner == i and band is not None])
        for i in range(len(images))
    ]


def _compiled_for(cascade: Cascade, widest: int, step: int, reject: bool = True) -> CompiledCascade:
    """Compile a cascade for images of at most this width."""
    layout = Layout.from_width(widest + SIMD_WIDTH * step + RUN, step, channels_of(cascade))
    if cascade.window[0] * layout.channels * layout.line > np.iinfo(np.int32).max:  # kernels count in 32 bits
        raise ValueError(f"got an image of {widest} columns and step={step}; expected fewer columns, or a smaller step")
    return compiled(cascade, layout, reject)


def _places(image: GreyImage, cascade: Cascade, step: int) -> tuple[int, int]:
    """Rows and columns of windows in an image; both 0 if it is smaller than the window."""
    rows, columns = ((side - length) // step + 1 for side, length in zip(image.shape, cascade.window, strict=True))
    return (rows, columns) if rows > 0 and columns > 0 else (0, 0)


def _bands(rows: int, columns: int) -> list[slice]:
    """Rows of windows in bands, of which each begins at a row of a coarse pass."""
    return blocks(rows, max(BAND, WINDOWS_AT_ONCE // max(columns, 1) // COARSE * COARSE))


def _scan_band(cascade: CompiledCascade, coarse: CompiledCascade | None, image: GreyImage, rows: slice) -> Scan:
    """Scan some rows of windows; with a `coarse` cascade, only those next to a window that it accepts."""
    step, (height, width) = cascade.layout.step, cascade.window
    n, columns = rows.stop - rows.start, (image.shape[1] - width) // step + 1
    candidates = None
    tested = evaluated = 0
    if coarse is not None:
        # The first row below the band, too: the last one of the band lies next to it.
        last = min(rows.stop, image.shape[0] - height)
        passed = _run(coarse, image, slice(rows.start // COARSE, last // COARSE + 1))
        tested, evaluated = passed.tested, passed.evaluated
        if not passed.found:
            return Scan(*_NOWHERE, n * columns, tested, evaluated)
        candidates = np.zeros((n, -(-columns // SIMD_WIDTH) + SPARE), np.uint8)
        mark_around(passed.places, passed.found, coarse.row_step, columns, candidates)
    run = _run(cascade, image, rows, candidates)
    row, column = np.divmod(run.places[: run.found].astype(np.intp), cascade.row_step)
    counts = n * columns, tested + run.tested, evaluated + run.evaluated
    return Scan((rows.start + row) * step, column * step, run.scores[: run.found].copy(), *counts)


class _Run(NamedTuple):
    """What a kernel has written, and what it has counted."""

    places: NDArray[np.uint32]
    scores: NDArray[np.float64]
    found: int
    tested: int
    evaluated: int


def _run(cascade: CompiledCascade, image: GreyImage, rows: slice, candidates: NDArray[np.uint8] | None = None) -> _Run:
    """Scan some rows of windows: all, or those whose bits are set in `candidates` (rows, eighths and `SPARE`)."""
    step, (height, width) = cascade.layout.step, cascade.window
    band = np.ascontiguousarray(image[rows.start * step : (rows.stop - 1) * step + height])
    line, channels = cascade.layout.line, cascade.layout.channels
    integrals = np.empty((len(band) + 1, channels, line), dtype=np.uint32)
    if step <= 2:
        integrate_channels(band, integrals, step)
        sums = integrals.ravel()
    else:
        integrate_channels(band, integrals, 1)
        sums = cascade.layout.arrange(integrals)
    n, columns = rows.stop - rows.start, (image.shape[1] - width) // step + 1
    if candidates is None:
        candidates = np.full((n, -(-columns // SIMD_WIDTH) + SPARE), 255, np.uint8)
    windows = Windows(n, columns, cascade.row_step, cascade.inner, cascade.area, cascade.min_sigma)
    places, scores = np.empty(n * columns, dtype=np.uint32), np.empty(n * columns)
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
    return Scan(y, x, scores, *counts)


def scan_pyramid(cascade: Cascade, pyramid: Pyramid, *, threads: int | None = None) -> FiredWindows:
    """All windows of a pyramid that the cascade accepts, by level (largest first), y and x."""
    if cascade.uses_channels:
        from whet.cascade.channel_scan import scan_channels

        windows = scan_channels(cascade.scanned, pyramid, threads=threads).fired
        return windows if cascade.neighbours is None else _judged(cascade, pyramid, windows, threads)
    images = [level.image for level in pyramid.levels]
    scans = scan_images(cascade.scanned, images, step=pyramid.step, threads=threads)
    windows = FiredWindows.concatenate(
        [
            fired(scan, level, scale, cascade.window)
            for scan, level, scale in zip(scans, pyramid.levels, pyramid.scales, strict=True)
            if len(scan)  # most levels have none: 20 us each
        ]
    )
    return windows if cascade.neighbours is None else _judged(cascade, pyramid, windows, threads)


def _judged(cascade: Cascade, pyramid: Pyramid, windows: FiredWindows, threads: int | None) -> FiredWindows:
    """Those of the windows that stages and neighbours accept, with their scores."""
    responses = cascade.responses(pyramid, windows.index)
    scores = cascade.corrected(responses, stage_scores(cascade, pyramid, windows.index, responses), threads)
    accepted = scores > -np.inf
    return replace(windows.take(accepted), scores=scores[accepted])


def stage_scores(
    cascade: Cascade, pyramid: Pyramid, index: WindowIndex, responses: NDArray[np.uint8]
) -> NDArray[np.float64]:
    """Scores (n,) in the stages of windows with these responses (n, n_weak); -inf if the coarse pass leaves them out.

    These are what a scan without corrections gives.
    """
    scores = cascade.stage_scores(responses)
    passed = np.flatnonzero(scores > -np.inf)
    scores[passed[~looked_at(cascade, pyramid, index.take(passed))]] = -np.inf
    return scores


def looked_at(cascade: Cascade, pyramid: Pyramid, index: WindowIndex) -> NDArray[np.bool_]:
    """Which windows (n,) a scan looks at: all, or those next to one of the grid that the coarse stages accept."""
    if cascade.coarse is None or pyramid.step != 1 or not len(index):
        return np.ones(len(index), np.bool_)
    shapes = np.array([pyramid.level(scale).shape for scale in index.scale.tolist()], np.intp)
    last = shapes - np.array(cascade.window)
    near = np.zeros(len(index), np.bool_)
    for y in _on_grid(index.y, last[:, 0]):
        for x in _on_grid(index.x, last[:, 1]):
            near |= cascade.coarse.accepts(pyramid.patches(WindowIndex(index.scale, y, x)))
    return near


def is_on_grid(index: WindowIndex) -> NDArray[np.bool_]:
    """Which windows (n,) a coarse pass looks at itself."""
    return np.asarray((index.y % COARSE == 0) & (index.x % COARSE == 0))


def _on_grid(places: NDArray[np.intp], last: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The places (n,) of the coarse grid before and after each; the same one twice where there is none after it."""
    before, after = places - places % COARSE, places + places % COARSE
    return before, np.where(after <= last, after, before)


def fired(scan: Scan, level: Level, scale: float, window: tuple[int, int]) -> FiredWindows:
    """The accepted windows of one level."""
    index = WindowIndex(np.full(len(scan), scale), scan.y, scan.x)
    return FiredWindows(index, level.boxes(scan.y, scan.x, window), scan.scores)
