"""A detector that goes on learning: a frozen base, and what was learned since."""

from __future__ import annotations

from copy import copy

from whet.cascade.cascade import Cascade
from whet.cascade.stage import Stage
from whet.detector.base import Delta, DetectorBase, StageBase, check_count, check_statistics
from whet.detector.reporting import Reporting
from whet.errors import CannotLearnError, CannotMergeError, CannotUnlearnError
from whet.lda.statistics import BinaryStatistics


class TaughtDetector:
    """A base and a delta; together they are, to the last bit, the same weak learners trained on everything.

    Every change is made as a whole or, with an error, not at all. What the base was trained on cannot be taken
    out: it chose the weak learners. `reporting` says which boxes and scores are reported; it has no part in learning.

    >>> import numpy as np
    >>> from whet.features.haar import HaarKind, HaarPool
    >>> from whet.features.weak_learners import Stumps
    >>> from whet.lda.thresholds import Rate
    >>> right = Stumps(*(np.array([v]) for v in (0, np.float32(1.0), np.int8(1), 0.0)))
    >>> seen = [BinaryStatistics.from_samples(np.uint8([x]).T) for x in ([1, 1, 1, 0], [0, 0, 0, 1])]
    >>> features = HaarPool.from_window((4, 4), [HaarKind.X2]).take(np.array([0]))
    >>> detector = TaughtDetector(DetectorBase((4, 4), (StageBase(features, right, *seen, Rate(-1.0)),)))
    >>> before = detector.cascade().stages[0].threshold
    >>> new = BinaryStatistics.from_samples(np.ones((2, 1), dtype=np.uint8))
    >>> detector.insert(0, True, new)
    >>> detector.learned.counts, detector.cascade().stages[0].threshold > before
    (((2, 0),), True)
    >>> detector.remove(0, True, new)
    >>> detector.cascade().stages[0].threshold == before
    True
    """

    def __init__(self, base: DetectorBase, learned: Delta | None = None, reporting: Reporting | None = None) -> None:
        self.base = base
        self.reporting = reporting or Reporting()
        self._learned = Delta.empty(self._sizes)
        self._cascade = base.cascade
        if learned is not None:
            self.insert_all(learned)

    @property
    def learned(self) -> Delta:
        """All that was learned since the base."""
        return self._learned

    @property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(len(stage) if isinstance(stage, StageBase) else 0 for stage in self.base.stages)

    def cascade(self) -> Cascade:
        """The cascade to be run now, derived from base and delta; nothing learned, it is the base's own."""
        return self._cascade

    def copy(self) -> TaughtDetector:
        """A detector that from here on learns on its own; the base is shared."""
        return copy(self)  # all that it holds are values: none is ever changed in place

    def insert(self, stage: int, is_positive: bool, new: BinaryStatistics) -> None:
        """Count further samples of one class in one stage."""
        self.insert_all(self._of_one_stage(stage, is_positive, new))

    def remove(self, stage: int, is_positive: bool, old: BinaryStatistics) -> None:
        """Take samples of one class out of one stage again; refuses what was not learned since the base."""
        self.remove_all(self._of_one_stage(stage, is_positive, old))

    def insert_all(self, new: Delta) -> None:
        """Count further samples in any of the stages."""
        self._check(new)
        self._become(self._learned + new, changed=new)

    def remove_all(self, old: Delta) -> None:
        """Take samples out of any of the stages again; refuses what was not learned since the base."""
        self._check(old)
        rest = self._learned - old
        if not rest.is_possible:
            raise CannotUnlearnError(
                "cannot unlearn these samples: they were not learned since the base, or not so often; "
                "nothing was changed"
            )
        self._become(rest, changed=old)

    def merge(self, other: TaughtDetector) -> None:
        """Add all that another detector on the same base has learned since that base.

        What both learned before they were copied apart would count twice. Frame and operating points stay as they are.
        """
        if self.base.base_id != other.base.base_id:
            raise CannotMergeError(
                f"these detectors do not share one base ({self.base.base_id[:12]} and {other.base.base_id[:12]}): "
                "merge copies of one detector"
            )
        self.insert_all(other.learned)

    def check_can_learn(self) -> None:
        """Raise CannotLearnError if all stages have fixed weights; those that have not learn for themselves."""
        if all(isinstance(stage, Stage) for stage in self.base.stages):
            raise CannotLearnError(
                "no stage has statistics: it runs, but cannot learn; train with GreedyLDA, or show an OpenCV cascade "
                "examples once, with `whet adopt` or whet.training.adopt.adopt"
            )

    def _of_one_stage(self, stage: int, is_positive: bool, statistics: BinaryStatistics) -> Delta:
        if not 0 <= stage < len(self.base.stages):
            raise IndexError(f"got stage {stage}; the detector has stages 0 to {len(self.base.stages) - 1}")
        if isinstance(self.base.stages[stage], Stage):
            raise CannotLearnError(
                f"stage {stage} has fixed weights and no statistics, as boosting makes it: it runs, but cannot learn; "
                "train the stages with GreedyLDA"
            )
        size = self._sizes[stage]
        if len(statistics.s) != size:
            raise ValueError(f"got statistics of {len(statistics.s)} responses; stage {stage} has {size} weak learners")
        return Delta.empty(self._sizes).with_inserted(stage, is_positive, statistics)

    def _check(self, delta: Delta) -> None:
        if delta.sizes != self._sizes:
            raise ValueError(f"got a delta of stages {delta.sizes}; the detector's that learn have {self._sizes}")
        for number, pair in enumerate(delta.stages):
            for name, statistics in zip(("positives", "negatives"), pair, strict=True):
                check_statistics(statistics, f"{name} in stage {number}")

    def _become(self, learned: Delta, changed: Delta) -> None:
        stages = list(self._cascade.stages)
        for number, counts in enumerate(changed.counts):
            if any(counts):
                stages[number] = self._stage(number, learned)
        self._cascade = Cascade(self.base.window, tuple(stages), self.base.min_sigma)
        self._learned = learned

    def _stage(self, number: int, learned: Delta) -> Stage:
        base, pair = self.base.stages[number], learned.stages[number]
        if isinstance(base, Stage) or not any(statistics.n for statistics in pair):
            return self.base.cascade.stages[number]
        for total, name in ((base.positive.n + pair[0].n, "positives"), (base.negative.n + pair[1].n, "negatives")):
            check_count(total, name)
        return base.stage(*pair)
