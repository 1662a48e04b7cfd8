"""Self-training: which tracked windows are learned, how long they are kept, and what they may not damage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, fsum, pi, sqrt
from typing import NamedTuple

import numpy as np

from whet._kernels.lda_algebra import project_binary
from whet.corrections.records import Record
from whet.detector.detector import Detector
from whet.errors import CannotLearnError
from whet.models.contract import Model, family_of

# Of the way from the scores of false positives to those of objects: the round share that brings the face detector
# closest, with 39.6, to the 40 that was chosen for it on made-up footage.
MIN_SCORE_SHARE = 0.4
# The note of records that a tracker has made; the next session on the same model takes them over.
TRACKED = "tracked"


@dataclass(frozen=True)
class SelfTraining:
    """When a frame is learned, with which weight, and how long it is kept. Chosen on made-up footage.

    A tracked window is learned if its score is above `learn_min_score`. Without it, this score comes from the detector,
    between the scores of false positives and of objects in its training. Each update counts `share` of the positives
    that the base was trained on, and the last `kept` of these shares are kept: what is older is unlearned. Updates are
    counted together: the first at once, then two, four and so on, up to `every`.

    The reference set of the detector guards it: updates are rolled back if the detector would lose more than `max_lost`
    of the held-out objects, or have more than `max_false_positives` times as many false positives on held-out images,
    both compared with the detector without tracked windows. A detector without a reference set cannot be guarded, and
    learns from its tracks only with `guarded=False`.
    """

    learn_min_score: float | None = None
    share: float = 0.004
    kept: float = 0.125
    every: int = 32
    max_lost: float = 0.02
    max_false_positives: float = 1.1
    guarded: bool = True

    def weight(self, detector: Detector) -> int:
        """How often an update counts: a whole number that depends on the base alone."""
        statistics = family_of(detector.model.family).statistics(detector.base.model)
        counts = [pair[0].n for pair in statistics if pair is not None]
        return max(1, round(self.share * min(counts, default=0)))

    def learn_min_score_for(self, detector: Detector) -> float:
        """The score above which a tracked window is learned: that which is set, or one that the base decides."""
        if self.learn_min_score is not None:
            return self.learn_min_score
        negative, positive = expected_scores(detector.base.model)
        return negative + MIN_SCORE_SHARE * (positive - negative)

    def max_kept(self) -> int:
        """How many updates are kept."""
        return max(self.every, round(self.kept / self.share))

    def guard_of(self, detector: Detector) -> Guard | None:
        """The guard of a detector, or None if it is not guarded; raises `CannotLearnError` without a reference set."""
        if not self.guarded:
            return None
        clean = detector.copy()
        clean.only.replace_records(remove=tracked_records(detector.records))
        start = health_of(clean)
        if start is None:
            raise CannotLearnError(
                "this detector has no reference set of held-out samples, so that damage by tracked windows would not "
                "be noticed; train it with `whet train`, or use --unguarded (SelfTraining(guarded=False)) and evaluate "
                "the result"
            )
        return Guard(start, self.max_lost, self.max_false_positives)


def tracked_records(records: Iterable[Record]) -> list[Record]:
    """Those that a tracker has made, the oldest first."""
    tracked = [record for record in records if record.kind == "example" and record.note == TRACKED]
    return sorted(tracked, key=lambda record: (record.time, record.image, not record.is_object, record.id))


def weight_change(detector: Detector) -> float:
    """Distance of the weights of all stages from those of the base, relative to their length; 0 without learning."""
    now, base = detector.model.votes.coef, detector.base.model.votes.coef
    return float(np.linalg.norm(now - base) / np.linalg.norm(base))


class Health(NamedTuple):
    """What the reference set says of a detector.

    `accepted` is the share of held-out objects that all stages accept, `recall` the share that is found at the default
    operating point, `false_positives` their number per image at this point.
    """

    accepted: float
    recall: float
    false_positives: float


def health_of(detector: Detector) -> Health | None:
    """The health of a detector as it is now; None without a reference set.

    >>> import whet
    >>> health = health_of(whet.load("face"))
    >>> round(health.accepted, 2), round(health.recall, 2), round(health.false_positives, 1)
    (1.0, 0.98, 0.1)
    """
    reference, estimate = detector.base.reference, detector.estimate
    if reference is None or estimate is None:
        return None
    accepted = float((reference.judge(detector.only.corrected).positive > 0).mean())
    return Health(accepted, estimate.recall, estimate.false_positives_per_image)


@dataclass(frozen=True)
class Guard:
    """How much worse than `start` a detector may become.

    >>> guard = Guard(Health(0.99, 0.98, 0.1), max_lost=0.02, max_false_positives=1.1)
    >>> guard.allows(Health(0.98, 0.965, 0.1)), guard.allows(Health(0.98, 0.95, 0.1)), guard.allows(Health(1, 1, 0.2))
    (True, False, False)
    """

    start: Health
    max_lost: float
    max_false_positives: float

    def allows(self, now: Health | None) -> bool:
        """Whether a detector of this health may stay as it is."""
        if now is None:
            return False
        lost = max(self.start.accepted - now.accepted, self.start.recall - now.recall)
        return lost <= self.max_lost and now.false_positives <= self.max_false_positives * self.start.false_positives


class ExpectedScores(NamedTuple):
    """The mean score of negatives that pass all stages, and that of positives."""

    negative: float
    positive: float


def expected_scores(model: Model) -> ExpectedScores:
    """The scores of the samples that a model was trained on, by its own weights and thresholds.

    That of the positives is exact if all stages counted the same ones: the mean of a sum is the sum of the means.
    Negatives of a stage are taken for a Gaussian, of which those above the threshold pass.

    >>> import whet
    >>> scores = expected_scores(whet.load("face").base.model)
    >>> round(scores.negative, 2), round(scores.positive, 2)
    (10.71, 82.83)
    """
    votes, statistics = model.votes, family_of(model.family).statistics(model)
    means = []
    for stage in range(votes.first_scoring, len(votes.ends)):
        coef, threshold = votes.coef[votes.columns[stage]], float(votes.threshold[stage])
        counted = statistics[stage] if statistics else None
        if counted is None:
            # If responses were tossed coins, this would be the deviation of their sum. In the later halves of five of
            # OpenCV's cascades, the mean margin of faces is 0.8 to 1.5 times that (docs/decisions.md).
            deviation = sqrt(fsum(coef**2)) / 2
            means.append((_mean_above_zero(-deviation, deviation), deviation))
        else:
            (positive, _), (negative, variance) = (
                project_binary(side.n, side.s, side.C, coef, np.zeros_like(coef)) for side in counted
            )
            passing = _mean_above_zero(float(negative - threshold), sqrt(max(variance, 0.0)))
            means.append((passing, float(positive - threshold)))
    return ExpectedScores(*(fsum(of_class) for of_class in zip(*means, strict=True)))


def _mean_above_zero(mean: float, deviation: float) -> float:
    """The mean of that part of a Gaussian which is above zero."""
    from scipy.special import log_ndtr

    deviation = max(deviation, 1e-3 * abs(mean), 1e-12)
    z = mean / deviation
    return mean + deviation * exp(-z * z / 2 - float(log_ndtr(z))) / sqrt(2 * pi)
