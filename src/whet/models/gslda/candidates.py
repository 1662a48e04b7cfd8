"""The responses of many weak learners to many samples, one bit each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whet._kernels.response_bits import (
    BITS,
    add_co_occurrences,
    count_common_rows,
    count_rows,
    first_negative,
    pack,
    unpack,
    weigh_rows,
)
from whet.arrays import Floats, Int64s
from whet.lda.discriminant import Criterion
from whet.lda.selection import Candidates, Scatter, rounds_of_blocks
from whet.lda.statistics import BinaryStatistics
from whet.models.gslda.integral import Indices
from whet.parallel.threads import for_each_block
from whet.parallel.workers import Held, Workers


@dataclass(frozen=True, eq=False)
class SampleLayout:
    """The order of samples in bit rows, so that a class is a range of whole words.

    `order` (samples,) lists the samples, positives first, each class in its original order.

    >>> layout = SampleLayout.from_labels(np.array([False, True, True]))
    >>> layout.order, layout.split, layout.words
    (array([1, 2, 0]), 1, 2)
    """

    order: NDArray[np.intp]
    n_positive: int

    @classmethod
    def from_labels(cls, is_positive: NDArray[np.bool_]) -> SampleLayout:
        """The layout of samples of which these are positive (samples,); both classes have to be there."""
        is_positive = np.asarray(is_positive, dtype=np.bool_)
        n_positive = int(is_positive.sum())
        if not 0 < n_positive < len(is_positive):
            raise ValueError(f"got {n_positive} positives of {len(is_positive)} samples; both classes are needed")
        return cls(np.argsort(~is_positive, kind="stable"), n_positive)

    def __len__(self) -> int:
        return len(self.order)

    @property
    def n_negative(self) -> int:
        """How many samples are negative."""
        return len(self.order) - self.n_positive

    @property
    def is_positive(self) -> NDArray[np.bool_]:
        """Which samples are positive (samples,), in their original order."""
        flags = np.zeros(len(self), dtype=np.bool_)
        flags[self.order[: self.n_positive]] = True
        return flags

    @property
    def split(self) -> int:
        """The word at which the negatives start."""
        return int(first_negative(self.n_positive)) // BITS

    @property
    def words(self) -> int:
        """The length of a bit row."""
        return self.split + -(-self.n_negative // BITS)

    @property
    def bit_of(self) -> NDArray[np.intp]:
        """The bit of every sample (samples,)."""
        place = np.empty(len(self), dtype=np.intp)
        place[self.order] = np.arange(len(self))
        return np.where(place < self.n_positive, place, place + BITS * self.split - self.n_positive)

    def bit_weights(self, weights: Floats) -> Floats:
        """Weights of samples (samples,) as weights of bits (64 words,); padding weighs nothing."""
        of_bits = np.zeros(BITS * self.words)
        of_bits[self.bit_of] = weights
        return of_bits


# Rows a task: at 20,000 samples, 2,048 bit rows are 5 MB and one pass over them takes 0.4 ms, far more than
# to hand them to a thread.
COUNTED_AT_ONCE = 2048


@dataclass(frozen=True, eq=False)
class BitResponses:
    """Responses of M weak learners to samples of two classes as bit rows (M, words).

    Arrays of two rows have the positives in row 0 and the negatives in row 1. Samples are weighed and
    returned in the order of the labels that the layout was made of. 162,336 learners on 20,000 samples take
    408 MB; a byte each would take 3.2 GB.

    >>> responses = np.array([[1, 0, 1], [1, 1, 0]], dtype=bool)
    >>> bits = BitResponses.from_responses(responses, np.array([True, True, False]))
    >>> bits.counts()
    array([[1, 2],
           [1, 0]])
    >>> bits.count_common(bits.bits[0])  # with the first learner
    array([[1, 1],
           [1, 0]])
    >>> bits.weighted_errors(np.array([0.25, 0.25, 0.5]))
    array([0.75, 0.  ])
    """

    bits: NDArray[np.uint64]
    layout: SampleLayout
    threads: int | None = None

    @classmethod
    def from_responses(cls, responses: NDArray[np.bool_], is_positive: NDArray[np.bool_]) -> BitResponses:
        """Pack a matrix of responses (M, samples)."""
        layout = SampleLayout.from_labels(is_positive)
        bits = np.empty((len(responses), layout.words), dtype=np.uint64)
        flags, bit_of = np.zeros(BITS * layout.words, dtype=np.uint8), layout.bit_of
        for row, words in zip(responses, bits, strict=True):
            flags[bit_of] = row
            pack(flags, words)
        return cls(bits, layout)

    def __len__(self) -> int:
        return len(self.bits)

    def __sizeof__(self) -> int:  # by which Dask knows what a worker holds
        return self.bits.nbytes

    def row(self, j: int) -> NDArray[np.bool_]:
        """The responses of learner j (samples,)."""
        flags = np.empty(BITS * self.layout.words, dtype=np.uint8)
        unpack(self.bits[j], flags)
        return flags[self.layout.bit_of].view(np.bool_)

    def take(self, indices: Indices) -> BitResponses:
        """The responses of the learners at these indices, in this order."""
        return BitResponses(np.ascontiguousarray(self.bits[indices]), self.layout, self.threads)

    def counts(self) -> Int64s:
        """How many samples of each class a learner responds to (2, M)."""
        counts = np.empty((2, len(self)), dtype=np.int64)

        def count(rows: slice) -> None:
            count_rows(self.bits[rows], self.layout.split, counts[0, rows], counts[1, rows])

        for_each_block(count, len(self), COUNTED_AT_ONCE, self.threads)
        return counts

    def count_among(self, chosen: NDArray[np.bool_]) -> Int64s:
        """How many of the chosen samples (samples,) of each class every learner responds to (2, M)."""
        flags = np.zeros(BITS * self.layout.words, dtype=np.uint8)
        flags[self.layout.bit_of] = chosen
        words = np.empty(self.layout.words, dtype=np.uint64)
        pack(flags, words)
        return self.count_common(words)

    def count_common(self, chosen: NDArray[np.uint64]) -> Int64s:
        """How many samples of each class are among the chosen bits (words,), and every learner responds to (2, M)."""
        counts = np.empty((2, len(self)), dtype=np.int64)

        def count(rows: slice) -> None:
            count_common_rows(self.bits[rows], chosen, self.layout.split, counts[0, rows], counts[1, rows])

        for_each_block(count, len(self), COUNTED_AT_ONCE, self.threads)
        return counts

    def weighted_errors(self, weights: Floats) -> Floats:
        """The weight of the samples (samples,) that each learner gets wrong (M,).

        That is the weight of all positives, less that of the positives it responds to, plus that of the
        negatives it responds to.
        """
        signed = self.layout.bit_weights(weights)
        signed[: BITS * self.layout.split] *= -1
        errors = np.full(len(self), -signed[: BITS * self.layout.split].sum())

        def weigh(rows: slice) -> None:
            weigh_rows(self.bits[rows], signed, errors[rows])

        # Weighing goes down the rows word by word; 1,024 rows of 20,000 samples are 2.5 MB and stay in the cache.
        for_each_block(weigh, len(self), 1024, self.threads)
        return errors

    def described(self, i: int, first: int = 0, stride: int = 1) -> DescribedLearner:
        """What other blocks need of learner i; this block has every `stride`-th of all learners, from `first` on."""
        words = self.bits[i].copy()
        counts = np.empty((2, 1), dtype=np.int64)
        count_rows(words[None], self.layout.split, counts[0], counts[1])
        return DescribedLearner(first + i * stride, words, counts[:, 0])

    def scatter(self, criterion: Criterion, ridge: float, first: int = 0, stride: int = 1) -> Scatter:
        """What greedy selection needs, by popcount; the numbers of `Scatter.from_statistics`, to the last bit."""
        n = (self.layout.n_positive, self.layout.n_negative)
        s = self.counts().astype(np.float64)
        classes = (0, 1) if criterion == "fda" else (0,)
        diagonal = np.zeros(len(self))
        for c in classes:
            diagonal += s[c] - s[c] * s[c] / n[c]
        row = partial(_scatter_row, self, s, classes, ridge, first, stride)
        described = partial(self.described, first=first, stride=stride)
        return Scatter(s[0] / n[0] - s[1] / n[1], diagonal + ridge, row, described, self.bits.nbytes)


class DescribedLearner(NamedTuple):
    """A learner by its number, the bits of its responses (words,) and how many there are in each class (2,)."""

    number: int
    words: NDArray[np.uint64]
    counts: Int64s


def _scatter_row(
    responses: BitResponses,
    s: Floats,
    classes: Sequence[int],
    ridge: float,
    first: int,
    stride: int,
    learner: DescribedLearner,
) -> Floats:
    """The scatter (M,) of a learner, of this block or of another, with all learners of a block."""
    n = (responses.layout.n_positive, responses.layout.n_negative)
    common = responses.count_common(learner.words)
    total = np.zeros(len(responses))
    for c in classes:
        total += common[c] - float(learner.counts[c]) * s[c] / n[c]
    place, is_elsewhere = divmod(learner.number - first, stride)
    if not is_elsewhere:
        total[place] += ridge
    return total


@dataclass(frozen=True, eq=False)
class Responses:
    """Responses of M weak learners to samples of two classes, in blocks of `BitResponses` that workers hold.

    Learner j is in block j modulo the number of blocks: features that lie side by side take the same time, so that all
    blocks take the same. What is asked of all learners is computed where the blocks are; bits of single learners come
    here.

    >>> from whet.parallel.workers import ALL_THREADS
    >>> matrix = np.array([[1, 0, 1], [1, 1, 0]], dtype=bool)
    >>> block = BitResponses.from_responses(matrix, np.array([True, True, False]))
    >>> responses = Responses([block], len(block), block.layout, ALL_THREADS)
    >>> len(responses), responses.row(1)
    (2, array([ True,  True, False]))
    """

    blocks: Sequence[Held]
    n: int
    layout: SampleLayout
    workers: Workers
    _words: dict[int, NDArray[np.uint64]] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return self.n

    def row(self, j: int) -> NDArray[np.bool_]:
        """The responses of learner j (samples,)."""
        return self.take(np.array([j])).row(0)

    def take(self, indices: Indices) -> BitResponses:
        """The responses of the learners at these indices, in this order; each is fetched once."""
        numbers = np.arange(self.n)[indices].tolist()
        missing = [j for j in numbers if j not in self._words]
        places = [j // len(self.blocks) for j in missing]
        fetched = self.workers.map(_words_of, [self.blocks[j % len(self.blocks)] for j in missing], places)
        self._words.update(zip(missing, fetched, strict=True))
        rows = np.array([self._words[j] for j in numbers], np.uint64).reshape(-1, self.layout.words)
        return BitResponses(rows, self.layout, self.workers.threads)

    def weighted_errors(self, weights: Floats) -> Floats:
        """The weight of the samples (samples,) that each learner gets wrong (M,)."""
        found = np.empty(self.n)
        for k, part in enumerate(self.workers.map(BitResponses.weighted_errors, self.blocks, repeat(weights))):
            found[k :: len(self.blocks)] = part
        return found

    def count_among(self, chosen: NDArray[np.bool_]) -> Int64s:
        """How many of the chosen samples (samples,) of each class every learner responds to (2, M)."""
        found = np.empty((2, self.n), np.int64)
        for k, part in enumerate(self.workers.map(BitResponses.count_among, self.blocks, repeat(chosen))):
            found[:, k :: len(self.blocks)] = part
        return found

    def selected(self, criterion: Criterion, ridge: float, n_most: int) -> Iterator[tuple[int, float]]:
        """Greedy selection of learners: the index of each, and the separation with it."""
        settings = repeat(criterion), repeat(ridge), range(len(self.blocks)), repeat(len(self.blocks))
        candidates = self.workers.hold(_candidates, self.blocks, *settings)
        return rounds_of_blocks(candidates, n_most, self.workers)


def _words_of(block: BitResponses, i: int) -> NDArray[np.uint64]:
    words: NDArray[np.uint64] = block.bits[i].copy()
    return words


def _candidates(block: BitResponses, criterion: Criterion, ridge: float, first: int, stride: int) -> Candidates:
    return Candidates.from_scatter(block.scatter(criterion, ridge, first, stride), first, stride)


def class_statistics(
    responses: BitResponses | Responses, indices: NDArray[np.intp]
) -> tuple[BinaryStatistics, BinaryStatistics]:
    """Statistics of the learners at these indices, over the positives and over the negatives.

    >>> bits = BitResponses.from_responses(np.array([[1, 0, 1], [1, 1, 0]], dtype=bool), np.array([True, True, False]))
    >>> positive, negative = class_statistics(bits, np.array([1, 0]))
    >>> positive.s, positive.C.tolist(), negative.n
    (array([2, 1]), [[2, 1], [1, 1]], 1)
    """
    layout, rows = responses.layout, responses.take(indices).bits
    words = slice(0, layout.split), slice(layout.split, None)
    counts = layout.n_positive, layout.n_negative
    return _statistics(rows[:, words[0]], counts[0]), _statistics(rows[:, words[1]], counts[1])


def _statistics(rows: NDArray[np.uint64], n: int) -> BinaryStatistics:
    C = np.zeros((len(rows), len(rows)), dtype=np.int64)
    add_co_occurrences(np.ascontiguousarray(rows), 1, C)
    return BinaryStatistics(n, np.diagonal(C).copy(), C)
