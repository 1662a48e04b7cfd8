"""A cascade: a window that is the object passes all stages, and most others fail an early one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whet._kernels.windows import OPENCV_MIN_SIGMA
from whet.cascade.stage import Bools, Floats, Patches, Stage
from whet.features.integral import IntegralStack, check_window

# Sums of squares of a window are differences modulo 2^32: exact below 66,051 pixels of 255.
MOST_PIXELS = 2**32 // 255**2


@dataclass(frozen=True, eq=False)
class Cascade:
    """Stages on windows (height, width), and the standard deviation below which a window is not looked at.

    The methods here are the specification in plain NumPy, on patches; `whet.cascade` gives the same answers, to
    the last bit, for the windows of an image.

    >>> from whet.features.haar import HaarKind, HaarPool
    >>> from whet.features.weak_learners import Stumps
    >>> pool = HaarPool.from_window((4, 4), [HaarKind.X2])
    >>> right = Stumps(*(np.array([v]) for v in (len(pool) - 1, np.float32(1.0), np.int8(1), 0.0)))
    >>> stage = Stage(pool.take(right.feature), right, coef=np.array([2.0]), threshold=0.5)
    >>> patch = np.repeat(np.array([[[0, 0, 99, 99]]], dtype=np.uint8), 4, axis=1)
    >>> Cascade((4, 4), (stage,)).scores(np.concatenate([patch, patch[..., ::-1], patch // 99]))
    array([ 1.5, -inf, -inf])
    """

    window: tuple[int, int]
    stages: tuple[Stage, ...]
    min_sigma: float = OPENCV_MIN_SIGMA

    def __post_init__(self) -> None:
        if not self.stages:
            raise ValueError("a cascade has at least one stage")
        height, width = self.window
        if min(height, width) < 3 or height * width > MOST_PIXELS:
            raise ValueError(f"got a window of {height} x {width}; expected at least 3 x 3, and {MOST_PIXELS:,} pixels")
        for number, stage in enumerate(self.stages):
            if stage.features.window != self.window:
                raise ValueError(
                    f"stage {number} is for windows {stage.features.window}, the cascade for {self.window}"
                )

    @property
    def n_weak(self) -> int:
        """Weak learners of all stages."""
        return sum(map(len, self.stages))

    @property
    def first_scoring(self) -> int:
        """Number of the first stage that counts for the score: the later half of the stages does."""
        return len(self.stages) // 2

    def accepts(self, patches: Patches) -> Bools:
        """Which patches (samples, height, width) have enough contrast and pass all stages."""
        return np.asarray(self.scores(patches) > 0)

    def scores(self, patches: Patches) -> Floats:
        """Scores (samples,): for patches that pass all stages, the margins in the later half added up; else -inf.

        The margin of a discriminant is its log odds, up to scale, against what reaches its stage; to add them is to
        take the stages for independent witnesses. Early stages have been trained on what is easily told apart, and
        what they say of the windows left at the end is noise. Margins are weighted sums of responses to normalised
        windows: they know nothing of the image, so scores compare across images, and a higher threshold on
        them keeps a subset of the windows.
        """
        stack = IntegralStack.from_patches(patches, self.min_sigma)
        check_window(self.window, stack)
        alive, total = stack.has_contrast.copy(), np.zeros(len(patches))
        for number, stage in enumerate(self.stages):
            margin, passed = stage.judge(stack)
            alive &= passed
            total += margin if number >= self.first_scoring else 0.0
        return np.where(alive, total, -np.inf)
