"""From what a file says to boxes that can be used: pictures found, boxes checked, faults told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.errors import AnnotationError, DataNotFoundError, UnreadableImageError
from whet.io.annotations.annotation import AnnotatedPicture, Annotations
from whet.io.annotations.picture_files import PictureFinder, upright_shape
from whet.io.annotations.problem import Problem, ProblemKind, Problems, shortened

Progress = Callable[[float], None]

# Of an object that its box shows to be outside for the most part, what is left does not look like the object.
LEAST_INSIDE = 0.5
# Conventions of where a pixel begins, and rounding, are not worth telling.
SLACK = 1.0
# Of pixels, to which a share of a picture's side is kept.
DECIMALS = 9


@dataclass(frozen=True)
class RawBox:
    """A box as a file has it: corners in pixels, or in shares of the picture's width and height."""

    corners: tuple[float, float, float, float]
    label: str
    ignore: bool = False
    line: int | None = None
    is_relative: bool = False


@dataclass
class RawPicture:
    """A picture as a file names it (a `Path` is one that was found), with its boxes."""

    name: str | Path
    file: Path
    boxes: list[RawBox] = field(default_factory=list)
    split: str = ""
    line: int | None = None
    said_shape: tuple[int, int] | None = None


def each_of(pictures: Sequence[AnnotatedPicture], progress: Progress) -> Iterator[AnnotatedPicture]:
    """Each picture in turn, with the share done told."""
    for number, picture in enumerate(pictures, start=1):
        yield picture
        progress(number / len(pictures))


def assembled(
    raws: Sequence[RawPicture],
    classes: Iterable[str],
    finder: PictureFinder,
    problems: Problems,
    form: str,
    progress: Progress = lambda _: None,
) -> Annotations:
    """The data set; pictures that are missing or unreadable are left out and told, unless all of them are.

    `classes` come first, in their order, and then those that only boxes name.
    """
    pictures: dict[Path, AnnotatedPicture] = {}
    lost: list[Problem] = []
    for number, raw in enumerate(raws):
        found = _picture(raw, finder, problems)
        if isinstance(found, AnnotatedPicture):
            earlier = pictures.get(found.path)
            pictures[found.path] = found if earlier is None else _joined(earlier, found)
        else:
            lost.append(found)
            problems.add(found.kind, found.file, found.line, found.what)
        progress((number + 1) / len(raws))
    if not pictures:
        raise _no_pictures(lost, finder, form)
    names = dict.fromkeys([*classes, *(label for picture in pictures.values() for label in picture.labels if label)])
    return Annotations(tuple(pictures.values()), tuple(names), problems.all(), form)


def _picture(raw: RawPicture, finder: PictureFinder, problems: Problems) -> AnnotatedPicture | Problem:
    path = raw.name if isinstance(raw.name, Path) else finder.find(raw.name)
    if path is None:
        what = f"there is no picture {shortened(str(raw.name))!r}"
        return Problem(ProblemKind.MISSING_PICTURE, str(raw.file), raw.line, what)
    try:
        shape = upright_shape(path)
    except UnreadableImageError as error:
        return Problem(ProblemKind.UNREADABLE_PICTURE, str(raw.file), raw.line, str(error))
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
    return AnnotatedPicture(
        path,
        shape,
        np.array([box.corners for box in kept], dtype=np.float64).reshape(-1, 4),
        tuple(box.label for box in kept),
        np.array([box.ignore for box in kept], dtype=np.bool_),
        raw.split,
        is_complete,
    )


def _checked(raw: RawPicture, box: RawBox, shape: tuple[int, int], problems: Problems) -> RawBox | None:
    """The box inside the picture, or None if there is nothing of it."""
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
        tell(ProblemKind.DROPPED_BOX, f"outside the {shape[1]} x {shape[0]} picture; dropped")
        return None
    ignore = box.ignore
    if left.prod() < LEAST_INSIDE * size.prod() and not ignore:
        tell(ProblemKind.IGNORED_BOX, f"mostly outside the {shape[1]} x {shape[0]} picture; what is left is ignored")
        ignore = True
    elif abs(inside - corners).max() > SLACK:
        tell(ProblemKind.CLIPPED_BOX, f"reaches beyond the {shape[1]} x {shape[0]} picture; clipped")
    x1, y1, x2, y2 = inside.tolist()
    label = "".join(letter if letter.isprintable() else " " for letter in box.label).strip()
    return RawBox((x1, y1, x2, y2), label, ignore)


def _has_place(box: RawBox) -> bool:
    """Whether a box says where its object is, be it outside of the picture."""
    x1, y1, x2, y2 = box.corners
    return bool(np.isfinite(box.corners).all()) and x1 < x2 and y1 < y2


def _said(corners: NDArray[np.float64]) -> str:
    return "box (" + ", ".join(f"{value:g}" for value in corners.tolist()) + ")"


def _joined(first: AnnotatedPicture, second: AnnotatedPicture) -> AnnotatedPicture:
    """The boxes of a picture that is named twice."""
    return AnnotatedPicture(
        first.path,
        first.shape,
        np.concatenate([first.boxes, second.boxes]),
        first.labels + second.labels,
        np.concatenate([first.ignore, second.ignore]),
        first.split,
        first.is_complete and second.is_complete,
    )


def _no_pictures(lost: list[Problem], finder: PictureFinder, form: str) -> Exception:
    if not lost:
        return AnnotationError(f"{finder.base} has no annotated picture in the format {form}")
    where = finder.images or finder.base
    first = "; ".join(problem.what for problem in lost[:3])
    return DataNotFoundError(
        f"none of the {len(lost):,} annotated pictures could be used, under {where} or as named: {first}; say in which "
        "folder they are (images=FOLDER, --images FOLDER)"
    )
