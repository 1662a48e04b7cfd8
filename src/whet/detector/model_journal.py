"""A model's file and its journal, written so that the two never disagree without being noticed.

Two files cannot be written as one. So at every moment the journal has at least what the model has learned by it: it
grows before the model and shrinks after it. What a crash in between leaves behind is then a journal with entries that
the model has not learned, which counts can show, and `check_agreement` does before anything is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from whet.detector.detector import Detector
from whet.detector.journal import Entry, Journal, lesson_of
from whet.errors import JournalError
from whet.io.files import write_atomically

SUFFIX = ".journal.jsonl"


def journal_beside(model: Path) -> Journal:
    """The journal of a model's file, where none is named.

    >>> journal_beside(Path("camera.whet")).path.name
    'camera.whet.journal.jsonl'
    """
    return Journal(model.with_name(model.name + SUFFIX))


def not_learned(detector: Detector, entries: Sequence[Entry]) -> int:
    """How many of the last entries, of this detector's base, it cannot have learned; 0 where all may be in it."""
    base = detector.taught.base
    mine = [entry for entry in entries if entry.base_id == base.base_id]
    if not mine:
        return 0
    rest = detector.taught.learned - lesson_of(base, mine)
    if rest.is_possible:
        return 0
    fewest = 0
    for number, entry in enumerate(reversed(mine), start=1):
        rest = rest + lesson_of(base, [entry])
        if rest.is_possible and rest.is_empty:  # all that is left is by this journal: so these it is
            return number
        fewest = fewest or (number if rest.is_possible else 0)
    return fewest


def check_agreement(detector: Detector, journal: Journal, model: str) -> None:
    """Raise `JournalError` where a journal has entries of the detector's base that it has not learned."""
    ahead = not_learned(detector, journal.learned())
    if ahead:
        raise JournalError(
            f"{journal.path} has entries that {model} has not learned, at least the last {ahead}: it is the journal of "
            "another copy, or a run was cut short between the two files. Name the right journal, or take them off it "
            f"with: whet unlearn {model} {journal.path} --last {ahead} --journal-only"
        )


def save_learned(detector: Detector, out: Path, journal: Journal | None, entries: Sequence[Entry]) -> None:
    """Write down entries that were learned, and then the detector; if that fails, the journal is as it was."""
    if journal is None or not entries:
        detector.save(out)
        return
    with restored_on_failure(journal.path):
        journal.add_learned(entries)
        detector.save(out)


def save_unlearned(detector: Detector, out: Path, journal: Journal, entries: Sequence[Entry]) -> None:
    """Write a detector without these entries, and then write that down; if that fails, the detector is as it was."""
    with restored_on_failure(out):
        detector.save(out)
        journal.add_unlearned(entries)


def save_anew(detector: Detector, out: Path, journal: Journal | None, entries: Sequence[Entry]) -> None:
    """Write a detector to another file, with a journal of its own that has these entries and no others."""
    if journal is None:
        detector.save(out)
        return
    with restored_on_failure(journal.path):
        journal.path.unlink(missing_ok=True)
        if entries:
            journal.add_learned(entries)
        detector.save(out)


@contextmanager
def restored_on_failure(path: Path) -> Iterator[None]:
    """Put a file back as it was, or take it away, if anything fails; Ctrl-C too."""
    before = path.read_bytes() if path.exists() else None
    try:
        yield
    except BaseException:
        if before is None:
            path.unlink(missing_ok=True)
        elif not path.exists() or path.read_bytes() != before:
            write_atomically(path, before)
        raise
