"""Does a detector hold what it claims? Its statistics, weights, corrections and file, each derived in another way.

`Detector.check` and `whet inspect --check` run these. A file that loads has passed cheaper checks of its own; these
find what only forged counts, damaged memory or a fault of whet itself could bring about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from whet.cascade.stage import LearningStage
from whet.detector.derive import own_windows
from whet.detector.records import State
from whet.lda.discriminant import degrees_of_freedom, regularised_scatter
from whet.lda.statistics import BinaryStatistics

if TYPE_CHECKING:
    from whet.detector.detector import Detector

# Shares of the largest entries that the rounding of float64 may leave.
NEGATIVE_EIGENVALUE = 1e-9
RESIDUAL = 1e-8


@dataclass(frozen=True)
class Check:
    """One property of a detector: its name, and what contradicts it.

    >>> Check("weights follow from counts")
    Check(name='weights follow from counts', faults=())
    """

    name: str
    faults: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Nothing contradicts it."""
        return not self.faults


def run_checks(detector: Detector, state: State) -> list[Check]:
    """All checks of a detector in one of its states."""
    every: dict[str, Callable[[], Iterator[str]]] = {
        "statistics are those of samples": lambda: _statistics(state),
        "weights follow from counts": lambda: _weights(state),
        "state follows from records": lambda: _state(state),
        "corrections hold": lambda: _corrections(state),
        "file gives the same detector": lambda: _file(detector),
    }
    return [Check(name, tuple(find())) for name, find in every.items()]


def _statistics(state: State) -> Iterator[str]:
    """Counts that no samples can have, or scatter that is not positive semidefinite."""
    for number, (stage, learned) in enumerate(zip(state.base.stages, state.total.stages, strict=True)):
        for name, trained, new in zip(("positives", "negatives"), stage.statistics, learned, strict=True):
            for what, statistics in (("training", trained), ("learned", new)):
                if statistics.n and not statistics.is_possible(statistics):
                    yield f"stage {number}, {what} {name}: counts that no samples can have"
                elif statistics.n and _least_eigenvalue(statistics) < -NEGATIVE_EIGENVALUE:
                    yield f"stage {number}, {what} {name}: scatter is not positive semidefinite"


def _least_eigenvalue(statistics: BinaryStatistics) -> float:
    """The least eigenvalue of the scatter, as a share of the largest variance."""
    scatter = statistics.scatter
    most = float(np.diagonal(scatter).max(initial=0.0))
    return float(np.linalg.eigvalsh(scatter / most)[0]) if most > 0 else 0.0


def _weights(state: State) -> Iterator[str]:
    """Weights that do not solve A w = f (m_1 - m_2) of the counts [FDA], by their residual."""
    parts = zip(state.base.stages, state.derived.weighted.stages, state.total.stages, strict=True)
    for number, (stage, run, learned) in enumerate(parts):
        if not isinstance(stage, LearningStage):
            continue
        positive, negative = (
            before + new if new.n else before for before, new in zip(stage.statistics, learned, strict=True)
        )
        A = regularised_scatter(positive, negative, stage.criterion, stage.ridge)
        b = degrees_of_freedom(positive.n, negative.n, stage.criterion) * (positive.mean - negative.mean)
        scale = np.abs(A).max() * np.abs(run.coef).max() * len(b) + np.abs(b).max()
        residual = np.abs(A @ run.coef - b).max()
        if not residual <= RESIDUAL * scale:
            yield f"stage {number}: residual {residual / scale if scale else residual:.2g} of the weights"


def _state(state: State) -> Iterator[str]:
    """What was derived update by update differs from what the whole set gives at once."""
    anew = State.from_learned(state.base, state.counts, state.records)
    if anew.total.counts != state.total.counts or not all(
        np.array_equal(a.C, b.C)
        for ours, theirs in zip(anew.total.stages, state.total.stages, strict=True)
        for a, b in zip(ours, theirs, strict=True)
    ):
        yield "counts differ from those of the records"
    for number, (ours, theirs) in enumerate(
        zip(anew.derived.cascade.stages, state.derived.cascade.stages, strict=True)
    ):
        if not (np.array_equal(ours.coef, theirs.coef) and ours.threshold == theirs.threshold):
            yield f"stage {number}: weights or threshold differ from those of the records"
    if anew.derived.unsatisfied != state.derived.unsatisfied:
        yield "other corrections hold than those of the records"


def _corrections(state: State) -> Iterator[str]:
    """Corrections that do not hold in the windows of their own images, although they are not listed as unsatisfied."""
    cascade, listed = state.derived.cascade, set(state.derived.unsatisfied)
    for key, record in state.records.items():
        if record.kind != "correction" or not len(record) or key in listed:
            continue
        scores = cascade.scores_of_responses(own_windows(record, cascade.n_weak))
        if not _satisfied(scores, record.is_object):
            yield f"record {key[:8]}: {'rejected' if record.is_object else 'accepted'} in a window of its image"


def _satisfied(scores: NDArray[np.float64], is_object: bool) -> bool:
    return bool((scores > -np.inf).all() if is_object else (scores == -np.inf).all())


def _file(detector: Detector) -> Iterator[str]:
    data = detector.to_bytes()
    if type(detector).from_bytes(data).to_bytes() != data:
        yield "loading and saving changes the bytes"
