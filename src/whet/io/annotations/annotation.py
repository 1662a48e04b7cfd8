"""Annotated images, data sets, images to learn from, and the problems found while reading them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

import numpy as np

from whet.arrays import Bools
from whet.arrays import Boxes as Boxes
from whet.errors import AnnotationError, UnreadableImageError
from whet.images.detections import ONLY_CLASS as ONLY_CLASS
from whet.io.files import map_files, shown_name
from whet.io.image_files import shape_or_error

# Longer names are shortened in messages.
MAX_LETTERS = 200
# Further problems are only counted, so that a file of a million bad rows does not fill the memory.
MAX_PROBLEMS = 10_000


class ProblemKind(StrEnum):
    """The kind of a problem; the value is its name in a summary."""

    MISSING_IMAGE = "images missing"
    UNREADABLE_IMAGE = "images unreadable"
    BAD_ROW = "rows skipped"
    DROPPED_BOX = "boxes dropped"
    CLIPPED_BOX = "boxes clipped"
    IGNORED_BOX = "boxes mostly outside the image"
    NOTE = "notes"


@dataclass(frozen=True)
class Problem:
    """A problem of an annotation file: kind, file, line (or None) and description.

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
    """A list of problems that stores the first 10,000 and counts the others."""

    found: list[Problem] = field(default_factory=list)
    counts: Counter[ProblemKind] = field(default_factory=Counter)

    def add(self, kind: ProblemKind, file: str | Path, line: int | None, what: str) -> None:
        """Add a problem."""
        self.counts[kind] += 1
        if self.counts.total() <= MAX_PROBLEMS:
            self.found.append(Problem(kind, shown_name(file), line, what))

    def skip_row(self, file: str | Path, line: int | None, what: str) -> None:
        """Add a row that cannot be read."""
        self.add(ProblemKind.BAD_ROW, file, line, what)

    def note(self, file: str | Path, what: str, line: int | None = None) -> None:
        """Add a note: nothing is lost."""
        self.add(ProblemKind.NOTE, file, line, what)

    def all(self) -> tuple[Problem, ...]:
        """Return the stored problems sorted by file and line, and a last one with the number of the others."""
        more = self.counts.total() - len(self.found)
        last = Problem(ProblemKind.NOTE, "", None, f"and {more:,} more problems")
        files = {file: i for i, file in enumerate(dict.fromkeys(problem.file for problem in self.found))}
        ordered = sorted(self.found, key=lambda problem: (files[problem.file], problem.line or 0))
        return (*ordered, *([last] if more else []))


def summary(problems: Iterable[Problem]) -> str:
    """Count problems by kind, without notes.

    >>> missing = Problem(ProblemKind.MISSING_IMAGE, "a.csv", 1, "")
    >>> summary([Problem(ProblemKind.CLIPPED_BOX, "a.xml", None, "")] * 2 + [missing])
    '1 image missing, 2 boxes clipped'
    """
    counts = Counter(str(problem.kind) for problem in problems if problem.kind is not ProblemKind.NOTE)
    parts = [(counts[kind], kind.split(" ", 1)) for kind in ProblemKind if counts[kind]]
    return ", ".join(f"{counted(n, things)} {what}" for n, (things, what) in parts)


def shortened(name: str) -> str:
    """Shorten a name for a message; a long name keeps both ends.

    >>> shortened("a/b.png"), len(shortened("x" * 10_000))
    ('a/b.png', 200)
    """
    half = MAX_LETTERS // 2
    return name if len(name) <= MAX_LETTERS else f"{name[: half - 5]} [...] {name[2 - half :]}"


def counted(n: int, things: str) -> str:
    """Format a count with its noun, which is given in the plural.

    >>> counted(1, "boxes"), counted(2000, "images")
    ('1 box', '2,000 images')
    """
    return f"{n:,} {things if n != 1 else things.removesuffix('es' if things.endswith('xes') else 's')}"


# The parts of a data set, by all names that tools and people give them.
PART_NAMES = {
    name: names[0]
    for names in (("train", "training"), ("test", "testing"), ("val", "valid", "validation"))
    for name in names
}
# The parts of a data set that are evaluated on, if it has several: the first that there is.
HELD_OUT_PARTS = ("test", "val")


@dataclass(frozen=True, eq=False)
class AnnotatedImage:
    """An image file, its shape (height, width), and boxes (n, 4) with a class label each.

    Boxes are x1, y1, x2, y2 in pixels, half-open, of the image after rotation by its EXIF orientation. Boxes with
    `ignore` (VOC's difficult, COCO's iscrowd) count neither as objects nor as background. `split` is the part of the
    data set, such as "train", if the format has one. `is_complete` is False if a box was invalid: the image then has an
    object at an unknown position, and training takes no background from it. `others` are the boxes (n, 4) of classes
    that were not selected.

    >>> AnnotatedImage(Path("a.jpg"), (100, 200), np.array([[10.0, 20.0, 110.0, 60.0]]), ("car",), np.array([False]))
    AnnotatedImage(path=PosixPath('a.jpg'), shape=(100, 200), boxes=array([[ 10.,  20., 110.,  60.]]), ...)
    """

    path: Path
    shape: tuple[int, int]
    boxes: Boxes = field(default_factory=lambda: np.empty((0, 4)))
    labels: tuple[str, ...] = ()
    ignore: Bools = field(default_factory=lambda: np.empty(0, dtype=np.bool_))
    split: str = ""
    is_complete: bool = True
    others: Boxes = field(default_factory=lambda: np.empty((0, 4)))

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
        """Boxes (n, 4) of the objects, without ignored regions."""
        return self.boxes[~self.ignore]

    @property
    def ignored(self) -> Boxes:
        """Boxes (n, 4) of the ignored regions."""
        return self.boxes[self.ignore]

    def rows(self) -> Iterator[tuple[list[float], str, bool]]:
        """Box, label and `ignore` of each box."""
        return zip(self.boxes.tolist(), self.labels, self.ignore.tolist(), strict=True)

    @property
    def is_filled(self) -> bool:
        """Whether one object fills the whole image, as in a crop."""
        height, width = self.shape
        return bool((self.objects == [0, 0, width, height]).all(axis=1).any())

    def only(self, keep: Callable[[str, bool], bool]) -> AnnotatedImage:
        """Keep the boxes for which `keep(label, ignore)` is true; the other objects become `others`."""
        rows = [i for i, (_, label, ignore) in enumerate(self.rows()) if keep(label, ignore)]
        dropped = ~self.ignore
        dropped[rows] = False
        return replace(
            self,
            boxes=self.boxes[rows],
            labels=tuple(self.labels[i] for i in rows),
            ignore=self.ignore[rows],
            others=np.concatenate([self.others, self.boxes[dropped]]),
        )

    def relabelled(self, name: str) -> AnnotatedImage:
        """The same with one class for all boxes that have one."""
        return replace(self, labels=tuple(name if label else "" for label in self.labels))


@dataclass(frozen=True, eq=False)
class Annotations:
    """A data set: images with boxes, class names, and the problems found while reading it.

    `aliases` are further names of parts: {"val": "test"} if data.yaml names one directory for both.

    >>> box = np.array([[10.0, 20.0, 110.0, 60.0]])
    >>> image = AnnotatedImage(Path("a.jpg"), (100, 200), box, ("car",), np.array([False]))
    >>> Annotations((image,), ("car", "person"))
    Annotations(1 image, 1 box: car 1, person 0)
    """

    images: tuple[AnnotatedImage, ...]
    classes: tuple[str, ...]
    problems: tuple[Problem, ...] = ()
    format: str = ""
    aliases: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        return f"Annotations({self.summary()})"

    @property
    def counts(self) -> dict[str, int]:
        """Number of objects by class, without ignored regions."""
        counts = Counter(label for image in self.images for _, label, ignored in image.rows() if not ignored)
        return {name: counts[name] for name in self.classes}

    @property
    def n_boxes(self) -> int:
        """Number of objects, without ignored regions."""
        return sum(len(image.objects) for image in self.images)

    @property
    def n_ignored(self) -> int:
        """Number of ignored regions."""
        return sum(len(image.ignored) for image in self.images)

    @property
    def boxes(self) -> Boxes:
        """Boxes (n, 4) of the objects of all images."""
        return np.concatenate([np.empty((0, 4)), *(image.objects for image in self.images)])

    @property
    def shapes(self) -> dict[Path, tuple[int, int]]:
        """Shape (height, width) of each image."""
        return {image.path: image.shape for image in self.images}

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the parts of the data set, in order; the name is empty for images without a part."""
        return tuple(dict.fromkeys(image.split for image in self.images))

    def find_split(self, *names: str) -> str | None:
        """The first of these parts that the data set has; None if it has none of them.

        A part can have several names: "valid" is "val", and `aliases` are those of this data set.
        """
        for name in names:
            usual = PART_NAMES.get(name, name)
            for split in (name, usual, self.aliases.get(usual)):
                if split in self.splits:
                    return split
        return None

    def select_split(self, name: str) -> Annotations:
        """Select the images of one part of the data set, such as "val"."""
        part = self.find_split(name)
        if part is None:
            there = ", ".join([*filter(None, self.splits), *self.aliases]) or "none"
            raise AnnotationError(f"unknown split {name!r}; available splits: {there}")
        return replace(self, images=tuple(image for image in self.images if image.split == part))

    def select(self, name: str | None = None) -> Annotations:
        """Select one class; objects of other classes become background, and a note in `problems` counts them.

        Ignored regions of this class, or without a class, stay. The name is optional if only one class has boxes. A
        name such as "cat,dog" makes one class of several.

        >>> Annotations((), ("car", "person")).select("dog")
        Traceback (most recent call last):
        whet.errors.AnnotationError: unknown class 'dog'; available classes: car (0 boxes), person (0 boxes)
        """
        counts = self.counts
        listed = self.listed_classes() or "none"
        if name is None:
            with_boxes = [label for label, n in counts.items() if n] or list(counts)
            if len(with_boxes) != 1:
                raise AnnotationError(f"the annotations have several classes; choose one (--class NAME): {listed}")
            name = with_boxes[0]
        names = [name] if name in counts else [label.strip() for label in name.split(",")]
        unknown = [label for label in names if label not in counts]
        if unknown:
            raise AnnotationError(f"unknown class {unknown[0]!r}; available classes: {listed}")
        chosen = tuple(image.only(lambda label, _: label in (*names, "")) for image in self.images)
        if len(names) > 1:
            name = ",".join(names)
            chosen = tuple(image.relabelled(name) for image in chosen)
        others = {label: n for label, n in counts.items() if label not in names and n}
        listed = ", ".join(f"{counted(n, 'boxes')} of {label}" for label, n in others.items())
        what = f"other classes count as background for {name}: {listed}"
        note = [Problem(ProblemKind.NOTE, "", None, what)] if others else []
        return replace(self, images=chosen, classes=(name,), problems=(*self.problems, *note))

    def has_class(self, name: str) -> bool:
        """Whether `select` finds this class, or all classes of a name such as "cat,dog"."""
        return name in self.classes or all(label.strip() in self.classes for label in name.split(","))

    def summary(self) -> str:
        """Return one line with the numbers of images, boxes by class, and problems."""
        by_class = ", ".join(f"{name} {count:,}" for name, count in self.counts.items())
        boxes = counted(self.n_boxes, "boxes") + (f": {by_class}" if by_class else "")
        ignored = f", {self.n_ignored:,} ignored" if self.n_ignored else ""
        faults = summary(self.problems)
        return f"{counted(len(self), 'images')}, {boxes}{ignored}{f'; {faults}' if faults else ''}"

    def listed_classes(self) -> str:
        """Return the classes with their counts, for messages."""
        return ", ".join(f"{name} ({counted(n, 'boxes')})" for name, n in self.counts.items())


@dataclass(frozen=True, eq=False)
class Examples:
    """Images to learn from, and the errors of those that cannot be read."""

    images: tuple[AnnotatedImage, ...]
    unread: tuple[UnreadableImageError, ...] = ()

    @classmethod
    def from_annotations(
        cls, annotated: Iterable[AnnotatedImage] = (), positives: Iterable[Path] = (), negatives: Iterable[Path] = ()
    ) -> Examples:
        """Annotated images, images that one object fills, and images without the object.

        The rest of a filled image is a region to ignore: other detections in it are not false positives. In an image
        without the object, all are. Raises `AnnotationError` if an image is given both with objects and as one without.
        """
        filled, unread_filled = _read_shapes(positives, is_filled=True)
        empty, unread_empty = _read_shapes(negatives, is_filled=False)
        with_boxes = [*annotated, *filled]
        check_disjoint((image.path for image in with_boxes if len(image.objects)), (image.path for image in empty))
        return cls((*with_boxes, *empty), (*unread_filled, *unread_empty))

    @property
    def boxes(self) -> Boxes:
        """The boxes (n, 4) of the object in all images."""
        return np.concatenate([np.empty((0, 4)), *(image.objects for image in self.images)])

    @property
    def n_objects(self) -> int:
        """Number of boxes of the object."""
        return sum(len(image.objects) for image in self.images)


def _read_shapes(paths: Iterable[Path], *, is_filled: bool) -> tuple[list[AnnotatedImage], list[UnreadableImageError]]:
    """Images that one object fills, or that have none, and the errors of those that cannot be read."""
    images, unread, listed = [], [], list(paths)
    for path, shape in zip(listed, map_files(shape_or_error, listed), strict=True):
        if isinstance(shape, UnreadableImageError):
            unread.append(shape)
            continue
        height, width = shape
        whole = np.array([[0.0, 0.0, width, height]])
        if is_filled:
            boxes, ignore = np.concatenate([whole, whole]), np.array([False, True])
            images.append(AnnotatedImage(path, (height, width), boxes, (ONLY_CLASS, ONLY_CLASS), ignore))
        else:
            images.append(AnnotatedImage(path, (height, width)))
    return images, unread


def check_disjoint(with_object: Iterable[Path], without: Iterable[Path]) -> None:
    """Raise `AnnotationError` if an image is among those with and among those without the object."""
    named = {path.resolve() for path in with_object}
    for path in without:
        if path.resolve() in named:
            raise AnnotationError(f"{path} is given both with and without the object; remove it from one set")
