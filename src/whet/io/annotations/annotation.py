"""Images and the boxes of the objects in them, and what was wrong in a file of annotations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.errors import AnnotationError

# A name longer than this is none, and a message need not repeat it.
MOST_LETTERS = 200
# A file of a million bad rows is told by its first ones and a count.
MOST_PROBLEMS = 10_000


class ProblemKind(StrEnum):
    """What became of a thing with a problem; the value is its name in a summary."""

    MISSING_IMAGE = "images missing"
    UNREADABLE_IMAGE = "images unreadable"
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

    >>> one = Problem(ProblemKind.MISSING_IMAGE, "a.csv", 1, "")
    >>> summary([Problem(ProblemKind.CLIPPED_BOX, "a.xml", None, "")] * 2 + [one])
    '1 image missing, 2 boxes clipped'
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

    >>> counted(1, "boxes"), counted(2000, "images")
    ('1 box', '2,000 images')
    """
    return f"{n:,} {things if n != 1 else things.removesuffix('es' if things.endswith('xes') else 's')}"


Boxes = NDArray[np.float64]
Flags = NDArray[np.bool_]

# The class where a format has no names for one.
ONLY_CLASS = "object"


@dataclass(frozen=True, eq=False)
class AnnotatedImage:
    """An image's file, its shape (height, width), and boxes (n, 4) with a class each.

    Boxes are x1, y1, x2, y2, half-open, in pixels of the image as it is shown: turned upright as its EXIF
    orientation says. Those with `ignore` (VOC's difficult, COCO's iscrowd) are neither the object nor background.
    `split` is the name of the part of the set that the image belongs to, such as "train", where the format says it.
    An image is not `is_complete` where a box of it could not be: an object may be anywhere in it, so nothing else in
    it is known to be background.
    """

    path: Path
    shape: tuple[int, int]
    boxes: Boxes = field(default_factory=lambda: np.empty((0, 4)))
    labels: tuple[str, ...] = ()
    ignore: Flags = field(default_factory=lambda: np.empty(0, dtype=np.bool_))
    split: str = ""
    is_complete: bool = True

    def __post_init__(self) -> None:
        n = len(self.labels)
        if self.boxes.shape != (n, 4) or self.ignore.shape != (n,):
            raise ValueError(
                f"{self.path.name}: got boxes {self.boxes.shape}, {n} labels and ignore {self.ignore.shape}; expected "
                "(n, 4), n and (n,)"
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def objects(self) -> Boxes:
        """The boxes (n, 4) of objects that are not to be ignored."""
        return self.boxes[~self.ignore]

    @property
    def ignored(self) -> Boxes:
        """The regions (n, 4) to be ignored."""
        return self.boxes[self.ignore]

    @property
    def is_filled(self) -> bool:
        """Whether an object fills the whole image, as in a crop."""
        height, width = self.shape
        return bool((self.objects == [0, 0, width, height]).all(axis=1).any())

    def only(self, keep: Callable[[str, bool], bool]) -> AnnotatedImage:
        """The same with those boxes whose label and ignore flag pass."""
        rows = [i for i, row in enumerate(zip(self.labels, self.ignore.tolist(), strict=True)) if keep(*row)]
        return replace(
            self, boxes=self.boxes[rows], labels=tuple(self.labels[i] for i in rows), ignore=self.ignore[rows]
        )


@dataclass(frozen=True, eq=False)
class Annotations:
    """A data set: images with their boxes, the names of the classes, and what was wrong with the files.

    >>> box = np.array([[10.0, 20.0, 110.0, 60.0]])
    >>> image = AnnotatedImage(Path("a.jpg"), (100, 200), box, ("car",), np.array([False]))
    >>> Annotations((image,), ("car", "person"))
    Annotations(1 image, 1 box: car 1, person 0)
    """

    images: tuple[AnnotatedImage, ...]
    classes: tuple[str, ...]
    problems: tuple[Problem, ...] = ()
    format: str = ""

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        return f"Annotations({self.summary()})"

    @property
    def counts(self) -> dict[str, int]:
        """How many objects there are of each class, without those to be ignored."""
        counts = Counter(
            label
            for image in self.images
            for label, ignored in zip(image.labels, image.ignore.tolist(), strict=True)
            if not ignored
        )
        return {name: counts[name] for name in self.classes}

    @property
    def n_boxes(self) -> int:
        """Boxes of objects, without those to be ignored."""
        return sum(len(image.objects) for image in self.images)

    @property
    def n_ignored(self) -> int:
        """Regions to be ignored."""
        return sum(len(image.ignored) for image in self.images)

    @property
    def boxes(self) -> Boxes:
        """All boxes (n, 4) of objects, image after image."""
        return np.concatenate([np.empty((0, 4)), *(image.objects for image in self.images)])

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the parts of the set, in their order; one of them may be empty."""
        return tuple(dict.fromkeys(image.split for image in self.images))

    def select_split(self, name: str) -> Annotations:
        """The images of one part of the set, such as "val"."""
        if name not in self.splits:
            there = ", ".join(filter(None, self.splits)) or "none"
            raise AnnotationError(f"there is no part {name!r} of these annotations; there is: {there}")
        return replace(self, images=tuple(image for image in self.images if image.split == name))

    def select(self, name: str | None = None) -> Annotations:
        """The set for one class: boxes of the others are gone, and so they are background; a problem tells of them.

        Regions to be ignored stay if they are of that class or of none. Without a name, the only class there is.

        >>> Annotations((), ("car", "person")).select("dog")
        Traceback (most recent call last):
        whet.errors.AnnotationError: there is no class 'dog'; there are: car (0 boxes), person (0 boxes)
        """
        counts = self.counts
        listed = self.listed_classes() or "none"
        if name is None:
            with_boxes = [each for each, n in counts.items() if n] or list(counts)
            if len(with_boxes) != 1:
                raise AnnotationError(f"there are several classes, choose one by its name: {listed}")
            name = with_boxes[0]
        if name not in counts:
            raise AnnotationError(f"there is no class {name!r}; there are: {listed}")
        chosen = tuple(image.only(lambda label, _: label in (name, "")) for image in self.images)
        others = {each: n for each, n in counts.items() if each != name and n}
        told = ", ".join(f"{counted(n, 'boxes')} of {each}" for each, n in others.items())
        told = f"background for {name} now: {told}"
        note = [Problem(ProblemKind.NOTE, "", None, told)] if others else []
        return replace(self, images=chosen, classes=(name,), problems=(*self.problems, *note))

    def summary(self) -> str:
        """One line: counts of images, of boxes by class, and of problems."""
        by_class = ", ".join(f"{name} {count:,}" for name, count in self.counts.items())
        boxes = counted(self.n_boxes, "boxes") + (f": {by_class}" if by_class else "")
        ignored = f", {self.n_ignored:,} to ignore" if self.n_ignored else ""
        faults = summary(self.problems)
        return f"{counted(len(self), 'images')}, {boxes}{ignored}{f'; {faults}' if faults else ''}"

    def listed_classes(self) -> str:
        """The classes with their counts, for messages."""
        return ", ".join(f"{name} ({counted(n, 'boxes')})" for name, n in self.counts.items())
