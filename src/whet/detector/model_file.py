"""The model file: arrays in the safetensors format, and a header of canonical JSON for everything else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet.cascade.pyramid import WindowIndex
from whet.cascade.stage import ClassPair, LearningStage, Stage, TrainedStage
from whet.detector.base import Delta, DetectorBase
from whet.detector.model_header import MOST_BYTES, Contents, FixedHeader, Header, LearningHeader, StageHeader
from whet.detector.records import Record, Records
from whet.detector.reference import Reference
from whet.errors import DetectorNotFoundError, ModelFileError, WhetError
from whet.features.families import columns_of, from_columns, layout_of
from whet.lda.statistics import BinaryStatistics
from whet.lda.thresholds import RejectionThresholds

Tensors = Mapping[str, NDArray[Any]]
Layout = tuple[tuple[np.dtype[Any], ...], tuple[int, ...]]

# The limit of safetensors.
MOST_HEADER = 100_000_000
# One key only: safetensors keeps several in no fixed order.
KEY = "whet"
# That of a file with several classes, in `whet.detector.classes`.
CLASSES_KEY = "whet classes"
CLASSES = ("positive", "negative")
MEAN = "mean_positive"
TRAINED = "training_images"
# Arrays of the reference set and of the windows of all records, one row for each sample or window.
_REFERENCE: dict[str, np.dtype[Any]] = {
    "part": np.dtype(np.uint8),
    "gain": np.dtype(np.float32),
    "item": np.dtype(np.int32),
}
_WINDOWS: dict[str, np.dtype[Any]] = {
    "scale": np.dtype(np.float64),
    "y": np.dtype(np.int32),
    "x": np.dtype(np.int32),
}
UNSIGNED = tuple(np.dtype(f"u{size}") for size in (1, 2, 4, 8))


def read_bytes(path: Path) -> bytes:
    """The bytes of a detector's file; raises ModelFileError for what cannot be one."""
    if not path.exists():
        raise DetectorNotFoundError(f"no such file: {path}; expected a detector that whet has saved")
    if not path.is_file():
        raise ModelFileError(
            f"{path} is {'a folder' if path.is_dir() else 'not a file'}; expected a detector that whet has saved"
        )
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ModelFileError(f"{path} has more than {MOST_BYTES:,} bytes; no detector does: is it another file?")
    return data


def has_classes(data: bytes) -> bool:
    """Whether the bytes of a file are those of several classes: their key comes first in the header."""
    return f'"{CLASSES_KEY}"'.encode() in data[8 : len(CLASSES_KEY) + 100]


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
    tensors = deserialised(data)
    with damage_as_error():
        text = metadata_of(data)
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
    if detector.base.training_images is not None:
        yield TRAINED, np.ascontiguousarray(detector.base.training_images)
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
        columns = [getattr(record.index, name) for record in records]
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


def is_text(data: bytes) -> bool:
    """Whether bytes are text: those of a detector begin with its length in eight bytes, most of them zero.

    >>> is_text(b"annotations = 'cars.csv'"), is_text(b"\\x10" + bytes(7) + b"{}")
    (True, False)
    """
    return bool(data) and all(byte >= 32 or byte in b"\t\n\r" for byte in data[:64])


def deserialised(data: bytes) -> Tensors:
    """The arrays of a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as deserialise

    if is_text(data):
        start = data[:30].decode(errors="ignore").split("\n")[0].strip()
        what = "an XML file; OpenCV cascades need the suffix .xml" if start.startswith("<") else f"text ({start!r} ...)"
        raise ModelFileError(f"the file is {what}; expected a detector that whet has saved, such as cars.whet")
    try:
        tensors: Tensors = deserialise(data)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelFileError(
            f"{len(data):,} bytes are not a whole safetensors file ({error}): expected a detector that whet has saved; "
            "copy it again, in binary mode"
        ) from error
    return tensors


def metadata_of(data: bytes, key: str = KEY) -> str:
    """The text under a key; the bytes are known to be safetensors: a length, a JSON header, arrays."""
    size = int.from_bytes(data[:8], "little")
    metadata = json.loads(data[8 : 8 + size]).get("__metadata__") or {}  # null is as good as none
    text = metadata.get(key)
    if not isinstance(text, str):
        raise ModelFileError(f"the file is safetensors, but has no {key!r} header: it is another program's")
    return text


def _layout(stage: StageHeader) -> dict[str, Layout]:
    """Every array that a stage has: dtypes that it may be of, and its shape."""
    T = stage.n_weak
    columns: dict[str, Layout] = {
        name: ((dtype,), (stage.n_conditions, *shape)) for name, (dtype, shape) in layout_of(stage.family).items()
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
    if TRAINED in tensors:
        expected[TRAINED] = (np.dtype(np.uint32),), (tensors[TRAINED].size,)
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
        scale, y, x, responses = (tensors[f"records.{name}"][end - n : end] for name in (*_WINDOWS, "responses"))
        if not (np.isfinite(scale) & (scale > 0)).all() or (np.minimum(y, x) < 0).any():
            raise ModelFileError("a window of a record lies outside of any image")
        index = WindowIndex(scale, y.astype(np.intp), x.astype(np.intp))
        records.append(replace(record, index=index, responses=responses))
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
        responses, part, gain, item = (tensors[f"reference.{name}"] for name in ("responses", *_REFERENCE))
        n_weak = sum(stage.n_weak for stage in header.stages)
        reference = Reference(responses, part, gain, item, header.reference, n_weak)
    mean, trained = tensors.get(MEAN), tensors.get(TRAINED)
    base = DetectorBase(
        header.window,
        tuple(stages),
        header.min_sigma,
        header.provenance,
        mean,
        reference,
        trained,
        header.coarse_room,
    )
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
