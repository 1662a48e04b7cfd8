"""Records of what was learned, window by window, and the journal file that keeps them."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.cascade.stage import Stage
from whet.detector.base import Delta, DetectorBase
from whet.detector.counting import routed
from whet.detector.model_file import MOST_WEAK
from whet.errors import JournalError, ModelFileError
from whet.io.files import Table, check_keys, finite, one_of, parse_table, whole, write_atomically
from whet.io.images import read_grey
from whet.lda.statistics import MOST_SAMPLES, BinaryStatistics

Patches = NDArray[np.uint8]
Labels = NDArray[np.bool_]
Counts = NDArray[np.int64]
Bits = NDArray[np.uint8]


@dataclass(frozen=True)
class Entry:
    """A window that was taught: of which image, where, as what, how often, to which base, and its responses.

    `image` is the hash of the grey pixels and their size; `scale`, `y` and `x` are those of
    `whet.cascade.detections.FiredWindows`. `stages` counts the stages that it taught, from the first; `responses` are
    those of their weak learners, one bit each, in hexadecimal.
    """

    image: str
    scale: float
    y: int
    x: int
    is_object: bool
    weight: int
    base_id: str
    stages: int
    responses: str


@dataclass(frozen=True, eq=False)
class Places:
    """Where windows lie: scales (n,) of their levels, and pixels y (n,) and x (n,) of the level."""

    scale: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    y: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))
    x: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))

    def take(self, rows: NDArray[np.intp]) -> Places:
        """Those at these indices, in this order."""
        return Places(self.scale[rows], self.y[rows], self.x[rows])


def image_hash(grey: NDArray[np.uint8]) -> str:
    """SHA-256 of a grey image (height, width): its size and its pixels.

    >>> image_hash(np.zeros((2, 3), np.uint8)) == image_hash(np.zeros((3, 2), np.uint8))
    False
    """
    digest = hashlib.sha256(f"{grey.shape[0]} {grey.shape[1]} ".encode())
    digest.update(grey.tobytes())
    return digest.hexdigest()


def entries_of(
    base: DetectorBase, image: str, places: Places, patches: Patches, is_object: Labels, weights: Counts
) -> list[Entry]:
    """An entry for each patch (n, height, width), all from one image, with labels (n,) and weights (n,)."""
    bits: list[list[Bits]] = [[] for _ in patches]
    for rows, responses in routed(base, patches, is_object):
        for row, response in zip(rows.tolist(), responses, strict=True):
            bits[row].append(response)
    where = zip(places.scale.tolist(), places.y.tolist(), places.x.tolist(), strict=True)
    how = zip(is_object.tolist(), weights.tolist(), strict=True)
    return [
        Entry(image, *place, *kind, base.base_id, len(seen), _packed(seen))
        for place, kind, seen in zip(where, how, bits, strict=True)
    ]


def lesson_of(base: DetectorBase, entries: Sequence[Entry]) -> Delta:
    """What these entries have taught a base, as `whet.detector.counting.lesson` counts it; without any image.

    Raises `JournalError` for entries of another base, and for those that no window could have left.
    """
    sizes = [len(stage) for stage in base.stages]
    bits = [_unpacked(entry, base, sizes) for entry in entries]
    if sum(entry.weight for entry in entries) >= MOST_SAMPLES:
        raise JournalError("the weights of the entries sum to 2^52 or more; counts stay exact below")
    is_object = np.array([entry.is_object for entry in entries], np.bool_)
    weights = np.array([entry.weight for entry in entries], np.int64)
    reached = np.array([entry.stages for entry in entries], np.intp)
    taught = []
    start = 0
    for number, (size, stage) in enumerate(zip(sizes, base.cascade.stages, strict=True)):
        rows = np.flatnonzero(reached > number)
        seen = np.array([bits[row][start : start + size] for row in rows], np.uint8).reshape(-1, size)
        passed = stage.weigh(seen.T.astype(np.bool_))[-1] > stage.threshold
        goes_on = reached[rows] > number + 1
        if number + 1 < len(sizes) and ((passed | is_object[rows]) != goes_on).any():
            raise JournalError(
                f"an entry's responses do not lead it through the {len(sizes)} stages as it says: it was altered"
            )
        start += size
        if isinstance(base.stages[number], Stage):  # fixed: its responses lead the way, and are not counted
            taught.append((BinaryStatistics.empty(0), BinaryStatistics.empty(0)))
            continue
        sides = is_object[rows], ~is_object[rows]
        positive, negative = (BinaryStatistics.from_samples(seen[side], weights[rows][side]) for side in sides)
        taught.append((positive, negative))
    return Delta(tuple(taught))


def _packed(responses: list[Bits]) -> str:
    return np.packbits(np.concatenate(responses)).tobytes().hex() if responses else ""


def _unpacked(entry: Entry, base: DetectorBase, sizes: list[int]) -> Bits:
    if not isinstance(entry, Entry):
        raise JournalError(f"got a {type(entry).__name__}; expected the entries that learn has returned")
    if entry.base_id != base.base_id:
        raise JournalError(
            f"an entry was taught to the base {entry.base_id[:12]}, this detector is of {base.base_id[:12]}: "
            "take a detector of that base"
        )
    fewest = len(sizes) if entry.is_object else 0
    if not fewest <= entry.stages <= len(sizes) or not 1 <= entry.weight < MOST_SAMPLES:
        raise JournalError(
            f"an entry says that it taught {entry.stages} of {len(sizes)} stages, {entry.weight} times: it was altered"
        )
    n = sum(sizes[: entry.stages])
    try:
        packed = np.frombuffer(bytes.fromhex(entry.responses), np.uint8)
    except ValueError as error:
        raise JournalError(f"an entry's responses are no hexadecimal number: {entry.responses[:40]!r}") from error
    bits = np.unpackbits(packed)
    if len(packed) != -(-n // 8) or bits[n:].any():
        raise JournalError(f"an entry has {len(bits)} responses; the stages that it taught have {n} weak learners")
    return bits


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
        self, *, image: str | None = None, is_object: bool | None = None, base_id: str | None = None
    ) -> list[Entry]:
        """The entries that are still learned, all or those that match, in the order in which they were learned."""
        wanted = {"image": image, "is_object": is_object, "base_id": base_id}
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
        _hexadecimal(table["image"], 64, "image"),
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


def entries_by_number(entries: Sequence[Entry], numbers: Iterable[int]) -> list[Entry]:
    """Entries by their numbers, from 1; raises `ValueError` for a number that there is not."""
    wanted = list(numbers)
    if wanted and not 1 <= min(wanted) <= max(wanted) <= len(entries):
        raise ValueError(f"got entries up to {max(wanted)}; there are {len(entries)}, numbered from 1")
    return [entries[number - 1] for number in wanted]


def last_entries(entries: Sequence[Entry], n: int) -> list[Entry]:
    """The n entries that were learned last; raises `ValueError` where there are fewer."""
    if n > len(entries):
        raise ValueError(f"got the last {n}; there are {len(entries)} entries")
    return list(entries[len(entries) - n :])


def entries_of_images(entries: Sequence[Entry], images: Iterable[Path]) -> list[Entry]:
    """All entries that the images in these files have left; raises `JournalError` where one has left none."""
    hashes = {image_hash(read_grey(path)): path for path in images}
    for digest, path in hashes.items():
        if not any(entry.image == digest for entry in entries):
            raise JournalError(f"nothing was learned from {path}, or it has other pixels now: see --list")
    return [entry for entry in entries if entry.image in hashes]
