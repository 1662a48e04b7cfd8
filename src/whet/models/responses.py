"""Responses of the weak learners of a model to windows, as packed bits, and how it decides by them: its votes.

Packed bits are the only form in which responses leave a model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from whet._kernels.response_bits import find_nearest, lowest_sums, stage_margins, vote
from whet.arrays import Floats, Words

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


# Windows are grouped by the sums of the fourth powers of their scores, which then stay far from the largest float.
# Leaves of OpenCV's cascades, in float32, reach 7e38.
HEAVIEST = 1e40


@dataclass(frozen=True, eq=False)
class Votes:
    """Weights of all weak learners, stage by stage, and the sums that a window has to exceed.

    Stage s ends before weak learner `ends[s]`. The margin of a window in a stage is the weighted sum of its responses
    there minus `threshold` (stages,). After each weak learner, the sum so far has to exceed `limits` (n_weak,), or the
    window is rejected; -inf rejects nothing. Sums are taken in the order of the weak learners, so that every
    implementation has the same bits. `units` (stages,) are the units of margins: a model with other weights for the
    same weak learners keeps them. Without `has_units` they are a guess, and nothing can be corrected. The score of a
    window is the sum of its margins from stage `first_scoring` on.

    >>> votes = Votes.from_stages([np.array([1.0, 2.0])], [1.5], [None])
    >>> seen = Responses.from_bits(np.uint8([[1, 0], [0, 1], [1, 1]]))
    >>> votes.scores(seen)
    array([-inf,  0.5,  1.5])
    >>> votes.loosened(1.0).scores(seen)
    array([-0.5,  0.5,  1.5])
    """

    coef: Floats
    ends: NDArray[np.intp]
    threshold: Floats
    limits: Floats
    units: Floats
    first_scoring: int = 0
    has_units: bool = True

    def check(self) -> None:
        """Raise ValueError for weights and thresholds that no training makes."""
        if not (abs(self.coef) <= HEAVIEST).all() or not (abs(self.threshold) <= HEAVIEST * self.n_weak).all():
            raise ValueError(f"weights and thresholds must be finite numbers, and weights at most {HEAVIEST:g}")
        if not (self.units > 0).all():
            raise ValueError("the weights of a stage are all 0: it cannot decide")
        if not (self.limits < np.inf).all():
            raise ValueError("a rejection threshold must be a number below infinity, or -inf where there is none")

    @classmethod
    def from_stages(
        cls,
        coef: list[Floats],
        threshold: list[float],
        rejection: list[Floats | None],
        first_scoring: int = 0,
    ) -> Votes:
        """Votes of stages with weights (T,), a threshold and thresholds (T,) after each weak learner, or None.

        The unit of a stage is the length of its weights, summed in order.
        """
        limits = []
        for weights, least, partial in zip(coef, threshold, rejection, strict=True):
            of_stage = np.full(len(weights), -np.inf) if partial is None else partial.copy()
            of_stage[-1] = max(of_stage[-1], least)
            limits.append(of_stage)
        with np.errstate(over="ignore"):  # `check` refuses such weights
            units = np.array([np.sqrt(np.cumsum(weights * weights)[-1]) for weights in coef])
        ends = np.cumsum([len(weights) for weights in coef])
        return cls(np.concatenate(coef), ends, np.array(threshold), np.concatenate(limits), units, first_scoring)

    @property
    def n_weak(self) -> int:
        """Weak learners of all stages."""
        return len(self.coef)

    @cached_property
    def columns(self) -> tuple[slice, ...]:
        """The weak learners of each stage."""
        starts = [0, *self.ends[:-1].tolist()]
        return tuple(slice(start, end) for start, end in zip(starts, self.ends.tolist(), strict=True))

    @property
    def unit(self) -> float:
        """The unit of scores: those of the margins that they are the sum of."""
        return float(self.units[self.first_scoring :].sum())

    def scores(self, responses: Responses) -> Floats:
        """Scores (n,) of windows with these responses; -inf where they are rejected."""
        scores = np.empty(len(responses))
        vote(responses.words, self.coef, self.ends, self.threshold, self.limits, self.first_scoring, scores)
        return scores

    def closeness(self, responses: Responses) -> Floats:
        """The lowest margin (n,) over all stages, in units; above 0, no stage rejects the window at its end."""
        margins = np.empty((len(responses), len(self.ends)))
        stage_margins(responses.words, self.coef, self.ends, self.threshold, margins)
        return np.asarray((margins / self.units).min(axis=1))

    def rejecting_stages(self, responses: Responses) -> NDArray[np.intp]:
        """The stage (n,) that rejects each window; the number of stages for windows that none rejects."""
        bits, stage = responses.bits, np.full(len(responses), len(self.ends))
        for number, columns in reversed(list(enumerate(self.columns))):
            sums = np.cumsum(bits[:, columns] * self.coef[columns], axis=1)
            stage[~(sums > self.limits[columns]).all(axis=1)] = number
        return stage

    def limits_for(self, responses: Responses) -> Floats:
        """Limits (n_weak,) that windows with these responses just exceed; inf without any."""
        sums = np.full(self.n_weak, np.inf)
        lowest_sums(responses.words, self.coef, self.ends, sums)
        return np.asarray(np.where(np.isinf(sums), np.inf, np.nextafter(sums, -np.inf)))

    def lowered(self, limits: Floats) -> Votes:
        """The same with limits (n_weak,) lowered to these, where they are lower."""
        return replace(self, limits=np.minimum(self.limits, limits))

    def loosened(self, by: float) -> Votes:
        """The same with all limits lower by this many units of their stage."""
        units = np.repeat(self.units, np.diff(self.ends, prepend=0))
        return replace(self, limits=self.limits - by * units)

    @lru_cache(maxsize=8)  # noqa: B019 - a scan keeps what it compiles for votes, so that equal ones are to be the same
    def nearly(self, by: float) -> Votes:
        """The same with limits at the end of each stage only, lower by this many units: `closeness` above -`by`."""
        limits = np.full(self.n_weak, -np.inf)
        limits[self.ends - 1] = self.threshold - by * self.units
        return replace(self, limits=limits)

    @cached_property
    def unlimited(self) -> Votes:
        """The same without limits: every window is accepted."""
        return replace(self, limits=np.full(self.n_weak, -np.inf))
