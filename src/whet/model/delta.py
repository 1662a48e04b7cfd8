"""What a detector has learned since its base: whole counts, that add and subtract."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from whet.lda.class_statistics import BinaryStatistics


@dataclass(frozen=True, eq=False)
class Delta:
    """Statistics of the positives and of the negatives that each stage has learned; treated as a value.

    A stage with fixed weights has statistics of no responses at all.

    >>> import numpy as np
    >>> seen = Delta.empty([2, 3]).with_inserted(1, True, BinaryStatistics.of(np.ones((4, 3), np.uint8)))
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
