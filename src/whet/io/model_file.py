"""Detectors in files: safetensors, arrays and a JSON header, checked before anything is used.

The file holds whole counts and the floats that define the base; weights are derived on loading, in a fixed order
of operations, so equal histories have equal bytes. Nothing in a file is ever executed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet.errors import DetectorNotFoundError, ModelFileError, WhetError
from whet.io.atomic_file import write_atomically
from whet.io.model_header import FixedHeader, Header, LearningHeader, StageHeader
from whet.lda.class_statistics import BinaryStatistics
from whet.lda.exits import Exits
from whet.model.columns import LAYOUTS, columns_of, from_columns
from whet.model.delta import Delta
from whet.model.detector_base import DetectorBase, StageBase, Votes
from whet.model.stage import Stage
from whet.model.taught_detector import TaughtDetector

Tensors = Mapping[str, NDArray[Any]]
Layout = tuple[tuple[np.dtype[Any], ...], tuple[int, ...]]

# A face detector has half a megabyte. Larger files are refused before they are read.
MOST_BYTES = 64_000_000
# One key only: safetensors keeps several in no fixed order.
KEY = "whet"
CLASSES = ("positive", "negative")
MEAN = "mean_positive"
UNSIGNED = tuple(np.dtype(f"u{size}") for size in (1, 2, 4, 8))


def save(detector: TaughtDetector, path: str | PathLike[str]) -> None:
    """Write a detector, with all that it needs to go on learning; as a whole, or not at all."""
    write_atomically(Path(path), to_bytes(detector))


def load(path: str | PathLike[str]) -> TaughtDetector:
    """Read a detector; raises ModelFileError on anything that is not a sound one."""
    path = Path(path)
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
    try:
        return from_bytes(data)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error


def to_bytes(detector: TaughtDetector) -> bytes:
    """A detector as the bytes of its file."""
    from safetensors.numpy import save as serialise

    return bytes(serialise(dict(_tensors_of(detector)), {KEY: Header.of(detector).to_json()}))


def from_bytes(data: bytes) -> TaughtDetector:
    """A detector from the bytes of its file; raises ModelFileError on anything that is not a sound one."""
    tensors = _deserialised(data)
    try:
        header = Header.from_json(_metadata(data))
        _check_layout(tensors, header)
        return _assembled(header, tensors)
    except ModelFileError:
        raise
    except (ValueError, WhetError, ArithmeticError, RecursionError) as error:
        raise ModelFileError(f"the file is damaged or was made by hand: {error}") from error


def _tensors_of(detector: TaughtDetector) -> Iterator[tuple[str, NDArray[Any]]]:
    if detector.base.mean_positive is not None:
        yield MEAN, np.ascontiguousarray(detector.base.mean_positive)
    for number, (stage, pair) in enumerate(zip(detector.base.stages, detector.learned.stages, strict=True)):
        for name, column in columns_of(stage.features, stage.weak).items():
            yield _name(number, name), column
        if isinstance(stage, Stage):
            yield _name(number, "coef"), np.ascontiguousarray(stage.coef, dtype=np.float64)
            if stage.exits is not None:
                yield _name(number, "exits"), np.ascontiguousarray(stage.exits, dtype=np.float64)
            continue
        if stage.exits is not None:
            yield _name(number, "exits"), np.ascontiguousarray(stage.exits.z, dtype=np.float64)
        if stage.votes is not None:
            yield _name(number, "votes"), np.ascontiguousarray(stage.votes.coef, dtype=np.float64)
        for side, base, learned in zip(CLASSES, (stage.positive, stage.negative), pair, strict=True):
            yield _name(number, side), _triangle(base)
            if learned.n:
                yield _name(number, f"learned.{side}"), _triangle(learned)


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
    text = json.loads(data[8 : 8 + size]).get("__metadata__", {}).get(KEY)
    if not isinstance(text, str):
        raise ModelFileError(f"the file is safetensors, but has no {KEY!r} header: it is another program's")
    return text


def _layout(stage: StageHeader) -> dict[str, Layout]:
    """Every array that a stage has: dtypes that it may be of, and its shape."""
    T = stage.n_weak
    columns: dict[str, Layout] = {
        name: ((dtype,), (stage.n_conditions, *entry)) for name, (dtype, entry) in LAYOUTS[stage.family].items()
    }
    has_votes = isinstance(stage, LearningHeader) and stage.votes is not None
    floats = ["coef"] * isinstance(stage, FixedHeader) + ["exits"] * stage.soft + ["votes"] * has_votes
    columns |= dict.fromkeys(floats, ((np.dtype(np.float64),), (T,)))
    if isinstance(stage, FixedHeader):
        return columns
    learned = [f"learned.{side}" for side, n in zip(CLASSES, stage.learned, strict=True) if n]
    return columns | dict.fromkeys([*CLASSES, *learned], (UNSIGNED, (T * (T + 1) // 2,)))


def _check_layout(tensors: Tensors, header: Header) -> None:
    expected = {
        _name(number, name): layout
        for number, stage in enumerate(header.stages)
        for name, layout in _layout(stage).items()
    }
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


def _assembled(header: Header, tensors: Tensors) -> TaughtDetector:
    stages: list[StageBase | Stage] = []
    learned: list[tuple[BinaryStatistics, BinaryStatistics]] = []
    for number, stage in enumerate(header.stages):
        own = {name: tensors[_name(number, name)] for name in _layout(stage)}
        stages.append(_stage(stage, header.window, own))
        learned.append(_learned(stage, own))
    base = DetectorBase(header.window, tuple(stages), header.min_sigma, header.provenance, tensors.get(MEAN))
    if base.base_id != header.base_id:
        raise ModelFileError(
            f"the base hashes to {base.base_id[:12]}, the header says {header.base_id[:12]!r}: the file was damaged "
            "or altered; get it again from where it came"
        )
    return TaughtDetector(base, Delta(tuple(learned)), header.reporting)


def _stage(stage: StageHeader, window: tuple[int, int], own: Tensors) -> StageBase | Stage:
    features, weak = from_columns(stage.family, window, own)
    if isinstance(stage, FixedHeader):
        return Stage(features, weak, own["coef"], stage.threshold, own.get("exits"))
    sides = zip(CLASSES, stage.counts, strict=True)
    positive, negative = (_statistics(n, own[side], stage.n_weak) for side, n in sides)
    exits = Exits(own["exits"]) if stage.soft else None
    votes = None if stage.votes is None else Votes(own["votes"].copy(), *stage.votes)
    return StageBase(features, weak, positive, negative, stage.rule, stage.criterion, stage.ridge, exits, votes)


def _learned(stage: StageHeader, own: Tensors) -> tuple[BinaryStatistics, BinaryStatistics]:
    if not isinstance(stage, LearningHeader):
        return BinaryStatistics.empty(0), BinaryStatistics.empty(0)
    positive, negative = (
        _statistics(n, own[f"learned.{side}"], stage.n_weak) if n else BinaryStatistics.empty(stage.n_weak)
        for side, n in zip(CLASSES, stage.learned, strict=True)
    )
    return positive, negative
