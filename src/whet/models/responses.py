"""Responses of a model's weak learners to windows: packed bits, the only form in which they leave a model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet._kernels.response_bits import find_nearest

Words = NDArray[np.uint64]
Rows = NDArray[np.intp] | NDArray[np.bool_] | slice


@dataclass(frozen=True, eq=False)
class Responses:
    """Responses (n, n_weak) in {0, 1} of all weak learners to n windows, 64 to a word.

    >>> seen = Responses.from_bits(np.uint8([[0, 0, 0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1, 1]]))
    >>> len(seen), seen.n_weak, seen.to_bytes().tolist()
    (2, 9, [[15, 128], [255, 128]])
    >>> seen.distances(seen.take(slice(1)))
    array([0, 4])
    """

    words: Words
    n_weak: int

    @classmethod
    def empty(cls, n_weak: int) -> Responses:
        """Of no windows."""
        return cls(np.empty((0, -(-n_weak // 64)), np.uint64), n_weak)

    @classmethod
    def from_bits(cls, bits: NDArray[np.uint8] | NDArray[np.bool_]) -> Responses:
        """From one byte per response (n, n_weak)."""
        return cls(_padded(np.packbits(bits, axis=1)), bits.shape[1])

    @classmethod
    def from_bytes(cls, packed: NDArray[np.uint8], n_weak: int) -> Responses:
        """From the bytes (n, n_weak / 8) of a file; raises ValueError unless they are responses of `n_weak`."""
        if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] != -(-n_weak // 8):
            raise ValueError(
                f"got responses of {packed.dtype} {packed.shape}; expected (windows, {-(-n_weak // 8)}) bytes for "
                f"{n_weak} weak learners"
            )
        if n_weak % 8 and (packed[:, -1] & (0xFF >> n_weak % 8)).any():
            raise ValueError(f"got responses of more weak learners than {n_weak}")
        return cls(_padded(packed), n_weak)

    def to_bytes(self) -> NDArray[np.uint8]:
        """The bytes (n, n_weak / 8) of a file, eight responses to a byte, the first one highest."""
        return np.ascontiguousarray(self.words.view(np.uint8)[:, : -(-self.n_weak // 8)])

    def __len__(self) -> int:
        return len(self.words)

    @property
    def bits(self) -> NDArray[np.uint8]:
        """One byte per response (n, n_weak)."""
        return np.unpackbits(self.words.view(np.uint8), axis=1, count=self.n_weak)

    @property
    def rows(self) -> frozenset[bytes]:
        """The distinct rows, each as bytes."""
        return frozenset(row.tobytes() for row in self.words)

    def take(self, rows: Rows) -> Responses:
        """Those of the windows at these indices, in this order."""
        return Responses(self.words[rows], self.n_weak)

    @classmethod
    def concatenate(cls, parts: Iterable[Responses], n_weak: int) -> Responses:
        """One after the other; those of no parts have `n_weak` all the same."""
        return cls(np.concatenate([cls.empty(n_weak).words, *(part.words for part in parts)]), n_weak)

    @property
    def far(self) -> int:
        """A distance that no two windows have; four times as far as any."""
        return 4 * self.n_weak

    def nearest(self, known: Responses) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """The least Hamming distance (n,) to known windows, and which it is, the first of equals; `far` without any."""
        distance, which = np.full(len(self), self.far, np.int64), np.zeros(len(self), np.intp)
        if len(self) and len(known):
            find_nearest(self.words, known.words, distance, which)
        return distance, which

    def distances(self, known: Responses) -> NDArray[np.int64]:
        """The least Hamming distance (n,) to known windows."""
        return self.nearest(known)[0]


def _padded(packed: NDArray[np.uint8]) -> Words:
    """Rows of bytes as whole words."""
    padded = np.zeros((len(packed), 8 * -(-packed.shape[1] // 8)), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.uint64)
