"""A file of what a detector was taught, so that it can be taken out again."""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path

from whet.errors import JournalError, ModelFileError
from whet.io.atomic_file import write_atomically
from whet.io.json_fields import Table, check_keys, finite, one_of, parse_table, whole
from whet.io.model_header import MOST_WEAK
from whet.lda.class_statistics import MOST_SAMPLES
from whet.training.journal_entry import Entry

LEARNED, UNLEARNED = "learned", "unlearned"
MOST_STAGES = 1000
MOST_PLACES = 2**31
BEGINNING = b'{"base_id"'  # keys are sorted
CUT_SHORT = (
    "the last line is cut short, something failed while it was written or copied; take it off with: "
    "whet unlearn MODEL {path} --repair (or Journal.repair() of Python)"
)


@dataclass(frozen=True)
class Journal:
    r"""Entries that were learned and unlearned, a line of JSON each; lines are only ever added.

    Equal entries stand for equal counts, so it does not matter which of them is unlearned.

    >>> import tempfile
    >>> journal = Journal(Path(tempfile.mkdtemp()) / "camera.jsonl")
    >>> entry = Entry("0" * 64, 1.2, 7, 9, False, 40, "f" * 64, 1, "a0")
    >>> journal.add_learned([entry, entry])
    >>> journal.add_unlearned([entry])
    >>> journal.learned() == [entry], len(journal.path.read_text().splitlines())
    (True, 3)
    """

    path: Path

    def __init__(self, path: str | PathLike[str]) -> None:
        object.__setattr__(self, "path", Path(path))

    def add_learned(self, entries: Iterable[Entry]) -> None:
        """Write down what `Detector.learn` has returned."""
        self._add(LEARNED, entries)

    def add_unlearned(self, entries: Iterable[Entry]) -> None:
        """Write down what `Detector.unlearn` has taken out; refuses what is not, or no longer, in the journal."""
        entries = list(entries)
        missing = Counter(entries) - self._balance()
        if missing:
            raise JournalError(
                f"{self.path}: {missing.total()} of {len(entries)} entries were never written down here, or have "
                "been unlearned already; nothing was added"
            )
        self._add(UNLEARNED, entries)

    def learned(
        self, *, picture: str | None = None, is_object: bool | None = None, base_id: str | None = None
    ) -> list[Entry]:
        """The entries that are still learned, all or those that match, in the order in which they were learned."""
        wanted = {"picture": picture, "is_object": is_object, "base_id": base_id}
        lines = list(self._read_lines())
        left = _balance(lines)
        kept = []
        for _, did, entry in lines:
            if did == LEARNED and left[entry]:
                left[entry] -= 1
                if all(value is None or getattr(entry, name) == value for name, value in wanted.items()):
                    kept.append(entry)
        return kept

    def repair(self) -> str:
        """Take off a last line that was cut short, by a full disk or a crash; returns what stood there.

        Raises `JournalError`, and changes nothing, where the lines before it or its beginning are not a journal's.
        """
        data = self.path.read_bytes() if self.path.exists() else b""
        cut = data[data.rfind(b"\n") + 1 :]
        if cut:
            for number, line in enumerate(data.splitlines()[:-1], start=1):
                _read(line.decode("utf-8", "replace"), f"{self.path}, line {number}")
            if cut[: len(BEGINNING)] != BEGINNING[: len(cut)]:
                raise JournalError(f"{self.path}: its last line is not that of a journal; is it another file?")
            write_atomically(self.path, data[: -len(cut)])
        return cut.decode("utf-8", "replace")

    def _balance(self) -> Counter[Entry]:
        """How often each entry is learned now."""
        return _balance(self._read_lines())

    def _read_lines(self) -> Iterator[tuple[str, str, Entry]]:
        """Where each line is, what it says was done, and with which entry."""
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

    def _add(self, did: str, entries: Iterable[Entry]) -> None:
        """Add lines, all or none."""
        lines = [json.dumps({"did": did, **asdict(entry)}, sort_keys=True) + "\n" for entry in entries]
        for line in lines:
            _read(line, f"{self.path}: an entry cannot be written down, nothing was added")
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


def _balance(lines: Iterable[tuple[str, str, Entry]]) -> Counter[Entry]:
    balance: Counter[Entry] = Counter()
    for where, did, entry in lines:
        balance[entry] += 1 if did == LEARNED else -1
        if balance[entry] < 0:
            raise JournalError(f"{where}: unlearns what is not learned by the lines before it")
    return balance


def _read(line: str, where: str) -> tuple[str, Entry]:
    try:
        table = parse_table(line, "line")
        check_keys(table, {"did", *Entry.__dataclass_fields__}, where="the line")
        return one_of(table["did"], {LEARNED, UNLEARNED}, "did"), _entry(table)
    except ModelFileError as error:
        raise JournalError(f"{where}: {error}") from error


def _entry(table: Table) -> Entry:
    if not isinstance(table["is_object"], bool):
        raise ModelFileError("is_object is not true or false")
    return Entry(
        _hexadecimal(table["picture"], 64, "picture"),
        finite(table["scale"], "scale"),
        whole(table["y"], 0, MOST_PLACES, "y"),
        whole(table["x"], 0, MOST_PLACES, "x"),
        table["is_object"],
        whole(table["weight"], 1, MOST_SAMPLES - 1, "weight"),
        _hexadecimal(table["base_id"], 64, "base_id"),
        whole(table["stages"], 0, MOST_STAGES, "stages"),
        _hexadecimal(table["responses"], None, "responses"),
    )


def _hexadecimal(value: object, length: int | None, name: str) -> str:
    digits = isinstance(value, str) and set(value) <= set("0123456789abcdef")
    if not isinstance(value, str) or not digits or len(value) > MOST_STAGES * MOST_WEAK // 4:
        raise ModelFileError(f"{name} is not a hexadecimal number")
    if length is not None and len(value) != length:
        raise ModelFileError(f"{name} has {len(value)} digits; expected {length}")
    return value
