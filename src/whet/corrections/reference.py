"""The reference set: responses to held-out samples, by which every change of a detector is judged without images.

One part guards: corrections must not lose its positives, nor accept more of its negatives. The other part judges:
recall, false positives per image, operating points and probabilities are estimated on it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol
from weakref import WeakKeyDictionary

import numpy as np

from whet.arrays import Bools, Float32s, Floats, Indices, Int32s, Int64s, Pixels
from whet.models.responses import Responses

# What a sample is for: guard or judge, positive or negative.
GUARD_POSITIVE, GUARD_NEGATIVE, POSITIVE, NEGATIVE = range(4)
# Of an object that is rejected in cross-validation; files have gains above 0.
LEAST_GAIN = 1e-3


@dataclass(frozen=True, eq=False)
class Reference:
    """Responses (n,) of all weak learners to windows of held-out objects and of other places.

    `part` (n,) says what each window is for. Windows with the same `item` (n,) are of one object: it is found if one of
    them is. `gain` (n,) is the score of the whole detection in the base over that of its best window. The judging
    negatives are those of `n_images` images. If the objects were trained on (`was_trained_on`), their gains make of
    their scores those that they have in cross-validation.
    """

    responses: Responses
    part: Pixels
    gain: Float32s
    item: Int32s
    n_images: int
    was_trained_on: bool = False

    def __post_init__(self) -> None:
        n = len(self.part)
        if len(self.responses) != n or not self.gain.shape == self.item.shape == (n,):
            raise ValueError(
                f"got {len(self.responses)} reference responses and gains {self.gain.shape}; expected {n} of each"
            )
        if (self.part > NEGATIVE).any() or not (np.isfinite(self.gain) & (self.gain > 0)).all() or self.n_images < 0:
            raise ValueError("a reference set has parts 0 to 3, gains above 0 and a number of images from 0")

    @cached_property
    def digest(self) -> str:
        """Hash of all samples."""
        digest = hashlib.sha256(f"{self.n_images} {self.responses.n_weak} {self.was_trained_on}".encode())
        for array in (self.responses.words, self.part, self.gain, self.item):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def of(self, part: int) -> Responses:
        """Responses of the samples of one part."""
        return self.responses.take(self.part == part)

    def take(self, rows: Bools) -> Reference:
        """The set of some of its samples (n,)."""
        arrays = {name: getattr(self, name)[rows] for name in ("part", "gain", "item")}
        return replace(self, responses=self.responses.take(rows), **arrays)

    @cached_property
    def guards(self) -> tuple[Responses, Responses]:
        """Responses of guarding positives and negatives."""
        return self.of(GUARD_POSITIVE), self.of(GUARD_NEGATIVE)

    @cached_property
    def guard_rows(self) -> tuple[frozenset[bytes], frozenset[bytes]]:
        """The guards as sets of responses."""
        return self.guards[0].rows, self.guards[1].rows

    @cached_property
    def guarded_positives(self) -> tuple[Responses, Int64s]:
        """Responses of the best window of each judging object, and distances (n,) to the nearest guard.

        The best is the first of its item.
        """
        rows = np.flatnonzero(self.part == POSITIVE)
        best = self.responses.take(rows[np.unique(self.item[rows], return_index=True)[1]])
        return best, best.distances(self.guards[0])

    @cached_property
    def judging(self) -> list[tuple[Responses, Floats, Indices]]:
        """Responses, gains (n,) and numbers of items (n,) of judging positives, and of negatives."""
        judging = []
        for part in (POSITIVE, NEGATIVE):
            rows = self.part == part
            items = np.unique(self.item[rows], return_inverse=True)[1]
            judging.append((self.of(part), self.gain[rows].astype(np.float64), items))
        return judging

    def judge(self, scorer: Scorer) -> HeldOutScores:
        """The scores of the judging half; the last ones of a scorer are kept as long as it is."""
        known = _judged.get(scorer)
        if known is None or known[0] is not self:
            positive, negative = (
                item_scores(scorer.scores(responses), gain, items) for responses, gain, items in self.judging
            )
            known = _judged[scorer] = self, HeldOutScores(positive, negative, self.n_images)
        return known[1]


class Scorer(Protocol):
    """What gives windows scores by their responses: votes, or a corrected model."""

    def scores(self, responses: Responses) -> Floats:
        """Scores (n,), -inf for rejected windows."""


_judged: WeakKeyDictionary[Scorer, tuple[Reference, HeldOutScores]] = WeakKeyDictionary()


def item_scores(scores: Floats, gain: Floats, items: Indices) -> Floats:
    """The score of each item: the best of its windows, times its gain."""
    best = np.full(int(items.max(initial=-1)) + 1, -np.inf)
    is_rejected = np.isneginf(scores) | (gain <= LEAST_GAIN)
    np.maximum.at(best, items, np.where(is_rejected, -np.inf, scores * gain))
    return best


@dataclass(frozen=True)
class Estimate:
    """Recall and false positives per image at an operating point, estimated on the reference set.

    >>> print(Estimate(0.985, 0.11))
    recall 98.5 %, 0.11 false positives per image
    """

    recall: float
    false_positives_per_image: float

    def __str__(self) -> str:
        return f"recall {self.recall:.1%}".replace("%", " %") + (
            f", {self.false_positives_per_image:.2g} false positives per image"
        )


@dataclass(frozen=True, eq=False)
class HeldOutScores:
    """Scores of held-out objects (n,) and of other places (m,) in `n_images` images; -inf where they are rejected."""

    positive: Floats
    negative: Floats
    n_images: int

    @property
    def is_usable(self) -> bool:
        """Whether there are samples of both kinds."""
        return len(self.positive) > 0 and self.n_images > 0

    def estimate(self, min_score: float) -> Estimate:
        """Recall and false positives per image at a minimum score."""
        return Estimate(
            float((self.positive > min_score).mean()), float((self.negative > min_score).sum()) / self.n_images
        )

    def followed(self, before: HeldOutScores, point: float) -> float:
        """The minimum score that stands for what `point` stood for before: as much recall, and no more false positives.

        It rises where there are more false positives than before. Where objects were lost and false positives too, it
        falls until as many objects are found as before, or nine tenths of the false positives are back. It falls by at
        most a third: the reference set knows little of what lies far below.

        >>> before = HeldOutScores(np.array([90.0, 8.5]), np.array([9.0, 8.5, 8.0, 2.0]), 10)
        >>> round(HeldOutScores(np.array([90.0, 7.5]), np.array([8.0, 7.4, 7.0, 1.0]), 10).followed(before, 7.8), 6)
        7.5
        >>> HeldOutScores(np.array([90.0, 8.0]), np.array([8.0, 7.4, 7.0, 1.0]), 10).followed(before, 7.8)
        7.8
        >>> HeldOutScores(np.array([90.0, 8.0]), np.array([9.0, 8.5, 8.0, 7.9]), 10).followed(before, 7.8)
        7.9
        """
        n_wrong, wrong = int((before.negative > point).sum()), np.sort(self.negative)[::-1]
        n_found, found = int((before.positive > point).sum()), np.sort(self.positive)[::-1]
        most, fewer = (float(wrong[n]) if n < len(wrong) else -np.inf for n in (n_wrong, int(LEFT * n_wrong)))
        needed = float(np.nextafter(found[n_found - 1], -np.inf)) if n_found else point
        lowered = max(fewer, LOWEST * point, needed) if n_wrong else point
        return max(min(point, lowered), most)

    @cached_property
    def calibration(self) -> Calibration:
        """Probabilities of scores."""
        return Calibration.fitted(self)


@dataclass(frozen=True)
class Calibration:
    """The probability that a detection of some score is an object: 1 / (1 + exp(-slope log(score) - intercept)).

    It holds for images in which there is one object on average.

    >>> at = Calibration(4.0, -12.0).probability(np.array([10.0, 20.0, 40.0]))
    >>> at.round(2)
    array([0.06, 0.5 , 0.94])
    """

    slope: float
    intercept: float

    @classmethod
    def fitted(cls, held_out: HeldOutScores) -> Calibration:
        """Logistic regression on the scores of both kinds, by Newton's method; the slope is never negative."""
        sides = [scores[scores > 0] for scores in (held_out.positive, held_out.negative)]
        x = np.log(np.concatenate(sides))
        y = np.repeat([1.0, 0.0], [len(side) for side in sides])
        # As many objects as images.
        weight = np.where(y == 1, held_out.n_images / max(len(held_out.positive), 1), 1.0)
        centre = float(x.mean()) if len(x) else 0.0
        x, beta = x - centre, np.array([1.0, 0.0])
        X = np.stack([x, np.ones_like(x)])
        for _ in range(50):
            p = 1 / (1 + np.exp(-np.clip(beta @ X, -500, 500)))
            gradient = X @ (weight * (y - p)) - RIDGE * beta
            curvature = (X * (weight * p * (1 - p))) @ X.T + RIDGE * np.eye(2)
            step = np.linalg.solve(curvature, gradient)
            beta = beta + np.clip(step, -2, 2)
            if abs(step).max() < 1e-10:
                break
        slope = max(float(beta[0]), 0.0)
        return cls(slope, float(beta[1]) - slope * centre)

    def probability(self, scores: Floats) -> Floats:
        """Probabilities (n,) of scores (n,) above 0; monotone."""
        logit = self.slope * np.log(np.maximum(scores, 1e-300)) + self.intercept
        return np.asarray(1 / (1 + np.exp(-np.clip(logit, -500, 500))))


def probability_by(
    reference: Reference | None, held_out: Callable[[], HeldOutScores | None]
) -> Callable[[Floats, Indices], Floats] | None:
    """Probabilities of detections by held-out scores, which are computed when they are asked for; None without images.

    NaN where there are no scores.
    """
    if reference is None or not reference.n_images:
        return None

    def probability(scores: Floats, _: Indices) -> Floats:
        judged = held_out()
        return np.full(len(scores), np.nan) if judged is None else judged.calibration.probability(scores)

    return probability


# The share of false positives that an operating point has at most after corrections that removed some, and how far it
# may fall.
LEFT = 0.9
LOWEST = 2 / 3
# A weak prior: one set of few samples may be separable.
RIDGE = 0.1
