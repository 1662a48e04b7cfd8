"""Hostile variants of sound files: bytes, numbers in text, values in a database, and models that are sealed again."""

import re
import sqlite3
import zlib
from contextlib import closing, suppress

import numpy as np
from safetensors.numpy import load, save

from tests.security.test_model_file_attacks import altered, closed, in_order, opened, spoiled
from whet.detector import model_file
from whet.detector.base import DetectorBase
from whet.detector.model_header import Header
from whet.models.contract import family_of

BYTES = [b"\0", b"\xff", b"\x7f", b"\n", b"\xff\xff\xff\xff", b"\0" * 8, b"\x80\0\0\0", b"\xed\xa0\x80", b"\x1b[2J"]
NUMBERS = (
    b"0 1 -1 2 3 7 255 256 65535 65536 2147483647 -2147483648 4294967296 9223372036854775807 99999999999999999999 "
    b"1e308 -1e308 1e-320 1e999 nan inf -inf 0.5 -0.0 1_0 0x10 null true {} [] x"
).split()
NUMBER = re.compile(rb"-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")


def bytes_changed(data, rng):
    """One to four changes of bytes: flipped, set, cut out, doubled, inserted, or cut off."""
    changed = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(len(changed) + 1))
        to = min(at + int(rng.integers(1, 2 ** rng.integers(1, 10))), len(changed))
        match rng.integers(7):
            case 0 | 1 if at < len(changed):
                changed[at] ^= 1 << int(rng.integers(8))
            case 2:
                token = BYTES[rng.integers(len(BYTES))]
                changed[at : at + len(token)] = token
            case 3:
                del changed[at:to]
            case 4:
                changed[at:at] = changed[at:to]
            case 5:
                changed[at:at] = BYTES[rng.integers(len(BYTES))]
            case _ if rng.random() < 0.3:
                del changed[at:]
    return bytes(changed)


def text_changed(data, rng):
    """Some numbers are others, a line is gone or comes twice, or bytes change."""
    if rng.random() < 0.3:
        return bytes_changed(data, rng)
    if rng.random() < 0.2:
        lines = data.splitlines(keepends=True)
        at = int(rng.integers(len(lines))) if lines else 0
        return b"".join([*lines[:at], *(lines[at : at + 1] * int(rng.integers(0, 4))), *lines[at + 1 :]])
    found = list(NUMBER.finditer(data))
    for one in sorted(rng.choice(len(found), min(len(found), rng.integers(1, 4)), replace=False), reverse=True):
        data = data[: found[one].start()] + NUMBERS[rng.integers(len(NUMBERS))] + data[found[one].end() :]
    return data


def model_changed(data, rng):
    """Bytes of a model file change; or its header and arrays, and all hashes are right again."""
    if rng.random() < 0.3:
        return bytes_changed(data, rng)
    if model_file.has_classes(data):
        files = model_file.split_classes(data)
        name = list(files)[rng.integers(len(files))]
        at = rng.integers(len(files[name]))
        files[name][at] = model_changed(files[name][at], rng)
        if rng.random() < 0.2:
            files[rng.choice(["", "a:b", "x" * 10**6, "\x1b[2J", name])] = files.pop(name)
        return model_file.join_classes(files)
    header, tensors = opened(data)
    for _ in range(rng.integers(1, 3)):
        if model_file.REFIT in tensors and rng.random() < 0.3:
            inner = model_changed(tensors[model_file.REFIT].tobytes(), rng)
            tensors[model_file.REFIT] = np.frombuffer(inner, np.uint8)
        elif model_file.KEPT in tensors and rng.random() < 0.3:
            kept_changed(tensors, rng)
        else:
            altered(header, rng) if rng.random() < 0.5 else spoiled(tensors, rng)
    with suppress(Exception):  # what is still a base gets its own id: the attack comes further
        header["base_id"] = base_id(closed(header, tensors))
    with suppress(Exception):
        header, tensors = in_order(header, tensors)
    try:
        return bytes(closed(header, tensors))
    except (ValueError, OverflowError, TypeError):  # not even a forger could write it
        return bytes_changed(data, rng)


def kept_changed(tensors, rng):
    """What one record keeps of its image has another array, and is packed again."""
    ends = tensors[model_file.KEPT_END]
    parts = np.split(tensors[model_file.KEPT], ends[:-1])
    at = rng.choice([number for number, part in enumerate(parts) if len(part)])
    arrays = {name: array.copy() for name, array in load(zlib.decompress(parts[at].tobytes())).items()}
    spoiled(arrays, rng)
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    parts[at] = np.frombuffer(zlib.compress(bytes(save(arrays)), 1), np.uint8)
    tensors[model_file.KEPT] = np.concatenate(parts)
    tensors[model_file.KEPT_END] = np.cumsum([len(part) for part in parts], dtype=np.int64)


def project_changed(data, rng):
    """One to three values of a project's tables are others, rows are gone or come twice, or bytes change."""
    if rng.random() < 0.2:
        return bytes_changed(data, rng)
    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(data)
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for _ in range(rng.integers(1, 4)):
            table = tables[rng.integers(len(tables))]
            rows = [row for (row,) in database.execute(f"SELECT rowid FROM {table}")]
            if not rows:
                continue
            row = rows[rng.integers(len(rows))]
            columns = [column[1] for column in database.execute(f"PRAGMA table_info({table})")]
            column = columns[rng.integers(len(columns))]
            (value,) = database.execute(f"SELECT {column} FROM {table} WHERE rowid = ?", (row,)).fetchone()
            with suppress(sqlite3.Error, OverflowError):
                if rng.random() < 0.1:
                    database.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))
                elif rng.random() < 0.1:
                    database.execute(f"INSERT INTO {table} SELECT * FROM {table} WHERE rowid = ?", (row,))
                else:
                    new = value_changed(value, rng)
                    database.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (new, row))
        database.commit()
        return database.serialize()


def value_changed(value, rng):
    """Another value for one of a table: of the same kind, or of any."""
    if isinstance(value, bytes) and value and rng.random() < 0.7:
        return model_changed(value, rng) if value[8:10] == b'{"' else bytes_changed(value, rng)
    if isinstance(value, str) and rng.random() < 0.4:
        return text_changed(value.encode(), rng).decode(errors="replace")
    numbers = [None, 0, 1, -1, 2, 2**31, -(2**63), 2**63 - 1, 0.5, -1e308, float("inf")]
    values = [*numbers, "", "x", "[]", "{}", "[[1]]", b"", "reviewed/x", "../x", "/etc/passwd", "x" * 10**5]
    return values[rng.integers(len(values))]


def base_id(data):
    """The id of the base in a file, whatever its header says."""
    header, tensors = Header.from_json(model_file.metadata_of(data)), model_file.deserialised(data)
    arrays = {
        name.removeprefix(model_file.MODEL): array
        for name, array in tensors.items()
        if name.startswith(model_file.MODEL)
    }
    return DetectorBase(family_of(header.family).load(header.window, header.model, arrays)[0]).base_id


def checkpoint_changed(data, rng):
    """Bytes of a checkpoint change; or its header, and the hash is right again."""
    import json

    from whet.training.progress import FORMAT, _digest

    if rng.random() < 0.4:
        return bytes_changed(data, rng)
    header, tensors = json.loads(model_file.metadata_of(data, "header")), load(data)
    altered(header, rng) if rng.random() < 0.7 else spoiled(tensors, rng)
    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    text = json.dumps(header)
    return bytes(save(tensors, {"format": FORMAT, "header": text, "sha256": _digest(text, tensors)}))
