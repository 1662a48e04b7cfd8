"""All that is kept of a class: the number of samples, their sum or mean, and their scatter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any, Never, Self

import numpy as np
from numpy.typing import NDArray

from whet._kernels.lda_algebra import binary_scatter, insert_binary, insert_centred
from whet.arrays import Bytes, Floats, Indices, Int64s, Words
from whet.errors import ForgettingError

# Kernels turn counts into float64 by their bits, which is exact below 2^52.
MOST_SAMPLES = 2**52


def co_occurrence(X: Bytes, weights: Int64s) -> Int64s:
    """C = sum of k x x^T over the rows x of X (N, P), exact.

    Counted on bits rather than multiplied: one sample is one bit. All of one weight are counted at once; of many
    weights, each is the sum of its binary digits.

    >>> co_occurrence(np.array([[1, 1], [0, 1]], dtype=np.uint8), np.array([1, 2]))
    array([[1, 1],
           [1, 3]])
    """
    C = np.zeros((X.shape[1], X.shape[1]), np.int64)
    if not len(X):
        return C
    from whet._kernels.response_bits import add_co_occurrences  # detection counts nothing

    if (weights == weights[0]).all():
        add_co_occurrences(_bit_rows(X), int(weights[0]), C)
        return C
    for digit in range(int(weights.max(initial=0)).bit_length()):
        has_digit = (weights >> digit) & 1 == 1
        add_co_occurrences(_bit_rows(X if has_digit.all() else X[has_digit]), 1 << digit, C)
    return C


def _bit_rows(X: Bytes) -> Words:
    """The columns of X (N, P) as rows of bits (P, words), filled up with zeros."""
    flags = np.zeros((X.shape[1], -(-len(X) // 64) * 64), np.uint8)
    flags[:, : len(X)] = X.T
    return np.packbits(flags, axis=1, bitorder="little").view("<u8")


class ClassStatistics(ABC):
    """What the kinds of statistics have in common; responses are rows of P numbers."""

    n: float

    @classmethod
    def empty(cls, size: int) -> Self:
        """Statistics of no sample at all."""
        return cls.from_samples(np.zeros((0, size), np.uint8))

    @classmethod
    @abstractmethod
    def from_samples(cls, X: NDArray[Any], weights: NDArray[Any] | None = None) -> Self:
        """Statistics of the rows of X (N, P), each counted `weights` times."""

    @abstractmethod
    def insert(self, x: NDArray[Any], k: int = 1) -> None:
        """Count the sample x (P,) k times more."""

    @abstractmethod
    def __add__(self, other: Self) -> Self: ...

    @abstractmethod
    def __sub__(self, other: Self) -> Self: ...

    @abstractmethod
    def is_possible(self, before: Self) -> bool:
        """Whether some samples could have these statistics: a necessary condition, not a proof.

        `before` is what they were subtracted from, whose rounding they carry.
        """

    @property
    @abstractmethod
    def mean(self) -> Floats:
        """Mean response m (P,)."""

    @property
    @abstractmethod
    def scatter(self) -> Floats:
        """Scatter S (P, P): the sum of (x - m)(x - m)^T."""

    def take(self, indices: Indices) -> Self:
        """Statistics of the responses at these indices, in this order."""
        taken = copy(self)
        for name, array in vars(self).items():
            if isinstance(array, np.ndarray):
                setattr(taken, name, array[np.ix_(*[indices] * array.ndim)])
        return taken

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """All that the statistics hold, for hashing."""
        return tuple(map(np.atleast_1d, vars(self).values()))

    def insert_many(self, X: NDArray[Any], weights: NDArray[Any] | None = None) -> None:
        """Insert the rows of X (N, P), each `weights` times."""
        vars(self).update(vars(self + self.from_samples(X, weights)))

    def copy(self) -> Self:
        """The same numbers in arrays of their own."""
        return deepcopy(self)


@dataclass(eq=False)
class BinaryStatistics(ClassStatistics):
    """Exact integer statistics of responses in {0, 1}: count n, sum s (P,), co-occurrence C (P, P).

    Integer sums do not depend on the order of the samples, nor on how they were split and merged.

    >>> a = BinaryStatistics.from_samples(np.array([[1, 0], [1, 1]], dtype=np.uint8))
    >>> a.insert(np.array([0, 1], dtype=np.uint8), 2)
    >>> a.n, a.s, a.C.tolist()
    (4, array([2, 3]), [[2, 1], [1, 3]])
    >>> a.mean
    array([0.5 , 0.75])
    """

    n: int
    s: Int64s
    C: Int64s

    @classmethod
    def from_samples(cls, X: NDArray[Any], weights: Int64s | None = None) -> Self:
        """Statistics of the rows of X (N, P), each counted `weights` times."""
        k = np.ones(len(X), np.int64) if weights is None else weights
        C = co_occurrence(X, k)
        return cls(int(k.sum()), np.diagonal(C).copy(), C)

    def insert(self, x: Bytes, k: int = 1) -> None:
        """Count the sample x (P,) k times more: s += k x, C += k x x^T."""
        insert_binary(x, k, self.s, self.C)
        self.n += k

    def __add__(self, other: Self) -> Self:
        return type(self)(self.n + other.n, self.s + other.s, self.C + other.C)

    def __sub__(self, other: Self) -> Self:
        return type(self)(self.n - other.n, self.s - other.s, self.C - other.C)

    def is_possible(self, before: Self) -> bool:  # noqa: ARG002
        """Whether max(0, s_j + s_k - n) <= C_jk <= min(s_j, s_k) <= n; integers carry no rounding.

        Of n samples, s_j respond at j and n - s_k do not at k: at least s_j - (n - s_k) respond at both.
        """
        n, s, C = self.n, self.s, self.C
        # Differences: the sum of two sums could overflow.
        fine = (C >= 0) & (np.minimum.outer(s, s) >= C) & (C - s[:, None] >= s - n)
        return bool(n >= 0 and (s <= n).all() and fine.all())

    @property
    def mean(self) -> Floats:
        """Mean response m = s / n (P,)."""
        return np.asarray(self.s / self.n)

    @property
    def scatter(self) -> Floats:
        """Scatter S = C - s s^T / n (P, P)."""
        return binary_scatter(self.n, self.s, self.C)


@dataclass(eq=False)
class CentredStatistics(ClassStatistics):
    """Statistics of real responses: count n, mean m (P,) and scatter S (P, P) about it, in float64.

    >>> a = CentredStatistics.from_samples(np.array([[1.0], [3.0]]))
    >>> a.insert(np.array([5.0]))
    >>> a.n, a.m, a.S
    (3, array([3.]), array([[8.]]))
    """

    n: float
    m: Floats
    S: Floats

    @classmethod
    def from_samples(cls, X: NDArray[Any], weights: NDArray[Any] | None = None) -> Self:
        """Statistics of the rows of X (N, P), each counted `weights` times."""
        k = np.ones(len(X), np.int64) if weights is None else weights
        n = k.sum().item()
        m = k @ X / max(n, 1)
        D = X - m
        return cls(n, m, (D * k[:, None]).T @ D)

    def insert(self, x: NDArray[Any], k: int = 1) -> None:
        """Count the sample x (P,) k times more: d = x - m, m += k d/(n+k), S += nk/(n+k) d d^T."""
        insert_centred(np.asarray(x, dtype=np.float64), k, self.n, self.m, self.S)
        self.n += k

    def __add__(self, other: Self) -> Self:
        n = self.n + other.n
        if n == 0:
            return self.copy()
        d = other.m - self.m
        return type(self)(n, self.m + other.n / n * d, self.S + other.S + self.n * other.n / n * np.outer(d, d))

    def __sub__(self, other: Self) -> Self:
        n = self.n - other.n
        d = other.m - self.m
        if n == 0:  # nothing may be left: any scatter that is, counts as negative, and is impossible
            left = abs(self.S - other.S) + self.n * np.outer(d, d)
            return type(self)(0, np.zeros_like(self.m), -left)
        return type(self)(n, self.m - other.n / n * d, self.S - other.S - self.n * other.n / n * np.outer(d, d))

    def is_possible(self, before: Self) -> bool:
        """Whether neither the count nor any variance is negative, up to the rounding of `before`."""
        rounding = 1e-9 * np.diagonal(before.S) + 1e-12 * before.n * before.m**2
        return self.n >= 0 and bool((np.diagonal(self.S) >= -rounding).all())

    @property
    def mean(self) -> Floats:
        """Mean response m (P,)."""
        return self.m

    @property
    def scatter(self) -> Floats:
        """Scatter S (P, P)."""
        return self.S


@dataclass(eq=False)
class DecayingStatistics(CentredStatistics):
    """Centred float64 statistics in which every new sample first fades the old ones by `decay`.

    A class fades only with samples of its own: a stream of positives alone does not fade the
    negatives. The memory is about the last 1 / (1 - decay) samples of each class.

    >>> a = DecayingStatistics.starting_from(CentredStatistics.from_samples(np.array([[0.0], [2.0]])), decay=0.5)
    >>> a.insert(np.array([4.0]))
    >>> a.n, a.m
    (2.0, array([2.5]))
    """

    decay: float = 1.0

    @classmethod
    def starting_from(cls, statistics: ClassStatistics, decay: float) -> Self:
        """Go on from exact statistics, forgetting from now on."""
        return cls(float(statistics.n), statistics.mean.copy(), statistics.scatter.copy(), decay)

    def insert(self, x: NDArray[Any], k: int = 1) -> None:
        """Fade what is there once, then count the sample x (P,) k times."""
        self._fade(self.decay)
        super().insert(x, k)

    def insert_many(self, X: NDArray[Any], weights: NDArray[Any] | None = None) -> None:
        """Insert the rows of X (N, P) in their order, each `weights` times."""
        k = np.ones(len(X)) if weights is None else weights
        age = np.arange(len(X) - 1, -1, -1)
        block = CentredStatistics.from_samples(X, k * self.decay**age)
        self._fade(self.decay ** len(X))
        vars(self).update(vars(CentredStatistics(self.n, self.m, self.S) + block))

    def _fade(self, factor: float) -> None:
        self.n *= factor
        self.S *= factor

    def __add__(self, other: object) -> Never:
        raise ForgettingError("statistics that decay cannot be merged; train with decay=1 to merge exactly")

    def __sub__(self, other: object) -> Never:
        raise ForgettingError("statistics that decay cannot unlearn; restore a copy, or train with decay=1")
