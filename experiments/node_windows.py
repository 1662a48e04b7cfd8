"""The windows of an image that a single classifier scores highest, without early exits that could lose one.

A cascade drops most windows early and scores what is left. A single node scores every window, and the best one of a
image is asked for. Once some window is known to score s, others can be left as soon as even the sum of all
positive weights to come would not lift them above s: fewer than a quarter of the weak learners are then evaluated, and
no better window is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from whet._kernels.windows import OPENCV_MIN_SIGMA
from whet.cascade.cascade import Cascade, Stage
from whet.cascade.detect import windows_of_levels
from whet.cascade.detections import FiredWindows
from whet.cascade.pyramid import SCALE_FACTOR, Level, level_scales, levels_at

GreyImage = NDArray[np.uint8]
Patches = NDArray[np.uint8]

# WeakLearners learners between two looks at what can be left: a look costs about as much as a learner.
LOOK_EVERY = 8


@dataclass(frozen=True, eq=False)
class Levels:
    """An image's pyramid, made once for several scans."""

    window: tuple[int, int]
    scales: tuple[float, ...]
    levels: tuple[Level, ...]

    @classmethod
    def from_image(
        cls,
        image: GreyImage,
        window: tuple[int, int],
        scale_factor: float = SCALE_FACTOR,
        *,
        min_size: float | None = None,
        threads: int | None = None,
    ) -> Levels:
        """All levels of a grey image (height, width) that hold a window, or those for objects from a size on."""
        scales = level_scales(image.shape, window, scale_factor, min_size)
        return cls(window, tuple(scales), tuple(levels_at(image, scales, threads)))

    def patch(self, scale: float, y: int, x: int) -> Patches:
        """The window (1, height, width) at a place."""
        height, width = self.window
        return self.levels[self.scales.index(scale)].image[None, y : y + height, x : x + width]


def node_windows(
    stage: Stage,
    levels: Levels,
    above: float,
    *,
    step: int = 1,
    min_sigma: float = OPENCV_MIN_SIGMA,
    threads: int | None = None,
) -> FiredWindows:
    """All windows whose margin in a stage is above `above`, with these margins; exits of the stage are not used."""
    threshold = stage.threshold + above
    cascade = Cascade(
        levels.window,
        (replace(stage, threshold=threshold, rejection_thresholds=safe_exits(stage, threshold)),),
        min_sigma,
    )
    found = windows_of_levels(cascade, levels.levels, levels.scales, step=step, threads=threads)
    return replace(found, scores=found.scores + above)


def best_window(
    stage: Stage,
    levels: Levels,
    known: Sequence[tuple[float, int, int]] = (),
    *,
    step: int = 1,
    min_sigma: float = OPENCV_MIN_SIGMA,
    threads: int | None = None,
) -> FiredWindows:
    """The window of the highest margin: exactly one, or none where no window has contrast. Of equals, the first.

    `known` are places (scale, y, x) worth a look first, such as the best of the frame before: the better they are,
    the faster the scan. They have to be on the levels and on the step; what is found does not depend on them.
    """
    least = -float(np.abs(stage.coef).sum()) - abs(stage.threshold) - 1.0
    patches = [levels.patch(*place) for place in known if place[0] in levels.scales]
    if patches:
        scores = Cascade(
            levels.window, (replace(stage, threshold=least, rejection_thresholds=None),), min_sigma
        ).scores(np.concatenate(patches))
        best = float(scores.max())
        if np.isfinite(best):
            # A little below: the known window itself has to be found again.
            least = best + least - stage.threshold
            least -= 1e-9 * (1 + abs(least))
    found = node_windows(stage, levels, least, step=step, min_sigma=min_sigma, threads=threads)
    return _first_of(found)


def safe_exits(stage: Stage, threshold: float) -> NDArray[np.float64]:
    """Partial sums (T,) from which not even all further positive weights lead above a threshold."""
    to_come = np.append(np.cumsum(np.maximum(stage.coef, 0.0)[::-1])[::-1][1:], 0.0)
    rejection_thresholds = threshold - to_come - 1e-9 * (1 + abs(threshold))  # sums are rounded on the way
    has_contrast = np.arange(1, len(stage) + 1) % LOOK_EVERY == 0
    return np.where(has_contrast, rejection_thresholds, -np.inf)


def _first_of(found: FiredWindows) -> FiredWindows:
    if not len(found):
        return found
    i = int(np.argmax(found.scores))
    one = slice(i, i + 1)
    return FiredWindows(found.scale[one], found.y[one], found.x[one], found.boxes[one], found.scores[one])
