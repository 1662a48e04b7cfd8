"""Cascades: a window with the object passes all stages; most others fail an early one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from whet._kernels.window_sums import OPENCV_MIN_SIGMA
from whet.models.gslda.integral import IntegralStack, check_window
from whet.models.gslda.stage import Stage
from whet.models.responses import Responses
from whet.models.votes import Votes

Patches = NDArray[np.uint8]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# Sums of squares of a window are differences modulo 2^32: exact below 66,051 pixels of 255.
MOST_PIXELS = 2**32 // 255**2


@dataclass(frozen=True, eq=False)
class Cascade:
    """Weighted stages on windows (height, width), and the standard deviation below which windows are skipped.

    `coarse_stages` are the first stages with thresholds that are nowhere higher: with them, the stages reject all
    windows of an image but those next to one of every second row and column that the coarse stages accept
    (`cascade_scan.looked_at`). The methods here are the specification in plain NumPy, on patches; a scan gives the same
    answers, to the last bit, for the windows of an image.

    >>> from whet.models.gslda.haar import HaarKind, HaarPool
    >>> from whet.models.gslda.weak_learners import Stumps
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
    coarse_stages: tuple[Stage, ...] = ()

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
        if len(self.coarse_stages) > len(self.stages):
            raise ValueError(f"got {len(self.coarse_stages)} coarse stages; expected at most {len(self.stages)}")

    @property
    def n_weak(self) -> int:
        """Weak learners of all stages."""
        return sum(map(len, self.stages))

    @cached_property
    def votes(self) -> Votes:
        """Weights and thresholds of all stages, in units of the lengths |w| of their weights."""
        coef, threshold = [stage.coef for stage in self.stages], [stage.threshold for stage in self.stages]
        rejection = [stage.rejection_thresholds for stage in self.stages]
        return Votes.from_stages(coef, threshold, rejection, first_scoring=self.first_scoring)

    @cached_property
    def fast(self) -> Cascade:
        """The same with a coarse pass: its own, or else two fifths of the stages as they are, if that is any."""
        n = 2 * len(self.stages) // 5
        return self if self.coarse_stages or n == 0 else replace(self, coarse_stages=self.stages[:n])

    @cached_property
    def full(self) -> Cascade:
        """The same without a coarse pass."""
        return replace(self, coarse_stages=()) if self.coarse_stages else self

    @cached_property
    def coarse(self) -> Cascade | None:
        """The stages of the coarse pass, or None where every window is scanned."""
        return Cascade(self.window, self.coarse_stages, self.min_sigma) if self.coarse_stages else None

    @cached_property
    def coarse_last(self) -> Cascade:
        """The same in the order for windows around those that the coarse pass accepts: its own stages come later.

        They accept most of these windows, and the next ones reject most. Stages that count for the score stay last, in
        their order, so that scores have the same bits.
        """
        n, early = min(len(self.coarse_stages), self.first_scoring), self.first_scoring
        return replace(self.full, stages=(*self.stages[n:early], *self.stages[:n], *self.stages[early:]))

    @property
    def first_scoring(self) -> int:
        """Number of the first stage that counts for the score: the later half of the stages does."""
        return len(self.stages) // 2

    def accepts(self, patches: Patches) -> Bools:
        """Which patches (samples, height, width) have enough contrast and pass all stages."""
        return np.asarray(self.scores(patches) > 0)

    def scores(self, patches: Patches) -> Floats:
        """Scores (samples,): for patches that pass all stages, the margins in the later half added up; else -inf.

        The margin of a discriminant is, up to scale, its log odds on the windows that reach its stage; their sum treats
        the stages as independent. Early stages were trained on negatives that are easy to separate; their margins are
        noise for the windows that pass all stages. Margins depend on normalised windows only, so scores of different
        images can be compared, and a higher minimum score keeps a subset of the windows.
        """
        stack = IntegralStack.from_patches(patches, self.min_sigma)
        check_window(self.window, stack)
        alive, total = stack.has_contrast.copy(), np.zeros(len(patches))
        for number, stage in enumerate(self.stages):
            margin, passed = stage.judge(stack)
            alive &= passed
            total += margin if number >= self.first_scoring else 0.0
        return np.where(alive, total, -np.inf)

    def respond(self, patches: Patches) -> tuple[Responses, Bools]:
        """Responses of all weak learners to patches (n, height, width), and which have enough contrast."""
        stack = IntegralStack.from_patches(patches, self.min_sigma)
        responses = np.concatenate([stage.respond(stack) for stage in self.stages])
        return Responses.from_bits(np.ascontiguousarray(responses.T)), stack.has_contrast
