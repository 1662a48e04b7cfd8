"""The frozen part of a detector: what was trained once, and what everything learned later is counted from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from whet.features.family import FeatureFamily
from whet.features.leaves import Weak
from whet.kernels.normalisation import OPENCV_MIN_SIGMA
from whet.lda.class_statistics import MOST_SAMPLES, BinaryStatistics
from whet.lda.discriminant import DEFAULT_RIDGE, Criterion
from whet.lda.exits import Exits
from whet.lda.online import OnlineDiscriminant
from whet.lda.thresholds import Asymmetric, Rate
from whet.model.cascade import Cascade
from whet.model.columns import columns_of, family_name
from whet.model.provenance import Provenance
from whet.model.stage import Stage

StageRule = Rate | Asymmetric


@dataclass(frozen=True, eq=False)
class Votes:
    """Weights (T,) and a threshold from elsewhere, which a stage keeps until it has counted so many negatives."""

    coef: NDArray[np.float64]
    threshold: float
    until: int

    def __post_init__(self) -> None:
        if not (np.isfinite(self.coef).all() and np.isfinite(self.threshold)):
            raise ValueError("weights and threshold of votes must be finite numbers")
        check_count(self.until, "negatives until which votes are kept")
        self.coef.flags.writeable = False


@dataclass(frozen=True, eq=False)
class StageBase:
    """A stage that can learn: T weak learners, and the statistics of their responses to the training samples.

    Weights and threshold are derived from the statistics, by the criterion, the ridge and the threshold rule, in
    a fixed order of operations: equal statistics give equal bits. The statistics are taken over, and can no longer
    be written to. With `votes`, the stage runs those until there are enough negatives, and may have begun with none.

    >>> from whet.features.haar import HaarKind, HaarPool
    >>> from whet.features.stump_training import TrainedStumps
    >>> right = TrainedStumps(*(np.array([v]) for v in (0, np.float32(1.0), np.int8(1), 0.0)))
    >>> seen = [BinaryStatistics.of(np.array(x, dtype=np.uint8)[:, None]) for x in ([1, 1, 1, 0], [0, 0, 0, 1])]
    >>> pool = HaarPool.of_window((4, 4), [HaarKind.X2])
    >>> StageBase(pool.take(np.array([0])), right, *seen, Rate(-1.0), ridge=1.0).stage().coef
    array([1.2])
    """

    features: FeatureFamily
    weak: Weak
    positive: BinaryStatistics
    negative: BinaryStatistics
    rule: StageRule
    criterion: Criterion = "fda"
    ridge: float = DEFAULT_RIDGE
    exits: Exits | None = None
    votes: Votes | None = None

    def __post_init__(self) -> None:
        sizes = [len(self.features), len(self.weak), len(self.positive.s), len(self.negative.s)]
        sizes += [] if self.exits is None else [len(self.exits.z)]
        sizes += [] if self.votes is None else [len(self.votes.coef)]
        if len(set(sizes)) != 1 or not sizes[0]:
            raise ValueError(
                f"got {sizes} features, weak learners, responses of both classes, exits, votes: as many of each"
            )
        if self.votes is not None and (self.exits is not None or self.negative.n >= self.votes.until):
            raise ValueError("a stage that keeps votes has no exits, and fewer negatives than it waits for")
        for name, statistics in (("positives", self.positive), ("negatives", self.negative)):
            if statistics.n < 1 and not (self.votes is not None and statistics is self.negative):
                raise ValueError(f"a stage that learns starts from samples of both classes; got no {name}")
            check_statistics(statistics, name)
            for counts in (statistics.s, statistics.C):
                counts.flags.writeable = False  # an insertion in place would change what the id stands for
        self._check_settings()

    def _check_settings(self) -> None:
        if not isinstance(self.rule, Rate | Asymmetric):
            raise ValueError(
                f"got the threshold rule {self.rule!r}; a detector keeps Rate or Asymmetric: train with a goal"
            )
        if not np.isfinite([z_of(self.rule), self.ridge]).all() or self.ridge < 0:
            raise ValueError(f"got z={z_of(self.rule)} and ridge={self.ridge}: finite numbers, and no negative ridge")
        if self.exits is not None and not (self.exits.z < np.inf).all():
            raise ValueError("an exit lies at a number of deviations below infinity, or at -inf where there is none")
        if self.criterion not in ("fda", "lac"):
            raise ValueError(f"criterion={self.criterion!r} is not known; choose one of: 'fda', 'lac'")

    @classmethod
    def of_vote(cls, features: FeatureFamily, weak: Weak, vote: OnlineDiscriminant, exits: Exits | None = None) -> Self:
        """Freeze what a discriminant over these weak learners has counted so far."""
        voting = np.arange(vote.size)
        positive, negative = (of_class.take(voting) for of_class in (vote.positive, vote.negative))
        if not (isinstance(positive, BinaryStatistics) and isinstance(negative, BinaryStatistics)):
            raise ValueError("a detector keeps whole counts of responses in {0, 1}; these statistics are not such")
        rule: Any = vote.rule  # any function, until it is checked
        return cls(features, weak, positive, negative, rule, vote.criterion, float(vote.ridge), exits)

    def __len__(self) -> int:
        return len(self.features)

    def keeps_votes(self, learned_negatives: int = 0) -> bool:
        """Whether the stage runs its votes when so many negatives were learned since the base."""
        return self.votes is not None and self.negative.n + learned_negatives < self.votes.until

    def stage(self, positive: BinaryStatistics | None = None, negative: BinaryStatistics | None = None) -> Stage:
        """The stage to be run when these were learned on top of the base."""
        if self.votes is not None and self.keeps_votes(0 if negative is None else negative.n):
            return Stage(self.features, self.weak, self.votes.coef, self.votes.threshold)
        vote = OnlineDiscriminant(
            self.positive if positive is None or not positive.n else self.positive + positive,
            self.negative if negative is None or not negative.n else self.negative + negative,
            len(self),
            rule=self.rule,
            criterion=self.criterion,
            ridge=self.ridge,
        )
        exits = None if self.exits is None else self.exits.thresholds(vote)
        return Stage(self.features, self.weak, vote.coef, float(vote.threshold), exits)


@dataclass(frozen=True, eq=False)
class DetectorBase:
    """Stages on windows (height, width): those that learn (`StageBase`), and those with fixed weights (`Stage`).

    A fixed stage, as boosting makes it, has no statistics. It runs, but does not learn. `mean_positive` (height,
    width) is what the object looks like on average, for people to see; like the provenance it is no part of the id.
    """

    window: tuple[int, int]
    stages: tuple[StageBase | Stage, ...]
    min_sigma: float = OPENCV_MIN_SIGMA
    provenance: Provenance = field(default_factory=Provenance)
    mean_positive: NDArray[np.uint8] | None = None

    def __post_init__(self) -> None:
        mean = self.mean_positive
        if mean is not None and (mean.shape != tuple(self.window) or mean.dtype != np.uint8):
            raise ValueError(f"got a mean positive of {mean.dtype} {mean.shape}; expected uint8 {self.window}")
        if not (np.isfinite(self.min_sigma) and self.min_sigma > 0):
            raise ValueError(f"got min_sigma={self.min_sigma}; expected a number above 0")
        _ = self.cascade  # which checks windows and weights: a base that cannot run is none

    @cached_property
    def cascade(self) -> Cascade:
        """The cascade of the base's own weights and thresholds: the one that routes what is learned."""
        stages = tuple(stage.stage() if isinstance(stage, StageBase) else stage for stage in self.stages)
        return Cascade(self.window, stages, self.min_sigma)

    @cached_property
    def base_id(self) -> str:
        """Hash of all that decides what the base answers and how it learns; provenance does not.

        Detectors with the same id count the same responses, so that what they learned can be added.
        """
        digest = hashlib.sha256(json.dumps([*map(int, self.window), float(self.min_sigma), len(self.stages)]).encode())
        for stage in self.stages:
            digest.update(json.dumps(_settings(stage)).encode())
            for array in _arrays(stage):
                digest.update(f"{array.dtype.str}{array.shape}".encode())
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def z_of(rule: StageRule) -> float:
    """The one number that a rule holds: how many deviations from the positives' mean it cuts."""
    return rule.z if isinstance(rule, Rate) else rule.rate.z


def check_statistics(statistics: BinaryStatistics, name: str) -> None:
    """Raise ValueError unless some responses in {0, 1} could have these statistics, and they can be exact."""
    symmetric = np.array_equal(statistics.C, statistics.C.T)
    if not (symmetric and np.array_equal(np.diagonal(statistics.C), statistics.s)):
        raise ValueError(f"statistics of {name}: co-occurrences must be symmetric, with the sums on the diagonal")
    if not statistics.is_possible(statistics):
        raise ValueError(f"statistics of {name} break 0 <= C_jk <= min(s_j, s_k) <= n: no samples can have them")
    check_count(statistics.n, name)


def check_count(n: int, name: str) -> None:
    """Raise ValueError where sums would no longer be exact."""
    if n >= MOST_SAMPLES:
        raise ValueError(f"got a count of {n:,} {name}; counts stay exact below 2^52: use smaller weights")


def _settings(stage: StageBase | Stage) -> list[Any]:
    if isinstance(stage, Stage):
        return [family_name(stage.features), "fixed", float(stage.threshold), stage.exits is not None]
    rule = [type(stage.rule).__name__, float(z_of(stage.rule))]
    votes = [] if stage.votes is None else [float(stage.votes.threshold), int(stage.votes.until)]
    return [family_name(stage.features), stage.criterion, float(stage.ridge), *rule, stage.exits is not None, *votes]


def _arrays(stage: StageBase | Stage) -> Iterator[NDArray[Any]]:
    yield from columns_of(stage.features, stage.weak).values()
    if isinstance(stage, Stage):
        yield stage.coef
        yield from [] if stage.exits is None else [stage.exits]
    else:
        yield from stage.positive.arrays()
        yield from stage.negative.arrays()
        yield from [] if stage.exits is None else [stage.exits.z]
        yield from [] if stage.votes is None else [stage.votes.coef]
