"""What was wrong in a file of annotations, or could not be said in one: told, and gone on from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

# A file of a million bad rows is told by its first ones and a count.
MOST_PROBLEMS = 10_000


class ProblemKind(StrEnum):
    """What became of a thing with a problem; the value is its name in a summary."""

    MISSING_PICTURE = "pictures missing"
    UNREADABLE_PICTURE = "pictures unreadable"
    BAD_ROW = "rows skipped"
    DROPPED_BOX = "boxes dropped"
    CLIPPED_BOX = "boxes clipped"
    IGNORED_BOX = "boxes made regions to ignore"
    NOTE = "notes"


@dataclass(frozen=True)
class Problem:
    """What is wrong, and in which file and line.

    >>> print(Problem(ProblemKind.BAD_ROW, "boxes.csv", 7, "expected 5 columns, got 3"))
    boxes.csv:7: expected 5 columns, got 3
    """

    kind: ProblemKind
    file: str
    line: int | None
    what: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.what}" if place else self.what


@dataclass(eq=False)
class Problems:
    """Problems as they are met."""

    found: list[Problem] = field(default_factory=list)
    counts: Counter[ProblemKind] = field(default_factory=Counter)

    def add(self, kind: ProblemKind, file: str | Path, line: int | None, what: str) -> None:
        """Note one more."""
        self.counts[kind] += 1
        if self.counts.total() <= MOST_PROBLEMS:
            self.found.append(Problem(kind, str(file), line, what))

    def all(self) -> tuple[Problem, ...]:
        """Those noted; where they were too many, a last one says how many more there were."""
        more = self.counts.total() - len(self.found)
        last = Problem(ProblemKind.NOTE, "", None, f"and {more:,} more problems")
        return (*self.found, *([last] if more else []))


def summary(problems: Iterable[Problem]) -> str:
    """Counts by kind.

    >>> summary([Problem(ProblemKind.CLIPPED_BOX, "a.xml", None, "")] * 2)
    '2 boxes clipped'
    """
    counts = Counter(problem.kind for problem in problems)
    return ", ".join(f"{counts[kind]:,} {kind}" for kind in ProblemKind if counts[kind])
