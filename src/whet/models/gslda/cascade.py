"""Cascades of stages: a window with the object passes all stages; most others fail an early one.

A stage has weak learners with weights and a threshold, fixed or derived from statistics that can learn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from whet._kernels.window_scan import OPENCV_MIN_SIGMA
from whet.arrays import Bools, Floats
from whet.lda.discriminant import DEFAULT_RIDGE, Criterion, OnlineDiscriminant, check_combination
from whet.lda.statistics import MOST_SAMPLES, BinaryStatistics
from whet.lda.thresholds import Asymmetric, Rate, RejectionThresholds, Rule
from whet.models.gslda.integral import FeatureFamily, IntegralStack, check_window
from whet.models.gslda.weak_learners import WeakLearners
from whet.models.responses import Responses, Votes
from whet.parallel.threads import for_each_block

Patches = NDArray[np.uint8]
# Statistics of the positives and of the negatives.
ClassPair = tuple[BinaryStatistics, BinaryStatistics]

# Patches per task: their integral images take 10 MB, and 200 feature values of each another 3.
AT_ONCE = 4096


class TrainedStage(Protocol):
    """A stage of a trained detector: a `LearningStage` with statistics, or a `Stage` with fixed weights."""

    @property
    def features(self) -> FeatureFamily:
        """The features of the weak learners."""

    @property
    def weak(self) -> WeakLearners:
        """The weak learners, learner t on feature t."""

    @property
    def learns(self) -> bool:
        """Whether the weights follow from the statistics, so that further samples change them."""

    @property
    def statistics(self) -> ClassPair:
        """Positives and negatives of the training; statistics of no responses where none were counted."""

    def __len__(self) -> int:
        """Number of weak learners."""

    def run(self, learned: ClassPair | None = None) -> Stage:
        """The weighted stage that a scan runs when these samples were learned on top of the training."""


@dataclass(frozen=True, eq=False)
class Stage:
    """T weak learners, learner t on feature t of `features`, with weights `coef` (T,) and one `threshold`.

    A window passes if the weighted sum of its responses is above the threshold. In a soft stage it also has to
    stay above `rejection_thresholds` (T,) on the way: number t is compared to the partial sum of learners 0 to t, and
    -inf rejects nothing. Sums are taken in the order of the learners, so that every implementation has the same
    bits. `counts` are statistics of the responses to positives and negatives: they do not decide the weights, but the
    unit of margins.

    >>> from whet.models.gslda.haar import HaarKind, HaarPool
    >>> from whet.models.gslda.weak_learners import Stumps
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
    counts: ClassPair | None = None

    def __post_init__(self) -> None:
        sizes = [len(self.features), len(self.weak), len(self.coef)]
        sizes += [] if self.rejection_thresholds is None else [len(self.rejection_thresholds)]
        if len(set(sizes)) != 1 or not sizes[0]:
            raise ValueError(
                f"got {sizes} features, weak learners, weights and rejection thresholds; expected equal numbers above 0"
            )
        if self.counts is not None:
            if any(len(side.s) != len(self) for side in self.counts):
                raise ValueError(f"got counts of other responses than those of the {len(self)} weak learners")
            _freeze(self.counts)

    def __len__(self) -> int:
        return len(self.features)

    @property
    def learns(self) -> bool:
        """False: the weights are fixed."""
        return False

    @property
    def statistics(self) -> ClassPair:
        """The counts, or statistics of no responses."""
        return (BinaryStatistics.empty(0), BinaryStatistics.empty(0)) if self.counts is None else self.counts

    def run(self, learned: ClassPair | None = None) -> Stage:  # noqa: ARG002 - nothing can be learned
        """The stage itself."""
        return self

    def loosened(self, by: float) -> Stage:
        """The stage with all thresholds lower by `by`."""
        rejection = None if self.rejection_thresholds is None else self.rejection_thresholds - by
        return replace(self, threshold=self.threshold - by, rejection_thresholds=rejection)

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
        """Margins (samples,), and which samples pass the rejection thresholds and the threshold."""
        sums = self.partial_sums(stack)
        margin = sums[-1] - self.threshold
        passed = margin > 0
        if self.rejection_thresholds is not None:
            passed &= (sums > self.rejection_thresholds[:, None]).all(axis=0)
        return margin, passed

    def score(self, patches: Patches, threads: int | None = None) -> Floats:
        """Margins (samples,) of patches (samples, height, width): weighted sums minus the threshold."""
        scores = np.empty(len(patches))

        def work(rows: slice) -> None:
            scores[rows] = self.judge(IntegralStack.from_patches(patches[rows]))[0]

        for_each_block(work, len(patches), AT_ONCE, threads)
        return scores

    def accepts(self, patches: Patches) -> Bools:
        """Which patches (samples,) pass all rejection thresholds and the threshold."""
        return self.judge(IntegralStack.from_patches(patches))[1]


@dataclass(frozen=True, eq=False)
class LearningStage:
    """A stage that can learn: T weak learners, and the statistics of their responses to the training samples.

    Weights and threshold are derived from the statistics, by the criterion, the ridge and the threshold rule, in
    a fixed order of operations: equal statistics give equal bits. The statistics become read-only. `rejection` are
    thresholds on partial sums, in standard deviations of the positives.

    >>> from whet.models.gslda.haar import HaarKind, HaarPool
    >>> from whet.models.gslda.weak_learners import Stumps
    >>> right = Stumps(*(np.array([v]) for v in (0, np.float32(1.0), np.int8(1), 0.0)))
    >>> seen = [BinaryStatistics.from_samples(np.uint8([x]).T) for x in ([1, 1, 1, 0], [0, 0, 0, 1])]
    >>> pool = HaarPool.from_window((4, 4), [HaarKind.X2])
    >>> LearningStage(pool.take(np.array([0])), right, *seen, Rate(-1.0), ridge=1.0).run().coef
    array([1.2])
    """

    features: FeatureFamily
    weak: WeakLearners
    positive: BinaryStatistics
    negative: BinaryStatistics
    rule: Rule
    criterion: Criterion = "fda"
    ridge: float = DEFAULT_RIDGE
    rejection: RejectionThresholds | None = None

    def __post_init__(self) -> None:
        sizes = [len(self.features), len(self.weak), len(self.positive.s), len(self.negative.s)]
        sizes += [] if self.rejection is None else [len(self.rejection.z)]
        if len(set(sizes)) != 1 or not sizes[0]:
            raise ValueError(
                f"got {sizes} features, weak learners, responses of both classes and rejection thresholds; expected "
                "equal numbers, at least 1"
            )
        _freeze(self.statistics)
        z = z_of(self.rule) if isinstance(self.rule, Rate | Asymmetric) else 0.0
        if not np.isfinite([z, self.ridge]).all() or self.ridge < 0:
            raise ValueError(f"got z={z} and ridge={self.ridge}; expected finite numbers and a ridge of at least 0")
        if self.rejection is not None and not (self.rejection.z < np.inf).all():
            raise ValueError("a rejection threshold must be a number below infinity, or -inf where there is none")
        if self.criterion not in ("fda", "lac"):
            raise ValueError(f"got criterion={self.criterion!r}; expected 'fda' or 'lac'")
        check_combination(self.criterion, self.rule)

    @classmethod
    def from_discriminant(
        cls,
        features: FeatureFamily,
        weak: WeakLearners,
        vote: OnlineDiscriminant,
        rejection: RejectionThresholds | None = None,
    ) -> Self:
        """Freeze what a discriminant over these weak learners has counted so far."""
        selected = np.arange(vote.size)
        positive, negative = (of_class.take(selected) for of_class in (vote.positive, vote.negative))
        if not (isinstance(positive, BinaryStatistics) and isinstance(negative, BinaryStatistics)):
            raise ValueError("got statistics that are no counts; a stage counts responses in {0, 1}")
        return cls(features, weak, positive, negative, vote.rule, vote.criterion, float(vote.ridge), rejection)

    def __len__(self) -> int:
        return len(self.features)

    @property
    def learns(self) -> bool:
        """True: samples can be added to the statistics."""
        return True

    @property
    def statistics(self) -> ClassPair:
        """Positives and negatives of the training."""
        return self.positive, self.negative

    def discriminant(self, learned: ClassPair | None = None) -> OnlineDiscriminant:
        """The discriminant of the training samples and of these learned since; it can learn on its own."""
        vote = self._discriminant(learned)
        vote.positive, vote.negative = vote.positive.copy(), vote.negative.copy()
        return vote

    def _discriminant(self, learned: ClassPair | None = None) -> OnlineDiscriminant:
        """The same without copies of statistics that are read-only, for `run`: updates are frequent."""
        positive, negative = (
            (self.positive, self.negative)
            if learned is None
            else (before + new if new.n else before for before, new in zip(self.statistics, learned, strict=True))
        )
        return OnlineDiscriminant(
            positive, negative, len(self), rule=self.rule, criterion=self.criterion, ridge=self.ridge
        )

    def run(self, learned: ClassPair | None = None) -> Stage:
        """The weighted stage when these samples were learned on top of the training."""
        return self._as_trained if learned is None else self._weighted(self._discriminant(learned))

    @cached_property
    def _as_trained(self) -> Stage:
        return self._weighted(self._discriminant())

    def _weighted(self, vote: OnlineDiscriminant) -> Stage:
        rejection = None if self.rejection is None else self.rejection.thresholds(vote.positive, vote.coef)
        return Stage(self.features, self.weak, vote.coef, float(vote.threshold), rejection)

    def count(self, patches: Patches, is_positive: Bools, threads: int | None = None) -> ClassPair:
        """Statistics of the responses to patches (samples, height, width) with labels (samples,)."""
        lock, total = Lock(), [BinaryStatistics.empty(len(self)), BinaryStatistics.empty(len(self))]

        def work(rows: slice) -> None:
            values = self.features.evaluate(IntegralStack.from_patches(patches[rows]))
            X, positive = self.weak.respond(values).view(np.uint8).T, is_positive[rows]
            new = [BinaryStatistics.from_samples(X if side.all() else X[side]) for side in (positive, ~positive)]
            with lock:
                total[0], total[1] = total[0] + new[0], total[1] + new[1]

        for_each_block(work, len(patches), AT_ONCE, threads)
        return total[0], total[1]

    def learn(self, patches: Patches, is_positive: Bools, threads: int | None = None) -> Self:
        """The stage trained on these patches as well; depends on neither their order nor the number of threads."""
        positive, negative = self.count(patches, is_positive, threads)
        return replace(self, positive=self.positive + positive, negative=self.negative + negative)

    def check_rule(self) -> None:
        """Raise ValueError for a threshold rule that no file can hold."""
        if not isinstance(self.rule, Rate | Asymmetric):
            raise ValueError(
                f"got the threshold rule {self.rule!r}; a detector keeps Rate or Asymmetric: train its stages with a "
                "detection rate and validation samples"
            )


def z_of(rule: Rate | Asymmetric) -> float:
    """The one number of a rule: how many deviations from the mean of the positives it cuts."""
    return rule.z if isinstance(rule, Rate) else rule.rate.z


def _freeze(pair: ClassPair) -> None:
    """Check the statistics of a stage and make them read-only: an insertion would change what its id stands for."""
    for name, statistics in zip(("positives", "negatives"), pair, strict=True):
        if statistics.n < 1:
            raise ValueError(
                f"got no {name}; a stage that learns, or is corrected, starts from samples of both classes"
            )
        check_statistics(statistics, name)
        for counts in (statistics.s, statistics.C):
            counts.flags.writeable = False


def check_statistics(statistics: BinaryStatistics, name: str) -> None:
    """Raise ValueError unless some responses in {0, 1} could have these statistics, and they can be exact."""
    symmetric = np.array_equal(statistics.C, statistics.C.T)
    if not (symmetric and np.array_equal(np.diagonal(statistics.C), statistics.s)):
        raise ValueError(f"statistics of {name}: co-occurrences must be symmetric, with the sums on the diagonal")
    if not statistics.is_possible(statistics):
        raise ValueError(
            f"statistics of {name} break 0 <= C_jk <= min(s_j, s_k) <= n or s_j + s_k - n <= C_jk: no samples can have "
            "them"
        )
    check_count(statistics.n, name)


def check_count(n: int, name: str) -> None:
    """Raise ValueError where sums would no longer be exact."""
    if n >= MOST_SAMPLES:
        raise ValueError(f"got a count of {n:,} {name}; counts stay exact below 2^52: use smaller weights")


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
