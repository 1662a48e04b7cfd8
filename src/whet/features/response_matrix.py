"""The responses of many weak learners to many samples, one bit each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet.features.family import Indices
from whet.features.parallel import for_each_block
from whet.features.sample_layout import SampleLayout
from whet.kernels.bits import BITS, count_common_rows, count_rows, pack, unpack
from whet.kernels.weighted_bits import weigh_rows

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

# Rows a task: at 20,000 samples, 2,048 bit rows are 5 MB and one pass over them takes 0.4 ms, far more than
# to hand them to a thread.
COUNTED_AT_ONCE = 2048
# Weighing goes down the rows word by word; 1,024 rows of 20,000 samples are 2.5 MB and stay in the cache.
WEIGHED_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class BitResponses:
    """Responses of M weak learners to samples of two classes as bit rows (M, words).

    Arrays of two rows have the positives in row 0 and the negatives in row 1. Samples are weighed and
    returned in the order of the labels that the layout was made of. 162,336 learners on 20,000 samples take
    408 MB; a byte each would take 3.2 GB.

    >>> responses = np.array([[1, 0, 1], [1, 1, 0]], dtype=bool)
    >>> bits = BitResponses.of(responses, np.array([True, True, False]))
    >>> bits.counts()
    array([[1, 2],
           [1, 0]])
    >>> bits.co_occurrence(0)
    array([[1, 1],
           [1, 0]])
    >>> bits.weighted_errors(np.array([0.25, 0.25, 0.5]))
    array([0.75, 0.  ])
    """

    bits: NDArray[np.uint64]
    layout: SampleLayout
    threads: int | None = None

    @classmethod
    def of(cls, responses: NDArray[np.bool_], is_positive: NDArray[np.bool_]) -> BitResponses:
        """Pack a matrix of responses (M, samples)."""
        layout = SampleLayout.of(is_positive)
        bits = np.empty((len(responses), layout.words), dtype=np.uint64)
        flags, bit_of = np.zeros(BITS * layout.words, dtype=np.uint8), layout.bit_of
        for row, words in zip(responses, bits, strict=True):
            flags[bit_of] = row
            pack(flags, words)
        return cls(bits, layout)

    def __len__(self) -> int:
        return len(self.bits)

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

    def co_occurrence(self, j: int) -> Int64s:
        """How many samples of each class learner j and every learner both respond to (2, M)."""
        return self._count_common(self.bits[j].copy())

    def count_among(self, chosen: NDArray[np.bool_]) -> Int64s:
        """How many of the chosen samples (samples,) of each class every learner responds to (2, M)."""
        flags = np.zeros(BITS * self.layout.words, dtype=np.uint8)
        flags[self.layout.bit_of] = chosen
        words = np.empty(self.layout.words, dtype=np.uint64)
        pack(flags, words)
        return self._count_common(words)

    def _count_common(self, chosen: NDArray[np.uint64]) -> Int64s:
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
        signed = self.layout.spread(weights)
        signed[: BITS * self.layout.split] *= -1
        errors = np.full(len(self), -signed[: BITS * self.layout.split].sum())

        def weigh(rows: slice) -> None:
            weigh_rows(self.bits[rows], signed, errors[rows])

        for_each_block(weigh, len(self), WEIGHED_AT_ONCE, self.threads)
        return errors
