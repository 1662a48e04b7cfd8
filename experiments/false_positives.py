"""False positives of a growing cascade, for stage after stage of its training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.face_samples import WINDOW
from whet._kernels.threads import for_each_block
from whet.cascade.cascade import Cascade, LearningStage, Stage
from whet.detector.records import AT_ONCE
from whet.training.mining import Miner

STEP = 2  # between windows: a quarter of them, and still more than a stage can use but for the last ones
KEEP_BELOW = 1e-3  # acceptance rate from which on false positives are kept
KEPT_PER_IMAGE = 200

Patches = NDArray[np.uint8]


def cascade_of(stages: Sequence[LearningStage]) -> Cascade:
    """The cascade of some stages as they were trained."""
    return Cascade(WINDOW, tuple(stage.stage() for stage in stages))


class FalsePositives:
    """Negatives for stage after stage: scans images, and from a low acceptance rate on keeps what was left.

    A late stage would need all images scanned to find what the stage before it had found already, less what its own
    last stage refuses. So one pass keeps all that is accepted, up to `KEPT_PER_IMAGE`, and later stages sieve it.
    """

    def __init__(self, images: Sequence[Path], seed: int) -> None:
        self.images, self.seed = images, seed
        self._miner = Miner(images, WINDOW, seed, step=STEP)
        self._kept: Patches | None = None
        self._rate = 1.0

    def of(self, cascade: Cascade, n: int) -> Patches:
        """Up to `n` windows that the cascade accepts; it has one stage more than the last time."""
        turn = len(cascade.stages)
        if self._rate > KEEP_BELOW:
            mined = self._miner.mine(cascade, n, turn)
            self._rate = mined.acceptance_rate
            return mined.patches
        if self._kept is None:
            most = KEPT_PER_IMAGE * len(self.images)
            miner = Miner(self.images, WINDOW, self.seed, step=STEP, max_per_image=KEPT_PER_IMAGE)
            self._kept = miner.mine(cascade, most, turn).patches
        else:
            self._kept = self._kept[accepted(cascade.stages[-1], self._kept)]
        chosen = np.random.default_rng([self.seed, turn]).permutation(len(self._kept))[:n]
        return self._kept[chosen]


def accepted(stage: Stage, patches: Patches) -> NDArray[np.bool_]:
    """Which patches (n,) pass a stage, block by block."""
    passed = np.empty(len(patches), dtype=np.bool_)

    def work(rows: slice) -> None:
        passed[rows] = stage.accepts(patches[rows])

    for_each_block(work, len(patches), AT_ONCE)
    return passed
