"""Does a detector hold what it claims? Its statistics, weights, corrections and file, each derived in another way.

`Detector.check` and `whet inspect --check` run these. A file that loads has passed cheaper checks of its own; these
find what only forged counts, damaged memory or a fault of whet itself could bring about.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from whet.corrections.effects import own_windows
from whet.detector.state import State, seen_after
from whet.models.contract import family_of

if TYPE_CHECKING:
    from whet.detector.shape import ShapeDetector


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


def run_checks(detector: ShapeDetector, state: State) -> list[Check]:
    """All checks of a detector in one of its states."""
    data = detector.to_bytes()
    is_same = type(detector).from_bytes(data).to_bytes() == data
    faults = {
        **family_of(state.model.family).faults(state.model),
        "state follows from records": _state(state),
        "corrections hold": _corrections(state),
        "file gives the same detector": [] if is_same else ["loading and saving changes the bytes"],
    }
    return [Check(name, tuple(lines)) for name, lines in faults.items()]


def _state(state: State) -> Iterator[str]:
    """What was derived update by update differs from what the whole set gives at once."""
    anew = State.from_learned(state.base, state.counts, state.records, state.refit)
    try:
        ours, theirs = (which.base.model.saved(which.total) for which in (anew, state))
    except ValueError as error:
        yield f"counts cannot be saved: {error}"
    else:
        is_same = ours.table == theirs.table and ours.arrays.keys() == theirs.arrays.keys()
        if not (is_same and all(np.array_equal(theirs.arrays[name], array) for name, array in ours.arrays.items())):
            yield "counts differ from those of the records"
    votes, own = anew.model.votes, state.model.votes
    if not (np.array_equal(votes.coef, own.coef) and np.array_equal(votes.threshold, own.threshold)):
        yield "weights or thresholds differ from those of the records"
    if anew.corrected.unsatisfied != state.corrected.unsatisfied:
        yield "other corrections hold than those of the records"


def _corrections(state: State) -> Iterator[str]:
    """Corrections that do not hold in the windows of their own images, although they are not listed as unsatisfied."""
    listed = set(state.corrected.unsatisfied)
    seen = state.records.items()
    if state.refit is not None:
        everything = replace(state.refit, satisfied=())
        seen = {record.id: record for record in seen_after(everything, state.records.distinct.values())}.items()
    for key, record in seen:
        if record.kind != "correction" or not len(record) or key in listed:
            continue
        is_accepted = state.corrected.scores(own_windows(record)) > -np.inf
        if (is_accepted != record.is_object).any():
            yield f"record {key[:8]}: {'rejected' if record.is_object else 'accepted'} in a window of its image"
