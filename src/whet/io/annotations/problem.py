"""What was wrong in a file of annotations, or could not be said in one: told, and gone on from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

# A name longer than this is none, and a message need not repeat it.
MOST_LETTERS = 200
# A file of a million bad rows is told by its first ones and a count.
MOST_PROBLEMS = 10_000


class ProblemKind(StrEnum):
    """What became of a thing with a problem; the value is its name in a summary."""

    MISSING_PICTURE = "pictures missing"
    UNREADABLE_PICTURE = "pictures unreadable"
    BAD_ROW = "rows skipped"
    DROPPED_BOX = "boxes dropped"
    CLIPPED_BOX = "boxes clipped"
    IGNORED_BOX = "boxes mostly outside"
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
        """Those noted, by file and line; where they were too many, a last one says how many more there were."""
        more = self.counts.total() - len(self.found)
        last = Problem(ProblemKind.NOTE, "", None, f"and {more:,} more problems")
        files = {file: i for i, file in enumerate(dict.fromkeys(problem.file for problem in self.found))}
        ordered = sorted(self.found, key=lambda problem: (files[problem.file], problem.line or 0))
        return (*ordered, *([last] if more else []))


def summary(problems: Iterable[Problem]) -> str:
    """Counts by kind; notes are not counted.

    >>> one = Problem(ProblemKind.MISSING_PICTURE, "a.csv", 1, "")
    >>> summary([Problem(ProblemKind.CLIPPED_BOX, "a.xml", None, "")] * 2 + [one])
    '1 picture missing, 2 boxes clipped'
    """
    counts = Counter(str(problem.kind) for problem in problems if problem.kind is not ProblemKind.NOTE)
    told = [(counts[kind], kind.split(" ", 1)) for kind in ProblemKind if counts[kind]]
    return ", ".join(f"{counted(n, things)} {what}" for n, (things, what) in told)


def shortened(name: str) -> str:
    """A name for a message: of one that is too long, both ends.

    >>> shortened("a/b.png"), len(shortened("x" * 10_000))
    ('a/b.png', 200)
    """
    half = MOST_LETTERS // 2
    return name if len(name) <= MOST_LETTERS else f"{name[: half - 5]} [...] {name[2 - half :]}"


def counted(n: int, things: str) -> str:
    """A number of things, by the plural of their name.

    >>> counted(1, "boxes"), counted(2000, "pictures")
    ('1 box', '2,000 pictures')
    """
    return f"{n:,} {things if n != 1 else things.removesuffix('es' if things.endswith('xes') else 's')}"
