"""The header of a model file: canonical JSON for everything that is no array."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import NamedTuple, Self

from whet.corrections.records import Record, Records
from whet.detector.base import DetectorBase, Provenance, RefitSettings, Reporting
from whet.detector.state import Refit
from whet.errors import ModelFileError
from whet.images.boxes import BoxOffset
from whet.models.contract import (
    FAMILIES,
    Counts,
    Table,
    as_table,
    check_keys,
    finite,
    flag,
    one_of,
    pair,
    parse_table,
    whole,
)

FORMAT = "whet detector"
VERSION = 3

_TOP = {
    *("format", "version", "family", "window", "model", "base_id", "content"),
    *("box_offset", "operating_points", "fixed_points", "provenance", "reference", "records"),
}
# Only in files of detectors that look for smaller objects than their window, and of those that were made again.
_MIN_SIZE = "min_size"
_REFIT = "refit"
# Only in files with samples.
_SETTINGS = "settings"
MOST_RECORDS = 100_000
HASH_DIGITS = 64
MOST_IMAGES = 10**9
MOST_SIDE = 2**16
# A face detector has a megabyte, and each correction some ten kilobytes. Larger files are refused before they are read.
MOST_BYTES = 256_000_000


class Contents(NamedTuple):
    """What a model file holds."""

    base: DetectorBase
    counts: Counts | None
    reporting: Reporting
    records: Records
    refit: Refit | None = None


@dataclass(frozen=True)
class Header:
    """The whole header.

    `model` is the table of the model's family. `reference` is the number of images of the reference set, and whether
    its objects were trained on; None without one. `records` lack their windows, which are in the arrays; `windows` is
    how many each has. `refit` are the contents of the records that the last refit learned, and of those that it
    satisfies.
    """

    family: str
    window: tuple[int, int]
    model: Table
    base_id: str
    reporting: Reporting
    provenance: Provenance
    reference: tuple[int, bool] | None = None
    records: tuple[Record, ...] = ()
    windows: tuple[int, ...] = ()
    refit: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    settings: RefitSettings | None = None

    @classmethod
    def from_contents(cls, contents: Contents, model: Table) -> Self:
        """Describe a detector, whose model has this table."""
        base, records = contents.base, tuple(contents.records.values())
        if len(records) > MOST_RECORDS:
            raise ModelFileError(f"got {len(records):,} records; a file holds at most {MOST_RECORDS:,}")
        reference = base.reference
        return cls(
            base.model.family,
            (int(base.window[0]), int(base.window[1])),
            model,
            base.base_id,
            contents.reporting,
            base.provenance,
            None if reference is None else (reference.n_images, reference.was_trained_on),
            records,
            tuple(map(len, records)),
            None if contents.refit is None else (contents.refit.learned, contents.refit.satisfied),
            base.settings,
        )

    def to_json(self, content: str = "") -> str:
        """Sorted keys, no spaces, ASCII: equal headers have equal bytes. `content` is the hash of all the rest."""
        records = zip(self.records, self.windows, strict=True)
        table: Table = {
            "format": FORMAT,
            "version": VERSION,
            "family": self.family,
            "window": list(self.window),
            "model": self.model,
            "base_id": self.base_id,
            "box_offset": list(map(float, self.reporting.box_offset)),
            "operating_points": dict(self.reporting.operating_points),
            "fixed_points": sorted(self.reporting.fixed),
            "provenance": asdict(self.provenance),
            "reference": None,
            "records": [record.table() | {"windows": n} for record, n in records],
            "content": content,
        }
        if self.reference is not None:
            table["reference"] = {"images": self.reference[0], "was_trained_on": self.reference[1]}
        if self.reporting.min_size is not None:
            table[_MIN_SIZE] = float(self.reporting.min_size)
        if self.refit is not None:
            table[_REFIT] = {"learned": list(self.refit[0]), "satisfied": list(self.refit[1])}
        if self.settings is not None:
            table[_SETTINGS] = asdict(self.settings)
        return json.dumps(table, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read and check everything that can be checked without the arrays, but for the table of the family."""
        table = parse_table(text, "header")
        _check_version(table)
        check_keys(table, _TOP, {_MIN_SIZE, _REFIT, _SETTINGS}, where="the header")
        if not isinstance(table["base_id"], str):
            raise ModelFileError("the header's base_id is no text")
        family = one_of(table["family"], FAMILIES, "the family of the model")
        window = pair(table["window"], "window", MOST_SIDE)
        reporting, provenance = _read_reporting(table), _read_provenance(table["provenance"])
        reference = None
        if table["reference"] is not None:
            facts = as_table(table["reference"], "reference set")
            check_keys(facts, {"images", "was_trained_on"}, where="the reference set")
            n_images = whole(facts["images"], 0, MOST_IMAGES, "images of the reference set")
            reference = n_images, flag(facts["was_trained_on"], "was_trained_on of the reference set")
        records, windows = _read_records(table["records"], table["base_id"])
        model, refit = as_table(table["model"], "model"), None
        if _REFIT in table:
            refit = _read_refit(as_table(table[_REFIT], _REFIT))
        settings = _read_settings(as_table(table[_SETTINGS], _SETTINGS)) if _SETTINGS in table else None
        about = reporting, provenance, reference, records, windows, refit, settings
        return cls(family, window, model, table["base_id"], *about)


def _read_records(value: object, base_id: str) -> tuple[tuple[Record, ...], tuple[int, ...]]:
    if not isinstance(value, list) or len(value) > MOST_RECORDS:
        raise ModelFileError(f"the header's records are no list, or more than {MOST_RECORDS:,}")
    tables = [as_table(record, f"record {number}") for number, record in enumerate(value)]
    records = [Record.from_table(table, base_id, f"record {number}") for number, table in enumerate(tables)]
    return tuple(records), tuple(table["windows"] for table in tables)


def _read_settings(table: Table) -> RefitSettings:
    import msgspec

    try:
        return msgspec.convert(table, RefitSettings)
    except (msgspec.ValidationError, ValueError) as error:
        raise ModelFileError(f"settings of the samples: {error}") from error


def _read_refit(table: Table) -> tuple[tuple[str, ...], tuple[str, ...]]:
    check_keys(table, {"learned", "satisfied"}, where=_REFIT)
    for name, ids in table.items():
        if not isinstance(ids, list) or not all(isinstance(key, str) and len(key) == HASH_DIGITS for key in ids):
            raise ModelFileError(f"{name} of the refit: expected a list of SHA-256 hashes")
        if ids != sorted(set(ids)) or len(ids) > MOST_RECORDS:
            raise ModelFileError(f"{name} of the refit: expected hashes in order, each once")
    return tuple(table["learned"]), tuple(table["satisfied"])


def _check_version(table: Table) -> None:
    if table.get("format") != FORMAT:
        raise ModelFileError(f"the header is not that of a {FORMAT}: this file is of another kind")
    version = table.get("version")
    if version != VERSION or isinstance(version, bool):
        raise ModelFileError(
            f"the file has format version {str(version)[:20]}, this whet reads {VERSION}: train an older detector "
            "again, or update whet for a newer one"
        )


def _read_reporting(table: Table) -> Reporting:
    sides, points = table["box_offset"], as_table(table["operating_points"], "table of operating points")
    if not isinstance(sides, list) or len(sides) != 4:
        raise ModelFileError("box_offset: expected four numbers, left, top, right and bottom")
    offset = BoxOffset(*(finite(side, "a side of the box offset") for side in sides))
    fixed = table["fixed_points"]
    if not isinstance(fixed, list) or not all(isinstance(name, str) for name in fixed):
        raise ModelFileError("fixed_points: expected names of operating points")
    scores = {name: finite(points[name], f"operating point {name[:40]!r}") for name in points}
    min_size = finite(table[_MIN_SIZE], _MIN_SIZE) if _MIN_SIZE in table else None
    try:
        return Reporting(offset, scores, frozenset(fixed), min_size)
    except ValueError as error:
        raise ModelFileError(str(error)) from error


def _read_provenance(value: object) -> Provenance:
    table = as_table(value, "provenance")
    check_keys(table, Provenance.__dataclass_fields__, where="provenance")
    for name in ("goals", "facts"):
        as_table(table[name], f"provenance's {name}")
    try:
        return Provenance(**table)
    except ValueError as error:
        raise ModelFileError(str(error)) from error
