"""Rejection thresholds of a finished cascade: most windows need only the weak learners that reject them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from whet.cascade.cascade import Cascade
from whet.cascade.stage import AT_ONCE, LearningStage, TrainedStage
from whet.features.integral import IntegralStack
from whet.lda.thresholds import Rate, RejectionThresholds
from whet.training.positives import Variations

Patches = NDArray[np.uint8]
Bools = NDArray[np.bool_]

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
