"""One stage of a cascade: weak learners, their weights, and the score that a window has to exceed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet.features.integral import FeatureFamily, IntegralStack
from whet.features.weak_learners import WeakLearners

Patches = NDArray[np.uint8]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Stage:
    """T weak learners, learner t on feature t of `features`, with weights `coef` (T,) and one `threshold`.

    A window passes if the weighted sum of its responses is above the threshold. In a soft stage it also has to
    stay above `exits` (T,) on the way: exit t is compared to the partial sum of learners 0 to t, and -inf lets
    everything go on. Sums are taken in the order of the learners, so that every implementation has the same bits.

    >>> from whet.features.haar import HaarKind, HaarPool
    >>> from whet.features.weak_learners import Stumps
    >>> pool = HaarPool.from_window((3, 3), [HaarKind.X3])  # the last one: a bright column between two dark ones
    >>> bright = Stumps(*(np.array([v]) for v in (5, np.float32(100), np.int8(1), 0.0)))
    >>> stage = Stage(pool.take(bright.feature), bright, coef=np.array([2.0]), threshold=0.5)
    >>> stripes = np.tile(np.array([0, 100, 0], dtype=np.uint8), (1, 3, 1))
    >>> stage.score(np.concatenate([stripes, 255 - stripes]))
    array([ 1.5, -0.5])
    """

    features: FeatureFamily
    weak: WeakLearners
    coef: Floats
    threshold: float
    rejection_thresholds: Floats | None = None

    def __post_init__(self) -> None:
        sizes = [len(self.features), len(self.weak), len(self.coef)]
        sizes += [] if self.rejection_thresholds is None else [len(self.rejection_thresholds)]
        if len(set(sizes)) != 1 or not sizes[0]:
            raise ValueError(f"got {sizes} features, weak learners, weights and exits: as many of each, at least one")
        if not (np.isfinite(self.coef).all() and np.isfinite(self.threshold)):
            raise ValueError("weights and threshold of a stage must be finite numbers")
        if self.rejection_thresholds is not None and not (self.rejection_thresholds < np.inf).all():
            raise ValueError("an exit must be a number below infinity, or -inf where there is none")

    def __len__(self) -> int:
        return len(self.features)

    def respond(self, stack: IntegralStack) -> Bools:
        """Responses (T, samples) of the weak learners."""
        return self.weak.respond(self.features.evaluate(stack))

    def weigh(self, responses: Bools) -> Floats:
        """Weighted sums (T, samples) of responses, after each weak learner."""
        return np.cumsum(responses * self.coef[:, None], axis=0)

    def partial_sums(self, stack: IntegralStack) -> Floats:
        """Weighted sums (T, samples) after each weak learner."""
        return self.weigh(self.respond(stack))

    def judge(self, stack: IntegralStack) -> tuple[Floats, Bools]:
        """Margins (samples,), and which samples pass the exits and the threshold."""
        sums = self.partial_sums(stack)
        margin = sums[-1] - self.threshold
        passed = margin > 0
        if self.rejection_thresholds is not None:
            passed &= (sums > self.rejection_thresholds[:, None]).all(axis=0)
        return margin, passed

    def score(self, patches: Patches) -> Floats:
        """Margins (samples,) of patches (samples, height, width): weighted sums minus the threshold."""
        return self.judge(IntegralStack.from_patches(patches))[0]

    def accepts(self, patches: Patches) -> Bools:
        """Which patches (samples,) pass all exits and the threshold."""
        return self.judge(IntegralStack.from_patches(patches))[1]
