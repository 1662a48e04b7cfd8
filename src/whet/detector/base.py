"""The frozen part of a detector, and the counts of what was learned since."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from whet._kernels.windows import OPENCV_MIN_SIGMA
from whet.cascade.cascade import Cascade
from whet.cascade.columns import columns_of, family_name
from whet.cascade.stage import Stage
from whet.features.integral import FeatureFamily
from whet.features.weak_learners import WeakLearners
from whet.lda.discriminant import DEFAULT_RIDGE, Criterion, OnlineDiscriminant
from whet.lda.statistics import MOST_SAMPLES, BinaryStatistics
from whet.lda.thresholds import Asymmetric, Rate, RejectionThresholds

Fact = str | int | float

# A slash, a home or a drive letter that begins a word: a folder of one machine, and often somebody's name.
ABSOLUTE_PATH = re.compile(r"""(?:^|[\s='"(,])(?:/\w|~[\w./\\]|[A-Za-z]:[\\/]|\\\\\w)""")


@dataclass(frozen=True)
class Provenance:
    """What a detector was trained on, under which licence, by which command, and to which goals.

    `facts` are further numbers and words (seeds, seconds, versions). Nothing here changes what the detector does.

    >>> Provenance(data="faces of our own", licence="CC0-1.0", goals={"detection_rate": 0.99}).licence
    'CC0-1.0'
    >>> Provenance(command="whet train /home/ada/faces")
    Traceback (most recent call last):
    ValueError: provenance names a path of one machine: 'whet train /home/ada/faces'; write it relative, or leave it out
    """

    data: str = ""
    licence: str = ""
    command: str = ""
    goals: Mapping[str, Fact] = field(default_factory=dict)
    facts: Mapping[str, Fact] = field(default_factory=dict)

    def __post_init__(self) -> None:
        texts: list[object] = [self.data, self.licence, self.command]
        for table in (self.goals, self.facts):
            texts += [*table, *(fact for fact in table.values() if not _is_number(fact))]
        for text in texts:
            if not isinstance(text, str):
                raise ValueError(f"provenance holds words and finite numbers; got {text!r}")
            if ABSOLUTE_PATH.search(text):
                raise ValueError(
                    f"provenance names a path of one machine: {text!r}; write it relative, or leave it out"
                )


def _is_number(fact: object) -> bool:
    return isinstance(fact, int | float) and not isinstance(fact, bool) and abs(fact) < float("inf")


@dataclass(frozen=True, eq=False)
class Delta:
    """Statistics of the positives and of the negatives that each stage has learned; treated as a value.

    A stage with fixed weights has statistics of no responses at all.

    >>> import numpy as np
    >>> seen = Delta.empty([2, 3]).with_inserted(1, True, BinaryStatistics.from_samples(np.ones((4, 3), np.uint8)))
    >>> seen.counts, (seen - seen).is_empty
    (((0, 0), (4, 0)), True)
    """

    stages: tuple[tuple[BinaryStatistics, BinaryStatistics], ...]

    @classmethod
    def empty(cls, sizes: Sequence[int]) -> Self:
        """Nothing learned, by stages of so many weak learners."""
        return cls(tuple((BinaryStatistics.empty(size), BinaryStatistics.empty(size)) for size in sizes))

    def __add__(self, other: Self) -> Self:
        pairs = zip(self.stages, other.stages, strict=True)
        return type(self)(tuple((_sum(a[0], b[0]), _sum(a[1], b[1])) for a, b in pairs))

    def __sub__(self, other: Self) -> Self:
        pairs = zip(self.stages, other.stages, strict=True)
        return type(self)(tuple((_difference(a[0], b[0]), _difference(a[1], b[1])) for a, b in pairs))

    def with_inserted(self, stage: int, is_positive: bool, new: BinaryStatistics) -> Self:
        """The same, and these samples of one class in one stage."""
        positive, negative = self.stages[stage]
        pair = (positive + new, negative) if is_positive else (positive, negative + new)
        return type(self)((*self.stages[:stage], pair, *self.stages[stage + 1 :]))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Weak learners of each stage."""
        return tuple(len(positive.s) for positive, _ in self.stages)

    @property
    def counts(self) -> tuple[tuple[int, int], ...]:
        """Positives and negatives that each stage has counted."""
        return tuple((positive.n, negative.n) for positive, negative in self.stages)

    @property
    def is_empty(self) -> bool:
        """Nothing was learned."""
        return not any(map(any, self.counts))

    @property
    def is_possible(self) -> bool:
        """Whether 0 <= C_jk <= min(s_j, s_k) <= n holds everywhere: some samples could have been learned."""
        return all(statistics.is_possible(statistics) for pair in self.stages for statistics in pair)


def _sum(a: BinaryStatistics, b: BinaryStatistics) -> BinaryStatistics:
    """Values may be shared: most often one class alone was learned, and the other's matrices need not be copied."""
    return (a if a.n else b) if len(a.s) == len(b.s) and not (a.n and b.n) else a + b


def _difference(a: BinaryStatistics, b: BinaryStatistics) -> BinaryStatistics:
    return a if len(a.s) == len(b.s) and not b.n else a - b


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
    >>> from whet.features.weak_learners import Stumps
    >>> right = Stumps(*(np.array([v]) for v in (0, np.float32(1.0), np.int8(1), 0.0)))
    >>> seen = [BinaryStatistics.from_samples(np.uint8([x]).T) for x in ([1, 1, 1, 0], [0, 0, 0, 1])]
    >>> pool = HaarPool.from_window((4, 4), [HaarKind.X2])
    >>> StageBase(pool.take(np.array([0])), right, *seen, Rate(-1.0), ridge=1.0).stage().coef
    array([1.2])
    """

    features: FeatureFamily
    weak: WeakLearners
    positive: BinaryStatistics
    negative: BinaryStatistics
    rule: StageRule
    criterion: Criterion = "fda"
    ridge: float = DEFAULT_RIDGE
    rejection_thresholds: RejectionThresholds | None = None
    votes: Votes | None = None

    def __post_init__(self) -> None:
        sizes = [len(self.features), len(self.weak), len(self.positive.s), len(self.negative.s)]
        sizes += [] if self.rejection_thresholds is None else [len(self.rejection_thresholds.z)]
        sizes += [] if self.votes is None else [len(self.votes.coef)]
        if len(set(sizes)) != 1 or not sizes[0]:
            raise ValueError(
                f"got {sizes} features, weak learners, responses of both classes, exits, votes: as many of each"
            )
        if self.votes is not None and (self.rejection_thresholds is not None or self.negative.n >= self.votes.until):
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
        if self.rejection_thresholds is not None and not (self.rejection_thresholds.z < np.inf).all():
            raise ValueError("an exit lies at a number of deviations below infinity, or at -inf where there is none")
        if self.criterion not in ("fda", "lac"):
            raise ValueError(f"criterion={self.criterion!r} is not known; choose one of: 'fda', 'lac'")

    @classmethod
    def from_discriminant(
        cls,
        features: FeatureFamily,
        weak: WeakLearners,
        vote: OnlineDiscriminant,
        rejection_thresholds: RejectionThresholds | None = None,
    ) -> Self:
        """Freeze what a discriminant over these weak learners has counted so far."""
        voting = np.arange(vote.size)
        positive, negative = (of_class.take(voting) for of_class in (vote.positive, vote.negative))
        if not (isinstance(positive, BinaryStatistics) and isinstance(negative, BinaryStatistics)):
            raise ValueError("a detector keeps whole counts of responses in {0, 1}; these statistics are not such")
        rule: Any = vote.rule  # any function, until it is checked
        return cls(features, weak, positive, negative, rule, vote.criterion, float(vote.ridge), rejection_thresholds)

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
        rejection_thresholds = None if self.rejection_thresholds is None else self.rejection_thresholds.thresholds(vote)
        return Stage(self.features, self.weak, vote.coef, float(vote.threshold), rejection_thresholds)


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
        return [family_name(stage.features), "fixed", float(stage.threshold), stage.rejection_thresholds is not None]
    rule = [type(stage.rule).__name__, float(z_of(stage.rule))]
    votes = [] if stage.votes is None else [float(stage.votes.threshold), int(stage.votes.until)]
    return [
        family_name(stage.features),
        stage.criterion,
        float(stage.ridge),
        *rule,
        stage.rejection_thresholds is not None,
        *votes,
    ]


def _arrays(stage: StageBase | Stage) -> Iterator[NDArray[Any]]:
    yield from columns_of(stage.features, stage.weak).values()
    if isinstance(stage, Stage):
        yield stage.coef
        yield from [] if stage.rejection_thresholds is None else [stage.rejection_thresholds]
    else:
        yield from stage.positive.arrays()
        yield from stage.negative.arrays()
        yield from [] if stage.rejection_thresholds is None else [stage.rejection_thresholds.z]
        yield from [] if stage.votes is None else [stage.votes.coef]
