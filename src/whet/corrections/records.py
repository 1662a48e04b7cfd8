"""Records of what a detector has learned: boxes with responses of the weak learners, without pixels."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whet.arrays import Bools, Pixels
from whet.corrections.kept import Kept
from whet.errors import ModelFileError, RecordError
from whet.images.pyramid import WindowIndex
from whet.lda.statistics import MOST_SAMPLES
from whet.models.contract import Table, check_keys, finite, flag, one_of, whole
from whet.models.responses import Responses

Kind = Literal["correction", "example", "sample"]

# A prefix of an id that people type; 16^6 records differ in it.
SHORTEST_ID = 6
LONGEST_NOTE = 1000
LONGEST_NAME = 255
LONGEST_SITE = 100
# The year 9999: a file may claim any time.
LATEST = 253_000_000_000
MOST_SECONDS = 2**53
MOST_WINDOWS = 10**9
# The facts of a record in files; a site is only in records that have one.
_FACTS = {"kind", "image", "box", "is_object", "weight", "min_score", "windows", "name", "time", "note"}
# The arrays of an index in files.
INDEX: dict[str, np.dtype[Any]] = {"scale": np.dtype("<f8"), "y": np.dtype("<i4"), "x": np.dtype("<i4")}
# Categories of corrections as COCO annotations.
OBJECT, NOT_OBJECT = 1, 2


@dataclass(frozen=True, eq=False)
class Record:
    """One box of an image that was learned, and the responses of the weak learners to its windows.

    A "correction" is an answer that is known: windows like its own are accepted, or rejected. An "example" is counted
    `weight` times in the statistics. A "sample" is learned by the next refit only: an object that no window fits, or a
    whole image whose objects are all known, with crops of its background. `kept` is what a later model is made from
    (see `whet.corrections.kept`); it is no part of the id. `image` is the hash of the pixels, `name` the name of its
    file. `responses` (windows,) are those of all weak learners. `min_score` is the score that an object has to exceed.
    `base_id` is that of the detector's base. `time` is in seconds since 1970. `site` says who learned it: the same box
    of two sites is two records, which count once, and either can be unlearned without the other.

    >>> one = Record("correction", "0" * 64, (8.0, 8.0, 32.0, 32.0), False)
    >>> from dataclasses import replace
    >>> one.id[:8], replace(one, note="a shadow").id == one.id, replace(one, site="door").id == one.id
    ('fb54ebfe', True, False)
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
    responses: Responses = field(default_factory=lambda: Responses.empty(0))
    base_id: str = ""
    name: str = ""
    time: int = 0
    note: str = ""
    site: str = ""
    kept: bytes = b""

    @property
    def keeps(self) -> Kept:
        """Crops and region; raises `ModelFileError` where they are damaged."""
        return Kept.from_bytes(self.kept) if self.kept else Kept()

    @cached_property
    def sample(self) -> str:
        """Hash of what was learned and of what is kept of it."""
        return hashlib.sha256(self.content.encode() + self.kept).hexdigest()

    @cached_property
    def id(self) -> str:
        """Hash of what was learned, and of the site if there is one."""
        return hashlib.sha256(json.dumps([self.content, self.site]).encode()).hexdigest() if self.site else self.content

    @cached_property
    def content(self) -> str:
        """Hash of what was learned. Site, name, time and note do not decide anything, and are left out."""
        settings = [self.base_id, self.kind, self.image, list(map(float.hex, self.box)), bool(self.is_object)]
        digest = hashlib.sha256(json.dumps([*settings, int(self.weight), float(self.min_score).hex()]).encode())
        for name, dtype in INDEX.items():
            digest.update(np.ascontiguousarray(getattr(self.index, name), dtype).tobytes())
        digest.update(self.responses.to_bytes().tobytes())
        return digest.hexdigest()

    @property
    def kind_name(self) -> str:
        """The label of a correction, object or not object; or example, or background."""
        if self.kind == "example":
            return self.kind
        return "object" if self.is_object else "background" if self.kind == "sample" else "not object"

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

    def without_crops(self, *, keep_region: bool) -> Record:
        """The same record without crops; with its region, if it has one and that is wanted."""
        region = self.keeps.region if keep_region else None
        return replace(self, kept=b"" if region is None else Kept(region=region).to_bytes())

    def with_windows(self, index: WindowIndex, responses: Responses, min_score: float) -> Record:
        """The same record, with its id, as another model sees it."""
        seen = replace(self, index=index, responses=responses, min_score=min_score)
        seen.__dict__.update(id=self.id, content=self.content)
        return seen

    def described(self, time: int, name: str, note: str, site: str) -> Record:
        """The same record with what is kept for people; long names and notes are shortened."""
        return replace(self, time=max(time, 0), name=name[:LONGEST_NAME], note=note[:LONGEST_NOTE], site=site)

    def table(self) -> Table:
        """All facts as JSON, without the windows: those are arrays."""
        return ({"site": self.site} if self.site else {}) | {
            "kind": self.kind,
            "image": self.image,
            "box": list(map(float, self.box)),
            "is_object": bool(self.is_object),
            "weight": int(self.weight),
            "min_score": float(self.min_score),
            "windows": len(self),
            "name": self.name,
            "time": int(self.time),
            "note": self.note,
        }

    @classmethod
    def from_table(cls, table: Table, base_id: str, where: str = "the record") -> Record:
        """A record without its windows from its facts, checked; raises `ModelFileError` or ValueError."""
        check_keys(table, _FACTS, {"site"}, where=where)
        check_site(table.get("site", ""))
        box = table["box"]
        if not isinstance(box, list) or len(box) != 4:
            raise ModelFileError(f"box of {where}: expected four numbers")
        x1, y1, x2, y2 = (finite(side, f"box of {where}") for side in box)
        image = table["image"]
        if not isinstance(image, str) or not re.fullmatch(r"[0-9a-f]{64}", image):
            raise ModelFileError(f"image of {where}: expected a SHA-256 hash")
        for name, most in (("name", LONGEST_NAME), ("note", LONGEST_NOTE)):
            if not isinstance(table[name], str) or len(table[name]) > most:
                raise ModelFileError(f"{name} of {where}: expected text of at most {most} characters")
        whole(table["windows"], 0, MOST_WINDOWS, f"windows of {where}")
        return cls(
            cast(Kind, one_of(table["kind"], get_args(Kind), f"kind of {where}")),
            image,
            (x1, y1, x2, y2),
            flag(table["is_object"], f"is_object of {where}"),
            whole(table["weight"], 1, MOST_SAMPLES - 1, f"weight of {where}"),
            finite(table["min_score"], f"min_score of {where}"),
            base_id=base_id,
            name=table["name"],
            time=whole(table["time"], 0, MOST_SECONDS, f"time of {where}"),
            note=table["note"],
            site=table.get("site", ""),
        )


def image_hash(pixels: Pixels) -> str:
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
        """Each record once; of equal ones, the earliest, then the least name and note, then what keeps most."""
        earliest_last = sorted(records, key=lambda r: (r.time, r.name, r.note, -len(r.kept), r.kept), reverse=True)
        by_id = {record.id: record for record in earliest_last}
        return cls({key: by_id[key] for key in sorted(by_id)})

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
        by_content = {record.content: record for record in reversed(list(self.by_id.values()))}
        return {key: by_content[key] for key in sorted(by_content)}

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
        records = [record for key, record in self.by_id.items() if key.startswith(prefix.lower())]
        if len(prefix) >= SHORTEST_ID and len(records) == 1:
            return records[0]
        reason = f"{len(records)} records begin so" if records else "no record begins so"
        if len(prefix) < SHORTEST_ID:
            reason = f"expected at least {SHORTEST_ID} characters of it"
        raise RecordError(f"got the id {prefix!r}: {reason}; `whet log MODEL` lists the ids")


def checked_flags(labels: ArrayLike, n: int, samples: str) -> Bools:
    """Labels (n,) of n samples, from as many or from one for all; raises ValueError for others."""
    flags: NDArray[Any] = np.asarray(labels)
    flags = np.full(n, flags) if flags.shape == () else flags
    if flags.shape != (n,):
        raise ValueError(f"got labels of shape {flags.shape} for {n} {samples}; expected one for each")
    if not np.isin(flags, (0, 1)).all():
        raise ValueError("a label is True (the object) or False (not the object)")
    return flags.astype(np.bool_)


def newest_first(records: Iterable[Record]) -> list[Record]:
    """Records by time, the newest first; equal times by id."""
    return sorted(records, key=lambda record: (-record.time, record.id))


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


def check_record(record: Record, base_id: str, n_weak: int) -> None:
    """Raise `RecordError` unless a record was made for a base with this id, fits it, and a file gives it back.

    This is the validation of records: of those of files, and of those that are added.
    """
    if record.base_id != base_id:
        raise RecordError(
            f"record {_shown(record)} belongs to the base {str(record.base_id)[:12] or '(none)'}, this detector has "
            f"{base_id[:12]}: use a detector of that base"
        )
    if len(record.index) != len(record) or (len(record) and record.responses.n_weak != n_weak):
        raise RecordError(
            f"record {_shown(record)} does not fit this detector of {n_weak} weak learners: it belongs to another "
            "base, or was altered"
        )
    try:
        _check_facts(record)
        _check_windows(record)
    except (ModelFileError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise RecordError(f"record {_shown(record)} cannot be saved: {error}; it was altered") from error


def _shown(record: Record) -> str:
    """The first characters of the id, for messages."""
    try:
        return record.id[:SHORTEST_ID]
    except (ValueError, TypeError, AttributeError, OverflowError):
        return "(without an id)"


def _check_facts(record: Record) -> None:
    """Raise ValueError, or what it runs into, unless a file gives back the same facts, and they have this id."""
    stored = Record.from_table(record.table(), record.base_id)
    for name in _FACTS - {"windows"} | {"site"}:
        given, kept = getattr(record, name), getattr(stored, name)
        if given != kept:
            raise ValueError(f"{name} is {given!r:.60}, a file would have {kept!r:.60}")
    if not isinstance(record.kept, bytes):
        raise ValueError(f"kept is a {type(record.kept).__name__}; expected bytes")
    if replace(record).id != record.id:
        raise ValueError("it has the id of another record")


def _check_windows(record: Record) -> None:
    """Raise ValueError for windows that no image has, and for responses of more than all weak learners."""
    index, most = record.index, np.iinfo(INDEX["y"]).max
    places = np.stack([index.y, index.x])
    if not (np.isfinite(index.scale) & (index.scale > 0)).all() or ((places < 0) | (places > most)).any():
        raise ValueError("a window of a record lies outside of any image")
    stored = Responses.from_bytes(record.responses.to_bytes(), record.responses.n_weak)
    if not np.array_equal(stored.words, record.responses.words):
        raise ValueError("responses of a record are not those of its weak learners")


def as_coco(records: Sequence[Record]) -> dict[str, Any]:
    """Records, the newest first, as a COCO table; whet does not read it as annotations.

    Images have boxes only where they were corrected, and no sizes: a record holds no image.
    """
    from whet.io.annotations.coco import CORRECTIONS

    ordered = [record for record in records[::-1] if record.kind_name != "background"]  # the oldest first
    images = {record.image: record.name for record in records}
    numbers = {image: number for number, image in enumerate(dict.fromkeys(r.image for r in ordered), start=1)}
    return {
        "info": {"description": CORRECTIONS},
        "licenses": [],
        "images": [
            {"id": number, "file_name": images[image] or image, "sha256": image} for image, number in numbers.items()
        ],
        "annotations": [
            {
                "id": number,
                "image_id": numbers[record.image],
                "category_id": OBJECT if record.is_object else NOT_OBJECT,
                "bbox": record.sized_box,
                "area": record.sized_box[2] * record.sized_box[3],
                "segmentation": [],
                "iscrowd": 0,
                "record": record.id,
                "kind": record.kind_name,
                "time": record.iso_time,
                "note": record.note,
                "site": record.site,
            }
            for number, record in enumerate(ordered, start=1)
        ],
        "categories": [
            {"id": OBJECT, "name": "object", "supercategory": ""},
            {"id": NOT_OBJECT, "name": "not-object", "supercategory": ""},
        ],
    }
