"""Which entries of a journal are meant: by number, by picture, or the last ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from whet.errors import JournalError
from whet.io.images import read_grey
from whet.training.journal_entry import Entry, picture_hash


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


def entries_of_pictures(entries: Sequence[Entry], pictures: Iterable[Path]) -> list[Entry]:
    """All entries that the pictures in these files have left; raises `JournalError` where one has left none."""
    hashes = {picture_hash(read_grey(path)): path for path in pictures}
    for digest, path in hashes.items():
        if not any(entry.picture == digest for entry in entries):
            raise JournalError(f"nothing was learned from {path}, or it has other pixels now: see --list")
    return [entry for entry in entries if entry.picture in hashes]
