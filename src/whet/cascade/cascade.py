"""Cascades: a window with the object passes all stages; most others fail an early one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from whet._kernels.windows import OPENCV_MIN_SIGMA
from whet.cascade.pyramid import Grid
from whet.cascade.stage import Stage
from whet.features.integral import IntegralStack, check_window
from whet.features.weak_learners import LEAVES, Trees

if TYPE_CHECKING:
    from whet.cascade.neighbours import Neighbours
    from whet.cascade.pyramid import Pyramid, WindowIndex

Patches = NDArray[np.uint8]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# Sums of squares of a window are differences modulo 2^32: exact below 66,051 pixels of 255.
MOST_PIXELS = 2**32 // 255**2


@dataclass(frozen=True, eq=False)
class Cascade:
    """Stages on windows (height, width), and the standard deviation below which windows are skipped.

    `neighbours` are windows of corrections: those that pass the stages are judged by them in the end. `lowered` are the
    stages with lower thresholds, so that a scan also finds windows that neighbours accept. `coarse_stages` are the
    first stages with thresholds that are nowhere higher: with them, the stages reject all windows of an image but those
    next to one of every second row and column that the coarse stages accept (`whet.cascade.scan.looked_at`). The
    methods here are the specification in plain NumPy, on patches; `whet.cascade` gives the same answers, to the last
    bit, for the windows of an image.

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
    neighbours: Neighbours | None = None
    lowered: tuple[Stage, ...] | None = None
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
        if len(self.coarse_stages) > (0 if self.uses_channels else len(self.stages)):
            raise ValueError(
                f"got {len(self.coarse_stages)} coarse stages; expected at most {len(self.stages)}, none with channels"
            )
        if len(self.stages) > 1 and any(isinstance(stage.weak, Trees) for stage in self.stages):
            raise ValueError(f"got {len(self.stages)} stages; a cascade with channels has one stage of trees")
        rejection = self.stages[0].rejection_thresholds
        if (
            self.uses_channels
            and rejection is not None
            and not np.isneginf(rejection.reshape(-1, LEAVES)[:, :-1]).all()
        ):
            raise ValueError("a stage of trees has rejection thresholds after whole trees only")

    @property
    def uses_channels(self) -> bool:
        """Whether the stages are trees on channels of colour images. `min_sigma` does not apply to them."""
        return isinstance(self.stages[0].weak, Trees)

    @property
    def grid(self) -> Grid:
        """How windows lie on the levels of a pyramid."""
        if not self.uses_channels:
            return Grid()
        from whet.features.channels import CELL, PADDING

        return Grid(CELL, PADDING, is_colour=True)

    @property
    def n_weak(self) -> int:
        """Weak learners of all stages."""
        return sum(map(len, self.stages))

    @cached_property
    def fast(self) -> Cascade:
        """The same with a coarse pass: its own, or else two fifths of the stages as they are.

        Cascades of one or two stages and those with channels have none.
        """
        n = 2 * len(self.stages) // 5
        if self.coarse_stages or n == 0 or self.uses_channels:
            return self
        return replace(self, coarse_stages=self.stages[:n])

    @cached_property
    def full(self) -> Cascade:
        """The same without a coarse pass."""
        return replace(self, coarse_stages=()) if self.coarse_stages else self

    @cached_property
    def coarse(self) -> Cascade | None:
        """The stages of the coarse pass, or None where every window is scanned."""
        return Cascade(self.window, self.coarse_stages, self.min_sigma) if self.coarse_stages else None

    @cached_property
    def around(self) -> Cascade:
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
        if self.neighbours is not None:
            responses, has_contrast = self.respond(patches)
            return np.where(has_contrast, self.scores_of_responses(responses), -np.inf)
        stack = IntegralStack.from_patches(patches, self.min_sigma)
        check_window(self.window, stack)
        alive, total = stack.has_contrast.copy(), np.zeros(len(patches))
        for number, stage in enumerate(self.stages):
            margin, passed = stage.judge(stack)
            alive &= passed
            total += margin if number >= self.first_scoring else 0.0
        return np.where(alive, total, -np.inf)

    @cached_property
    def columns(self) -> tuple[slice, ...]:
        """The columns of each stage in responses (n, n_weak) of all weak learners."""
        ends = np.cumsum([len(stage) for stage in self.stages]).tolist()
        return tuple(slice(end - len(stage), end) for end, stage in zip(ends, self.stages, strict=True))

    @cached_property
    def scanned(self) -> Cascade:
        """The stages that a scan runs, before neighbours judge what they let through.

        With lowered thresholds, that is every window: one that has to be found may have no neighbour like it.
        """
        if self.neighbours is None:
            return self
        if self.lowered is None:
            return replace(self, neighbours=None)
        return Cascade(self.window, self.lowered, self.min_sigma)

    def respond(self, patches: Patches) -> tuple[NDArray[np.uint8], Bools]:
        """Responses (n, n_weak) of all weak learners to patches (n, height, width), and which have enough contrast."""
        stack = IntegralStack.from_patches(patches, self.min_sigma)
        responses = [stage.respond(stack) for stage in self.stages]
        return np.ascontiguousarray(np.concatenate(responses).T).view(np.uint8), stack.has_contrast

    def responses(self, pyramid: Pyramid, index: WindowIndex) -> NDArray[np.uint8]:
        """Responses (n, n_weak) of all weak learners to windows of a pyramid."""
        if not self.uses_channels:
            return self.respond(pyramid.patches(index))[0]
        return self.respond_to_cells(pyramid.cells(index))

    def respond_to_cells(self, cells: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Responses (n, n_weak) of trees to the filtered channels (n, 40, rows, columns) of windows."""
        from whet.features.channels import ChannelStack

        return np.ascontiguousarray(self.stages[0].respond(ChannelStack(cells)).T).view(np.uint8)

    def respond_in_context(self, patches: Patches, context: int) -> NDArray[np.uint8]:
        """Responses (n, n_weak) of trees to patches (n, height, width, 3) with so many pixels around the window."""
        from whet.features.channels import CELL, compute_channels, filter_channels

        rim = slice(context // CELL, -(context // CELL))
        cells = [filter_channels(compute_channels(patch))[:, rim, rim] for patch in patches]
        return self.respond_to_cells(np.array(cells))

    def margins(self, responses: NDArray[np.uint8]) -> Floats:
        """Margins (n, stages) of responses (n, n_weak), without rejection thresholds."""
        parts = zip(self.stages, self.columns, strict=True)
        return np.stack([stage.margins(responses[:, columns]) for stage, columns in parts], axis=1)

    def scores_of_responses(self, responses: NDArray[np.uint8], threads: int | None = None) -> Floats:
        """Scores (n,) as `scores` gives them, of windows whose responses (n, n_weak) are known; no image is needed."""
        return self.corrected(responses, self.stage_scores(responses), threads)

    def stage_scores(self, responses: NDArray[np.uint8]) -> Floats:
        """Scores (n,) of responses (n, n_weak) in the stages alone."""
        from whet._kernels.responses import judge_bits

        passed, total, margin = np.ones(len(responses), np.bool_), np.zeros(len(responses)), np.empty(len(responses))
        for number, (stage, columns) in enumerate(zip(self.stages, self.columns, strict=True)):
            rejection = stage.rejection_thresholds
            rejection = np.full(len(stage), -np.inf) if rejection is None else rejection
            judge_bits(responses[:, columns], stage.coef, stage.threshold, rejection, margin, passed)
            total += margin if number >= self.first_scoring else 0.0
        return np.where(passed, total, -np.inf)

    def corrected(self, responses: NDArray[np.uint8], scores: Floats, threads: int | None = None) -> Floats:
        """Scores (n,) after corrections, of windows with these responses (n, n_weak) and `scores` in the stages."""
        if self.neighbours is None:
            return scores
        judged = self.neighbours.judge(responses, scores, threads)
        if self.lowered is None:
            return judged
        return np.where(self.scanned.stage_scores(responses) > -np.inf, judged, -np.inf)
