"""What a detector has learned, and what is derived from it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from whet.cascade.cascade import Cascade
from whet.detector.base import Delta, DetectorBase, check_delta
from whet.detector.records import Record, Records
from whet.detector.reference import Estimate


@dataclass(frozen=True, eq=False)
class Update:
    """What a call of `learn` has added, and what it changes, as the reference set estimates it.

    `unsatisfied` are the corrections, new or old, that no weights could satisfy together: they contradict one another,
    or lie beyond these weak learners.
    """

    records: tuple[Record, ...]
    before: Estimate | None = None
    after: Estimate | None = None
    unsatisfied: tuple[Record, ...] = ()

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    @property
    def ids(self) -> list[str]:
        """The ids of the new records."""
        return [record.id for record in self.records]

    def __str__(self) -> str:
        n = len(self.records)
        text = f"{n} correction{'s' * (n != 1)}"
        if self.before is not None and self.after is not None:
            text += f"; held-out samples: {self.before} before, {self.after} after"
        if self.unsatisfied:
            text += f"; not satisfied: {', '.join(record.id[:8] for record in self.unsatisfied)}"
        return text


@dataclass(frozen=True, eq=False)
class Derived:
    """The cascade with all corrections, that of the weights alone, and the ids of corrections that do not hold."""

    cascade: Cascade
    weighted: Cascade
    unsatisfied: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class State:
    """All that a detector has learned, and what is derived from it; replaced as a whole, never changed."""

    counts: Delta
    records: Records
    total: Delta
    derived: Derived

    @classmethod
    def from_learned(cls, base: DetectorBase, counts: Delta, records: Records) -> State:
        """The state of counts without records, and of records, on top of a base."""
        if counts.is_empty and not records:  # detection alone does not load what learning needs
            return cls(counts, records, counts, Derived(base.cascade, base.cascade))
        from whet.detector.counting import count_records
        from whet.detector.derive import derive

        counted = count_records(base, records.values())
        total = counts if counted.is_empty else counts + counted
        check_delta(total, base)
        total.check_counts(base)
        return cls(counts, records, total, derive(base, total, records))

    def replaced(self, base: DetectorBase, add: Records, remove: Collection[str] = ()) -> State:
        """The state with further records and without those of some ids; records in both stay.

        Only the difference is counted. Counts are sums of whole numbers, so this is `from_learned` of the whole set, to
        the last bit.
        """
        from whet.detector.counting import count_records
        from whet.detector.derive import derive

        records = (self.records - remove) | add
        new = count_records(base, (record for key, record in records.items() if key not in self.records))
        old = count_records(base, (record for key, record in self.records.items() if key not in records))
        total = self.total + new - old
        total.check_counts(base)
        if total.is_empty and not records:
            return State(self.counts, records, total, Derived(base.cascade, base.cascade))
        return State(self.counts, records, total, derive(base, total, records))

    @property
    def is_base(self) -> bool:
        """Nothing was learned."""
        return self.counts.is_empty and not self.records
