"""Counts of examples in the stages of a cascade: which stages an example teaches, and sums that can be undone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from whet.lda.statistics import BinaryStatistics
from whet.models.gslda.stage import ClassPair, TrainedStage, check_count, check_statistics
from whet.models.responses import Responses


@dataclass(frozen=True, eq=False)
class ExampleCounts:
    """Statistics of the positives and of the negatives that each stage has learned; treated as a value.

    A stage with fixed weights has statistics of no responses at all.

    >>> ones, none = BinaryStatistics.from_samples(np.ones((4, 3), np.uint8)), BinaryStatistics.empty(3)
    >>> seen = ExampleCounts(((ones, none),))
    >>> (seen + seen).counts, (seen - seen).is_empty
    (((8, 0),), True)
    """

    stages: tuple[ClassPair, ...]

    @classmethod
    def empty(cls, sizes: Sequence[int]) -> Self:
        """Nothing learned, by stages with these numbers of weak learners."""
        return cls(tuple((BinaryStatistics.empty(size), BinaryStatistics.empty(size)) for size in sizes))

    def __add__(self, other: Self) -> Self:
        pairs = zip(self.stages, other.stages, strict=True)
        return type(self)(tuple((_sum(a[0], b[0]), _sum(a[1], b[1])) for a, b in pairs))

    def __sub__(self, other: Self) -> Self:
        pairs = zip(self.stages, other.stages, strict=True)
        return type(self)(tuple((_difference(a[0], b[0]), _difference(a[1], b[1])) for a, b in pairs))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Weak learners of each stage."""
        return tuple(len(positive.s) for positive, _ in self.stages)

    @property
    def counts(self) -> tuple[tuple[int, int], ...]:
        """Positives and negatives that each stage has counted."""
        return tuple((positive.n, negative.n) for positive, negative in self.stages)

    @property
    def n_examples(self) -> tuple[int, int]:
        """Positives and negatives that were counted in any stage."""
        positives, negatives = zip(*self.counts, strict=True)
        return max(positives), max(negatives)

    @property
    def is_empty(self) -> bool:
        """Nothing was learned."""
        return not any(map(any, self.counts))

    @property
    def is_possible(self) -> bool:
        """Whether 0 <= C_jk <= min(s_j, s_k) <= n holds everywhere: some samples could have been learned."""
        return all(statistics.is_possible(statistics) for pair in self.stages for statistics in pair)

    def check(self, stages: Sequence[TrainedStage]) -> None:
        """Raise ValueError unless the counts fit these stages, some samples could have them, and sums stay exact."""
        sizes = learning_sizes(stages)
        if self.sizes != sizes:
            raise ValueError(
                f"got counts of stages with {self.sizes} weak learners; expected {sizes}, 0 for each fixed stage"
            )
        for number, (stage, pair) in enumerate(zip(stages, self.stages, strict=True)):
            for name, before, new in zip(("positives", "negatives"), stage.statistics, pair, strict=True):
                check_statistics(new, f"{name} in stage {number}")
                check_count(before.n + new.n, name)


def learning_sizes(stages: Sequence[TrainedStage]) -> tuple[int, ...]:
    """Weak learners of each stage that learns, and 0 for the others."""
    return tuple(len(stage) if stage.learns else 0 for stage in stages)


def count_examples(
    stages: Sequence[TrainedStage], responses: Responses, is_object: NDArray[np.bool_], weights: NDArray[np.int64]
) -> ExampleCounts:
    """What each stage counts of examples with labels (n,), each `weights` (n,) times.

    An object counts in all stages; another window in those that it reaches by the weights and stage thresholds of the
    training. So the result depends neither on the order of the examples nor on what was learned before.
    """
    bits = responses.bits
    reaches, end = np.ones(len(bits), np.bool_), 0
    pairs = []
    for stage in stages:
        run, seen = stage.run(), bits[:, end : end + len(stage)]
        end += len(stage)
        if stage.learns:
            positive, negative = (
                BinaryStatistics.from_samples(seen[side], weights[side])
                for side in (reaches & is_object, reaches & ~is_object)
            )
            pairs.append((positive, negative))
        else:
            pairs.append((BinaryStatistics.empty(0), BinaryStatistics.empty(0)))
        # Rejection thresholds are left out: a soft stage learns what its stage threshold lets through.
        reaches &= is_object | (run.weigh(seen.T.astype(np.bool_))[-1] > run.threshold)
    return ExampleCounts(tuple(pairs))


def _sum(a: BinaryStatistics, b: BinaryStatistics) -> BinaryStatistics:
    """Values may be shared: most often one class alone was learned, and the other's matrices need not be copied."""
    return (a if a.n else b) if len(a.s) == len(b.s) and not (a.n and b.n) else a + b


def _difference(a: BinaryStatistics, b: BinaryStatistics) -> BinaryStatistics:
    return a if len(a.s) == len(b.s) and not b.n else a - b
