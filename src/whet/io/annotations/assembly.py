"""Shared by all annotation formats: lines and numbers of text files, image lookup, and checks of boxes."""

from __future__ import annotations

import codecs
import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property, partial
from math import isfinite
from pathlib import Path, PureWindowsPath
from typing import cast

import numpy as np

from whet.errors import AnnotationError, DataNotFoundError, UnreadableImageError
from whet.io.annotations.annotation import (
    AnnotatedImage,
    Annotations,
    Problem,
    ProblemKind,
    Problems,
    counted,
    shortened,
)
from whet.io.files import AT_ONCE, as_remote, is_url, read_bounded, shown_name
from whet.io.image_files import images_in, shape_or_error
from whet.parallel.threads import map_in_order

# COCO's own instances_train2017.json has 448 MB.
MAX_BYTES = 1_000_000_000
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?\Z", re.ASCII)
# Larger than any image; products of such numbers are still far from the largest float.
MAX_COORDINATE = 1e9


def read_bytes(path: Path, most: int = MAX_BYTES) -> bytes:
    """Read a file of at most `most` bytes."""
    return read_bounded(path, most, AnnotationError)


def lines_of(path: Path, problems: Problems) -> Iterator[tuple[int, str]]:
    """Iterate over line number and text of the lines that are not empty; lines that are not UTF-8 become problems.

    UTF-16 files, such as those of Excel, are recognized by their byte-order mark.
    """
    data = read_bytes(path)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        data = data.decode("utf-16", errors="replace").encode()
    data = data.removeprefix(codecs.BOM_UTF8)
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            yield number, line.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            problems.skip_row(path, number, f"not UTF-8 text ({error.reason}); save the file as UTF-8")


def number_in(text: str) -> float | None:
    """Parse a number; None if the text is not a number, not finite, or larger than any image.

    >>> number_in(" 1.5 "), number_in("nan"), number_in("1_0"), number_in("1e99")
    (1.5, None, None, None)
    """
    text = text.strip()
    # Longer than any number in full precision.
    if len(text) > 64 or not NUMBER.match(text):
        return None
    value = float(text)
    return value if isfinite(value) and abs(value) <= MAX_COORDINATE else None


def decimal_sum(a: float, b: float) -> float:
    """Add two numbers in decimal arithmetic, so that coordinates survive a round trip between formats.

    >>> 0.1 + 0.2, decimal_sum(0.1, 0.2), decimal_sum(0.3, -0.1)
    (0.30000000000000004, 0.3, 0.2)
    """
    if a == int(a) and b == int(b):
        return a + b
    return float(Decimal(repr(float(a))) + Decimal(repr(float(b))))


def shortest_text(value: float) -> str:
    """Format a number with the fewest digits that give the same number; integers have no decimal point.

    >>> shortest_text(12.0), shortest_text(0.1)
    ('12', '0.1')
    """
    return str(int(value)) if value == int(value) else repr(float(value))


class ImageFinder:
    """Finds an image file by its name in an annotation file.

    The search order is: the directory `images`, the directory of the annotations and its usual subdirectories, the
    current directory, and last any file with the same base name below `images` or the annotations. Windows paths work
    on every system, and Unicode names match in composed and decomposed form.

    If `images`, or else the directory of the annotations, is a URL, images are below it, and nothing is searched. URLs
    in annotation files are followed only there.
    """

    def __init__(self, base: Path, images: Path | None = None) -> None:
        self.base, self.images = base, images
        given = [] if images is None else [images]
        beside = (
            [] if is_url(base) else [base / name for name in ("", "images", "JPEGImages", "../images", "../JPEGImages")]
        )
        self._folders = [*given, *beside, Path()]
        self.root = as_remote(images or base)
        self._found: dict[str, Path | None] = {}
        self._elsewhere: dict[str, Path] = {}  # names with a directory, and the only file of that base name

    def find(self, name: str) -> Path | None:
        """Return the image file, or None."""
        if self.root is not None:
            from whet.io.remote import below

            return cast(Path | None, below(self.root, name))
        if name not in self._found:
            self._found[name] = self._in_folders(name) or self._by_base_name(name)
        return self._found[name]

    def note_base_names(self, file: Path, problems: Problems) -> None:
        """Add a note on the images that are not in the directory that `file` names: they may be other images."""
        for name, path in list(self._elsewhere.items())[:1]:
            n = len(self._elsewhere)
            what = f"{counted(n, 'images')} {'was' if n == 1 else 'were'} found by base name only, for example"
            problems.note(file, f"{what} {shortened(name)} as {path}; check the directory")

    def not_found(self, name: str) -> str:
        """What to say of an image that was not found.

        >>> ImageFinder(Path("nowhere")).not_found("a.png")
        "image not found: 'a.png'"
        """
        what = f"image not found: {shortened(shown_name(name))!r}"
        if is_url(name):
            where = "URLs in files are followed only below that of the images: give it (images=URL, --images URL)"
            return f"{what}; {where}"
        several = [] if self.root is not None else self._index.get(_key(PureWindowsPath(name).name), [])
        if len(several) < 2:
            return what
        return f"{what}; {len(several):,} files have this base name, for example {several[0]} and {several[1]}"

    def _in_folders(self, name: str) -> Path | None:
        # The unchanged name comes first: outside of Windows, a backslash can be part of a name.
        variants = dict.fromkeys(
            unicodedata.normalize(form, text) for text in (name, name.replace("\\", "/")) for form in ("NFC", "NFD")
        )
        for variant in dict.fromkeys([name, *variants]):
            for folder in self._folders:
                if _is_file(folder / variant):
                    # Normalized, so that a file has one name; not behind a link, where `..` leads elsewhere.
                    short = Path(os.path.normpath(folder / variant))
                    return short if _is_file(short) else folder / variant
        return None

    def _by_base_name(self, name: str) -> Path | None:
        # With several files of this name, it is unknown which of them is meant.
        base_name = PureWindowsPath(name).name
        files = self._index.get(_key(base_name), [])
        if len(files) != 1:
            return None
        if base_name != name:
            self._elsewhere[name] = files[0]
        return files[0]

    @cached_property
    def _index(self) -> dict[str, list[Path]]:
        index: dict[str, list[Path]] = defaultdict(list)
        for path in images_in(self.images or self.base):
            index[_key(path.name)].append(path)
        return index


def _key(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long, or with a null byte
        return False


def relative_name(path: Path, folder: Path) -> str:
    """Return a path relative to a directory, with slashes; absolute if the two share no directory, or a URL.

    >>> relative_name(Path("set/images/a.jpg"), Path("set/labels"))
    '../images/a.jpg'
    """
    if is_url(path):
        return str(path)
    target, here = os.path.abspath(path), os.path.abspath(folder)
    try:
        shared = os.path.commonpath([target, here])
    except ValueError:  # two drives
        shared = ""
    is_near = shared and Path(shared) != Path(shared).parent
    return Path(os.path.relpath(target, here) if is_near else target).as_posix()


Progress = Callable[[float], None]

# Boxes may exceed the image by this many pixels without a message: conventions for pixel positions differ.
SLACK = 1.0


@dataclass(frozen=True)
class RawBox:
    """A box as the file states it: corners in pixels, or relative to the width and height of the image."""

    corners: tuple[float, float, float, float]
    label: str
    ignore: bool = False
    line: int | None = None
    is_relative: bool = False


@dataclass
class RawImage:
    """An image as the file names it, with its boxes; the name is a `Path` if the file was found already."""

    name: str | Path
    file: Path
    boxes: list[RawBox] = field(default_factory=list)
    split: str = ""
    line: int | None = None
    stated_shape: tuple[int, int] | None = None


def with_progress(images: Sequence[AnnotatedImage], progress: Progress) -> Iterator[AnnotatedImage]:
    """Iterate over the images and report the fraction done."""
    for number, image in enumerate(images, start=1):
        yield image
        progress(number / len(images))


def assemble(
    raws: Sequence[RawImage],
    classes: Iterable[str],
    finder: ImageFinder,
    problems: Problems,
    form: str,
    progress: Progress = lambda _: None,
    *,
    source: Path,
) -> Annotations:
    """Build the data set; missing and unreadable images become problems, or an error if no image is left.

    The class names are `classes`, in order, and then those that occur only in boxes. `source` is the file or directory
    that was read.
    """
    images: dict[Path, AnnotatedImage] = {}
    lost: list[Problem] = []
    opened = map_in_order(partial(_open, finder), raws, 1 if finder.root is None else AT_ONCE)
    for number, (raw, place) in enumerate(zip(raws, opened, strict=True), start=1):
        if isinstance(place, Problem):
            lost.append(place)
            problems.add(place.kind, place.file, place.line, place.what)
        else:
            image = _image(raw, *place, problems)
            earlier = images.get(image.path)
            images[image.path] = image if earlier is None else _combined(earlier, image)
        progress(number / len(raws))
    finder.note_base_names(source, problems)
    if not images:
        raise _no_images(lost, finder, form, source, problems)
    names = dict.fromkeys([*classes, *(label for image in images.values() for label in image.labels if label)])
    return Annotations(tuple(images.values()), tuple(names), problems.all(), form)


def _open(finder: ImageFinder, raw: RawImage) -> tuple[Path, tuple[int, int]] | Problem:
    """The file of an image and its shape (height, width), or why there is none."""
    path = finder.find(raw.name) if isinstance(raw.name, str) else raw.name
    if path is None:
        return Problem(ProblemKind.MISSING_IMAGE, str(raw.file), raw.line, finder.not_found(str(raw.name)))
    shape = shape_or_error(path)
    if isinstance(shape, UnreadableImageError):
        return Problem(ProblemKind.UNREADABLE_IMAGE, str(raw.file), raw.line, str(shape))
    return path, shape


def _image(raw: RawImage, path: Path, shape: tuple[int, int], problems: Problems) -> AnnotatedImage:
    if raw.stated_shape is not None and raw.stated_shape != shape and 0 not in raw.stated_shape:
        stated, actual = (f"{width} x {height}" for height, width in (raw.stated_shape, shape))
        what = f"{path.name} has {actual} pixels, but the file states {stated}; check the positions of its boxes"
        problems.note(raw.file, what, raw.line)
    kept = [box for box in (_clipped(raw, box, shape, problems) for box in raw.boxes) if box is not None]
    is_complete = all(_has_position(box) for box in raw.boxes)
    return AnnotatedImage(
        path,
        shape,
        np.array([box.corners for box in kept], dtype=np.float64).reshape(-1, 4),
        tuple(box.label for box in kept),
        np.array([box.ignore for box in kept], dtype=np.bool_),
        raw.split,
        is_complete,
    )


def _clipped(raw: RawImage, box: RawBox, shape: tuple[int, int], problems: Problems) -> RawBox | None:
    """Clip a box to the image; None if nothing of it is inside."""
    corners = np.array(box.corners, dtype=np.float64)
    limits = np.array([shape[1], shape[0]] * 2, dtype=np.float64)
    if box.is_relative:  # rounded to undo the rounding error of the product: 13, not 12.999999999999998
        corners = np.round(corners * limits, 9)

    def report(kind: ProblemKind, what: str) -> None:
        text = ", ".join(f"{value:g}" for value in corners.tolist())
        problems.add(kind, raw.file, box.line, f"box ({text}) in {Path(raw.name).name}: {what}")

    if not _has_position(box):
        is_finite = np.isfinite(corners).all()
        what = "width or height is not positive" if is_finite else "coordinates are not finite"
        report(ProblemKind.DROPPED_BOX, f"{what}; dropped")
        return None
    size = corners[2:] - corners[:2]
    inside = np.clip(corners, 0.0, limits)
    left = inside[2:] - inside[:2]
    if not (left > 0).all():
        report(ProblemKind.DROPPED_BOX, f"outside the {shape[1]} x {shape[0]} image; dropped")
        return None
    ignore = box.ignore
    # A box with less of its area inside the image is ignored: the visible rest does not look like the object.
    if left.prod() < 0.5 * size.prod() and not ignore:
        report(ProblemKind.IGNORED_BOX, f"mostly outside the {shape[1]} x {shape[0]} image; marked as ignored")
        ignore = True
    elif abs(inside - corners).max() > SLACK:
        report(ProblemKind.CLIPPED_BOX, f"exceeds the {shape[1]} x {shape[0]} image; clipped")
    x1, y1, x2, y2 = inside.tolist()
    label = "".join(letter if letter.isprintable() else " " for letter in box.label).strip()
    return RawBox((x1, y1, x2, y2), label, ignore)


def _has_position(box: RawBox) -> bool:
    """Return whether a box states a position, inside or outside of the image."""
    x1, y1, x2, y2 = box.corners
    return bool(np.isfinite(box.corners).all()) and x1 < x2 and y1 < y2


def _combined(first: AnnotatedImage, second: AnnotatedImage) -> AnnotatedImage:
    """Combine the boxes of an image that the file names twice."""
    return replace(
        first,
        boxes=np.concatenate([first.boxes, second.boxes]),
        labels=first.labels + second.labels,
        ignore=np.concatenate([first.ignore, second.ignore]),
        is_complete=first.is_complete and second.is_complete,
    )


def _no_images(lost: list[Problem], finder: ImageFinder, form: str, source: Path, problems: Problems) -> Exception:
    if not lost:
        first = "".join(f"; the first problem: {problem}" for problem in problems.all()[:1])
        return AnnotationError(f"{source} has no annotated images in the format {form}{first}")
    where = finder.images or finder.base
    first = "; ".join(problem.what for problem in lost[:3])
    return DataNotFoundError(
        f"none of the {len(lost):,} annotated images can be read; searched {where}: {first}. Set the directory of the "
        "images (images=DIR, --images DIR)"
    )
