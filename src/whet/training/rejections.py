"""What each stage of a cascade rejects, counted on windows of pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.features.integral import IntegralStack
from whet.features.parallel import map_in_order
from whet.model.cascade import Cascade
from whet.training.windows import windows_of_pictures

AT_ONCE = 2000


def rejected_by_stage(
    cascade: Cascade, pictures: Sequence[Path], n: int = 20_000, seed: int = 0, threads: int | None = None
) -> list[int]:
    """Of `n` random windows of pictures, how many are too flat to be looked at, and how many each stage rejects.

    The first number is that of flat windows; then one for each stage, of what the stages before let through. What is
    left of `n` passes the whole cascade.
    """
    windows = windows_of_pictures(pictures, n, cascade.window, np.random.default_rng(seed))

    def count(start: int) -> NDArray[np.int64]:
        counts = np.zeros(1 + len(cascade.stages), np.int64)
        left = windows[start : start + AT_ONCE]
        looked_at = IntegralStack.of(left, cascade.min_sigma).looked_at
        counts[0] += len(left) - int(looked_at.sum())
        left = left[looked_at]
        for number, stage in enumerate(cascade.stages, start=1):
            passed = stage.accepts(left)
            counts[number] += len(left) - int(passed.sum())
            left = left[passed]
        return counts

    every = np.sum(list(map_in_order(count, range(0, n, AT_ONCE), threads)), axis=0)
    return [int(each) for each in every]
