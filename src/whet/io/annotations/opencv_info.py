"""OpenCV's description of samples: info.dat (picture, count, and x y width height for each object) and bg.txt.

That is what opencv_createsamples and opencv_annotation read and write. bg.txt lists pictures without the object.
"""

from __future__ import annotations

import re
from pathlib import Path

from whet.errors import AnnotationError
from whet.io.annotations.annotation import ONLY_CLASS, AnnotatedPicture, Annotations
from whet.io.annotations.assembly import Progress, RawBox, RawPicture, assembled, each_of
from whet.io.annotations.exact_decimals import added, number_in
from whet.io.annotations.picture_files import PictureFinder, name_from
from whet.io.annotations.problem import Problem, ProblemKind, Problems
from whet.io.annotations.text_lines import lines_of
from whet.io.atomic_file import write_atomically
from whet.io.pictures import is_picture_name

INFO_NAMES = ("info.dat", "info.txt", "info.lst", "positives.dat", "positives.txt", "pos.txt", "annotations.txt")
BACKGROUND_NAMES = ("bg.txt", "bg.dat", "negatives.txt", "neg.txt")


def read_opencv(path: Path, images: Path | None = None, progress: Progress = lambda _: None) -> Annotations:
    """Read info.dat, and bg.txt where one lies beside it; or the folder of both.

    Names may have spaces, which OpenCV's own tools do not read. There are no classes: all is of the class "object".
    """
    info, backgrounds = files_of(path)
    problems = Problems()
    pictures: dict[str, RawPicture] = {}
    for line, text in lines_of(info, problems) if info else ():
        if text.startswith("#"):
            continue
        _add_row(pictures, text, line, info or path, problems)
    for line, text in lines_of(backgrounds, problems) if backgrounds else ():
        if not text.startswith("#"):
            pictures.setdefault(text, RawPicture(text, backgrounds or path, line=line))
    folder = path if path.is_dir() else path.parent
    return assembled(
        list(pictures.values()), (ONLY_CLASS,), PictureFinder(folder, images), problems, "opencv", progress
    )


def files_of(path: Path) -> tuple[Path | None, Path | None]:
    """The files of objects and of backgrounds in a folder, or the file itself and the backgrounds beside it."""
    if path.is_file():
        if path.name.lower() in BACKGROUND_NAMES:
            return None, path
        return path, _first(path.parent, BACKGROUND_NAMES)
    info, others = _first(path, INFO_NAMES), sorted(path.glob("*.dat"))
    return info or (others[0] if len(others) == 1 else None), _first(path, BACKGROUND_NAMES)


def _first(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def parse_row(text: str) -> tuple[str, list[tuple[float, ...]]] | None:
    """The picture's name and x, y, width, height of each object; None for what is no such row.

    >>> parse_row("my car.png 1 10 20 100 40")
    ('my car.png', [(10.0, 20.0, 100.0, 40.0)])
    """
    words = list(re.finditer(r"\S+", text))
    values = [number_in(word.group()) for word in words]
    # The count is the first number that fits the numbers behind it; so the name may have spaces, and numbers.
    for at in range(max(1, _last_of_others(values)), len(words)):
        word, behind = words[at], len(words) - at - 1
        if re.fullmatch("[0-9]{1,6}", word.group()) and behind == 4 * int(word.group()):
            numbers = [value for value in values[at + 1 :] if value is not None]
            return text[: word.start()].strip(), [tuple(numbers[i : i + 4]) for i in range(0, behind, 4)]
    return None


def _last_of_others(values: list[float | None]) -> int:
    """Where the last word stands that is no number: the count is not before it."""
    return max((at for at, value in enumerate(values) if value is None), default=0)


def _add_row(pictures: dict[str, RawPicture], text: str, line: int, file: Path, problems: Problems) -> None:
    row = parse_row(text)
    if row is None:
        problems.add(
            ProblemKind.BAD_ROW,
            file,
            line,
            f"got {text[:80]!r}; expected: picture count, and x y width height for each",
        )
        return
    name, objects = row
    raw = pictures.setdefault(name, RawPicture(name, file, line=line))
    raw.boxes += [
        RawBox((x, y, added(x, width), added(y, height)), ONLY_CLASS, line=line) for x, y, width, height in objects
    ]


def looks_like_info(text: str) -> bool:
    """Whether a line is a row of info.dat: it names a picture, so that a YOLO label is none."""
    row = parse_row(text)
    return row is not None and is_picture_name(Path(row[0]))


def write_opencv(annotations: Annotations, path: Path, progress: Progress = lambda _: None) -> list[Problem]:
    """Write info.dat and bg.txt into a folder, or a file of another name with bg.txt beside it.

    The format has whole pixels, no classes and no regions to be ignored: corners move by up to half a pixel, such
    regions are left out and told, and several classes are an error.
    """
    if len({label for picture in annotations.pictures for label in picture.labels if label}) > 1:
        listed = annotations.listed_classes()
        raise AnnotationError(f"info.dat has no names for classes: choose one (--class NAME) of {listed}")
    info = path if path.suffix else path / "info.dat"
    info.parent.mkdir(parents=True, exist_ok=True)
    problems = Problems()
    rows, backgrounds = [], []
    for picture in each_of(annotations.pictures, progress):
        name = name_from(picture.path, info.parent)
        if len(picture.objects):
            rows.append(" ".join([name, str(len(picture.objects)), *map(_rounded, picture.objects.tolist())]))
        elif not len(picture):
            backgrounds.append(name)
        _tell(picture, name, info, problems)
    for file, lines in ((info, rows), (info.parent / "bg.txt", backgrounds)):
        write_atomically(file, "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape"))
    return list(problems.all())


def _rounded(box: list[float]) -> str:
    x1, y1, x2, y2 = map(round, box)
    return f"{x1} {y1} {max(x2 - x1, 1)} {max(y2 - y1, 1)}"


def _tell(picture: AnnotatedPicture, name: str, info: Path, problems: Problems) -> None:
    if len(picture.ignored):
        gone = "and the picture with it" if not len(picture.objects) else "and what it shows counts as background"
        problems.add(
            ProblemKind.DROPPED_BOX,
            info,
            None,
            f"{name}: {len(picture.ignored)} regions to be ignored left out, {gone}: the format has no word for them",
        )
    if any(character.isspace() for character in name):
        problems.add(ProblemKind.NOTE, info, None, f"{name!r} has a space: whet reads it, OpenCV's tools do not")
    if (picture.objects != picture.objects.round()).any():
        problems.add(ProblemKind.NOTE, info, None, f"{name}: boxes rounded to whole pixels")
