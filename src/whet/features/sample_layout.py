"""How samples lie in a bit row: the positives first, the negatives from a whole word on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet.kernels.bit_rows import first_negative
from whet.kernels.bits import BITS

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SampleLayout:
    """The order of samples in bit rows, so that a class is a range of whole words.

    `order` (samples,) lists the samples, positives first, each class in the order in which it came.

    >>> layout = SampleLayout.of(np.array([False, True, True]))
    >>> layout.order, layout.split, layout.words
    (array([1, 2, 0]), 1, 2)
    """

    order: NDArray[np.intp]
    n_positive: int

    @classmethod
    def of(cls, is_positive: NDArray[np.bool_]) -> SampleLayout:
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
        """Which samples are positive (samples,), in the order in which they came."""
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

    def spread(self, weights: Floats) -> Floats:
        """Weights of samples (samples,) as weights of bits (64 words,); padding weighs nothing."""
        spread = np.zeros(BITS * self.words)
        spread[self.bit_of] = weights
        return spread
