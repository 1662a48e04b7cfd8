"""The header of a model file: canonical JSON for everything that is no array."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self, cast, get_args

from whet.cascade.boxes import BoxOffset
from whet.cascade.cascade import MOST_PIXELS
from whet.cascade.stage import LearningStage, Stage, TrainedStage, z_of
from whet.detector.base import Delta, DetectorBase, Provenance, Reporting
from whet.detector.records import LONGEST_NAME, LONGEST_NOTE, Kind, Record, Records, check_site
from whet.errors import ModelFileError
from whet.features.families import LEAVES, MOST_CONDITIONS, TREES, family_name, family_names, n_rows, rows_of_trees
from whet.lda.discriminant import Criterion
from whet.lda.statistics import MOST_SAMPLES
from whet.lda.thresholds import Asymmetric, Rate

Table = dict[str, Any]

FORMAT = "whet detector"
VERSION = 2

# A triangle of bytes becomes a square of 64-bit numbers: without limits, a small file could fill the memory.
# OpenCV's largest stages have some 200 weak learners; 100 stages of 200 have 4 million cells.
MOST_WEAK = 2000
MOST_STAGES = 1000
MOST_CELLS = 2**23

# Columns of leaves have one row per condition; columns of other families one per weak learner.
_OF_LEAVES = "n_conditions"
_LEARNING = {"family", "n_weak", "criterion", "ridge", "rule", "z", "positives", "negatives", "soft"}
_FIXED = {"family", "n_weak", "threshold", "soft"}
_COUNTS = ("positives", "negatives")
_TOP = {
    *("format", "version", "window", "min_sigma", "base_id", "content"),
    *("box_offset", "operating_points", "fixed_points", "provenance", "stages", "reference", "records"),
}
# Only in files of detectors that look for smaller objects than their window, or whose scans have a coarse pass.
_MIN_SIZE = "min_size"
_COARSE_ROOM = "coarse_room"
_RECORD = {"kind", "image", "box", "is_object", "weight", "min_score", "windows", "name", "time", "note"}
# Only in records that a site has learned.
_SITE = "site"
MOST_RECORDS = 100_000
MOST_SECONDS = 2**53
MOST_IMAGES = 10**9
# A face detector has a megabyte, and each correction some ten kilobytes. Larger files are refused before they are read.
MOST_BYTES = 256_000_000


class Contents(NamedTuple):
    """What a model file holds."""

    base: DetectorBase
    counts: Delta
    reporting: Reporting
    records: Records


@dataclass(frozen=True)
class LearningHeader:
    """What a stage that learns has beside its arrays; `learned` are positives and negatives since the base."""

    family: str
    n_weak: int
    n_conditions: int
    criterion: Criterion
    ridge: float
    rule: Rate | Asymmetric
    counts: tuple[int, int]
    learned: tuple[int, int]
    soft: bool

    def table(self) -> Table:
        """As JSON; what was never learned is not mentioned."""
        table = {
            **_shape_table(self),
            "criterion": self.criterion,
            "ridge": self.ridge,
            "rule": type(self.rule).__name__.lower(),
            "z": float(z_of(self.rule)),
            "positives": self.counts[0],
            "negatives": self.counts[1],
            "soft": self.soft,
        }
        return table | ({"learned": list(self.learned)} if any(self.learned) else {})

    @classmethod
    def from_table(cls, table: Table, where: str) -> Self:
        """From JSON, checked."""
        check_keys(table, _LEARNING, {"learned", _OF_LEAVES}, where=where)
        rate = Rate(finite(table["z"], f"z of {where}"))
        name = one_of(table["rule"], {"rate", "asymmetric"}, f"rule of {where}")
        criterion = one_of(table["criterion"], {"fda", "lac"}, f"criterion of {where}")
        return cls(
            *_shape(table, where),
            cast(Criterion, criterion),
            finite(table["ridge"], f"ridge of {where}"),
            rate if name == "rate" else Asymmetric(rate),
            _pair([table["positives"], table["negatives"]], f"counts of {where}"),
            _pair(table.get("learned", [0, 0]), f"learned counts of {where}"),
            _flag(table["soft"], f"soft of {where}"),
        )


@dataclass(frozen=True)
class FixedHeader:
    """What a stage with fixed weights has beside its arrays; `counts` are the samples that it has counted, if any."""

    family: str
    n_weak: int
    n_conditions: int
    threshold: float
    soft: bool
    counts: tuple[int, int] | None = None

    def table(self) -> Table:
        """As JSON; a stage that has counted nothing does not mention it."""
        table = _shape_table(self) | {"threshold": self.threshold, "soft": self.soft}
        return table | ({} if self.counts is None else dict(zip(_COUNTS, self.counts, strict=True)))

    @classmethod
    def from_table(cls, table: Table, where: str) -> Self:
        """From JSON, checked."""
        is_counted = not set(_COUNTS).isdisjoint(table)
        check_keys(table, {*_FIXED, *(_COUNTS if is_counted else ())}, {_OF_LEAVES}, where=where)
        threshold = finite(table["threshold"], f"threshold of {where}")
        counts = _pair([table[name] for name in _COUNTS], f"counts of {where}") if is_counted else None
        return cls(*_shape(table, where), threshold, _flag(table["soft"], f"soft of {where}"), counts)


StageHeader = LearningHeader | FixedHeader


@dataclass(frozen=True)
class Header:
    """The whole header.

    `reference` is the number of images of the reference set, or None without one. `records` lack their windows, which
    are in the arrays; `windows` is how many each has.
    """

    window: tuple[int, int]
    min_sigma: float
    base_id: str
    reporting: Reporting
    provenance: Provenance
    stages: tuple[StageHeader, ...]
    reference: int | None = None
    records: tuple[Record, ...] = ()
    windows: tuple[int, ...] = ()
    coarse_room: tuple[float, ...] = ()

    @classmethod
    def from_contents(cls, detector: Contents) -> Self:
        """Describe a detector."""
        base = detector.base
        pairs = zip(base.stages, detector.counts.counts, strict=True)
        stages = tuple(_describe(stage, learned) for stage, learned in pairs)
        _check_sizes(stages)  # what could not be loaded is not saved
        window = int(base.window[0]), int(base.window[1])
        records = tuple(detector.records.values())
        if len(records) > MOST_RECORDS:
            raise ModelFileError(f"got {len(records):,} records; a file holds at most {MOST_RECORDS:,}")
        return cls(
            window,
            float(base.min_sigma),
            base.base_id,
            detector.reporting,
            base.provenance,
            stages,
            None if base.reference is None else base.reference.n_images,
            records,
            tuple(map(len, records)),
            base.coarse_room,
        )

    def to_json(self, content: str = "") -> str:
        """Sorted keys, no spaces, ASCII: equal headers have equal bytes. `content` is the hash of all the rest."""
        table: Table = {
            "format": FORMAT,
            "version": VERSION,
            "window": list(self.window),
            "min_sigma": self.min_sigma,
            "base_id": self.base_id,
            "box_offset": list(map(float, self.reporting.box_offset)),
            "operating_points": dict(self.reporting.operating_points),
            "fixed_points": sorted(self.reporting.fixed),
            "provenance": asdict(self.provenance),
            "stages": [stage.table() for stage in self.stages],
            "reference": self.reference,
            "records": [_record_table(*pair) for pair in zip(self.records, self.windows, strict=True)],
            "content": content,
        }
        if self.reporting.min_size is not None:
            table[_MIN_SIZE] = float(self.reporting.min_size)
        if self.coarse_room:
            table[_COARSE_ROOM] = list(map(float, self.coarse_room))
        return json.dumps(table, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read and check everything that can be checked without the arrays."""
        table = parse_table(text, "header")
        _check_version(table)
        check_keys(table, _TOP, {_MIN_SIZE, _COARSE_ROOM}, where="the header")
        if not isinstance(table["stages"], list) or not isinstance(table["base_id"], str):
            raise ModelFileError("the header's stages are no list, or its base_id is no text")
        if len(table["stages"]) > MOST_STAGES:
            raise ModelFileError(f"the header has {len(table['stages']):,} stages; expected at most {MOST_STAGES:,}")
        stages = tuple(_read_stage(stage, number) for number, stage in enumerate(table["stages"]))
        _check_sizes(stages)
        window = _pair(table["window"], "window", MOST_PIXELS)
        sigma = finite(table["min_sigma"], "min_sigma")
        reporting, provenance = _read_reporting(table), _read_provenance(table["provenance"])
        n_images = table["reference"]
        reference = None if n_images is None else whole(n_images, 0, MOST_IMAGES, "images of the reference set")
        records, windows = _read_records(table["records"], table["base_id"])
        room = _read_coarse_room(table[_COARSE_ROOM]) if _COARSE_ROOM in table else ()
        return cls(window, sigma, table["base_id"], reporting, provenance, stages, reference, records, windows, room)


def _record_table(record: Record, windows: int) -> Table:
    site = {_SITE: record.site} if record.site else {}
    return site | {
        "kind": record.kind,
        "image": record.image,
        "box": list(map(float, record.box)),
        "is_object": bool(record.is_object),
        "weight": int(record.weight),
        "min_score": float(record.min_score),
        "windows": windows,
        "name": record.name,
        "time": int(record.time),
        "note": record.note,
    }


def _read_records(value: object, base_id: str) -> tuple[tuple[Record, ...], tuple[int, ...]]:
    if not isinstance(value, list) or len(value) > MOST_RECORDS:
        raise ModelFileError(f"the header's records are no list, or more than {MOST_RECORDS:,}")
    pairs = [
        _read_record(as_table(one, f"record {number}"), f"record {number}", base_id) for number, one in enumerate(value)
    ]
    return tuple(record for record, _ in pairs), tuple(windows for _, windows in pairs)


def _read_record(table: Table, where: str, base_id: str) -> tuple[Record, int]:
    check_keys(table, _RECORD, {_SITE}, where=where)
    check_site(table.get(_SITE, ""))
    box = table["box"]
    if not isinstance(box, list) or len(box) != 4:
        raise ModelFileError(f"box of {where}: expected four numbers")
    x1, y1, x2, y2 = (finite(side, f"box of {where}") for side in box)
    image = table["image"]
    if not isinstance(image, str) or not re.fullmatch(r"[0-9a-f]{64}", image):
        raise ModelFileError(f"image of {where}: expected a SHA-256 hash")
    texts = {name: table[name] for name in ("name", "note")}
    for name, most in (("name", LONGEST_NAME), ("note", LONGEST_NOTE)):
        if not isinstance(texts[name], str) or len(texts[name]) > most:
            raise ModelFileError(f"{name} of {where}: expected text of at most {most} characters")
    record = Record(
        cast(Kind, one_of(table["kind"], get_args(Kind), f"kind of {where}")),
        image,
        (x1, y1, x2, y2),
        _flag(table["is_object"], f"is_object of {where}"),
        whole(table["weight"], 1, MOST_SAMPLES - 1, f"weight of {where}"),
        finite(table["min_score"], f"min_score of {where}"),
        base_id=base_id,
        time=whole(table["time"], 0, MOST_SECONDS, f"time of {where}"),
        site=table.get(_SITE, ""),
        **texts,
    )
    return record, whole(table["windows"], 0, MOST_BYTES, f"windows of {where}")


def _check_sizes(stages: Sequence[StageHeader]) -> None:
    counted = [stage for stage in stages if stage.counts is not None or stage.family not in TREES]
    most = max((stage.n_weak for stage in counted), default=0)
    if most > MOST_WEAK:
        raise ModelFileError(f"a stage has {most:,} weak learners; a file holds at most {MOST_WEAK:,} a stage")
    if sum(stage.n_weak**2 for stage in counted) > MOST_CELLS:
        raise ModelFileError(f"the stages have more than {MOST_CELLS:,} co-occurrences in all; expected fewer")
    if sum(stage.n_conditions for stage in stages) > MOST_CONDITIONS:
        raise ModelFileError(f"the stages have more than {MOST_CONDITIONS:,} conditions in all; expected fewer")


def _describe(stage: TrainedStage, learned: tuple[int, int]) -> StageHeader:
    shape = family_name(stage.features), len(stage), n_rows(stage.features, stage.weak)
    match stage:
        case Stage():
            counted = None if stage.counts is None else (int(stage.counts[0].n), int(stage.counts[1].n))
            soft = stage.rejection_thresholds is not None
            return FixedHeader(*shape, float(stage.threshold), soft, counted)
        case LearningStage(rule=Rate() | Asymmetric() as rule):
            counts = int(stage.positive.n), int(stage.negative.n)
            soft = stage.rejection is not None
            return LearningHeader(*shape, stage.criterion, float(stage.ridge), rule, counts, learned, soft)
    raise TypeError(f"got a stage of type {type(stage).__name__}; a file holds Stage and LearningStage")


def _check_version(table: Table) -> None:
    if table.get("format") != FORMAT:
        raise ModelFileError(f"the header is not that of a {FORMAT}: this file is of another kind")
    version = table.get("version")
    if version != VERSION or isinstance(version, bool):
        raise ModelFileError(
            f"the file has format version {str(version)[:20]}, this whet reads {VERSION}: update whet, or save it again"
        )


def _read_stage(value: object, number: int) -> StageHeader:
    where = f"stage {number}"
    table = as_table(value, where)
    return FixedHeader.from_table(table, where) if "threshold" in table else LearningHeader.from_table(table, where)


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


def _read_coarse_room(value: object) -> tuple[float, ...]:
    if not isinstance(value, list) or not value:
        raise ModelFileError(f"{_COARSE_ROOM}: expected a list of numbers, one for each stage of the coarse pass")
    return tuple(finite(room, _COARSE_ROOM) for room in value)


def _read_provenance(value: object) -> Provenance:
    table: dict[str, Any] = as_table(value, "provenance")
    check_keys(table, Provenance.__dataclass_fields__, where="provenance")
    for name in ("goals", "facts"):
        as_table(table[name], f"provenance's {name}")
    try:
        return Provenance(**table)
    except ValueError as error:
        raise ModelFileError(str(error)) from error


def _shape_table(stage: StageHeader) -> Table:
    of_leaves = {_OF_LEAVES: stage.n_conditions} if stage.family in LEAVES else {}
    return {"family": stage.family, "n_weak": stage.n_weak, **of_leaves}


def _shape(table: Table, where: str) -> tuple[str, int, int]:
    family = one_of(table["family"], family_names(), f"feature family of {where}")
    n_weak = whole(table["n_weak"], 1, MOST_CONDITIONS if family in TREES else MOST_WEAK, f"n_weak of {where}")
    if (_OF_LEAVES in table) != (family in LEAVES):
        raise ModelFileError(f"{where} is of {family}: {_OF_LEAVES} belongs to leaves, and to them alone")
    trees = rows_of_trees(family, n_weak)
    if trees is not None:
        return family, n_weak, trees
    return family, n_weak, whole(table.get(_OF_LEAVES, n_weak), n_weak, MOST_CONDITIONS, f"{_OF_LEAVES} of {where}")


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise ModelFileError(f"{name} is not true or false")
    return value


def _pair(value: object, name: str, most: int = MOST_SAMPLES - 1) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise ModelFileError(f"{name}: expected two whole numbers")
    return whole(value[0], 0, most, name), whole(value[1], 0, most, name)


def parse_table(text: str, name: str) -> Table:
    """Parse a JSON object."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"the {name} is not JSON ({error}); the file is damaged or not a detector") from error
    return as_table(parsed, name)


def as_table(value: object, name: str) -> Table:
    """Return the value if it is a JSON object, or raise `ModelFileError`."""
    if not isinstance(value, dict):
        raise ModelFileError(f"the {name} is {_brief(value)}; expected a JSON object")
    return value


def check_keys(table: Table, required: Collection[str], optional: Collection[str] = (), *, where: str) -> None:
    """Raise `ModelFileError` for missing keys, and for unknown keys, which saving the detector would lose."""
    missing, unknown = sorted(set(required) - set(table)), sorted(set(table) - {*required, *optional})
    if missing or unknown:
        raise ModelFileError(f"{where} lacks {missing} and has unknown {unknown}; expected {sorted(required)}")


def whole(value: object, least: int, most: int, name: str) -> int:
    """Return an integer from `least` to `most`, inclusive, or raise `ModelFileError`.

    >>> whole(True, 0, 3, "count")
    Traceback (most recent call last):
    whet.errors.ModelFileError: count is True; expected a whole number from 0 to 3
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ModelFileError(f"{name} is {_brief(value)}; expected a whole number from {least} to {most}")
    return value


def finite(value: object, name: str) -> float:
    """Return a finite number, or raise `ModelFileError`."""
    # A comparison, because math.isfinite raises for an integer of 400 digits.
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise ModelFileError(f"{name} is {_brief(value)}; expected a finite number")
    return float(value)


def one_of(value: object, choices: Collection[str], name: str) -> str:
    """Return a string that is one of the choices, or raise `ModelFileError`."""
    if not isinstance(value, str) or value not in choices:
        raise ModelFileError(f"{name} is {_brief(value)}; expected one of {sorted(choices)}")
    return value


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
