"""Rejection thresholds of a finished cascade: most windows need only the weak learners that reject them.

They are chosen by variations of objects, as a worse camera would see them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from whet.images.pyramid import Pixels, resized
from whet.lda.thresholds import Rate, RejectionThresholds
from whet.models.gslda.cascade import Cascade
from whet.models.gslda.integral import IntegralStack
from whet.models.gslda.stage import AT_ONCE, LearningStage, TrainedStage

Patches = NDArray[np.uint8]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Variations:
    """Random shift, scale, rotation, blur and noise of windows around a box.

    `shift`, `scale` and `angle` are standard deviations: in sides of the box, in the logarithm of its size, and in
    degrees. `noise`, in standard deviations of the window, and `blur`, in window pixels, are upper bounds of uniform
    distributions.

    >>> image = np.tile(np.arange(60, dtype=np.uint8) * 4, (60, 1))
    >>> windows = Variations().cut(image, (15, 15, 45, 45), (24, 24), 4, np.random.default_rng(0))
    >>> windows.shape, windows.dtype
    ((4, 24, 24), dtype('uint8'))
    """

    shift: float = 0.02
    scale: float = 0.05
    angle: float = 7.0
    noise: float = 0.4
    blur: float = 1.0
    mirror: bool = True

    def __post_init__(self) -> None:
        spreads = (self.shift, self.scale, self.angle, self.noise, self.blur)
        if not (np.isfinite(spreads).all() and min(spreads) >= 0):
            raise ValueError(f"got {self}; expected finite numbers of at least 0")

    def cut(
        self, image: Pixels, box: Sequence[float], window: tuple[int, int], n: int, rng: np.random.Generator
    ) -> Pixels:
        """Windows (n, height, width) of a grey image around a box x1, y1, x2, y2."""
        height, width = image.shape
        x1, y1, x2, y2 = map(float, box)
        if not (0 <= x1 < x2 <= width and 0 <= y1 < y2 <= height):
            raise ValueError(f"got the box {list(box)} in an image of {width} x {height}; expected one inside it")
        return np.array([self._cut(image, (x1, y1, x2, y2), window, rng) for _ in range(n)], dtype=np.uint8)

    def _cut(
        self, image: Pixels, box: tuple[float, float, float, float], window: tuple[int, int], rng: np.random.Generator
    ) -> Pixels:
        from PIL import Image

        x1, y1, x2, y2 = box
        if self.mirror and rng.random() < 0.5:
            image, x1, x2 = image[:, ::-1], image.shape[1] - x2, image.shape[1] - x1
        sides = np.array([x2 - x1, y2 - y1])
        centre = np.array([x1 + x2, y1 + y2]) / 2 + rng.normal(0, self.shift, 2) * sides
        sides = sides * np.exp(rng.normal(0, self.scale))
        turned = Image.fromarray(image).rotate(
            rng.normal(0, self.angle), Image.Resampling.BILINEAR, center=(float(centre[0]), float(centre[1]))
        )
        room = np.array(turned.size)
        size = np.clip(sides.round().astype(int), 1, room)
        x, y = np.clip((centre - size / 2).round().astype(int), 0, room - size).tolist()
        cut = np.ascontiguousarray(np.asarray(turned)[y : y + size[1], x : x + size[0]])
        return self.grained(resized(cut, window), rng)

    def grained(self, patch: Pixels, rng: np.random.Generator) -> Pixels:
        """A window (height, width) with blur and noise, as from a worse camera."""
        from scipy.ndimage import gaussian_filter

        soft = gaussian_filter(patch.astype(np.float64), rng.uniform(0, self.blur))
        grain = rng.normal(0, rng.uniform(0, self.noise) * soft.std(), soft.shape)
        return np.asarray((soft + grain).clip(0, 255).round().astype(np.uint8))


# The share of the accepted positives that the thresholds of a stage give up, and the share of new ones that may fail.
GIVEN_UP = 0.001
LOSS = 0.002
# What a scan sees of an object between two places, scales and angles, and through a worse camera.
VARIED = Variations(shift=0.03, scale=0.06, angle=7.0, noise=0.4, blur=1.0, mirror=False)
# Variations to aim for, and the most of one positive: the lowest partial sums are those of few samples.
WANTED = 8000
MOST_COPIES = 8
# Pixels around a patch, as a share of its side, for windows that are moved, larger or turned.
RIM = 0.25


def pruned(
    stages: Sequence[TrainedStage],
    positives: Patches,
    min_sigma: float,
    *,
    given_up: float = GIVEN_UP,
    loss: float = LOSS,
    seed: int = 0,
) -> tuple[TrainedStage, ...]:
    """Stages whose rejection thresholds keep what the whole cascade accepts; `positives` are (n, height, width).

    A stage alone has to keep every positive that it accepts. Those that a later stage rejects are lost anyway, so only
    variations of the positives that pass all stages count here, as in the pruning of Zhang and Viola (2007). The share
    `given_up` of these would keep thresholds low for all others. The rest has the slack of
    `RejectionThresholds.calibrated` with this `loss`. No threshold becomes lower, nor does that of a stage. Stages that
    count for the score, those without rejection thresholds, and those with fixed weights stay as they are.
    """
    window = stages[0].features.window
    cascade = Cascade(window, tuple(stage.run() for stage in stages), min_sigma)
    patches = varied(positives, window, seed)
    blocks = [patches[start : start + AT_ONCE] for start in range(0, len(patches), AT_ONCE)]
    accepted = np.concatenate([cascade.accepts(block) for block in blocks])
    early = [_pruned(stage, blocks, accepted, given_up, loss) for stage in stages[: cascade.first_scoring]]
    return *early, *stages[cascade.first_scoring :]


def varied(positives: Patches, window: tuple[int, int], seed: int = 0) -> Patches:
    """Variations (m, height, width) of positives (n, height, width), those of one after those of another.

    >>> varied(np.zeros((3, 12, 10), np.uint8), (12, 10)).shape
    (24, 12, 10)
    """
    (height, width), rng = window, np.random.default_rng([seed, 3])
    copies = min(max(-(-WANTED // len(positives)), 1), MOST_COPIES)
    rim = max(round(RIM * max(window)), 1)
    box = rim, rim, rim + width, rim + height
    return np.concatenate(
        [VARIED.cut(np.pad(patch, rim, mode="edge"), box, window, copies, rng) for patch in positives]
    )


def _pruned(
    stage: TrainedStage, blocks: Sequence[Patches], accepted: Bools, given_up: float, loss: float
) -> TrainedStage:
    if not isinstance(stage, LearningStage) or stage.rejection is None:
        return stage
    sums = np.concatenate([stage.run().partial_sums(IntegralStack.from_patches(block)) for block in blocks], axis=1)
    kept = accepted.copy()
    kept[accepted] = worth_keeping(sums[:, accepted], given_up)
    tight = RejectionThresholds.calibrated(sums[:, kept], sums[:, ~kept], stage.discriminant(), loss, with_last=True).z
    rule = Rate(max(stage.rule.z, float(tight[-1]))) if isinstance(stage.rule, Rate) else stage.rule
    tight[-1] = -np.inf
    return replace(stage, rule=rule, rejection=RejectionThresholds(np.maximum(stage.rejection.z, tight)))


def worth_keeping(sums: NDArray[np.float64], given_up: float) -> Bools:
    """All but a share of the samples (n,), by their partial sums (T, n): the lowest are given up, early ones first.

    After t of T weak learners, sqrt(t / T) of the share are gone, the ejection schedule of Bourdev and Brandt (2005):
    what is rejected early saves most. Samples with equal sums are kept or given up together.

    >>> worth_keeping(np.array([[0.0, 2.0, 1.0, 2.0], [3.0, 0.0, 4.0, 4.0]]), 0.5)
    array([False, False,  True,  True])
    """
    T, n = sums.shape
    kept = np.ones(n, np.bool_)
    for t in range(T):
        more = int(given_up * n * sqrt((t + 1) / T)) - int((~kept).sum())
        if more > 0:
            kept &= sums[t] >= np.partition(sums[t, kept], more)[more]
    return kept
