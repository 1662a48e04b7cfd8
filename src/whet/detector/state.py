"""The state of a detector: its base, what was learned on top of it, what follows from both, and checks that it does.

`Detector.check` and `whet inspect --check` run these checks, each of which derives a claim in another way. A file that
loads has passed cheaper checks of its own; these find what only forged counts, damaged memory or a fault of whet itself
could bring about.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike

from whet.arrays import Pixels
from whet.corrections.effects import Corrected, correct, own_windows
from whet.corrections.records import Record, Records, check_record, checked_flags
from whet.corrections.reference import Estimate, HeldOutScores
from whet.detector.base import DetectorBase, Reporting, estimated_setbacks
from whet.errors import RecordError, WorseEstimateWarning
from whet.images.pyramid import Pyramid
from whet.lda.statistics import MOST_SAMPLES
from whet.models.contract import Counts, Model, family_of
from whet.models.responses import Responses
from whet.parallel.threads import for_each_block

if TYPE_CHECKING:
    from whet.detector.shape import ShapeDetector

# Patches per task: their integral images take 10 MB, and 200 feature values of each another 3.
AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class Update:
    """What a call of `learn` has added, and what it changes, as the reference set estimates it.

    `unsatisfied` are the corrections, new or old, that do not hold: they contradict one another, or a held-out sample,
    or lie too far from what the stages accept.

    Of a class with several shapes, `shapes` has an update for each. Each estimates for itself: `before` and `after` of
    the whole are None, and so are those of a shape that was given nothing.
    """

    records: tuple[Record, ...]
    before: Estimate | None = None
    after: Estimate | None = None
    unsatisfied: tuple[Record, ...] = ()
    shapes: tuple[Update, ...] = ()

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    @property
    def ids(self) -> list[str]:
        """The ids of the new records."""
        return [record.id for record in self.records]

    @property
    def setbacks(self) -> list[str]:
        """What is worse than before by the reference set, or by those of shapes; empty if nothing is."""
        own = estimated_setbacks(self.before, self.after)
        return own + [f"{text} ({name})" for name, update in self.named_shapes.items() for text in update.setbacks]

    @property
    def named_shapes(self) -> dict[str, Update]:
        """The updates of several shapes, each with a name for messages."""
        return {f"shape {number}": update for number, update in enumerate(self.shapes, start=1)}

    def warn_if_worse(self) -> None:
        """Issue a `WorseEstimateWarning` if there are setbacks, as one of the line that called `learn`."""
        worse = self.setbacks
        if worse:
            warnings.warn(
                f"{' and '.join(worse)}, by the reference set; undo this correction with unlearn if that is too much",
                WorseEstimateWarning,
                stacklevel=3,
            )

    def __str__(self) -> str:
        n = len(self.records)
        text = f"{n} correction{'s' * (n != 1)}"
        for name, update in {"": self, **self.named_shapes}.items():
            if update.before is not None and update.after is not None:
                text += f"; held-out samples{' of ' * bool(name)}{name}: {update.before} before, {update.after} after"
        if self.unsatisfied:
            text += f"; not satisfied: {', '.join(record.id[:8] for record in self.unsatisfied)}"
        return text


def checked_records(records: Iterable[Record], base: DetectorBase) -> Records:
    """Records as a set; raises `RecordError` or `CannotLearnError` where a detector of this base cannot learn one."""
    given = list(records)
    for record in given:
        check_record(record, base.base_id, base.model.votes.n_weak)
    new = Records.from_iterable(given)
    if new:
        base.check_can_learn(examples=any(record.kind == "example" for record in new.values()))
    return new


def count_records(model: Model, records: Iterable[Record]) -> Counts | None:
    """Counts of the windows of examples; no image is needed. Corrections are not counted."""
    examples = [record for record in records if record.kind == "example" and len(record)]
    if not examples:
        return None
    if sum(record.weight * len(record) for record in examples) >= MOST_SAMPLES:
        raise RecordError("the weights of the examples sum to 2^52 or more; counts stay exact below")
    sizes = [len(record) for record in examples]
    responses = Responses.concatenate([record.responses for record in examples], model.votes.n_weak)
    is_object = np.repeat([record.is_object for record in examples], sizes)
    weights = np.repeat(np.array([record.weight for record in examples], np.int64), sizes)
    return model.count(responses, is_object, weights)


def count_patches(
    model: Model, patches: Pixels, is_object: ArrayLike, weights: ArrayLike = 1, threads: int | None = None
) -> Counts | None:
    """Counts of patches (samples, height, width) with labels (samples,), each `weights` times; None of none.

    A negative with too little contrast is not counted. `weights` are whole numbers, one or (samples,). The result
    depends neither on the order of the patches nor on the number of threads.
    """
    if patches.dtype != np.uint8 or patches.shape[1:] != model.window:
        height, width = model.window
        raise ValueError(
            f"got patches {patches.dtype} of shape {patches.shape}; expected uint8, (samples, {height}, {width})"
        )
    labels = checked_flags(is_object, len(patches), "patches")
    given = np.asarray(weights)
    if given.dtype.kind not in "iu" or given.shape not in ((), labels.shape) or (given < 0).any():
        raise ValueError("weights are whole numbers from 0: one for all patches, or one for each")
    if sum(np.broadcast_to(given, labels.shape).tolist()) >= MOST_SAMPLES:
        raise ValueError("the weights sum to 2^52 or more; counts stay exact below: use smaller weights")
    counts = np.broadcast_to(given, labels.shape).astype(np.int64)
    lock, total = Lock(), None

    def work(rows: slice) -> None:
        nonlocal total
        responses, has_contrast = model.responses(*Pyramid.from_patches(patches[rows], model.window))
        counted = labels[rows] | has_contrast
        part = model.count(responses.take(counted), labels[rows][counted], counts[rows][counted])
        with lock:
            total = added(total, part)

    for_each_block(work, len(patches), AT_ONCE, threads)
    return total


def added(counts: Counts | None, more: Counts | None) -> Counts | None:
    """The sum of counts; None stands for no examples."""
    return counts if more is None else more if counts is None else counts + more


@dataclass(frozen=True, eq=False)
class Refit:
    """A model that was made again from the samples of a base and of some records: a function of these alone.

    `base` is that model with its reference set, `reporting` its box offset and operating points. `learned` are hashes
    of the records with what they keep, in order, `satisfied` the contents of those corrections that the model satisfies
    by itself: they need no known windows any more.
    """

    base: DetectorBase
    reporting: Reporting
    learned: tuple[str, ...]
    satisfied: tuple[str, ...]

    def checked(self, records: Sequence[Record]) -> Refit:
        """The same with the corrections among some records that the model satisfies by itself."""
        from whet.corrections.effects import holding

        seen = [record for record in seen_after(self, records) if len(record)]
        holds = holding(self.base.model, seen)
        return replace(
            self, satisfied=tuple(sorted(r.content for r, is_held in zip(seen, holds, strict=True) if is_held))
        )

    @property
    def rank(self) -> tuple[int, tuple[str, ...], str]:
        """By which one of two is chosen when detectors are merged, whatever the order."""
        return len(self.learned), self.learned, self.base.base_id


@dataclass(frozen=True, eq=False)
class State:
    """A base, all that was learned on top of it, and what is derived from both; replaced as a whole, never changed.

    `counts` are examples without records, `total` those of all examples; None for none. `model` is that of base and
    examples, or of the last `refit`, `corrected` the same with all corrections. Records are always those of the base.
    """

    base: DetectorBase
    counts: Counts | None
    records: Records
    total: Counts | None
    model: Model
    corrected: Corrected
    refit: Refit | None = None

    @classmethod
    def from_learned(
        cls, base: DetectorBase, counts: Counts | None, records: Records, refit: Refit | None = None
    ) -> State:
        """The state of counts without records, and of records, on top of a base."""
        counts = None if counts is None or counts.is_empty else counts
        total = added(counts, count_records(base.model, records.distinct.values()))
        model = base.model.learned(total) if refit is None else refit.base.model
        return cls(base, counts, records, total, model, _corrected(base, model, records, refit), refit)

    @property
    def current(self) -> DetectorBase:
        """The base, or that of the last refit."""
        return self.base if self.refit is None else self.refit.base

    def replaced(self, add: Records, remove: Collection[str] = ()) -> State:
        """The state with further records and without those of some ids; records in both stay.

        Only the difference is counted. Counts are sums of whole numbers, so this is `from_learned` of the whole set, to
        the last bit.
        """
        records = (self.records - remove) | add
        before, after = self.records.distinct, records.distinct
        new = count_records(self.base.model, (record for key, record in after.items() if key not in before))
        old = count_records(self.base.model, (record for key, record in before.items() if key not in after))
        total, model, refit = self.total, self.model, self.refit
        if new is not None or old is not None:
            total = added(total, new)
            total = total if old is None or total is None else total - old
            total = None if total is None or total.is_empty else total
            model = self.base.model.learned(total)
        corrected = _corrected(self.base, model, records, refit)
        return replace(self, records=records, total=total, model=model, corrected=corrected, refit=refit)

    @property
    def to_learn(self) -> tuple[str, ...]:
        """The hashes of the records that a refit learns, with what they keep, in order."""
        return tuple(sorted(record.sample for record in self.records.distinct.values() if record.kept))

    @property
    def is_base(self) -> bool:
        """Nothing was learned."""
        return self.counts is None and not self.records

    def reporting(self, own: Reporting) -> Reporting:
        """Box offset and operating points in this state; those that the base came with follow by the reference set."""
        reference = self.base.reference
        if self.refit is not None:
            return self.refit.reporting
        if self.is_base or reference is None:
            return own
        before, after = reference.judge(self.base.model.votes), reference.judge(self.model.votes)
        return own.followed(before, after) if before.is_usable else own

    @property
    def held_out_scores(self) -> HeldOutScores | None:
        """The scores of held-out samples in this state; None without a reference set that can be used."""
        reference = self.current.reference
        scores = None if reference is None else reference.judge(self.corrected)
        return scores if scores is not None and scores.is_usable else None

    def estimate(self, own: Reporting) -> Estimate | None:
        """Recall and false positives per image at the default operating point of this state."""
        scores = self.held_out_scores
        return None if scores is None else scores.estimate(self.reporting(own).min_score(None))


def _corrected(base: DetectorBase, model: Model, records: Records, refit: Refit | None) -> Corrected:
    """The model with the distinct records; where a correction does not hold, neither does that of another site."""
    if not records:
        return Corrected(model)
    seen, reference = list(records.distinct.values()), base.reference
    if refit is not None:
        seen, reference = seen_after(refit, seen), refit.base.reference
    corrected = correct(model, reference, seen)
    unknown = {record.id for record in seen if record.kind == "correction" and not len(record)}
    failing = {records[key].content for key in unknown.union(corrected.unsatisfied)}
    return replace(corrected, unsatisfied=tuple(k for k, record in records.items() if record.content in failing))


def seen_after(refit: Refit, records: Iterable[Record]) -> list[Record]:
    """Corrections as the model of a refit sees them, without those that it satisfies by itself."""
    from whet.corrections.box_windows import seen_by

    given, known = list(records), _seen.setdefault(refit.base.model, {})
    objects: dict[str, list[tuple[float, ...]]] = {}
    for record in given:
        if record.kind == "correction" and record.is_object:
            objects.setdefault(record.image, []).append(record.box)
    satisfied, seen = set(refit.satisfied), []
    point = max(refit.reporting.min_score(None), 0.0)
    for record in given:
        if record.kind != "correction" or record.content in satisfied:
            continue
        beside = tuple(sorted(objects.get(record.image, ())))
        key = record.id, record.kept, beside, point, refit.reporting.box_offset
        if key not in known:
            boxes = np.array(beside, np.float64).reshape(-1, 4)
            known[key] = seen_by(refit.base.model, refit.reporting.box_offset, record, boxes, point)
        seen.append(known[key])
    return seen


# Records as a model sees them, by all that they depend on. They live as long as the model does.
_seen: WeakKeyDictionary[Model, dict[tuple[object, ...], Record]] = WeakKeyDictionary()


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
