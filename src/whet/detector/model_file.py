"""The model file: arrays in the safetensors format, and a header of canonical JSON for everything else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whet.corrections.kept import Crops
from whet.corrections.records import INDEX, Records
from whet.corrections.reference import Reference
from whet.detector.base import DetectorBase
from whet.detector.model_header import MOST_BYTES, Contents, Header
from whet.detector.state import Refit
from whet.errors import DetectorNotFoundError, ModelFileError, WhetError
from whet.images.pyramid import WindowIndex
from whet.models.contract import Layout, check_layout, family_of
from whet.models.responses import Responses

Tensors = Mapping[str, NDArray[Any]]

# The limit of safetensors.
MOST_HEADER = 100_000_000
# One key only: safetensors keeps several in no fixed order.
KEY = "whet"
# That of a file with several classes, or with several shapes of a class.
CLASSES_KEY = "whet classes"
MODEL = "model."
MEAN = "mean_positive"
TRAINED = "training_images"
CROPS = "crops."
KEPT, KEPT_END = "records.kept", "records.kept_end"
# The file of the model that was made again.
REFIT = "refit"
# Arrays of the reference set, one row for each sample.
_REFERENCE: dict[str, np.dtype[Any]] = {
    name: np.dtype(kind) for name, kind in (("part", np.uint8), ("gain", np.float32), ("item", np.int32))
}


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

    saved = detector.base.model.saved(detector.counts)
    tensors = {MODEL + name: np.ascontiguousarray(array) for name, array in saved.arrays.items()}
    tensors |= dict(_tensors_of(detector))
    header = Header.from_contents(detector, saved.table | saved.aside)
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


def from_bytes(data: bytes, *, is_refit: bool = False) -> Contents:
    """A detector from the bytes of its file; raises ModelFileError on anything that is not a sound one.

    With `is_refit`, it is a model that was made again, which has learned nothing itself.
    """
    tensors = deserialised(data)
    with damage_as_error():
        text = metadata_of(data)
        header = Header.from_json(text)
        if header.to_json(_content_hash(header, tensors)) != text:
            raise ModelFileError("the content does not have the hash of the header; get the file again, or a backup")
        if is_refit and (header.refit is not None or header.records or header.settings is not None):
            raise ModelFileError("the model that was made again has learned something itself")
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
    if detector.base.crops is not None:
        for name, array in detector.base.crops.arrays.items():
            yield CROPS + name, np.ascontiguousarray(array)
    if detector.refit is not None:
        whole = to_bytes(Contents(detector.refit.base, None, detector.refit.reporting, Records()))
        yield REFIT, np.frombuffer(whole, np.uint8)
    reference, records = detector.base.reference, list(detector.records.values())
    if reference is not None:
        yield "reference.responses", reference.responses.to_bytes()
        for name, dtype in _REFERENCE.items():
            yield f"reference.{name}", np.ascontiguousarray(getattr(reference, name), dtype)
    if records:
        responses = [record.responses for record in records if len(record)]
        yield "records.responses", Responses.concatenate(responses, detector.base.model.votes.n_weak).to_bytes()
        for name, dtype in INDEX.items():
            yield f"records.{name}", np.concatenate([getattr(record.index, name) for record in records]).astype(dtype)
        kept = [record.kept for record in records]
        if any(kept):
            yield KEPT, np.frombuffer(b"".join(kept), np.uint8)
            yield KEPT_END, np.cumsum([len(part) for part in kept], dtype=np.int64)


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


def _check_arrays(tensors: Tensors, header: Header, n_weak: int) -> None:
    """Raise `ModelFileError` unless these are the arrays beside those of the model."""
    expected: dict[str, Layout] = {}
    n_samples = tensors["reference.part"].size if "reference.part" in tensors else 0
    for kind, is_there, arrays, n in (
        ("reference", header.reference is not None, _REFERENCE, n_samples),
        ("records", bool(header.records), INDEX, sum(header.windows)),
    ):
        if is_there:
            expected[f"{kind}.responses"] = np.dtype(np.uint8), (n, -(-n_weak // 8))
            expected |= {f"{kind}.{name}": (dtype, (n,)) for name, dtype in arrays.items()}
    if MEAN in tensors:
        expected[MEAN] = np.dtype(np.uint8), header.window
    for name, dtype in ((TRAINED, np.dtype(np.uint32)), (KEPT, np.dtype(np.uint8))):
        if name in tensors:
            expected[name] = dtype, (tensors[name].size,)
    if KEPT in tensors:
        expected[KEPT_END] = np.dtype(np.int64), (len(header.records),)
    if header.refit is not None:
        expected[REFIT] = np.dtype(np.uint8), (tensors[REFIT].size if REFIT in tensors else 0,)
    check_layout({name: array for name, array in tensors.items() if not name.startswith(CROPS)}, expected)


def _records(header: Header, tensors: Tensors, n_weak: int) -> Records:
    """The records with their windows; each once, in the order of their ids."""
    if not header.records:
        return Records()
    ends = np.cumsum(header.windows, dtype=np.int64).tolist()
    every = Responses.from_bytes(tensors["records.responses"], n_weak)
    kept_ends = tensors.get(KEPT_END, np.zeros(len(ends), np.int64)).tolist()
    data, kept_starts = tensors.get(KEPT, np.empty(0, np.uint8)).tobytes(), [0, *kept_ends[:-1]]
    if kept_ends != sorted(kept_ends) or min(kept_starts) < 0 or kept_ends[-1] != len(data):
        raise ModelFileError("what the records keep of their images is not divided among them")
    records = []
    for record, end, n, first, last in zip(header.records, ends, header.windows, kept_starts, kept_ends, strict=True):
        rows = slice(end - n, end)
        scale, y, x = (tensors[f"records.{name}"][rows] for name in INDEX)
        index = WindowIndex(scale, y.astype(np.intp), x.astype(np.intp))
        records.append(replace(record, index=index, responses=every.take(rows), kept=data[first:last]))
    ids = [record.id for record in records]
    if ids != sorted(set(ids)):
        raise ModelFileError("the records are not each once, in the order of their ids")
    return Records.from_iterable(records)


def _assembled(header: Header, tensors: Tensors) -> Contents:
    arrays = {name.removeprefix(MODEL): array for name, array in tensors.items() if name.startswith(MODEL)}
    others = {name: array for name, array in tensors.items() if not name.startswith(MODEL)}
    model, counts = family_of(header.family).load(header.window, header.model, arrays)
    n_weak = model.votes.n_weak
    _check_arrays(others, header, n_weak)
    reference = None
    if header.reference is not None:
        responses = Responses.from_bytes(others["reference.responses"], n_weak)
        part, gain, item = (others[f"reference.{name}"] for name in _REFERENCE)
        reference = Reference(responses, part, gain, item, *header.reference)
    crops = {name.removeprefix(CROPS): array for name, array in others.items() if name.startswith(CROPS)}
    kept = Crops.from_arrays(crops) if crops else None
    base = DetectorBase(
        model, header.provenance, others.get(MEAN), reference, others.get(TRAINED), kept, header.settings
    )
    if base.base_id != header.base_id:
        raise ModelFileError(
            f"the base hashes to {base.base_id[:12]}, the header says {header.base_id[:12]!r}: the file was damaged "
            "or altered; get it again from where it came"
        )
    refit = None
    if header.refit is not None:
        again = from_bytes(others[REFIT].tobytes(), is_refit=True)
        if again.counts is not None or again.base.model.family != header.family:
            raise ModelFileError("the model that was made again is not one of these samples")
        refit = Refit(again.base, again.reporting, *header.refit)
    return Contents(base, counts, header.reporting, _records(header, others, n_weak), refit)


def join_classes(files: Mapping[str, Sequence[bytes]]) -> bytes:
    """The bytes of a file with several classes: those of the files of their shapes, and how many each class has."""
    from safetensors.numpy import save as serialise

    parts = [part for shapes in files.values() for part in shapes]
    tensors = {f"{number:04}": np.frombuffer(part, np.uint8) for number, part in enumerate(parts)}
    n_shapes = {name: len(shapes) for name, shapes in files.items()}
    data = bytes(serialise(tensors, {CLASSES_KEY: _classes_header(n_shapes, parts)}))
    if len(data) > MOST_BYTES:  # what could not be loaded is not saved
        raise ModelFileError(f"the file would have {len(data):,} bytes; at most {MOST_BYTES:,} can be loaded")
    return data


def split_classes(data: bytes) -> dict[str, list[bytes]]:
    """The files of the shapes of each class, from the bytes of a file with several classes."""
    tensors, text = deserialised(data), metadata_of(data, CLASSES_KEY)
    header = json.loads(text)
    n_shapes = header.get("classes") if isinstance(header, dict) else None
    parts = [tensors[key].tobytes() for key in sorted(tensors)]
    if (
        not isinstance(n_shapes, dict)
        or not all(type(n) is int and n > 0 for n in n_shapes.values())
        or sum(n_shapes.values()) != len(parts)
    ):
        raise ModelFileError(f"got {len(parts)} shapes for the classes {n_shapes!r}; expected as many as they name")
    if _classes_header(n_shapes, parts) != text:
        raise ModelFileError("the content does not have the hash of the header; get the file again")
    rest = iter(parts)
    return {name: list(islice(rest, n)) for name, n in n_shapes.items()}


def _classes_header(n_shapes: Mapping[str, int], parts: Sequence[bytes]) -> str:
    """The number of shapes of each class, and a hash of that and of the bytes of all shapes."""
    digests = [hashlib.sha256(part).hexdigest() for part in parts]
    digest = hashlib.sha256(json.dumps([list(n_shapes.items()), digests]).encode()).hexdigest()
    return json.dumps({"classes": n_shapes, "hash": digest})
