"""What follows from what was learned: counts of examples in the stages, and the cascade with all corrections.

The cascade is derived from the base, the counts and the set of corrections alone. What follows from one correction and
the weights is its `Role`. It is computed once: a state of a thousand corrections is put together from their roles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whet._kernels.threads import for_each_block
from whet.cascade.cascade import Cascade
from whet.cascade.neighbours import LEAST_REACH, Neighbours, Words, nearest_distances, reach_of, words_of
from whet.cascade.pyramid import WindowIndex
from whet.cascade.scan import is_on_grid
from whet.cascade.stage import AT_ONCE, Stage
from whet.detector.base import Delta, DetectorBase
from whet.detector.records import Derived, Record
from whet.errors import RecordError
from whet.lda.statistics import MOST_SAMPLES, BinaryStatistics

Bits = NDArray[np.uint8]
Counts = NDArray[np.int64]
Floats = NDArray[np.float64]
Labels = NDArray[np.bool_]
Patches = NDArray[np.uint8]

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


@dataclass(frozen=True, eq=False)
class Role:
    """What one correction is for, whatever else was learned.

    `holds` says that the stages alone satisfy it: it only guards. `target` is the score that a missed object gets,
    `is_near` (windows,) which of its windows no stage rejects by too much, and `lowest` the thresholds after each weak
    learner, stage by stage, that let those pass. `judged` (n,) are the distances of the judging objects to it.
    """

    record: Record
    holds: bool
    target: float
    is_near: NDArray[np.bool_]
    lowest: tuple[Floats, ...]
    judged: NDArray[np.int64]

    @cached_property
    def words(self) -> Words:
        """The responses of all windows, 64 to a word."""
        return words_of(self.record.responses)

    @cached_property
    def rows(self) -> frozenset[bytes]:
        """The responses of all windows."""
        return frozenset(row.tobytes() for row in self.record.responses)

    @cached_property
    def own_rows(self) -> frozenset[bytes]:
        """The responses of windows of the image itself, without look-alikes."""
        return frozenset(row.tobytes() for row in self.record.responses[_is_first(self.record.index)])

    @cached_property
    def reaches_own(self) -> bool:
        """Whether no stage rejects a window of the image itself by too much."""
        return bool(self.is_near[_is_first(self.record.index)].all())


@dataclass(frozen=True, eq=False)
class Roles:
    """The corrections of a state by what they are for, each in the order of the ids."""

    rejected: tuple[Role, ...]
    accepted: tuple[Role, ...]
    found: tuple[Role, ...]
    others: tuple[Role, ...]

    @classmethod
    def from_roles(cls, roles: Iterable[Role]) -> Roles:
        """Divide corrections by label, and by whether they hold."""
        parts: dict[tuple[bool, bool], list[Role]] = {}
        for role in roles:
            parts.setdefault((role.record.is_object, role.holds), []).append(role)
        return cls(*(tuple(parts.get(key, ())) for key in ((False, False), (True, False), (True, True), (False, True))))

    def reach(self, guarded: NDArray[np.int64]) -> float:
        """How far corrections of false positives reach; `guarded` (n,) are distances of judging objects to guards."""
        if not self.rejected or not len(guarded):
            return LEAST_REACH
        nearest = np.minimum.reduce([guarded, *(role.judged for role in (*self.accepted, *self.found))])
        return reach_of(np.minimum.reduce([role.judged for role in self.rejected]), nearest)

    def lowest(self) -> list[Floats] | None:
        """The thresholds after each weak learner, stage by stage, that windows of missed objects need to pass."""
        near = [role.lowest for role in self.accepted if role.is_near.any()]
        return [np.minimum.reduce(parts) for parts in zip(*near, strict=True)] if near else None

    def lowered(self, cascade: Cascade) -> tuple[Stage, ...] | None:
        """The stages with thresholds that let the windows of missed objects pass; None without such windows."""
        lowest = self.lowest()
        if lowest is None:
            return None
        return tuple(stage.lowered(part) for stage, part in zip(cascade.stages, lowest, strict=True))

    def unsatisfied(self, guards: tuple[frozenset[bytes], frozenset[bytes]]) -> tuple[str, ...]:
        """Corrections that do not hold in a window of the image itself: a sample that shows the contrary is equal."""
        objects = guards[0].union(*(role.rows for role in (*self.accepted, *self.found)))
        others = guards[1].union(*(role.rows for role in (*self.rejected, *self.others)))
        fails = [role for role in self.rejected if not role.own_rows.isdisjoint(objects)]
        fails += [role for role in self.accepted if not (role.reaches_own and role.own_rows.isdisjoint(others))]
        return tuple(sorted(role.record.id for role in fails))


def derive(
    base: DetectorBase, learned: Delta, corrections: Mapping[str, Record], weighted: Cascade | None = None
) -> Derived:
    """The cascade of a base, counts and corrections; a function of these alone, to the last bit.

    `weighted` is the cascade of base and counts, if it is known.
    """
    cascade = weighted_cascade(base, learned) if weighted is None else weighted
    records = [record for record in corrections.values() if record.kind == "correction" and len(record)]
    roles = Roles.from_roles(roles_of(base, cascade, records))
    if not roles.rejected and not roles.accepted:
        return Derived(cascade, cascade)
    corrected = replace(cascade, neighbours=_neighbours(base, roles), lowered=roles.lowered(cascade))
    return Derived(corrected, cascade, roles.unsatisfied(guard_rows(base)))


def weighted_cascade(base: DetectorBase, learned: Delta) -> Cascade:
    """The cascade of base and counts, without corrections."""
    if learned.is_empty:
        return base.cascade
    return base.cascade_of(weighted_stages(base, learned))


def weighted_stages(base: DetectorBase, learned: Delta) -> list[Stage]:
    """The stages with the weights of base and counts together; where nothing was counted, the base's own."""
    parts = zip(base.stages, base.cascade.stages, learned.stages, strict=True)
    return [stage.run(pair) if any(side.n for side in pair) else own for stage, own, pair in parts]


# Roles by weights and id of the record. They live as long as the weights do.
_known: WeakKeyDictionary[Cascade, dict[str, Role]] = WeakKeyDictionary()
MOST_ROLES = 10_000


def roles_of(base: DetectorBase, cascade: Cascade, records: Sequence[Record]) -> list[Role]:
    """The roles of corrections, in their order."""
    known = _known.setdefault(cascade, {})
    new = [record for record in records if record.id not in known]
    if len(known) + len(new) > MOST_ROLES:
        known.clear()
        new = list(records)
    pairs = zip(new, _holds(cascade, new), strict=True)
    known |= {record.id: _role(base, cascade, record, holds) for record, holds in pairs}
    return [known[record.id] for record in records]


def _role(base: DetectorBase, cascade: Cascade, record: Record, holds: bool) -> Role:
    is_near = np.ones(len(record), np.bool_)
    lowest: tuple[Floats, ...] = ()
    if record.is_object and not holds:
        bits = record.unpacked(cascade.n_weak)
        is_near = is_within_reach(base, cascade, bits)
        parts = zip(cascade.stages, cascade.columns, strict=True)
        lowest = tuple(stage.lowest_sums(bits[is_near][:, columns]) for stage, columns in parts)
    slight = SLIGHT * float(base.lengths[base.cascade.first_scoring :].sum())
    target = min(max(SCORE_ROOM * record.min_score, slight), HIGHEST)
    judging = judging_objects(base)[0]
    judged = np.full(len(judging), 4 * cascade.n_weak, np.int64)
    if len(judging):
        judged = np.minimum(judged, nearest_distances(judging, record.responses))
    return Role(record, holds, target, is_near, lowest, judged)


def is_within_reach(base: DetectorBase, cascade: Cascade, responses: Bits) -> NDArray[np.bool_]:
    """Which windows (n, n_weak) no stage rejects by too much: no correction of a missed object accepts others."""
    return np.asarray((cascade.margins(responses) > -FARTHEST * base.lengths).all(axis=1))


def _holds(cascade: Cascade, records: Sequence[Record]) -> list[bool]:
    """Which corrections the stages alone satisfy, in all windows of the image itself.

    A coarse pass is sure to look at windows of its grid that the stages accept, but not at others.
    """
    if not records:
        return []
    own = [own_windows(record, cascade.n_weak) for record in records]
    scores = cascade.stage_scores(np.concatenate(own))
    parts = zip(records, np.split(scores, np.cumsum([len(part) for part in own])[:-1]), strict=True)
    return [
        bool((part > r.min_score).all() and (cascade.coarse is None or is_on_grid(r.index).all()))
        if r.is_object
        else bool((part == -np.inf).all())
        for r, part in parts
    ]


def own_windows(record: Record, n_weak: int) -> Bits:
    """The responses (windows, n_weak) of a record to the windows of the image itself; look-alikes are left out."""
    return record.unpacked(n_weak)[_is_first(record.index)]


def judging_objects(base: DetectorBase) -> tuple[Bits, NDArray[np.int64]]:
    """Held-out objects (n, bytes) by which the reach is chosen, and their distances (n,) to the nearest guard."""
    # The objects of channel detectors were trained on: they are nearer to one another than to new ones.
    if base.reference is not None and not base.cascade.uses_channels:
        held_out = base.reference.guarded_positives
        if len(held_out[0]) >= FEWEST_JUDGES:
            return held_out
    return np.empty((0, -(-base.cascade.n_weak // 8)), np.uint8), np.empty(0, np.int64)


def guards_of(base: DetectorBase) -> tuple[Bits, Bits]:
    """Responses (n, bytes) of guarding objects and others."""
    none = np.empty((0, -(-base.cascade.n_weak // 8)), np.uint8)
    return (none, none) if base.reference is None else base.reference.guards


_guard_rows: WeakKeyDictionary[DetectorBase, tuple[frozenset[bytes], frozenset[bytes]]] = WeakKeyDictionary()


def guard_rows(base: DetectorBase) -> tuple[frozenset[bytes], frozenset[bytes]]:
    """The guards as sets of responses."""
    if base not in _guard_rows:
        objects, others = (frozenset(row.tobytes() for row in side) for side in guards_of(base))
        _guard_rows[base] = objects, others
    return _guard_rows[base]


def _neighbours(base: DetectorBase, roles: Roles) -> Neighbours:
    """The windows of corrections, and the guarding half of the reference set.

    What holds already guards only: objects that are found, and others, which are rejected.
    """
    guards = [words_of(side) for side in guards_of(base)]
    none = guards[0][:0]
    rejected, accepted, found, others = (
        [role.words for role in side] for side in (roles.rejected, roles.accepted, roles.found, roles.others)
    )
    return Neighbours(
        base.cascade.n_weak,
        rejected=np.concatenate([none, *rejected]),
        accepted=np.concatenate([none, *accepted]),
        targets=np.repeat([role.target for role in roles.accepted], [len(role.record) for role in roles.accepted]),
        objects=np.concatenate([guards[0], *found]),
        others=np.concatenate([guards[1], *others]),
        n_guards=(len(guards[0]), len(guards[1])),
        reach=roles.reach(judging_objects(base)[1]),
        fewest_guards=FEWEST_GUARDS,
    )


def _is_first(index: WindowIndex) -> NDArray[np.bool_]:
    """Which windows (n,) are not copies of an earlier one."""
    first = np.zeros(len(index), np.bool_)
    first[np.unique(np.stack([index.scale, index.y, index.x]), axis=1, return_index=True)[1]] = True
    return first


# --- Counts of examples: each counts in the stages that it reaches in the frozen base ---------------------------------


def count_patches(
    base: DetectorBase, patches: Patches, is_positive: ArrayLike, weights: ArrayLike = 1, threads: int | None = None
) -> Delta:
    """What each stage counts of patches (samples, height, width) with labels (samples,), each `weights` times.

    A positive counts in all stages; a negative in those that it reaches in the base, by the base's weights and stage
    thresholds. A negative with too little contrast counts in none. `weights` are whole numbers, one or (samples,). The
    result depends neither on the order of the patches nor on the number of threads.
    """
    labels = _labels(patches, is_positive, base.window)
    counts = _counts(weights, labels)
    lock = Lock()
    total = Delta.empty(base.sizes)

    def work(rows: slice) -> None:
        nonlocal total
        responses, has_contrast = base.cascade.respond(patches[rows])
        counted = labels[rows] | has_contrast
        part = count_responses(base, responses[counted], labels[rows][counted], counts[rows][counted])
        with lock:
            total = total + part

    for_each_block(work, len(patches), AT_ONCE, threads)
    return total


def count_responses(base: DetectorBase, responses: Bits, is_positive: Labels, weights: Counts) -> Delta:
    """What each stage counts of responses (samples, weak learners) with labels (samples,), each `weights` times."""
    reaches = np.ones(len(responses), np.bool_)
    pairs = []
    for stage, run, columns in zip(base.stages, base.cascade.stages, base.cascade.columns, strict=True):
        seen = responses[:, columns]
        if stage.learns:
            positive, negative = (
                BinaryStatistics.from_samples(seen[side], weights[side])
                for side in (reaches & is_positive, reaches & ~is_positive)
            )
            pairs.append((positive, negative))
        else:
            pairs.append((BinaryStatistics.empty(0), BinaryStatistics.empty(0)))
        # Rejection thresholds are left out: a soft stage learns what its stage threshold lets through.
        reaches &= is_positive | (run.weigh(seen.T.astype(np.bool_))[-1] > run.threshold)
    return Delta(tuple(pairs))


def count_records(base: DetectorBase, records: Iterable[Record]) -> Delta:
    """What each stage counts of the windows of examples; no image is needed. Corrections are not counted."""
    examples = [record for record in records if record.kind == "example" and len(record)]
    if not examples:
        return Delta.empty(base.sizes)
    if sum(record.weight * len(record) for record in examples) >= MOST_SAMPLES:
        raise RecordError("the weights of the examples sum to 2^52 or more; counts stay exact below")
    sizes = [len(record) for record in examples]
    responses = np.concatenate([record.unpacked(base.cascade.n_weak) for record in examples])
    is_object = np.repeat([record.is_object for record in examples], sizes)
    weights = np.repeat(np.array([record.weight for record in examples], np.int64), sizes)
    return count_responses(base, responses, is_object, weights)


def _labels(patches: Patches, is_positive: ArrayLike, window: tuple[int, int]) -> Labels:
    labels = np.asarray(is_positive)
    labels = np.full(len(patches), labels) if labels.shape == () else labels
    if patches.dtype != np.uint8 or patches.shape[1:] != window:
        raise ValueError(
            f"got patches {patches.dtype} of shape {patches.shape}; expected uint8, (samples, {window[0]}, {window[1]})"
        )
    if labels.shape != patches.shape[:1]:
        raise ValueError(f"got labels of shape {labels.shape} for {len(patches)} patches; expected one per patch")
    if not np.isin(labels, (0, 1)).all():
        raise ValueError("a label is True (the object) or False (not the object)")
    return labels.astype(np.bool_)


def _counts(weights: ArrayLike, is_positive: Labels) -> Counts:
    given = np.asarray(weights)
    if given.dtype.kind not in "iu" or given.shape not in ((), is_positive.shape) or (given < 0).any():
        raise ValueError("weights are whole numbers from 0: one for all patches, or one for each")
    if sum(np.broadcast_to(given, is_positive.shape).tolist()) >= MOST_SAMPLES:
        raise ValueError("the weights sum to 2^52 or more; counts stay exact below: use smaller weights")
    return np.broadcast_to(given, is_positive.shape).astype(np.int64)
