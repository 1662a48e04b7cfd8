"""A cascade as flat arrays, for integral images of one layout."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet._kernels.scan import ENDS, FLAGS, JOINS, N_CORNERS, OPENS, REJECTS, THRESHOLD, FlatLearners
from whet._kernels.scan import WEIGHTS as FIRST_WEIGHT
from whet._kernels.windows import NODE, SUBSET
from whet.cascade.cascade import Cascade, Stage
from whet.features.haar import HaarPool
from whet.features.integral import FeatureFamily
from whet.features.lbp import BlockPatternPool
from whet.features.rectangles import RectanglePool
from whet.features.weak_learners import Stumps, Subsets, conditions_of

Int32s = NDArray[np.int32]

# A pattern has 4 x 4 corners, a Haar feature up to 9, three rectangles 12.
CORNERS = 16
WEIGHTS = 12
# The third channel of the integral images.
TILTED = 2


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


@lru_cache(maxsize=8)  # frames of a video have one size: 1,400 weak learners take a millisecond to compile
def compiled(cascade: Cascade, layout: Layout, reject: bool = True) -> CompiledCascade:
    """Flatten a cascade for integral images of a layout; without `reject`, no stage rejects a window."""
    height, width = cascade.window
    y, x = np.array([1, 1, height - 1, height - 1]), np.array([1, width - 1, 1, width - 1])
    inner = layout.offset(y, x).astype(np.int32)
    *before, last = (0.0, *(stage.threshold for stage in cascade.stages))
    stages = [
        _stage_rows(stage, threshold_before, number == cascade.first_scoring, layout, reject)
        for number, (stage, threshold_before) in enumerate(zip(cascade.stages, before, strict=True))
    ]
    rows, reals = (np.concatenate(parts) for parts in zip(*stages, strict=True))
    learners = FlatLearners(rows, reals, float(last))
    return CompiledCascade(cascade.window, float(cascade.min_sigma), layout, learners, inner)


def channels_of(cascade: Cascade) -> int:
    """How many integral images the cascade looks at: sums and squares, and tilted sums for tilted features."""
    pools = [conditions_of(stage.features, stage.weak)[0] for stage in cascade.stages]
    return 3 if any(isinstance(pool, RectanglePool) and pool.tilted.any() for pool in pools) else 2


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
    corners, weights = _corners(features, weak, layout)
    rows[:, :CORNERS] = corners
    if isinstance(weak, Subsets):
        above, below = coef, np.zeros(n)
        rows[:, SUBSET : SUBSET + 8] = np.ascontiguousarray(weak.subset).view(np.int32)
    else:
        flipped = weak.polarity < 0
        above, below = np.where(flipped, 0.0, coef), np.where(flipped, coef, 0.0)
        rows[:, FIRST_WEIGHT : FIRST_WEIGHT + WEIGHTS] = weights
        rows[:, THRESHOLD] = weak.threshold.view(np.int32)
        used = WEIGHTS - np.argmax(weights[:, ::-1] != 0, axis=1)
        rows[:, N_CORNERS] = np.where((weights != 0).any(axis=1), -(-used // 3) * 3, 3)
    rows[0, OPENS], rows[:, FLAGS] = (
        1 + scores_begin,
        REJECTS * (rejection_thresholds > -np.inf) + JOINS * joins + ENDS * ends,
    )
    before = np.where(np.arange(n) == 0, threshold_before, 0.0)
    return rows, np.stack([above, below, rejection_thresholds, before], axis=1)


def _corners(features: FeatureFamily, weak: Stumps | Subsets, layout: Layout) -> tuple[Int32s, Int32s]:
    """Corners (T, 16) in the layout and weights (T, 12), unused ones zero."""
    n, channel = len(weak), np.zeros(len(weak), dtype=np.int32)
    corners, weights = np.zeros((n, CORNERS), dtype=np.int32), np.zeros((n, WEIGHTS), dtype=np.int32)
    match features, weak:
        case HaarPool() as pool, Stumps():
            pixels, few = pool.corners()
            weights[:, : few.shape[1]] = few
        case RectanglePool() as pool, Stumps():
            y, x, weights = pool.merged_corners
            pixels = y * np.int32(pool.window[1] + 1) + x
            channel[pool.tilted] = TILTED
        case BlockPatternPool() as pool, Subsets():
            pixels = pool.corners().reshape(n, CORNERS)
        case family, other:
            raise TypeError(f"no scan for {type(other).__name__} on {type(family).__name__}")
    y, x = np.divmod(pixels, features.window[1] + 1)
    corners[:, : pixels.shape[1]] = layout.offset(y, x, channel[:, None])
    return corners, weights
