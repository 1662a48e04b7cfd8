"""The cascade of a detector: derived from the base, the counts and the set of corrections alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from whet.cascade.cascade import Cascade
from whet.cascade.neighbours import Neighbours
from whet.cascade.pyramid import WindowIndex
from whet.cascade.stage import Stage
from whet.detector.base import Delta, DetectorBase
from whet.detector.records import Derived, Record

Bits = NDArray[np.uint8]
Floats = NDArray[np.float64]

# With fewer guards or fewer judging objects, how far corrections may reach is not known. Without the first, 20
# corrections of OpenCV's frontalface_default, adopted with photographs of ten people, lost 6 points of recall.
FEWEST_GUARDS, FEWEST_JUDGES = 60, 20
# The score that a missed object gets, as a multiple of the minimum score; without a minimum score, in units of |w| in
# each scoring stage.
SCORE_ROOM = 1.05
SLIGHT = 0.2
# Sums of fourth powers of such scores, by which windows are grouped, are still far from the largest float.
HIGHEST = 1e60
# Thresholds are lowered by at most so much for a missed object, in units of |w|: of some 60 missed faces, two needed
# more than 0.6, and none more than 1.2. With all thresholds 0.5 and 1 lower, the face detector's scan takes 2.6 and 7
# times as long.
FARTHEST = 1.25


def derive(base: DetectorBase, learned: Delta, corrections: Mapping[str, Record]) -> Derived:
    """The cascade of a base, counts and corrections; a function of these alone, to the last bit."""
    cascade = base.cascade
    if not learned.is_empty:
        cascade = Cascade(base.window, tuple(weighted_stages(base, learned)), base.min_sigma)
    records = [record for record in corrections.values() if record.kind == "correction" and len(record)]
    false_positives, objects = ([record for record in records if record.is_object is side] for side in (False, True))
    rejected, others = _divided(false_positives, _holds(cascade, false_positives))
    accepted, found = _divided(objects, _holds(cascade, objects))
    if not rejected and not accepted:
        return Derived(cascade, cascade)
    known = _neighbours(base, rejected, accepted, found, others)
    is_near = _is_near(base, cascade, known.accepted)
    corrected = replace(cascade, neighbours=known, lowered=_lowered(cascade, known.accepted[is_near]))
    return Derived(corrected, cascade, _unsatisfied(known, rejected, accepted, is_near))


def weighted_stages(base: DetectorBase, learned: Delta) -> list[Stage]:
    """The stages with the weights of base and counts together; where nothing was counted, the base's own."""
    parts = zip(base.stages, base.cascade.stages, learned.stages, strict=True)
    return [stage.run(pair) if any(side.n for side in pair) else own for stage, own, pair in parts]


def _holds(cascade: Cascade, records: list[Record]) -> list[bool]:
    """Which corrections the stages alone satisfy, in all windows of the image itself."""
    if not records:
        return []
    own = [own_windows(record, cascade.n_weak) for record in records]
    scores = cascade.scores_of_responses(np.concatenate(own))
    parts = zip(records, np.split(scores, np.cumsum([len(part) for part in own])[:-1]), strict=True)
    return [bool((part > r.min_score).all() if r.is_object else (part == -np.inf).all()) for r, part in parts]


def own_windows(record: Record, n_weak: int) -> Bits:
    """The responses (windows, n_weak) of a record to the windows of the image itself; look-alikes are left out."""
    return record.unpacked(n_weak)[_is_first(record.index)]


def _divided(records: list[Record], holds: list[bool]) -> tuple[list[Record], list[Record]]:
    """Those that do not hold, and those that do."""
    pairs = list(zip(records, holds, strict=True))
    return [record for record, held in pairs if not held], [record for record, held in pairs if held]


def _neighbours(
    base: DetectorBase, rejected: list[Record], accepted: list[Record], found: list[Record], others: list[Record]
) -> Neighbours:
    """The windows of corrections, and the guarding half of the reference set.

    What holds already guards only: `found` objects, and `others`, which are rejected.
    """
    none = np.empty((0, -(-base.cascade.n_weak // 8)), np.uint8)
    guards = (none, none) if base.reference is None else base.reference.guards
    judging = none, np.empty(0, np.int64)
    # The objects of channel detectors were trained on: they are nearer to one another than to new ones.
    if base.reference is not None and not base.cascade.uses_channels:
        held_out = base.reference.guarded_positives
        judging = held_out if len(held_out[0]) >= FEWEST_JUDGES else judging
    slight = SLIGHT * float(base.lengths[base.cascade.first_scoring :].sum())
    targets = [min(max(SCORE_ROOM * record.min_score, slight), HIGHEST) for record in accepted]
    return Neighbours(
        base.cascade.n_weak,
        rejected=np.concatenate([none, *(record.responses for record in rejected)]),
        accepted=np.concatenate([none, *(record.responses for record in accepted)]),
        targets=np.repeat(targets, [len(record) for record in accepted]),
        objects=np.concatenate([guards[0], *(record.responses for record in found)]),
        others=np.concatenate([guards[1], *(record.responses for record in others)]),
        n_guards=(len(guards[0]), len(guards[1])),
        fewest_guards=FEWEST_GUARDS,
    ).reaching(*judging)


def _lowered(cascade: Cascade, accepted: Bits) -> tuple[Stage, ...] | None:
    """The stages with thresholds that let windows (n, bytes) pass; None without windows."""
    if not len(accepted):
        return None
    admitted = np.unpackbits(accepted, axis=1, count=cascade.n_weak)
    parts = zip(cascade.stages, cascade.columns, strict=True)
    return tuple(stage.admitting(admitted[:, columns]) for stage, columns in parts)


def _is_near(base: DetectorBase, cascade: Cascade, accepted: Bits) -> NDArray[np.bool_]:
    """Which of the windows (n, bytes) that have to be accepted no stage rejects by too much."""
    margins = cascade.margins(np.unpackbits(accepted, axis=1, count=cascade.n_weak))
    return np.asarray((margins > -FARTHEST * base.lengths).all(axis=1))


def _unsatisfied(
    known: Neighbours, rejected: list[Record], accepted: list[Record], is_near: NDArray[np.bool_]
) -> tuple[str, ...]:
    """Corrections that do not hold for the windows of the image itself; look-alikes are not counted."""
    wrongly_rejected, wrongly_accepted = known.disputed
    fails = [*_parts(rejected, wrongly_rejected), *_parts(accepted, wrongly_accepted | ~is_near)]
    records = zip([*rejected, *accepted], fails, strict=True)
    return tuple(sorted(record.id for record, part in records if part[_is_first(record.index)].any()))


def _parts(records: list[Record], flags: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    return np.split(flags, np.cumsum([len(record) for record in records])[:-1]) if records else []


def _is_first(index: WindowIndex) -> NDArray[np.bool_]:
    """Which windows (n,) are not copies of an earlier one."""
    first = np.zeros(len(index), np.bool_)
    first[np.unique(np.stack([index.scale, index.y, index.x]), axis=1, return_index=True)[1]] = True
    return first
