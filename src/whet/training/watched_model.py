"""The file of a detector that goes on learning from a stream, and a journal of what it still remembers of it.

Lessons come by the thousand and most are unlearned again, so the journal has those that the detector has learned now,
and is written anew with it. It has at least what the model has at every moment (see `whet.training.model_journal`).
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from whet.training.detector import Detector
from whet.training.journal import Journal
from whet.training.journal_entry import Entry
from whet.training.model_journal import journal_beside, restored_on_failure


@dataclass(eq=False)
class WatchedModel:
    """Where a watcher's detector is saved, again and again, with a journal if it has one.

    What comes `along` is in the journal before the lessons: entries that the detector had learned already. With None,
    the journal's own lines stay as they are.

    >>> import tempfile
    >>> import whet
    >>> from whet.training.model_journal import journal_beside
    >>> path = Path(tempfile.mkdtemp()) / "mine.whet"
    >>> WatchedModel(path, journal_beside(path)).save(whet.load("face"), [])
    >>> [file.name for file in path.parent.iterdir()]  # nothing learned, no journal
    ['mine.whet']
    """

    path: Path
    journal: Journal | None = None
    along: tuple[Entry, ...] | None = ()
    _before: bytes = field(default=b"", repr=False)
    _saved: list[Entry] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        if self.along is None and self.journal is not None and self.journal.path.exists():
            self._before = self.journal.path.read_bytes()

    def save(self, detector: Detector, remembered: Sequence[Entry]) -> None:
        """Write the detector, and in its journal what it remembers of the stream; both or none."""
        if self.journal is None:
            detector.save(self.path)
            if self.along is not None:  # another model's, which is replaced
                journal_beside(self.path).path.unlink(missing_ok=True)
            return
        gone = list((Counter(self._saved) - Counter(remembered)).elements())
        with restored_on_failure(self.journal.path):
            self._write(self.journal, [*gone, *remembered])
            detector.save(self.path)
        self._saved = list(remembered)
        if gone:
            self._write(self.journal, remembered)

    def _write(self, journal: Journal, entries: Sequence[Entry]) -> None:
        """The journal anew, as a whole."""
        lines = [*(self.along or ()), *entries]
        if not (self._before or lines):
            journal.path.unlink(missing_ok=True)
            return
        beside = Journal(journal.path.with_name(f".{journal.path.name}.{secrets.token_hex(4)}.tmp"))
        try:
            beside.path.write_bytes(self._before)
            beside.add_learned(lines)
            beside.path.replace(journal.path)
        finally:
            beside.path.unlink(missing_ok=True)
