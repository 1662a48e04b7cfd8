"""The weights that put all corrections right: derived from the base, the counts and the set of corrections alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from whet.cascade.cascade import Cascade, ClassPair, Stage
from whet.cascade.pyramid import WindowIndex
from whet.detector.base import Delta, DetectorBase
from whet.detector.records import Record
from whet.detector.reference import Reference
from whet.detector.state import Derived
from whet.lda.constraints import Constraints, nearest_weights

Bits = NDArray[np.uint8]
Floats = NDArray[np.float64]

# Margins of corrected windows, in units of |w|. Wider margins reach further: 20 corrections left 149, 111 and 80 of 246
# false positives in other images at margins of 0.2 with 40 and 160 look-alikes, and of 0.5; recall fell by 0, 0.25 and
# 0.25 points.
MARGIN = 0.2
# Guards keep their margins, or so much of it, in units of |w|; objects also keep all but so much of it.
GUARD = 0.05
KEPT_MARGIN = 0.1
# The score that a missed object gets, as a multiple of the minimum score.
SCORE_ROOM = 1.05


def leverages(base: DetectorBase, responses: Bits) -> Floats:
    """Leverages (n, stages) of responses; next to nothing in stages without statistics: they cannot be corrected."""
    columns = zip(base.metrics, base.cascade.columns, strict=True)
    parts = [np.full(len(responses), 1e-12) if m is None else m.leverage(responses[:, c]) for m, c in columns]
    return np.stack(parts, axis=1)


def object_targets(base: DetectorBase, responses: Bits, margins: Floats, min_score: float) -> Floats:
    """The margins (n, stages) that an object needs: a little in each stage, and in the scoring ones the minimum score.

    What is missing of the score is shared by leverage: that changes the weights least. A window that the base finds
    only has to keep its margins, or what it needs of them.
    """
    targets = np.tile(MARGIN * base.lengths, (len(margins), 1))
    scoring = np.arange(len(base.stages)) >= base.cascade.first_scoring
    reached = np.maximum(margins, targets)
    missing = np.maximum(SCORE_ROOM * min_score - reached[:, scoring].sum(axis=1), 0.0)[:, None]
    share = np.where(scoring, leverages(base, responses), 0.0)
    raised = reached + missing * share / share.sum(axis=1, keepdims=True)
    needed = np.where(scoring & (missing > 0), raised, targets)
    scores = base.cascade.scores_of_responses(responses)
    return np.where((scores > min_score)[:, None], np.minimum(needed, margins), needed)


def derive(base: DetectorBase, learned: Delta, corrections: Mapping[str, Record]) -> Derived:
    """The cascade of a base, counts and corrections; a function of these alone, to the last bit."""
    stages = weighted_stages(base, learned)
    cascade = Cascade(base.window, tuple(stages), base.min_sigma)
    records = [record for record in corrections.values() if record.kind == "correction" and len(record)]
    if not records:
        return Derived(cascade)
    bits = [record.unpacked(cascade.n_weak) for record in records]
    wanted = _Wanted.from_records(base, records, bits)
    for number, columns in enumerate(cascade.columns):
        stages[number] = wanted.corrected(number, stages[number], columns, base, learned.stages[number])
    cascade = replace(cascade, stages=tuple(stages))
    return Derived(cascade, _unsatisfied(cascade, records, bits))


def weighted_stages(base: DetectorBase, learned: Delta) -> list[Stage]:
    """The stages with the weights of base and counts together; where nothing was counted, the base's own."""
    parts = zip(base.stages, base.cascade.stages, learned.stages, strict=True)
    return [stage.run(pair) if any(side.n for side in pair) else own for stage, own, pair in parts]


def _unsatisfied(cascade: Cascade, records: list[Record], bits: list[Bits]) -> tuple[str, ...]:
    """Corrections that do not hold for the windows of the image itself; look-alikes are not counted."""
    bits = [part[_is_first(record.index)] for record, part in zip(records, bits, strict=True)]
    scores = cascade.scores_of_responses(np.concatenate(bits))
    parts = np.split(scores, np.cumsum([len(part) for part in bits])[:-1])
    return tuple(
        record.id
        for record, part in zip(records, parts, strict=True)
        if (not (part > record.min_score).all() if record.is_object else (part > 0).any())
    )


def _is_first(index: WindowIndex) -> NDArray[np.bool_]:
    """Which windows (n,) are not copies of an earlier one."""
    first = np.zeros(len(index), np.bool_)
    first[np.unique(np.stack([index.scale, index.y, index.x]), axis=1, return_index=True)[1]] = True
    return first


@dataclass(frozen=True, eq=False)
class _Wanted:
    """What all corrections together want of each stage, in the order of their ids."""

    rejected: Bits
    stage: NDArray[np.int16]
    accepted: Bits
    targets: Floats

    @classmethod
    def from_records(cls, base: DetectorBase, records: list[Record], bits: list[Bits]) -> _Wanted:
        n_weak, none = base.cascade.n_weak, np.empty((0, base.cascade.n_weak), np.uint8)
        false_positives = [i for i, record in enumerate(records) if not record.is_object]
        objects = [i for i, record in enumerate(records) if record.is_object]
        accepted = np.concatenate([none, *(bits[i] for i in objects)])
        parts = [object_targets(base, bits[i], base_margins(base, bits[i]), records[i].min_score) for i in objects]
        targets = np.concatenate([np.empty((0, len(base.stages))), *parts])
        stage = [np.empty(0, np.int16), *(records[i].stage for i in false_positives)]
        rejected = np.concatenate([none, *(bits[i] for i in false_positives)]).reshape(-1, n_weak)
        return cls(rejected, np.concatenate(stage), accepted, targets)

    def corrected(self, number: int, run: Stage, columns: slice, base: DetectorBase, learned: ClassPair) -> Stage:
        """One stage with the weights that satisfy its constraints."""
        metric, length = base.metrics[number], float(base.lengths[number])
        rejected, accepted = self.rejected[self.stage == number][:, columns], self.accepted[:, columns]
        if metric is None or not (len(rejected) or len(accepted)):
            return run
        guards = _guards(base, number, run, columns)
        wanted = Constraints(
            np.concatenate([rejected, accepted, guards.responses]),
            np.concatenate([np.full(len(rejected), -1.0), np.ones(len(accepted)), guards.side]),
            np.concatenate([np.full(len(rejected), MARGIN * length), self.targets[:, number], guards.margin]),
            n_guards=len(guards),
        )
        coef, threshold = nearest_weights(run.coef, run.threshold, metric, wanted)
        if threshold == run.threshold and np.array_equal(coef, run.coef):
            return _letting_pass(run, accepted)
        return _letting_pass(base.stages[number].corrected(coef, threshold, learned), accepted)


def base_margins(base: DetectorBase, bits: Bits) -> Floats:
    """Margins (n, stages) of responses in the base."""
    parts = zip(base.cascade.stages, base.cascade.columns, strict=True)
    return np.stack([run.margins(bits[:, columns]) for run, columns in parts], axis=1)


def _letting_pass(stage: Stage, accepted: Bits) -> Stage:
    """The stage with rejection thresholds below the partial sums of windows that have to be accepted."""
    if stage.rejection_thresholds is None or not len(accepted):
        return stage
    sums = stage.weigh(accepted.T.astype(np.bool_)).min(axis=1)
    lowered = np.minimum(stage.rejection_thresholds, np.nextafter(sums, -np.inf))
    return replace(stage, rejection_thresholds=lowered)


def _guards(base: DetectorBase, number: int, run: Stage, columns: slice) -> Constraints:
    """Constraints on the guarding half of the reference set; all are satisfied before any correction.

    Positives stay accepted, with most of their margins. A negative that the base rejects stays rejected in the stage
    that is surest of it; one that it accepts gets no higher margin in the scoring stages.
    """
    if base.reference is None:
        return Constraints(np.empty((0, len(run)), np.uint8), np.empty(0), np.empty(0))
    length = float(base.lengths[number])
    slack = GUARD * length
    positives, negatives = base.reference.guards
    positive, negative = run.margins(positives[:, columns]), run.margins(negatives[:, columns])
    surest, accepted = _surest_stages(base, base.reference)
    kept = positive > 0
    kept_margins = np.maximum(np.minimum(positive[kept], slack), positive[kept] - KEPT_MARGIN * length)
    stays_out = ~accepted & (surest == number) & (negative <= 0)
    capped = accepted & (number >= base.cascade.first_scoring)
    return Constraints(
        np.concatenate([positives[kept], negatives[stays_out], negatives[capped]])[:, columns],
        np.concatenate([np.ones(int(kept.sum())), np.full(int(stays_out.sum() + capped.sum()), -1.0)]),
        np.concatenate([kept_margins, np.minimum(-negative[stays_out], slack), -negative[capped]]),
    )


@lru_cache(maxsize=8)
def _surest_stages(base: DetectorBase, reference: Reference) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """For each guarding negative the stage that rejects it most surely, and whether all accept it."""
    margins = base_margins(base, reference.guards[1])
    return np.argmin(margins / base.lengths, axis=1), np.asarray((margins > 0).all(axis=1))
