"""The journal of a model: a file of the records of what it learned, so that they can be unlearned.

Model and journal are two files, and two files cannot be written as one. So at every moment the journal has at least
what the model has learned by it: it grows before the model and shrinks after it. What a crash in between leaves behind
is a journal with records that the model has not learned; `check_agreement` finds them before anything is changed.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.detector.detector import Detector
from whet.detector.model_file import MOST_WEAK
from whet.detector.records import Record, count_records, image_hash
from whet.errors import JournalError, ModelFileError
from whet.io.files import Table, check_keys, finite, one_of, parse_table, whole, write_atomically
from whet.io.images import read_grey
from whet.lda.statistics import MOST_SAMPLES

Patches = NDArray[np.uint8]
Labels = NDArray[np.bool_]
Counts = NDArray[np.int64]
Bits = NDArray[np.uint8]


LEARNED, UNLEARNED = "learned", "unlearned"
MOST_STAGES = 1000
MOST_PLACES = 2**31
BEGINNING = b'{"base_id"'  # keys are sorted
CUT_SHORT = (
    "the last line is cut short, because writing or copying failed; remove it with: "
    "whet unlearn MODEL {path} --repair (in Python: Journal.repair())"
)


@dataclass(frozen=True)
class Journal:
    r"""Records that were learned and unlearned, a line of JSON each; lines are only ever added.

    Equal records stand for equal counts, so it does not matter which of them is unlearned.

    >>> import tempfile
    >>> journal = Journal(Path(tempfile.mkdtemp()) / "camera.jsonl")
    >>> record = Record("0" * 64, 1.2, 7, 9, False, 40, "f" * 64, 1, b"\xa0")
    >>> journal.add_learned([record, record])
    >>> journal.add_unlearned([record])
    >>> journal.learned() == [record], len(journal.path.read_text().splitlines())
    (True, 3)
    """

    path: Path

    def __init__(self, path: str | PathLike[str]) -> None:
        object.__setattr__(self, "path", Path(path))

    def add_learned(self, records: Iterable[Record]) -> None:
        """Add the records that `Detector.learn` has returned."""
        self._add(LEARNED, records)

    def add_unlearned(self, records: Iterable[Record]) -> None:
        """Add records that were unlearned; raises `JournalError` for records that the journal has not as learned."""
        records = list(records)
        missing = Counter(records) - self._balance()
        if missing:
            raise JournalError(
                f"{self.path}: {missing.total()} of {len(records)} records are not in this journal, or were "
                "unlearned before; nothing was added"
            )
        self._add(UNLEARNED, records)

    def learned(
        self, *, image: str | None = None, is_object: bool | None = None, base_id: str | None = None
    ) -> list[Record]:
        """The records that are still learned, all or those that match, in the order in which they were learned."""
        wanted = {"image": image, "is_object": is_object, "base_id": base_id}
        lines = list(self._read_lines())
        left = _balance(lines)
        kept = []
        for _, did, record in lines:
            if did == LEARNED and left[record]:
                left[record] -= 1
                if all(value is None or getattr(record, name) == value for name, value in wanted.items()):
                    kept.append(record)
        return kept

    def repair(self) -> str:
        """Remove a last line that was cut short, by a full disk or a crash; returns it.

        Raises `JournalError`, and changes nothing, where the lines before it or its beginning are not a journal's.
        """
        data = self.path.read_bytes() if self.path.exists() else b""
        cut = data[data.rfind(b"\n") + 1 :]
        if cut:
            for number, line in enumerate(data.splitlines()[:-1], start=1):
                _read(line.decode("utf-8", "replace"), f"{self.path}, line {number}")
            if cut[: len(BEGINNING)] != BEGINNING[: len(cut)]:
                raise JournalError(f"{self.path}: the last line is not that of a journal; is it another file?")
            write_atomically(self.path, data[: -len(cut)])
        return cut.decode("utf-8", "replace")

    def _balance(self) -> Counter[Record]:
        """How often each record is learned now."""
        return _balance(self._read_lines())

    def _read_lines(self) -> Iterator[tuple[str, str, Record]]:
        """Where each line is, what it says was done, and with which record."""
        for number, line in self._lines():
            where = f"{self.path}, line {number}"
            yield where, *_read(line, where)

    def _lines(self) -> Iterator[tuple[int, str]]:
        if not self.path.exists():
            return
        with self.path.open(encoding="utf-8", errors="replace", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith("\n"):
                    raise JournalError(f"{self.path}, line {number}: {CUT_SHORT.format(path=self.path)}")
                yield number, line

    def _add(self, did: str, records: Iterable[Record]) -> None:
        """Add lines, all or none."""
        lines = [
            json.dumps({"did": did, **asdict(record), "responses": record.responses.hex()}, sort_keys=True) + "\n"
            for record in records
        ]
        for line in lines:
            _read(line, f"{self.path}: a record cannot be written, nothing was added")
        data = "".join(lines).encode()
        try:
            with self.path.open("ab", buffering=0) as file:
                size = file.tell()
                self._check_end(size)
                if file.write(data) != len(data):
                    os.truncate(self.path, size)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
        except OSError as error:
            raise JournalError(f"{self.path} cannot be written to ({error.strerror}); nothing was added") from error

    def _check_end(self, size: int) -> None:
        """A line that was cut short would swallow the next one."""
        with self.path.open("rb") as file:
            file.seek(max(size - 1, 0))
            if file.read(1) not in (b"", b"\n"):
                raise JournalError(f"{self.path}: {CUT_SHORT.format(path=self.path)}")


def _balance(lines: Iterable[tuple[str, str, Record]]) -> Counter[Record]:
    balance: Counter[Record] = Counter()
    for where, did, record in lines:
        balance[record] += 1 if did == LEARNED else -1
        if balance[record] < 0:
            raise JournalError(f"{where}: unlearns what is not learned by the lines before it")
    return balance


def _read(line: str, where: str) -> tuple[str, Record]:
    try:
        table = parse_table(line, "line")
        check_keys(table, {"did", *Record.__dataclass_fields__}, where="the line")
        return one_of(table["did"], {LEARNED, UNLEARNED}, "did"), _record(table)
    except ModelFileError as error:
        raise JournalError(f"{where}: {error}") from error


def _record(table: Table) -> Record:
    if not isinstance(table["is_object"], bool):
        raise ModelFileError("is_object is not true or false")
    return Record(
        _hexadecimal(table["image"], 64, "image"),
        finite(table["scale"], "scale"),
        whole(table["y"], 0, MOST_PLACES, "y"),
        whole(table["x"], 0, MOST_PLACES, "x"),
        table["is_object"],
        whole(table["weight"], 1, MOST_SAMPLES - 1, "weight"),
        _hexadecimal(table["base_id"], 64, "base_id"),
        whole(table["stages"], 0, MOST_STAGES, "stages"),
        bytes.fromhex(_hexadecimal(table["responses"], None, "responses")),
    )


def _hexadecimal(value: object, length: int | None, name: str) -> str:
    digits = isinstance(value, str) and set(value) <= set("0123456789abcdef")
    if not isinstance(value, str) or not digits or len(value) % 2 or len(value) > MOST_STAGES * MOST_WEAK // 4:
        raise ModelFileError(f"{name} is not a hexadecimal number")
    if length is not None and len(value) != length:
        raise ModelFileError(f"{name} has {len(value)} digits; expected {length}")
    return value


def numbers_in(text: str) -> list[int]:
    """Numbers and ranges, as people write them; each once, in order.

    >>> numbers_in("3, 5-8,6")
    [3, 5, 6, 7, 8]
    >>> numbers_in("8-5")
    Traceback (most recent call last):
    ValueError: got '8-5'; expected numbers from 1 and ranges, such as 3,5-8
    """
    numbers: set[int] = set()
    for piece in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*", piece)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= last:
            raise ValueError(f"got {text!r}; expected numbers from 1 and ranges, such as 3,5-8")
        numbers.update(range(first, last + 1))
    return sorted(numbers)


def records_by_number(records: Sequence[Record], numbers: Iterable[int]) -> list[Record]:
    """Records by their numbers, from 1; raises `ValueError` for a number that there is not."""
    wanted = list(numbers)
    if wanted and not 1 <= min(wanted) <= max(wanted) <= len(records):
        raise ValueError(f"got records up to {max(wanted)}; there are {len(records)}, numbered from 1")
    return [records[number - 1] for number in wanted]


def last_records(records: Sequence[Record], n: int) -> list[Record]:
    """The n records that were learned last; raises `ValueError` where there are fewer."""
    if n > len(records):
        raise ValueError(f"got the last {n}; there are {len(records)} records")
    return list(records[len(records) - n :])


def records_of_images(records: Sequence[Record], images: Iterable[Path]) -> list[Record]:
    """All records that the images in these files have left; raises `JournalError` where one has left none."""
    hashes = {image_hash(read_grey(path)): path for path in images}
    for digest, path in hashes.items():
        if not any(record.image == digest for record in records):
            raise JournalError(f"nothing was learned from {path}, or it has other pixels now: see --list")
    return [record for record in records if record.image in hashes]


JOURNAL_SUFFIX = ".journal.jsonl"


def journal_beside(model: Path) -> Journal:
    """The journal of a model's file, where none is named.

    >>> journal_beside(Path("camera.whet")).path.name
    'camera.whet.journal.jsonl'
    """
    return Journal(model.with_name(model.name + JOURNAL_SUFFIX))


def not_learned(detector: Detector, records: Sequence[Record]) -> int:
    """How many of the last records, of this detector's base, it cannot have learned; 0 where all may be in it."""
    base = detector.base
    mine = [record for record in records if record.base_id == base.base_id]
    if not mine:
        return 0
    rest = detector.delta - count_records(base, mine)
    if rest.is_possible:
        return 0
    fewest = 0
    for number, record in enumerate(reversed(mine), start=1):
        rest = rest + count_records(base, [record])
        if rest.is_possible and rest.is_empty:  # all that is left is by this journal: so these it is
            return number
        fewest = fewest or (number if rest.is_possible else 0)
    return fewest


def check_agreement(detector: Detector, journal: Journal, model: str) -> None:
    """Raise `JournalError` where a journal has records of the detector's base that it has not learned."""
    ahead = not_learned(detector, journal.learned())
    if ahead:
        raise JournalError(
            f"{journal.path} has records that {model} has not learned, at least the last {ahead}: it is the journal of "
            "another copy, or a run was interrupted between the two files. Use the right journal, or remove them "
            f"with: whet unlearn {model} {journal.path} --last {ahead} --journal-only"
        )


def save_learned(detector: Detector, out: Path, journal: Journal | None, records: Sequence[Record]) -> None:
    """Write the learned records and then the detector; if that fails, the journal is restored."""
    if journal is None or not records:
        detector.save(out)
        return
    with restored_on_failure(journal.path):
        journal.add_learned(records)
        detector.save(out)


def save_unlearned(detector: Detector, out: Path, journal: Journal, records: Sequence[Record]) -> None:
    """Write a detector that has unlearned these records, then the journal; if that fails, the detector is restored."""
    with restored_on_failure(out):
        detector.save(out)
        journal.add_unlearned(records)


def save_anew(detector: Detector, out: Path, journal: Journal | None, records: Sequence[Record]) -> None:
    """Write a detector to another file, with a journal of its own that has these records and no others."""
    if journal is None:
        detector.save(out)
        return
    with restored_on_failure(journal.path):
        journal.path.unlink(missing_ok=True)
        if records:
            journal.add_learned(records)
        detector.save(out)


@contextmanager
def restored_on_failure(path: Path) -> Iterator[None]:
    """Restore a file, or remove a new one, if anything fails; also on Ctrl-C."""
    before = path.read_bytes() if path.exists() else None
    try:
        yield
    except BaseException:
        if before is None:
            path.unlink(missing_ok=True)
        elif not path.exists() or path.read_bytes() != before:
            write_atomically(path, before)
        raise
