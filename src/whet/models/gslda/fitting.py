"""Training of one stage: weak learners on every feature, selected and weighted until the stage meets its goal.

Rejection thresholds of a finished cascade are chosen by variations of objects, as a worse camera would see them: most
windows then need only the weak learners that reject them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from whet.arrays import Bools, Indices
from whet.errors import CannotSeparateError
from whet.images.pyramid import Pixels, resized
from whet.lda import thresholds
from whet.lda.discriminant import DEFAULT_RIDGE, Criterion, OnlineDiscriminant, check_combination
from whet.lda.thresholds import Rate, RejectionThresholds, calibrate_rate, quantile_threshold
from whet.models.gslda.candidates import Responses, class_statistics
from whet.models.gslda.cascade import AT_ONCE, Cascade, LearningStage, Patches, Stage, TrainedStage
from whet.models.gslda.integral import FeatureFamily, IntegralStack
from whet.models.gslda.weak_learners import Stumps, Subsets
from whet.models.gslda.weak_training import train_weak_learners
from whet.parallel.threads import DEFAULT_MAX_MEMORY
from whet.parallel.workers import ALL_THREADS, Workers


@dataclass(frozen=True)
class StageGoal:
    """Rates that a stage has to reach on a validation set; then no more weak learners are added.

    >>> StageGoal(detection_rate=0.995)
    StageGoal(detection_rate=0.995, false_positive_rate=0.5)
    """

    detection_rate: float = 0.99
    false_positive_rate: float = 0.5

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < 1:
                raise ValueError(f"{name}={value!r} must lie between 0 and 1, both excluded")


class StageValidation:
    """Measures a growing stage on validation samples, one weak learner at a time."""

    def __init__(
        self,
        goal: StageGoal,
        features: FeatureFamily,
        weak: Stumps | Subsets,
        patches: NDArray[np.uint8],
        is_positive: NDArray[np.bool_],
    ) -> None:
        if not 0 < is_positive.sum() < len(is_positive):
            raise ValueError("got validation samples of one class only; expected positives and negatives")
        self.goal = goal
        self.detection_rate = self.false_positive_rate = 1.0
        self._features, self._weak, self._is_positive = features, weak, is_positive
        self._stack = IntegralStack.from_patches(patches)
        self._responses: list[NDArray[np.uint8]] = []

    def add(self, j: int) -> None:
        """Add the responses of candidate j, which was selected."""
        at = np.array([j])
        values = self._features.take(at).evaluate(self._stack)
        self._responses.append(self._weak.take(at).respond(values)[0].view(np.uint8))

    def partial_sums(self, vote: Vote) -> NDArray[np.float64]:
        """Weighted sums (T, samples) after each weak learner, added in the order of a scan."""
        return np.cumsum(np.array(self._responses) * vote.coef[:, None], axis=0)

    def rejection_thresholds(self, vote: OnlineDiscriminant) -> RejectionThresholds:
        """Rejection thresholds that keep all validation positives above the threshold of the vote."""
        sums = self.partial_sums(vote)
        return RejectionThresholds.calibrated(sums[:, self._is_positive], sums[:, ~self._is_positive], vote)

    def set_threshold(self, vote: Vote) -> bool:
        """Set the vote's threshold to the goal's detection rate; returns whether the goal is reached."""
        scores = self.partial_sums(vote)[-1]
        positives = scores[self._is_positive]
        if isinstance(vote, OnlineDiscriminant):
            vote.rule = Rate(calibrate_rate(positives, vote.projection, self.goal.detection_rate))
        else:
            vote.threshold = quantile_threshold(positives, self.goal.detection_rate)
        self.detection_rate = float((positives > vote.threshold).mean())
        self.false_positive_rate = float((scores[~self._is_positive] > vote.threshold).mean())
        return self.false_positive_rate <= self.goal.false_positive_rate


@dataclass(eq=False)
class FixedVote:
    """Weights and a threshold that do not learn."""

    coef: NDArray[np.float64]
    threshold: float


Vote = OnlineDiscriminant | FixedVote


class StageLearner(Protocol):
    """Selects weak learners one by one, and computes the weights of the selected ones."""

    def rounds(self, responses: Responses, n_most: int) -> Iterator[int]:
        """Indices of the selected learners, at most `n_most`."""

    def vote(self, responses: Responses, chosen: Indices) -> Vote:
        """Weights and threshold of the learners selected so far, in the order of selection."""


@dataclass(frozen=True)
class GreedyLDA:
    """Greedy sparse LDA [ALG:GSLDA] by the FDA or the LAC criterion; the stage learns online."""

    criterion: Criterion = "fda"
    ridge: float = DEFAULT_RIDGE
    threshold: str = "bayes"
    miss_rate: float = 0.01

    def __post_init__(self) -> None:
        check_combination(self.criterion, thresholds.rule(self.threshold, self.miss_rate))

    def rounds(self, responses: Responses, n_most: int) -> Iterator[int]:
        """Indices of the selected learners, at most `n_most`."""
        for j, _ in responses.selected(self.criterion, self.ridge, n_most):
            yield j

    def vote(self, responses: Responses, chosen: Indices) -> OnlineDiscriminant:
        """The discriminant of the selected learners, with their statistics."""
        positive, negative = class_statistics(responses, chosen)
        rule = thresholds.rule(self.threshold, self.miss_rate)
        return OnlineDiscriminant(
            positive, negative, len(chosen), rule=rule, criterion=self.criterion, ridge=self.ridge
        )


def train_stage(
    family: FeatureFamily,
    patches: Patches,
    is_positive: Bools,
    n_weak: int = 200,
    *,
    learner: StageLearner | None = None,
    goal: StageGoal | None = None,
    validation: tuple[Patches, Bools] | None = None,
    soft: bool = False,
    max_memory: int = DEFAULT_MAX_MEMORY,
    workers: Workers = ALL_THREADS,
    seed: int = 0,
    progress: Callable[[int, StageValidation], None] = lambda *_: None,
) -> TrainedStage:
    """Train a weak learner on every feature of a pool, select some and weight them: a stage of a cascade.

    `patches` are (samples, height, width), `is_positive` (samples,). The `learner` is `GreedyLDA()`, which then
    learns online, or another one on the same responses. Selection stops at `n_weak`, or
    as soon as a `goal` holds on the `validation` patches; the threshold is then the one that keeps the goal's
    detection rate there, and follows the positives online. A `soft` stage also has a rejection threshold after
    each weak learner; these follow in the same way and lose none of the validation positives. The same seed gives the
    same stage on any number of `workers`. `progress` is called after each
    weak learner, with their number and the validation.

    >>> from whet.models.gslda.haar import HaarPool
    >>> rng = np.random.default_rng(0)
    >>> patches = rng.integers(0, 200, (60, 6, 6), dtype=np.uint8)
    >>> patches[:30, :, 3:] += 50  # positives are brighter on the right
    >>> stage = train_stage(HaarPool.from_window((6, 6)), patches, np.arange(60) < 30, n_weak=3)
    >>> len(stage), stage.learns, bool(stage.run().accepts(patches)[:30].mean() > 0.8)
    (3, True, True)
    """
    if (goal is None) != (validation is None):
        raise ValueError("got only one of goal and validation=(patches, is_positive); give both or neither")
    if soft and goal is None:
        raise ValueError("soft=True needs a goal and validation patches, to calibrate the rejection thresholds")
    learner = GreedyLDA() if learner is None else learner
    weak, responses = train_weak_learners(
        family, patches, is_positive, max_memory=max_memory, workers=workers, seed=seed
    )
    candidates = family.take(weak.feature)
    check = StageValidation(goal, candidates, weak, *validation) if goal and validation else None
    chosen: list[int] = []
    for j in learner.rounds(responses, n_weak):
        chosen.append(j)
        if check is not None:
            check.add(j)
            is_met = check.set_threshold(learner.vote(responses, np.array(chosen)))
            progress(len(chosen), check)
            if is_met:
                break
    if not chosen:
        raise CannotSeparateError("no feature separates the two classes; check the patches and their labels")
    vote = learner.vote(responses, np.array(chosen))
    if check is not None:
        check.set_threshold(vote)
    features, learners = candidates.take(np.array(chosen)), weak.take(np.array(chosen))
    if not isinstance(vote, OnlineDiscriminant):
        return Stage(features, learners, vote.coef, float(vote.threshold))
    rejection = check.rejection_thresholds(vote) if soft and check is not None else None
    return LearningStage.from_discriminant(features, learners, vote, rejection)


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
# Pixels around a patch, as a share of its side, for windows that are moved, larger or turned.
RIM = 0.25


def pruned(
    stages: Sequence[TrainedStage],
    positives: Patches,
    min_sigma: float,
    *,
    seed: int = 0,
) -> tuple[TrainedStage, ...]:
    """Stages whose rejection thresholds keep what the whole cascade accepts; `positives` are (n, height, width).

    A stage alone has to keep every positive that it accepts. Those that a later stage rejects are lost anyway, so only
    variations of the positives that pass all stages count here, as in the pruning of Zhang and Viola (2007). The share
    `GIVEN_UP` of these would keep thresholds low for all others. The rest has the slack of
    `RejectionThresholds.calibrated` with `LOSS`. No threshold becomes lower, nor does that of a stage. Stages that
    count for the score, those without rejection thresholds, and those with fixed weights stay as they are.
    """
    window = stages[0].features.window
    cascade = Cascade(window, tuple(stage.run() for stage in stages), min_sigma)
    patches = varied(positives, window, seed)
    blocks = [patches[start : start + AT_ONCE] for start in range(0, len(patches), AT_ONCE)]
    accepted = np.concatenate([cascade.accepts(block) for block in blocks])
    early = [_pruned(stage, blocks, accepted) for stage in stages[: cascade.first_scoring]]
    return *early, *stages[cascade.first_scoring :]


def varied(positives: Patches, window: tuple[int, int], seed: int = 0) -> Patches:
    """Variations (m, height, width) of positives (n, height, width), those of one after those of another.

    >>> varied(np.zeros((3, 12, 10), np.uint8), (12, 10)).shape
    (24, 12, 10)
    """
    (height, width), rng = window, np.random.default_rng([seed, 3])
    # Variations to aim for, and the most of one positive: the lowest partial sums are those of few samples.
    copies = min(max(-(-8000 // len(positives)), 1), 8)
    rim = max(round(RIM * max(window)), 1)
    box = rim, rim, rim + width, rim + height
    return np.concatenate(
        [VARIED.cut(np.pad(patch, rim, mode="edge"), box, window, copies, rng) for patch in positives]
    )


def _pruned(stage: TrainedStage, blocks: Sequence[Patches], accepted: Bools) -> TrainedStage:
    if not isinstance(stage, LearningStage) or stage.rejection is None:
        return stage
    sums = np.concatenate([stage.run().partial_sums(IntegralStack.from_patches(block)) for block in blocks], axis=1)
    kept = accepted.copy()
    kept[accepted] = worth_keeping(sums[:, accepted], GIVEN_UP)
    tight = RejectionThresholds.calibrated(sums[:, kept], sums[:, ~kept], stage.discriminant(), LOSS, with_last=True).z
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
