"""The model file: arrays in the safetensors format, and a header of canonical JSON for everything else."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self, cast, get_args

import numpy as np
from numpy.typing import NDArray

from whet.cascade.boxes import BoxOffset
from whet.cascade.cascade import MOST_PIXELS, ClassPair, LearningStage, Stage, TrainedStage, z_of
from whet.cascade.columns import LAYOUTS, LEAVES, MOST_CONDITIONS, columns_of, family_name, from_columns
from whet.cascade.pyramid import WindowIndex
from whet.detector.base import Delta, DetectorBase, Provenance, Reporting
from whet.detector.records import LONGEST_NAME, LONGEST_NOTE, Kind, Record, Records
from whet.detector.reference import Reference
from whet.errors import DetectorNotFoundError, ModelFileError, WhetError
from whet.features.weak_learners import conditions_of
from whet.io.files import Table, as_table, check_keys, finite, one_of, parse_table, whole
from whet.lda.discriminant import Criterion
from whet.lda.statistics import MOST_SAMPLES, BinaryStatistics
from whet.lda.thresholds import Asymmetric, Rate, RejectionThresholds

FORMAT = "whet detector"
VERSION = 2

# A triangle of bytes becomes a square of 64-bit numbers: without limits, a small file could fill the memory.
# OpenCV's largest stages have some 200 weak learners; 100 stages of 200 have 4 million cells.
MOST_WEAK = 2000
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
_RECORD = {"kind", "image", "box", "is_object", "weight", "min_score", "windows", "name", "time", "note"}
MOST_RECORDS = 100_000
MOST_SECONDS = 2**53
MOST_IMAGES = 10**9


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
        )

    def to_json(self, content: str = "") -> str:
        """Sorted keys, no spaces, ASCII: equal headers have equal bytes. `content` is the hash of all the rest."""
        table = {
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
        return json.dumps(table, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read and check everything that can be checked without the arrays."""
        table = parse_table(text, "header")
        _check_version(table)
        check_keys(table, _TOP, where="the header")
        if not isinstance(table["stages"], list) or not isinstance(table["base_id"], str):
            raise ModelFileError("the header's stages are no list, or its base_id is no text")
        stages = tuple(_read_stage(stage, number) for number, stage in enumerate(table["stages"]))
        _check_sizes(stages)
        window = _pair(table["window"], "window", MOST_PIXELS)
        sigma = finite(table["min_sigma"], "min_sigma")
        reporting, provenance = _read_reporting(table), _read_provenance(table["provenance"])
        n_images = table["reference"]
        reference = None if n_images is None else whole(n_images, 0, MOST_IMAGES, "images of the reference set")
        records, windows = _read_records(table["records"], table["base_id"])
        return cls(window, sigma, table["base_id"], reporting, provenance, stages, reference, records, windows)


def _record_table(record: Record, windows: int) -> Table:
    return {
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
    check_keys(table, _RECORD, where=where)
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
        **texts,
    )
    return record, whole(table["windows"], 0, MOST_BYTES, f"windows of {where}")


def _check_sizes(stages: Sequence[StageHeader]) -> None:
    most = max((stage.n_weak for stage in stages), default=0)
    if most > MOST_WEAK:
        raise ModelFileError(f"a stage has {most:,} weak learners; a file holds at most {MOST_WEAK:,} a stage")
    if sum(stage.n_weak**2 for stage in stages) > MOST_CELLS:
        raise ModelFileError(f"the stages have more than {MOST_CELLS:,} co-occurrences in all; expected fewer")
    if sum(stage.n_conditions for stage in stages) > MOST_CONDITIONS:
        raise ModelFileError(f"the stages have more than {MOST_CONDITIONS:,} conditions in all; expected fewer")


def _describe(stage: TrainedStage, learned: tuple[int, int]) -> StageHeader:
    shape = family_name(stage.features), len(stage), len(conditions_of(stage.features, stage.weak)[1])
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
    try:
        return Reporting(offset, scores, frozenset(fixed))
    except ValueError as error:
        raise ModelFileError(str(error)) from error


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
    family = one_of(table["family"], LAYOUTS, f"feature family of {where}")
    n_weak = whole(table["n_weak"], 1, MOST_WEAK, f"n_weak of {where}")
    if (_OF_LEAVES in table) != (family in LEAVES):
        raise ModelFileError(f"{where} is of {family}: {_OF_LEAVES} belongs to leaves, and to them alone")
    return family, n_weak, whole(table.get(_OF_LEAVES, n_weak), n_weak, MOST_CONDITIONS, f"{_OF_LEAVES} of {where}")


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise ModelFileError(f"{name} is not true or false")
    return value


def _pair(value: object, name: str, most: int = MOST_SAMPLES - 1) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise ModelFileError(f"{name}: expected two whole numbers")
    return whole(value[0], 0, most, name), whole(value[1], 0, most, name)


class Contents(NamedTuple):
    """What a model file holds."""

    base: DetectorBase
    counts: Delta
    reporting: Reporting
    records: Records


Tensors = Mapping[str, NDArray[Any]]
Layout = tuple[tuple[np.dtype[Any], ...], tuple[int, ...]]

# A face detector has a megabyte, and each correction some ten kilobytes. Larger files are refused before they are read.
MOST_BYTES = 256_000_000
# The limit of safetensors.
MOST_HEADER = 100_000_000
# One key only: safetensors keeps several in no fixed order.
KEY = "whet"
CLASSES = ("positive", "negative")
MEAN = "mean_positive"
# Arrays of the reference set and of the windows of all records, one row for each sample or window.
_REFERENCE: dict[str, np.dtype[Any]] = {"part": np.dtype(np.uint8), "gain": np.dtype(np.float32)}
_WINDOWS: dict[str, np.dtype[Any]] = {
    "scale": np.dtype(np.float64),
    "y": np.dtype(np.int32),
    "x": np.dtype(np.int32),
    "stage": np.dtype(np.int16),
}
UNSIGNED = tuple(np.dtype(f"u{size}") for size in (1, 2, 4, 8))


def read_bytes(path: Path) -> bytes:
    """The bytes of a detector's file; raises ModelFileError for what cannot be one."""
    if not path.exists():
        raise DetectorNotFoundError(f"there is no file {path}; expected a detector that whet has saved")
    if not path.is_file():
        raise ModelFileError(
            f"{path} is {'a folder' if path.is_dir() else 'not a file'}; expected a detector that whet has saved"
        )
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ModelFileError(f"{path} has more than {MOST_BYTES:,} bytes; no detector does: is it another file?")
    return data


def to_bytes(detector: Contents) -> bytes:
    """A detector as the bytes of its file."""
    from safetensors.numpy import save as serialise

    tensors, header = dict(_tensors_of(detector)), Header.from_contents(detector)
    data = bytes(serialise(tensors, {KEY: header.to_json(_content_hash(header, tensors))}))
    n_header = int.from_bytes(data[:8], "little")
    if len(data) > MOST_BYTES or n_header > MOST_HEADER:  # what could not be loaded is not saved
        raise ModelFileError(
            f"the file would have {len(data):,} bytes, {n_header:,} of them in its header; at most {MOST_BYTES:,} and "
            f"{MOST_HEADER:,} can be loaded: unlearn some of the {len(detector.records):,} records"
        )
    return data


def _content_hash(header: Header, tensors: Tensors) -> str:
    """Hash of everything in the file but the hash itself."""
    digest = hashlib.sha256(header.to_json().encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"{name}{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def from_bytes(data: bytes) -> Contents:
    """A detector from the bytes of its file; raises ModelFileError on anything that is not a sound one."""
    tensors = _deserialised(data)
    with damage_as_error():
        text = _metadata(data)
        header = Header.from_json(text)
        _check_layout(tensors, header)
        if header.to_json(_content_hash(header, tensors)) != text:
            raise ModelFileError("the content does not have the hash of the header; get the file again, or a backup")
        return _assembled(header, tensors)


@contextmanager
def damage_as_error() -> Iterator[None]:
    """Raise ModelFileError where the contents of a file cannot be those of a detector."""
    try:
        yield
    except ModelFileError:
        raise
    except (ValueError, WhetError, ArithmeticError, RecursionError) as error:
        raise ModelFileError(f"the file is damaged or was made by hand: {error}") from error


def _tensors_of(detector: Contents) -> Iterator[tuple[str, NDArray[Any]]]:
    if detector.base.mean_positive is not None:
        yield MEAN, np.ascontiguousarray(detector.base.mean_positive)
    for number, (stage, pair) in enumerate(zip(detector.base.stages, detector.counts.stages, strict=True)):
        for name, column in columns_of(stage.features, stage.weak).items():
            yield _name(number, name), column
        for name, floats in _floats_of(stage):
            yield _name(number, name), np.ascontiguousarray(floats, dtype=np.float64)
        for side, base, learned in zip(CLASSES, stage.statistics, pair, strict=True):
            if base.n:
                yield _name(number, side), _triangle(base)
            if learned.n:
                yield _name(number, f"learned.{side}"), _triangle(learned)
    yield from _reference_tensors(detector.base.reference)
    yield from _record_tensors(list(detector.records.values()), detector.base.cascade.n_weak)


def _reference_tensors(reference: Reference | None) -> Iterator[tuple[str, NDArray[Any]]]:
    if reference is not None:
        yield "reference.responses", np.ascontiguousarray(reference.responses)
        for name, dtype in _REFERENCE.items():
            yield f"reference.{name}", np.ascontiguousarray(getattr(reference, name), dtype)


def _record_tensors(records: Sequence[Record], n_weak: int) -> Iterator[tuple[str, NDArray[Any]]]:
    if not records:
        return
    empty = np.empty((0, -(-n_weak // 8)), np.uint8)
    yield "records.responses", np.concatenate([empty, *(record.responses for record in records if len(record))])
    for name, dtype in _WINDOWS.items():
        columns = [record.stage if name == "stage" else getattr(record.index, name) for record in records]
        yield f"records.{name}", np.concatenate(columns).astype(dtype)


def _floats_of(stage: TrainedStage) -> Iterator[tuple[str, NDArray[np.float64]]]:
    match stage:
        case Stage():
            yield "coef", stage.coef
            if stage.rejection_thresholds is not None:
                yield "exits", stage.rejection_thresholds
        case LearningStage(rejection=RejectionThresholds() as rejection):
            yield "exits", rejection.z


def _name(number: int, column: str) -> str:
    return f"stage{number:03d}.{column}"


def _triangle(statistics: BinaryStatistics) -> NDArray[Any]:
    """Upper triangle of C, row by row, in the smallest unsigned type that holds it; the sums are its diagonal."""
    upper = statistics.C[np.triu_indices(len(statistics.s))]
    return upper.astype(np.min_scalar_type(upper.max()))


def _statistics(n: int, triangle: NDArray[Any], size: int) -> BinaryStatistics:
    if triangle.max() > n:  # before the cast: 2^64 - 1 would become -1
        raise ModelFileError(f"got a co-occurrence of {triangle.max()} in {n} samples: no samples can have it")
    C = np.zeros((size, size), np.int64)
    C[np.triu_indices(size)] = triangle
    C = np.maximum(C, C.T)
    return BinaryStatistics(n, np.diagonal(C).copy(), C)


def _deserialised(data: bytes) -> Tensors:
    from safetensors import SafetensorError
    from safetensors.numpy import load as deserialise

    try:
        tensors: Tensors = deserialise(data)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelFileError(
            f"{len(data):,} bytes are not a whole safetensors file ({error}): expected a detector that whet has saved; "
            "copy it again, in binary mode"
        ) from error
    return tensors


def _metadata(data: bytes) -> str:
    """The text under our key; the bytes are known to be safetensors: a length, a JSON header, arrays."""
    size = int.from_bytes(data[:8], "little")
    metadata = json.loads(data[8 : 8 + size]).get("__metadata__") or {}  # null is as good as none
    text = metadata.get(KEY)
    if not isinstance(text, str):
        raise ModelFileError(f"the file is safetensors, but has no {KEY!r} header: it is another program's")
    return text


def _layout(stage: StageHeader) -> dict[str, Layout]:
    """Every array that a stage has: dtypes that it may be of, and its shape."""
    T = stage.n_weak
    columns: dict[str, Layout] = {
        name: ((dtype,), (stage.n_conditions, *shape)) for name, (dtype, shape) in LAYOUTS[stage.family].items()
    }
    floats = ["coef"] * isinstance(stage, FixedHeader) + ["exits"] * stage.soft
    columns |= dict.fromkeys(floats, ((np.dtype(np.float64),), (T,)))
    triangles = [] if stage.counts is None else [*CLASSES]
    if isinstance(stage, LearningHeader):
        triangles += [f"learned.{side}" for side, n in zip(CLASSES, stage.learned, strict=True) if n]
    return columns | dict.fromkeys(triangles, (UNSIGNED, (T * (T + 1) // 2,)))


def _check_layout(tensors: Tensors, header: Header) -> None:
    expected = {
        _name(number, name): layout
        for number, stage in enumerate(header.stages)
        for name, layout in _layout(stage).items()
    }
    expected |= _shared_layout(header, tensors)
    if MEAN in tensors:
        expected[MEAN] = (np.dtype(np.uint8),), header.window
    wrong = sorted(set(tensors) ^ set(expected))
    if wrong:
        fault = "is missing" if wrong[0] in expected else "does not belong there"
        raise ModelFileError(f"array {wrong[0][:60]!r} {fault}: arrays and header are not of one file; copy it again")
    for name, (dtypes, shape) in expected.items():
        got = tensors[name]
        if got.dtype not in dtypes or got.shape != shape:
            allowed = " or ".join(map(str, dtypes))
            raise ModelFileError(f"array {name} is {got.dtype} {got.shape}; by the header expected {allowed} {shape}")


def _shared_layout(header: Header, tensors: Tensors) -> dict[str, Layout]:
    """The arrays of the reference set and of the records."""
    packed = -(-sum(stage.n_weak for stage in header.stages) // 8)
    bits = (np.dtype(np.uint8),)
    expected: dict[str, Layout] = {}
    if header.reference is not None:
        n = tensors["reference.part"].size if "reference.part" in tensors else 0
        expected["reference.responses"] = bits, (n, packed)
        expected |= {f"reference.{name}": ((dtype,), (n,)) for name, dtype in _REFERENCE.items()}
    if header.records:
        n = sum(header.windows)
        expected["records.responses"] = bits, (n, packed)
        expected |= {f"records.{name}": ((dtype,), (n,)) for name, dtype in _WINDOWS.items()}
    return expected


def _records(header: Header, tensors: Tensors) -> Records:
    """The records with their windows; each once, in the order of their ids."""
    ends = np.cumsum(header.windows, dtype=np.int64).tolist()
    records = []
    for record, end, n in zip(header.records, ends, header.windows, strict=True):
        scale, y, x, stage, responses = (tensors[f"records.{name}"][end - n : end] for name in (*_WINDOWS, "responses"))
        if not (np.isfinite(scale) & (scale > 0)).all() or (np.minimum(y, x) < 0).any():
            raise ModelFileError("a window of a record lies outside of any image")
        index = WindowIndex(scale, y.astype(np.intp), x.astype(np.intp))
        records.append(replace(record, index=index, stage=stage, responses=responses))
    ids = [record.id for record in records]
    if ids != sorted(set(ids)):
        raise ModelFileError("the records are not each once, in the order of their ids")
    return Records.from_iterable(records)


def _assembled(header: Header, tensors: Tensors) -> Contents:
    stages: list[TrainedStage] = []
    learned: list[ClassPair] = []
    for number, stage in enumerate(header.stages):
        own = {name: tensors[_name(number, name)] for name in _layout(stage)}
        stages.append(_stage(stage, header.window, own))
        learned.append(_learned(stage, own))
    reference = None
    if header.reference is not None:
        arrays = (tensors[f"reference.{name}"] for name in ("responses", *_REFERENCE))
        reference = Reference(*arrays, header.reference, sum(stage.n_weak for stage in header.stages))
    mean = tensors.get(MEAN)
    base = DetectorBase(header.window, tuple(stages), header.min_sigma, header.provenance, mean, reference)
    if base.base_id != header.base_id:
        raise ModelFileError(
            f"the base hashes to {base.base_id[:12]}, the header says {header.base_id[:12]!r}: the file was damaged "
            "or altered; get it again from where it came"
        )
    return Contents(base, Delta(tuple(learned)), header.reporting, _records(header, tensors))


def _stage(stage: StageHeader, window: tuple[int, int], own: Tensors) -> TrainedStage:
    features, weak = from_columns(stage.family, window, own)
    counts = None
    if stage.counts is not None:
        positive, negative = (
            _statistics(n, own[side], stage.n_weak) for side, n in zip(CLASSES, stage.counts, strict=True)
        )
        counts = positive, negative
    if isinstance(stage, FixedHeader):
        return Stage(features, weak, own["coef"], stage.threshold, own.get("exits"), counts)
    rejection = RejectionThresholds(own["exits"]) if stage.soft else None
    return LearningStage(features, weak, positive, negative, stage.rule, stage.criterion, stage.ridge, rejection)


def _learned(stage: StageHeader, own: Tensors) -> ClassPair:
    if not isinstance(stage, LearningHeader):
        return BinaryStatistics.empty(0), BinaryStatistics.empty(0)
    positive, negative = (
        _statistics(n, own[f"learned.{side}"], stage.n_weak) if n else BinaryStatistics.empty(stage.n_weak)
        for side, n in zip(CLASSES, stage.learned, strict=True)
    )
    return positive, negative
