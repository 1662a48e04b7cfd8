"""What a detector has learned: records of boxes with responses of the weak learners, without pixels, and its state."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from whet.cascade.cascade import Cascade
from whet.cascade.pyramid import WindowIndex
from whet.detector.base import Delta, DetectorBase, Reporting, check_delta, estimated_setbacks
from whet.detector.reference import Estimate, Judgement
from whet.errors import RecordError, WorseEstimateWarning

Bits = NDArray[np.uint8]
Kind = Literal["correction", "example"]

# A prefix of an id that people type; 16^6 records differ in it.
SHORTEST_ID = 6
LONGEST_NOTE = 1000
LONGEST_NAME = 255
LONGEST_SITE = 100
# The year 9999: a file may claim any time.
LATEST = 253_000_000_000
# Categories of corrections as COCO annotations.
OBJECT, NOT_OBJECT = 1, 2


@dataclass(frozen=True, eq=False)
class Record:
    """One box of an image that was learned, and the responses of the weak learners to its windows.

    A "correction" is an answer that is known: windows like its own are accepted, or rejected. An "example" is counted
    `weight` times in the statistics. `image` is the hash of the pixels, `name` the name of its file. `responses`
    (windows, bytes) are those of all weak learners, eight to a byte. `min_score` is the score that an object has to
    exceed. `base_id` is that of the detector's base. `time` is in seconds since 1970. `site` says who learned it: the
    same box of two sites is two records, which count once, and either can be unlearned without the other.

    >>> one = Record("correction", "0" * 64, (8.0, 8.0, 32.0, 32.0), False, responses=np.zeros((1, 2), np.uint8))
    >>> from dataclasses import replace
    >>> one.id[:8], replace(one, note="a shadow").id == one.id, replace(one, site="door").id == one.id
    ('e4287229', True, False)
    >>> replace(one, site="door").content == one.content == one.id
    True
    """

    kind: Kind
    image: str
    box: tuple[float, float, float, float]
    is_object: bool
    weight: int = 1
    min_score: float = 0.0
    index: WindowIndex = field(default_factory=WindowIndex)
    responses: Bits = field(default_factory=lambda: np.empty((0, 0), np.uint8))
    base_id: str = ""
    name: str = ""
    time: int = 0
    note: str = ""
    site: str = ""

    @cached_property
    def id(self) -> str:
        """Hash of what was learned, and of the site if there is one."""
        return hashlib.sha256(json.dumps([self.content, self.site]).encode()).hexdigest() if self.site else self.content

    @cached_property
    def content(self) -> str:
        """Hash of what was learned. Site, name, time and note do not decide anything, and are left out."""
        settings = [self.base_id, self.kind, self.image, list(map(float.hex, self.box)), bool(self.is_object)]
        digest = hashlib.sha256(json.dumps([*settings, int(self.weight), float(self.min_score).hex()]).encode())
        for array, dtype in (
            (self.index.scale, "<f8"),
            (self.index.y, "<i4"),
            (self.index.x, "<i4"),
            (self.responses, "u1"),
        ):
            digest.update(np.ascontiguousarray(array, dtype).tobytes())
        return digest.hexdigest()

    @property
    def kind_name(self) -> str:
        """The label of a correction, object or not object; or example."""
        return "example" if self.kind == "example" else "object" if self.is_object else "not object"

    @property
    def sized_box(self) -> list[float]:
        """The box as x, y, width, height."""
        x1, y1, x2, y2 = self.box
        return [x1, y1, x2 - x1, y2 - y1]

    @property
    def made_at(self) -> datetime | None:
        """The time at which the record was made; None if it is not known."""
        return datetime.fromtimestamp(self.time, UTC) if 0 < self.time < LATEST else None

    @property
    def iso_time(self) -> str | None:
        """The time at which the record was made, as ISO 8601 in UTC; None if it is not known."""
        return None if self.made_at is None else self.made_at.isoformat()

    def __len__(self) -> int:
        """Number of windows."""
        return len(self.responses)

    def described(self, time: int, name: str, note: str, site: str) -> Record:
        """The same record with what is kept for people; long names and notes are shortened."""
        return replace(self, time=time, name=name[:LONGEST_NAME], note=note[:LONGEST_NOTE], site=site)

    def unpacked(self, n_weak: int) -> Bits:
        """The responses (windows, n_weak), one to a byte."""
        return np.unpackbits(self.responses, axis=1, count=n_weak)


def image_hash(pixels: NDArray[np.uint8]) -> str:
    """SHA-256 of an image as a detector looks at it, grey (height, width) or RGB (height, width, 3): size and pixels.

    >>> image_hash(np.zeros((2, 3), np.uint8)) == image_hash(np.zeros((3, 2), np.uint8))
    False
    """
    digest = hashlib.sha256(f"{pixels.shape[0]} {pixels.shape[1]} ".encode())
    digest.update(np.ascontiguousarray(pixels).tobytes())
    return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Records(Mapping[str, Record]):
    """A set of records by id, in the order of the ids: equal sets are equal, whatever was learned first.

    >>> from dataclasses import replace
    >>> one = Record("correction", "0" * 64, (8.0, 8.0, 32.0, 32.0), False)
    >>> both = Records.from_iterable([one, replace(one, is_object=True), one])
    >>> len(both), len(both - [one.id]), (both | both).keys() == both.keys()
    (2, 1, True)
    """

    by_id: Mapping[str, Record] = field(default_factory=dict)

    @classmethod
    def from_iterable(cls, records: Iterable[Record]) -> Records:
        """Each record once; of equal ones, the earliest."""
        found: dict[str, Record] = {}
        for record in records:
            found[record.id] = _merged(found[record.id], record) if record.id in found else record
        return cls({key: found[key] for key in sorted(found)})

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Records) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __getitem__(self, key: str) -> Record:
        return self.by_id[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_id)

    def __len__(self) -> int:
        return len(self.by_id)

    @cached_property
    def distinct(self) -> Mapping[str, Record]:
        """The records by content, in its order: what several sites have learned is there once."""
        if not any(record.site for record in self.by_id.values()):
            return self.by_id
        found = {record.content: record for record in reversed(list(self.by_id.values()))}
        return {key: found[key] for key in sorted(found)}

    def __or__(self, other: Iterable[Record] | Records) -> Records:
        """The union."""
        new = other.values() if isinstance(other, Records) else other
        return Records.from_iterable([*self.values(), *new])

    def __sub__(self, ids: Iterable[str]) -> Records:
        """Without the records of these ids."""
        out = set(ids)
        return Records({key: record for key, record in self.by_id.items() if key not in out})

    def find(self, prefix: str) -> Record:
        """The one record whose id begins so; raises `RecordError` if there is none, or more than one."""
        found = [record for key, record in self.by_id.items() if key.startswith(prefix.lower())]
        if len(prefix) < SHORTEST_ID or len(found) != 1:
            reason = f"{len(found)} records begin so" if found else "no record begins so"
            if len(prefix) < SHORTEST_ID:
                reason = f"expected at least {SHORTEST_ID} characters of it"
            raise RecordError(f"got the id {prefix!r}: {reason}; `whet log MODEL` lists the ids")
        return found[0]

    def newest_first(self) -> list[Record]:
        """All records by time, the newest first; equal times by id."""
        return sorted(self.values(), key=lambda record: (-record.time, record.id))


def _merged(one: Record, other: Record) -> Record:
    """One of two records of the same id: the earlier; of equal times, the lesser name and note."""
    return min(one, other, key=lambda record: (record.time, record.name, record.note))


def check_site(site: str) -> None:
    """Raise ValueError for what cannot be the name of a site; the empty name stands for none.

    >>> check_site(" door")
    Traceback (most recent call last):
    ValueError: got the site ' door'; expected printable text of at most 100 characters, without spaces around it
    """
    if not isinstance(site, str) or len(site) > LONGEST_SITE or not site.isprintable() or site != site.strip():
        raise ValueError(
            f"got the site {site!r}; expected printable text of at most {LONGEST_SITE} characters, without spaces "
            "around it"
        )


def checked_records(records: Iterable[Record], base: DetectorBase) -> Records:
    """Records as a set; raises `RecordError` or `CannotLearnError` where a detector of this base cannot learn one."""
    new = Records.from_iterable(records)
    for record in new.values():
        _check_record(record, base.base_id, base.cascade.n_weak)
    if new:
        base.check_can_learn(examples=any(record.kind == "example" for record in new.values()))
    return new


def _check_record(record: Record, base_id: str, n_weak: int) -> None:
    """Raise `RecordError` unless a record was made for a base with this id, and its arrays fit it."""
    n = len(record)
    if record.base_id != base_id:
        raise RecordError(
            f"record {record.id[:8]} belongs to the base {record.base_id[:12] or '(none)'}, this detector has "
            f"{base_id[:12]}: use a detector of that base"
        )
    if record.responses.shape != (n, -(-n_weak // 8)) or len(record.index) != n:
        raise RecordError(
            f"record {record.id[:8]} does not fit this detector of {n_weak} weak learners: it belongs to another base, "
            "or was altered"
        )
    if n and n_weak % 8 and (record.responses[:, -1] & (0xFF >> n_weak % 8)).any():
        raise RecordError(f"record {record.id[:8]} has responses of more weak learners than {n_weak}: it was altered")


@dataclass(frozen=True, eq=False)
class Update:
    """What a call of `learn` has added, and what it changes, as the reference set estimates it.

    `unsatisfied` are the corrections, new or old, that do not hold: they contradict one another, or a held-out sample,
    or lie too far from what the stages accept.

    Of a class with views, `views` are the updates of those that have learned, by their names. Each estimates for
    itself: `before` and `after` are None.
    """

    records: tuple[Record, ...]
    before: Estimate | None = None
    after: Estimate | None = None
    unsatisfied: tuple[Record, ...] = ()
    views: Mapping[str, Update] = field(default_factory=dict)

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
        """What is worse than before by the reference set, or by those of views; empty if nothing is."""
        of_views = [f"{text} (view {name})" for name, one in self.views.items() for text in one.setbacks]
        return estimated_setbacks(self.before, self.after) + of_views

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
        for name, one in {"": self, **self.views}.items():
            if one.before is not None and one.after is not None:
                text += f"; held-out samples{' of ' * bool(name)}{name}: {one.before} before, {one.after} after"
        if self.unsatisfied:
            text += f"; not satisfied: {', '.join(record.id[:8] for record in self.unsatisfied)}"
        return text


@dataclass(frozen=True, eq=False)
class Derived:
    """The cascade with all corrections, that of the weights alone, and the ids of corrections that do not hold."""

    cascade: Cascade
    weighted: Cascade
    unsatisfied: tuple[str, ...] = ()


def _derived(base: DetectorBase, total: Delta, records: Records, weighted: Cascade | None = None) -> Derived:
    """What follows from the distinct records; the same correction of another site does not hold either."""
    from whet.detector.derive import derive

    found = derive(base, total, records.distinct, weighted)
    failing = {records[key].content for key in found.unsatisfied}
    return replace(found, unsatisfied=tuple(key for key, record in records.items() if record.content in failing))


@dataclass(frozen=True, eq=False)
class State:
    """A base, all that was learned on top of it, and what is derived from both; replaced as a whole, never changed."""

    base: DetectorBase
    counts: Delta
    records: Records
    total: Delta
    derived: Derived

    @classmethod
    def from_learned(cls, base: DetectorBase, counts: Delta, records: Records) -> State:
        """The state of counts without records, and of records, on top of a base."""
        if counts.is_empty and not records:  # detection alone does not load what learning needs
            return cls(base, counts, records, counts, Derived(base.cascade, base.cascade))
        from whet.detector.derive import count_records

        counted = count_records(base, records.distinct.values())
        total = counts if counted.is_empty else counts + counted
        check_delta(total, base)
        total.check_counts(base)
        return cls(base, counts, records, total, _derived(base, total, records))

    def replaced(self, add: Records, remove: Collection[str] = ()) -> State:
        """The state with further records and without those of some ids; records in both stay.

        Only the difference is counted. Counts are sums of whole numbers, so this is `from_learned` of the whole set, to
        the last bit.
        """
        from whet.detector.derive import count_records

        records = (self.records - remove) | add
        before, after = self.records.distinct, records.distinct
        new = [record for key, record in after.items() if key not in before]
        old = [record for key, record in before.items() if key not in after]
        is_counted = any(record.kind == "example" for record in (*new, *old))
        total = self.total
        if is_counted:
            total = total + count_records(self.base, new) - count_records(self.base, old)
            total.check_counts(self.base)
        if total.is_empty and not records:
            return replace(self, records=records, total=total, derived=Derived(self.base.cascade, self.base.cascade))
        weighted = None if is_counted else self.derived.weighted
        return replace(self, records=records, total=total, derived=_derived(self.base, total, records, weighted))

    @property
    def is_base(self) -> bool:
        """Nothing was learned."""
        return self.counts.is_empty and not self.records

    def reporting(self, own: Reporting) -> Reporting:
        """Box offset and operating points in this state; those that the base came with follow by the reference set."""
        reference = self.base.reference
        if self.is_base or reference is None:
            return own
        before, after = reference.judge(self.base.cascade), reference.judge(self.derived.weighted)
        return own.followed(before, after) if before.is_usable else own

    @property
    def judgement(self) -> Judgement | None:
        """The scores of held-out samples in this state; None without a reference set that can be used."""
        reference = self.base.reference
        judged = None if reference is None else reference.judge(self.derived.cascade)
        return judged if judged is not None and judged.is_usable else None

    def estimate(self, own: Reporting) -> Estimate | None:
        """Recall and false positives per image at the default operating point of this state."""
        judged = self.judgement
        return None if judged is None else judged.estimate(self.reporting(own).min_score(None))


def as_coco(records: Sequence[Record]) -> dict[str, Any]:
    """Records, the newest first, as a COCO table; whet does not read it as annotations.

    Images have boxes only where they were corrected, and no sizes: a record holds no image.
    """
    from whet.io.annotations.coco import CORRECTIONS

    ordered = records[::-1]  # the oldest first
    images = {record.image: record.name for record in records}
    numbers = {image: number for number, image in enumerate(dict.fromkeys(r.image for r in ordered), start=1)}
    return {
        "info": {"description": CORRECTIONS},
        "licenses": [],
        "images": [
            {"id": number, "file_name": images[image] or image, "sha256": image} for image, number in numbers.items()
        ],
        "annotations": [_annotation(n, numbers[r.image], r) for n, r in enumerate(ordered, start=1)],
        "categories": [
            {"id": OBJECT, "name": "object", "supercategory": ""},
            {"id": NOT_OBJECT, "name": "not-object", "supercategory": ""},
        ],
    }


def _annotation(number: int, image: int, record: Record) -> dict[str, Any]:
    box = record.sized_box
    return {
        "id": number,
        "image_id": image,
        "category_id": OBJECT if record.is_object else NOT_OBJECT,
        "bbox": box,
        "area": box[2] * box[3],
        "segmentation": [],
        "iscrowd": 0,
        "record": record.id,
        "kind": record.kind_name,
        "time": record.iso_time,
        "note": record.note,
        "site": record.site,
    }
