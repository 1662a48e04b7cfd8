"""The rule of corrections, and what follows from a set of them: which windows decide, and how far a scan looks.

`decide` is the whole rule: windows whose answer is known decide, by their distance, about windows that are like them. A
scan calls it with the distances of the windows that it found (`KnownWindows`), the studio with those that it keeps of
all images.

What follows from corrections is derived from the trained model, the examples and the set of corrections alone. What
follows from one correction is its `Effect`. It is computed once: that of a thousand corrections is put together from
theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from whet._kernels.response_bits import lower_until
from whet.arrays import Bools, Floats, Int64s
from whet.corrections.records import Record
from whet.corrections.reference import Reference
from whet.images.detections import FiredWindows
from whet.images.pyramid import Pyramid, WindowIndex
from whet.models.contract import Model
from whet.models.responses import Responses, Votes
from whet.parallel.threads import blocks, for_each_block

Integers = NDArray[np.integer]

# A window follows a correction of a false positive if it is nearer to it than to all objects by some factor, the reach:
# the largest between these at which next to none of the held-out objects would follow, too. At fixed factors of 0.9,
# 0.95, 0.98 and 1, corrections of the first half of 8 clips left 19, 10, 4 and 3 % of the false positives of the second
# half, and 100 corrections of other images changed recall by 0.0, -0.3, -0.8 and -1.4 points (development images).
# At 0.8, detectors of stop signs, cats and blood cells without held-out objects lost none by 100 corrections.
LEAST_REACH, MOST_REACH = 0.8, 1.0
FOLLOWING = 0.0015
# There are far more kinds of other things than of objects: 20 corrected misses of faces raised false positives in 80
# images from 10 to 52 at 0.9, and not at all at 0.8; 90 % of them were found at both (development images).
MUCH_NEARER = 0.8
# Without this many guards of the other class, one more is taken to be at a distance of this share of the weak learners.
# Of the face detector's false positives, 99 % are farther than 0.23 from every held-out face. Without guards, 20
# corrections of OpenCV's frontalface_default, adopted with photographs of ten people, lost 6 points of recall.
FEWEST_GUARDS = 60
UNKNOWN = 0.15
# Windows per task of a thread.
AT_ONCE = 512


@dataclass(frozen=True)
class Distances:
    """Least distances (n,) of windows to the known ones of each kind: of corrections and of samples that guard.

    `rejected` and `accepted` are those of corrections: false positives and missed objects. `objects` and `others` are
    samples that stay as they are. A distance to samples need not be exact where it is small enough to decide.
    """

    rejected: Integers
    accepted: Integers
    objects: Integers
    others: Integers


def decide(
    scores: Floats,
    distances: Distances,
    targets: Floats,
    reach: float,
    unknown: tuple[int, int],
    is_reached: Bools | None = None,
) -> Floats:
    """Scores (n,) of windows with these `scores` by the votes alone (-inf: rejected), after corrections.

    A window that is nearer to a rejected one than to all accepted ones and objects, by the factor `reach`, is rejected.
    One that is much nearer to an accepted one than to all rejected ones and others has at least the score of its
    `targets` (n,). All other windows keep their scores. No object is farther than `unknown[0]`, and no other thing than
    `unknown[1]`: with too few guards, what is far from a correction does not follow it. Windows that a scan does not
    reach (`is_reached`) are rejected.

    >>> distances = Distances(*(np.array(row) for row in ([1, 3], [32, 32], [3, 1], [32, 32])))
    >>> decide(np.array([5.0, 5.0]), distances, np.zeros(2), reach=1.0, unknown=(32, 32))
    array([-inf,   5.])
    """
    contrary = np.minimum(distances.accepted, distances.objects).clip(max=unknown[0])
    is_rejected = is_nearer(distances.rejected, contrary, reach)
    contrary = np.minimum(distances.rejected, distances.others).clip(max=unknown[1])
    is_accepted = is_nearer(distances.accepted, contrary, MUCH_NEARER)
    decided = np.where(is_rejected, -np.inf, scores)
    decided = np.where(is_accepted, np.maximum(decided, targets), decided)
    return decided if is_reached is None else np.where(is_reached, decided, -np.inf)


def is_nearer(distance: Integers, contrary: Integers, factor: float) -> Bools:
    """Whether windows (n,) at this distance are nearer than those of the other class, by a factor.

    >>> is_nearer(np.array([7, 8, 9]), np.array([10, 10, 10]), 0.8)
    array([ True, False, False])
    """
    return np.asarray(~(factor * contrary.astype(np.int64) <= distance))


def unknown_distance(n_weak: int, n_guards: int) -> int:
    """How far away one more window of the other class is taken to be: with enough guards, beyond all windows."""
    return 4 * n_weak if n_guards >= FEWEST_GUARDS else max(round(UNKNOWN * n_weak), 1)


def unknown_distances(objects: Responses, others: Responses) -> tuple[int, int]:
    """How far away one more object, and one more other thing, is taken to be, by the samples that guard."""
    n_objects, n_others = (unknown_distance(guards.n_weak, len(guards)) for guards in (objects, others))
    return n_objects, n_others


def reach_of(rejected: Integers, nearest: Integers) -> float:
    """The largest reach at which next to none of some held-out objects (n,) is rejected.

    `rejected` are their distances to the nearest rejected window, `nearest` those to the nearest guard or other object.
    Without held-out objects it is the least reach.
    """
    if not len(rejected):
        return LEAST_REACH
    ratios = np.sort(np.asarray(rejected, np.int64) / np.maximum(np.asarray(nearest, np.int64), 1))
    return float(np.clip(ratios[int(FOLLOWING * len(ratios))], LEAST_REACH, MOST_REACH))


@dataclass(frozen=True, eq=False)
class KnownWindows:
    """Responses of windows whose answer is known: of corrections, with `targets` for the accepted, and of guards.

    >>> seen = Responses.from_bits(np.uint8([[0, 0, 0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1]]))
    >>> none = Responses.empty(8)
    >>> known = KnownWindows(seen.take([0]), none, np.empty(0), seen.take([1]), none, reach=1.0, unknown=(32, 32))
    >>> windows = Responses.from_bits(np.uint8([[0, 0, 0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 1, 1]]))
    >>> known.decide(windows, np.array([5.0, 5.0]))
    array([-inf,   5.])
    """

    rejected: Responses
    accepted: Responses
    targets: Floats
    objects: Responses
    others: Responses
    reach: float
    unknown: tuple[int, int]

    def decide(
        self, windows: Responses, scores: Floats, threads: int | None = None, *, is_reached: Bools | None = None
    ) -> Floats:
        """Scores (n,) of windows that have these `scores` by the votes alone, or -inf; see the function `decide`."""
        decided = np.empty(len(windows))

        def work(rows: slice) -> None:
            some = windows.take(rows)
            rejected, (accepted, which) = some.distances(self.rejected), some.nearest(self.accepted)
            distances = Distances(
                rejected,
                accepted,
                self._guarded(some, self.objects, rejected, self.reach, self.unknown[0]),
                self._guarded(some, self.others, accepted, MUCH_NEARER, self.unknown[1]),
            )
            targets = self.targets[which] if len(self.targets) else np.zeros(len(some))
            reached = None if is_reached is None else is_reached[rows]
            decided[rows] = decide(scores[rows], distances, targets, self.reach, self.unknown, reached)

        for_each_block(work, len(windows), AT_ONCE, threads)
        return decided

    @staticmethod
    def _guarded(windows: Responses, guards: Responses, distance: Int64s, factor: float, unknown: int) -> Int64s:
        """Distances (n,) to guards, at most `unknown`; exact only where no guard keeps a window from following."""
        nearest = np.full(len(windows), unknown, np.int64)
        lower_until(windows.words, guards.words, nearest, factor, distance)
        return nearest


# The score that a missed object gets, as a multiple of the minimum score; without a minimum score, in units of scores.
SCORE_ROOM = 1.05
SLIGHT = 0.2
# Sums of fourth powers of such scores, by which windows are grouped, are still far from the largest float.
HIGHEST = 1e60
# Limits are lowered by at most this much for a missed object, in units of margins: of some 60 missed faces, two needed
# more than 0.6, and none more than 1.2. With all limits 0.5 and 1 lower, the face detector's scan takes 2.6 and 7 times
# as long.
FARTHEST = 1.25
# Windows whose responses are compared with corrections at a time: whatever a model accepts, memory is bounded.
AT_ONCE = 1 << 13
# Effects that are kept of one model.
MOST_EFFECTS = 10_000


@dataclass(frozen=True, eq=False)
class Effect:
    """What one correction does, whatever else was learned.

    `holds` says that the votes alone satisfy it: it only guards. `target` is the score that a missed object gets,
    `is_near` (windows,) which of its windows no stage rejects by too much. `judged` (n,) are the distances of the
    judging objects to it.
    """

    record: Record
    holds: bool
    target: float
    is_near: Bools
    judged: Int64s

    @cached_property
    def rows(self) -> frozenset[bytes]:
        """The responses of all windows."""
        return self.record.responses.rows

    @cached_property
    def own_rows(self) -> frozenset[bytes]:
        """The responses of windows of the image itself, without look-alikes."""
        return own_windows(self.record).rows

    @cached_property
    def reaches_own(self) -> bool:
        """Whether no stage rejects a window of the image itself by too much."""
        return bool(self.is_near[_is_first(self.record.index)].all())


@dataclass(frozen=True, eq=False)
class Effects:
    """Corrections by what they do, each in the order of the ids.

    False positives to reject, missed objects to accept, and what holds already: objects that are found, and others.
    """

    rejected: tuple[Effect, ...]
    accepted: tuple[Effect, ...]
    objects: tuple[Effect, ...]
    others: tuple[Effect, ...]

    @classmethod
    def from_iterable(cls, effects: Iterable[Effect]) -> Effects:
        """Divide corrections by label, and by whether they hold."""
        parts: dict[tuple[bool, bool], list[Effect]] = {}
        for effect in effects:
            parts.setdefault((effect.record.is_object, effect.holds), []).append(effect)
        return cls(*(tuple(parts.get(key, ())) for key in ((False, False), (True, False), (True, True), (False, True))))

    def reach(self, guarded: Int64s) -> float:
        """How far corrections of false positives reach; `guarded` (n,) are distances of judging objects to guards."""
        if not self.rejected or not len(guarded):
            return LEAST_REACH
        nearest = np.minimum.reduce([guarded, *(effect.judged for effect in (*self.accepted, *self.objects))])
        return reach_of(np.minimum.reduce([effect.judged for effect in self.rejected]), nearest)

    def limits(self, votes: Votes) -> Floats | None:
        """The limits (n_weak,) that windows of missed objects need to pass; None without such windows."""
        near = [effect.record.responses.take(effect.is_near) for effect in self.accepted if effect.is_near.any()]
        return votes.limits_for(Responses.concatenate(near, votes.n_weak)) if near else None

    def unsatisfied(self, reference: Reference | None) -> tuple[str, ...]:
        """Corrections that do not hold in a window of the image itself: a sample that shows the contrary is equal."""
        objects, others = (frozenset[bytes](), frozenset[bytes]()) if reference is None else reference.guard_rows
        objects = objects.union(*(effect.rows for effect in (*self.accepted, *self.objects)))
        others = others.union(*(effect.rows for effect in (*self.rejected, *self.others)))
        fails = [effect for effect in self.rejected if not effect.own_rows.isdisjoint(objects)]
        fails += [e for e in self.accepted if not (e.reaches_own and e.own_rows.isdisjoint(others))]
        return tuple(sorted(effect.record.id for effect in fails))


@dataclass(frozen=True, eq=False)
class Corrected:
    """A model, and the windows that corrections have made known; `unsatisfied` are corrections that do not hold.

    With `lowered` votes, a scan also finds windows that only a correction accepts.
    """

    model: Model
    known: KnownWindows | None = None
    lowered: Votes | None = None
    unsatisfied: tuple[str, ...] = ()

    def scan(self, pyramid: Pyramid, *, fast: bool | None = None, threads: int | None = None) -> FiredWindows:
        """All windows of a pyramid that votes and corrections accept, with their scores."""
        windows = self.model.scan(pyramid, self.lowered, fast=fast, threads=threads)
        if self.known is None:
            return windows
        scores = windows.scores.copy()
        for rows in blocks(len(windows), AT_ONCE):
            index = windows.index.take(rows)
            responses, _ = self.model.responses(pyramid, index)
            if self.lowered is not None:
                scores[rows] = scanned_scores(self.model, pyramid, index, responses, fast)
            scores[rows] = self.known.decide(responses, scores[rows], threads)
        accepted = scores > -np.inf
        return replace(windows.take(accepted), scores=scores[accepted])

    def scores(self, responses: Responses) -> Floats:
        """Scores (n,) of windows with these responses; -inf where they are rejected. No image is needed."""
        scores = self.model.votes.scores(responses)
        if self.known is None:
            return scores
        is_reached = None if self.lowered is None else self.lowered.scores(responses) > -np.inf
        return self.known.decide(responses, scores, is_reached=is_reached)


def scanned_scores(
    model: Model, pyramid: Pyramid, index: WindowIndex, responses: Responses, fast: bool | None = None
) -> Floats:
    """Scores (n,) that a scan of a model by itself gives windows; -inf for those that it rejects or leaves out."""
    scores = model.votes.scores(responses)
    passed = np.flatnonzero(scores > -np.inf)
    scores[passed[~model.looks_at(index.take(passed), pyramid, fast=fast)]] = -np.inf
    return scores


def correct(model: Model, reference: Reference | None, records: Iterable[Record]) -> Corrected:
    """A model with corrections; a function of model, reference set and the set of records, to the last bit."""
    corrections = [record for record in records if record.kind == "correction" and len(record)]
    effects = Effects.from_iterable(effects_of(model, reference, corrections))
    if not effects.rejected and not effects.accepted:
        return Corrected(model)
    limits = effects.limits(model.votes)
    return Corrected(
        model,
        _known_windows(model, reference, effects),
        None if limits is None else model.votes.lowered(limits),
        effects.unsatisfied(reference),
    )


# Effects by model, reference set and id of the record. They live as long as the model does.
_effects: WeakKeyDictionary[Model, dict[tuple[str, str], Effect]] = WeakKeyDictionary()


def effects_of(model: Model, reference: Reference | None, records: Sequence[Record]) -> list[Effect]:
    """The effects of corrections, in their order."""
    shared, digest = _effects.setdefault(model, {}), "" if reference is None else reference.digest
    known = {record.id: _same(shared.get((digest, record.id)), record) for record in records}
    new = [record for record in records if known[record.id] is None]
    for record, holds in zip(new, holding(model, new), strict=True):
        known[record.id] = _effect(model, reference, record, holds)
    effects = [effect for record in records if (effect := known[record.id]) is not None]
    if len(shared) + len(new) > MOST_EFFECTS:
        shared.clear()
    shared |= {(digest, effect.record.id): effect for effect in effects[:MOST_EFFECTS]}
    return effects


def _same(effect: Effect | None, record: Record) -> Effect | None:
    """An effect, if it is that of the same windows: those of a model that was made again depend on more than the id."""
    if effect is None or effect.record is record:
        return effect
    own, other = record, effect.record
    is_same = own.min_score == other.min_score and np.array_equal(own.responses.words, other.responses.words)
    return effect if is_same else None


def _effect(model: Model, reference: Reference | None, record: Record, holds: bool) -> Effect:
    is_near = np.ones(len(record), np.bool_)
    if record.is_object and not holds:
        is_near = is_within_reach(model, record.responses)
    target = min(max(SCORE_ROOM * record.min_score, SLIGHT * model.votes.unit), HIGHEST)
    judging = judging_objects(model, reference)[0]
    return Effect(record, holds, target, is_near, judging.distances(record.responses))


def is_within_reach(model: Model, responses: Responses) -> Bools:
    """Which windows (n,) no stage rejects by too much: no correction of a missed object accepts others."""
    return np.asarray(model.votes.closeness(responses) > -FARTHEST)


def holding(model: Model, records: Sequence[Record]) -> list[bool]:
    """Which corrections the votes alone satisfy, in all windows of the image itself.

    A missed object holds only where a scan is sure to look at its windows.
    """
    own = [own_windows(record) for record in records]
    scores = model.votes.scores(Responses.concatenate(own, model.votes.n_weak))
    parts = np.split(scores, np.cumsum([len(part) for part in own])[:-1]) if own else []
    return [
        bool((part > record.min_score).all() and model.looks_at(record.index).all())
        if record.is_object
        else bool((part == -np.inf).all())
        for record, part in zip(records, parts, strict=True)
    ]


def own_windows(record: Record) -> Responses:
    """The responses of a record to the windows of the image itself; look-alikes are left out."""
    return record.responses.take(_is_first(record.index))


def _is_first(index: WindowIndex) -> Bools:
    """Which windows (n,) are not copies of an earlier one."""
    first = np.zeros(len(index), np.bool_)
    first[np.unique(np.stack([index.scale, index.y, index.x]), axis=1, return_index=True)[1]] = True
    return first


def judging_objects(model: Model, reference: Reference | None) -> tuple[Responses, Int64s]:
    """Held-out objects by which the reach is chosen, and their distances (n,) to the nearest guard.

    Objects that were trained on are nearer to one another than to new ones: they cannot tell.
    """
    # With fewer judging objects, how far corrections may reach is not known.
    if reference is not None and not reference.was_trained_on and len(reference.guarded_positives[0]) >= 20:
        return reference.guarded_positives
    return Responses.empty(model.votes.n_weak), np.empty(0, np.int64)


def guards_of(model: Model, reference: Reference | None) -> tuple[Responses, Responses]:
    """Responses of guarding objects and others."""
    none = Responses.empty(model.votes.n_weak)
    return (none, none) if reference is None else reference.guards


def _known_windows(model: Model, reference: Reference | None, effects: Effects) -> KnownWindows:
    """The windows of corrections, and the guarding half of the reference set.

    What holds already guards only: objects that are found, and others, which are rejected.
    """
    objects, others = guards_of(model, reference)
    n_weak = model.votes.n_weak
    parts = [
        Responses.concatenate([effect.record.responses for effect in side], n_weak)
        for side in (effects.rejected, effects.accepted, effects.objects, effects.others)
    ]
    sizes = [len(effect.record) for effect in effects.accepted]
    return KnownWindows(
        rejected=parts[0],
        accepted=parts[1],
        targets=np.repeat(np.array([effect.target for effect in effects.accepted]), np.array(sizes, np.intp)),
        objects=Responses.concatenate([objects, parts[2]], n_weak),
        others=Responses.concatenate([others, parts[3]], n_weak),
        reach=effects.reach(judging_objects(model, reference)[1]),
        unknown=unknown_distances(objects, others),
    )
