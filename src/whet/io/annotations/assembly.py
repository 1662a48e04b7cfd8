"""From what a file says to boxes that can be used: images found, boxes checked, problems reported."""

from __future__ import annotations

import os
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PureWindowsPath

import numpy as np
from numpy.typing import NDArray

from whet.errors import AnnotationError, DataNotFoundError, UnreadableImageError
from whet.io.annotations.annotation import AnnotatedImage, Annotations, Problem, ProblemKind, Problems, shortened
from whet.io.images import MOST_PIXELS, files_in, is_image_name

# Where formats keep images beside their annotations.
USUAL_FOLDERS = ("", "images", "JPEGImages", "../images", "../JPEGImages")
EXIF_ORIENTATION = 0x0112
LYING = (5, 6, 7, 8)  # orientations that exchange height and width


def images_in(folder: Path) -> list[Path]:
    """All files under a folder that are named like images, sorted."""
    return sorted(path for path in files_in(folder) if is_image_name(path))


def upright_shape(path: Path) -> tuple[int, int]:
    """Height and width of an image, turned upright as its EXIF orientation says.

    Only the header is read, but of a TIFF that lies on its side.
    """
    from PIL import Image

    try:
        with Image.open(path) as opened:
            lies = opened.getexif().get(EXIF_ORIENTATION) in LYING
            if lies and opened.format == "TIFF":
                opened.load()  # which turns it; the size before that is not the one of the file
                lies = False
            width, height = opened.size
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, NotImplementedError) as error:
        raise UnreadableImageError(f"{path} cannot be read as an image: {error}") from error
    if not 0 < height * width <= MOST_PIXELS:
        raise UnreadableImageError(f"{path} has {width} x {height} pixels; expected 1 to {MOST_PIXELS:,} in all")
    return (width, height) if lies else (height, width)


class ImageFinder:
    """Finds the file of an image by the name that annotations give it.

    A name is looked for as it stands, beside the annotations, in the folder of images, in the usual folders, and
    at last by its base name alone anywhere under these. Windows names are understood everywhere; letters that look the
    same are the same, however they are encoded.
    """

    def __init__(self, base: Path, images: Path | None = None) -> None:
        self.base, self.images = base, images
        given = [] if images is None else [images]
        self._folders = [*given, *(base / name for name in USUAL_FOLDERS), Path()]
        self._found: dict[str, Path | None] = {}

    def find(self, name: str) -> Path | None:
        """The image's file, or None."""
        if name not in self._found:
            self._found[name] = self._in_folders(name) or self._by_base_name(name)
        return self._found[name]

    def _in_folders(self, name: str) -> Path | None:
        # A backslash may be part of a name on other systems than Windows: as it stands first.
        variants = dict.fromkeys(
            unicodedata.normalize(form, text) for text in (name, name.replace("\\", "/")) for form in ("NFC", "NFD")
        )
        for variant in dict.fromkeys([name, *variants]):
            for folder in self._folders:
                if _is_file(folder / variant):
                    # One file by one name; but not where a folder is a link, and .. leads elsewhere.
                    short = Path(os.path.normpath(folder / variant))
                    return short if _is_file(short) else folder / variant
        return None

    def _by_base_name(self, name: str) -> Path | None:
        # Of several files of one name, any could be the one that is meant.
        found = self._index.get(_key(PureWindowsPath(name).name), [])
        return found[0] if len(found) == 1 else None

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


def name_from(path: Path, folder: Path) -> str:
    """An image's name in a file that is written to a folder: relative with slashes, or whole where nothing is shared.

    >>> name_from(Path("set/images/a.jpg"), Path("set/labels"))
    '../images/a.jpg'
    """
    target, here = os.path.abspath(path), os.path.abspath(folder)
    try:
        shared = os.path.commonpath([target, here])
    except ValueError:  # two drives
        shared = ""
    is_near = shared and Path(shared) != Path(shared).parent
    return Path(os.path.relpath(target, here) if is_near else target).as_posix()


Progress = Callable[[float], None]

# Of an object that its box shows to be outside for the most part, what is left does not look like the object.
LEAST_INSIDE = 0.5
# Conventions of where a pixel begins, and rounding, are not worth telling.
SLACK = 1.0
# Of pixels, to which a share of an image's side is kept.
DECIMALS = 9


@dataclass(frozen=True)
class RawBox:
    """A box as a file has it: corners in pixels, or in shares of the image's width and height."""

    corners: tuple[float, float, float, float]
    label: str
    ignore: bool = False
    line: int | None = None
    is_relative: bool = False


@dataclass
class RawImage:
    """An image as a file names it (a `Path` is one that was found), with its boxes."""

    name: str | Path
    file: Path
    boxes: list[RawBox] = field(default_factory=list)
    split: str = ""
    line: int | None = None
    said_shape: tuple[int, int] | None = None


def each_of(images: Sequence[AnnotatedImage], progress: Progress) -> Iterator[AnnotatedImage]:
    """Each image in turn, with the share done told."""
    for number, image in enumerate(images, start=1):
        yield image
        progress(number / len(images))


def assembled(
    raws: Sequence[RawImage],
    classes: Iterable[str],
    finder: ImageFinder,
    problems: Problems,
    form: str,
    progress: Progress = lambda _: None,
) -> Annotations:
    """The data set; images that are missing or unreadable are left out and told, unless all of them are.

    `classes` come first, in their order, and then those that only boxes name.
    """
    images: dict[Path, AnnotatedImage] = {}
    lost: list[Problem] = []
    for number, raw in enumerate(raws):
        found = _image(raw, finder, problems)
        if isinstance(found, AnnotatedImage):
            earlier = images.get(found.path)
            images[found.path] = found if earlier is None else _joined(earlier, found)
        else:
            lost.append(found)
            problems.add(found.kind, found.file, found.line, found.what)
        progress((number + 1) / len(raws))
    if not images:
        raise _no_images(lost, finder, form)
    names = dict.fromkeys([*classes, *(label for image in images.values() for label in image.labels if label)])
    return Annotations(tuple(images.values()), tuple(names), problems.all(), form)


def _image(raw: RawImage, finder: ImageFinder, problems: Problems) -> AnnotatedImage | Problem:
    path = raw.name if isinstance(raw.name, Path) else finder.find(raw.name)
    if path is None:
        what = f"there is no image {shortened(str(raw.name))!r}"
        return Problem(ProblemKind.MISSING_IMAGE, str(raw.file), raw.line, what)
    try:
        shape = upright_shape(path)
    except UnreadableImageError as error:
        return Problem(ProblemKind.UNREADABLE_IMAGE, str(raw.file), raw.line, str(error))
    if raw.said_shape is not None and raw.said_shape != shape and 0 not in raw.said_shape:
        said, is_ = (f"{width} x {height}" for height, width in (raw.said_shape, shape))
        problems.add(
            ProblemKind.NOTE,
            raw.file,
            raw.line,
            f"says that {path.name} has {said} pixels, upright it has {is_}: see whether its boxes are where they "
            "should be",
        )
    kept = [box for box in (_checked(raw, box, shape, problems) for box in raw.boxes) if box is not None]
    is_complete = all(_has_place(box) for box in raw.boxes)
    return AnnotatedImage(
        path,
        shape,
        np.array([box.corners for box in kept], dtype=np.float64).reshape(-1, 4),
        tuple(box.label for box in kept),
        np.array([box.ignore for box in kept], dtype=np.bool_),
        raw.split,
        is_complete,
    )


def _checked(raw: RawImage, box: RawBox, shape: tuple[int, int], problems: Problems) -> RawBox | None:
    """The box inside the image, or None if there is nothing of it."""
    corners = np.array(box.corners, dtype=np.float64)
    limits = np.array([shape[1], shape[0]] * 2, dtype=np.float64)
    if box.is_relative:  # without what the products' rounding adds: 13, not 12.999999999999998
        corners = np.round(corners * limits, DECIMALS)

    def tell(kind: ProblemKind, what: str) -> None:
        problems.add(kind, raw.file, box.line, f"{_said(corners)} in {Path(raw.name).name}: {what}")

    if not np.isfinite(corners).all():
        tell(ProblemKind.DROPPED_BOX, "not finite; dropped")
        return None
    if not _has_place(box):
        tell(ProblemKind.DROPPED_BOX, "it has no width or no height; dropped")
        return None
    size = corners[2:] - corners[:2]
    inside = np.clip(corners, 0.0, limits)
    left = inside[2:] - inside[:2]
    if not (left > 0).all():
        tell(ProblemKind.DROPPED_BOX, f"outside the {shape[1]} x {shape[0]} image; dropped")
        return None
    ignore = box.ignore
    if left.prod() < LEAST_INSIDE * size.prod() and not ignore:
        tell(ProblemKind.IGNORED_BOX, f"mostly outside the {shape[1]} x {shape[0]} image; what is left is ignored")
        ignore = True
    elif abs(inside - corners).max() > SLACK:
        tell(ProblemKind.CLIPPED_BOX, f"reaches beyond the {shape[1]} x {shape[0]} image; clipped")
    x1, y1, x2, y2 = inside.tolist()
    label = "".join(letter if letter.isprintable() else " " for letter in box.label).strip()
    return RawBox((x1, y1, x2, y2), label, ignore)


def _has_place(box: RawBox) -> bool:
    """Whether a box says where its object is, be it outside of the image."""
    x1, y1, x2, y2 = box.corners
    return bool(np.isfinite(box.corners).all()) and x1 < x2 and y1 < y2


def _said(corners: NDArray[np.float64]) -> str:
    return "box (" + ", ".join(f"{value:g}" for value in corners.tolist()) + ")"


def _joined(first: AnnotatedImage, second: AnnotatedImage) -> AnnotatedImage:
    """The boxes of an image that is named twice."""
    return AnnotatedImage(
        first.path,
        first.shape,
        np.concatenate([first.boxes, second.boxes]),
        first.labels + second.labels,
        np.concatenate([first.ignore, second.ignore]),
        first.split,
        first.is_complete and second.is_complete,
    )


def _no_images(lost: list[Problem], finder: ImageFinder, form: str) -> Exception:
    if not lost:
        return AnnotationError(f"{finder.base} has no annotated image in the format {form}")
    where = finder.images or finder.base
    first = "; ".join(problem.what for problem in lost[:3])
    return DataNotFoundError(
        f"none of the {len(lost):,} annotated images could be used, under {where} or as named: {first}; say in which "
        "folder they are (images=FOLDER, --images FOLDER)"
    )
