"""Plain lists of boxes: CSV, OpenCV's info.dat and bg.txt, and folders of crops."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np

from whet.errors import AnnotationError, UnreadableImageError
from whet.io.annotations.annotation import ONLY_CLASS, AnnotatedImage, Annotations, Problem, ProblemKind, Problems
from whet.io.annotations.assembly import (
    ImageFinder,
    Progress,
    RawBox,
    RawImage,
    assembled,
    each_of,
    images_in,
    name_from,
)
from whet.io.files import as_file_name, lines_of, unique_stems, write_atomically
from whet.io.images import is_image_name
from whet.io.xml import added, number_in, text_of

HEADER = ("path", "x", "y", "w", "h", "label", "ignore")
DELIMITERS = ",;\t|"
# What other tools call these columns.
NAMES = {
    "path": ("path", "file", "filename", "file_name", "image", "image_path", "img", "image_name", "picture"),
    "label": ("label", "class", "class_name", "category", "label_name"),
    "ignore": ("ignore", "difficult", "iscrowd"),
    "x1": ("x1", "xmin", "x_min", "left", "bbox_x1"),
    "y1": ("y1", "ymin", "y_min", "top", "bbox_y1"),
    "x2": ("x2", "xmax", "x_max", "right", "bbox_x2"),
    "y2": ("y2", "ymax", "y_max", "bottom", "bbox_y2"),
    "x": ("x", "bbox_x"),
    "y": ("y", "bbox_y"),
    "w": ("w", "width", "bbox_width", "bbox_w"),
    "h": ("h", "height", "bbox_height", "bbox_h"),
}
CORNERS = ("x1", "y1", "x2", "y2")
SIZES = ("x", "y", "w", "h")


@dataclass(frozen=True)
class Columns:
    """Which column is which; `box` are four columns, of corners or of a corner and a size."""

    path: int
    box: tuple[int, int, int, int]
    is_corners: bool = False
    label: int | None = None
    ignore: int | None = None


def read_csv(path: Path, images: Path | None = None, progress: Progress = lambda _: None) -> Annotations:
    """Read a table; a row with a path alone is an image without objects.

    A first row of names may put the columns in any order, and say x1, y1, x2, y2 for corners. Without one they are
    path, x, y, w, h, label, ignore, the last two where they are there.
    """
    problems = Problems()
    raw_images: dict[str, RawImage] = {}
    columns: Columns | None = None
    for line, cells in rows_of(path, problems):
        if columns is None:
            columns = columns_of(cells, path)
            if columns is not None:
                continue
            columns = _in_order(len(cells))
        _add_row(raw_images, columns, cells, line, path, problems)
    return assembled(list(raw_images.values()), (), ImageFinder(path.parent, images), problems, "csv", progress)


def rows_of(path: Path, problems: Problems) -> Iterator[tuple[int, list[str]]]:
    """Number and cells of each row; the delimiter is the one that the first row has most of."""
    delimiter = ""
    for line, text in lines_of(path, problems):
        delimiter = delimiter or max(DELIMITERS, key=text.count)
        try:
            cells = next(csv.reader([text], delimiter=delimiter, skipinitialspace=True))
        except (csv.Error, StopIteration) as error:
            problems.add(ProblemKind.BAD_ROW, path, line, f"not a row of a table: {error}")
            continue
        yield line, [cell.strip() for cell in cells]


def columns_of(cells: list[str], path: Path) -> Columns | None:
    """The columns that a row of names says; None if it is a row of values."""
    known = {alias: name for name, aliases in NAMES.items() for alias in aliases}
    at: dict[str, int] = {}
    for i, cell in enumerate(cells):
        name = known.get(cell.lower().replace(" ", "_"))
        if name is not None:
            at.setdefault(name, i)
    box = next((names for names in (CORNERS, SIZES) if all(name in at for name in names)), None)
    if "path" in at and box is not None:
        x, y, right, bottom = (at[name] for name in box)
        return Columns(at["path"], (x, y, right, bottom), box is CORNERS, at.get("label"), at.get("ignore"))
    if len(at) >= 3:
        raise AnnotationError(
            f"{path} has the columns {', '.join(cells)[:200]}; expected path, and x, y, w, h or x1, y1, x2, y2"
        )
    return None


def _in_order(n: int) -> Columns:
    return Columns(0, (1, 2, 3, 4), False, 5 if n > 5 else None, 6 if n > 6 else None)


def _add_row(
    raw_images: dict[str, RawImage], columns: Columns, cells: list[str], line: int, path: Path, problems: Problems
) -> None:
    needed = max(columns.path, *columns.box) + 1
    if cells and len(cells) < needed and not any(cells[1:]) and columns.path == 0:
        cells = cells + [""] * (needed - len(cells))
    if len(cells) < needed or not cells[columns.path]:
        said = f"got {len(cells)} columns; expected at least {needed}" if len(cells) < needed else "the path is empty"
        problems.add(ProblemKind.BAD_ROW, path, line, said)
        return
    name, texts = cells[columns.path], [cells[i] for i in columns.box]
    raw = raw_images.setdefault(name, RawImage(name, path, line=line))
    if not any(texts):
        return
    # Where another sign is the delimiter, a comma in a number is its decimal point.
    values = [number_in(text.replace(",", ".")) for text in texts]
    numbers = [value for value in values if value is not None]
    if len(numbers) < 4:
        problems.add(ProblemKind.BAD_ROW, path, line, f"got the box {', '.join(texts)[:80]!r}; expected four numbers")
        return
    raw.boxes.append(_box(columns, numbers, cells, line))


def _box(columns: Columns, numbers: list[float], cells: list[str], line: int) -> RawBox:
    x, y, right, bottom = numbers
    corners = (x, y, right, bottom) if columns.is_corners else (x, y, added(x, right), added(y, bottom))
    ignore = _cell(cells, columns.ignore).lower() in ("1", "true", "yes")
    label = _cell(cells, columns.label) or ("" if ignore and columns.label is not None else ONLY_CLASS)
    return RawBox(corners, label, ignore, line)


def _cell(cells: list[str], column: int | None) -> str:
    return cells[column] if column is not None and column < len(cells) else ""


def write_csv(annotations: Annotations, path: Path, progress: Progress = lambda _: None) -> list[Problem]:
    """Write a table with a row of names; images are named relative to its folder. Says all that there is to say."""
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(HEADER)
    for image in each_of(annotations.images, progress):
        name = name_from(image.path, path.parent)
        if not len(image):
            table.writerow([name, *[""] * (len(HEADER) - 1)])
        boxes = zip(image.boxes.tolist(), image.labels, image.ignore.tolist(), strict=True)
        for (x1, y1, x2, y2), label, ignore in boxes:
            numbers = map(text_of, (x1, y1, added(x2, -x1), added(y2, -y1)))
            table.writerow([name, *numbers, label, int(ignore)])
    write_atomically(path, text.getvalue().encode(errors="surrogateescape"))
    return []


INFO_NAMES = ("info.dat", "info.txt", "info.lst", "positives.dat", "positives.txt", "pos.txt", "annotations.txt")
BACKGROUND_NAMES = ("bg.txt", "bg.dat", "negatives.txt", "neg.txt")


def read_opencv(path: Path, images: Path | None = None, progress: Progress = lambda _: None) -> Annotations:
    """Read info.dat, and bg.txt where one lies beside it; or the folder of both.

    Names may have spaces, which OpenCV's own tools do not read. There are no classes: all is of the class "object".
    """
    info, backgrounds = files_of(path)
    problems = Problems()
    raw_images: dict[str, RawImage] = {}
    for line, text in lines_of(info, problems) if info else ():
        if text.startswith("#"):
            continue
        _add_info_row(raw_images, text, line, info or path, problems)
    for line, text in lines_of(backgrounds, problems) if backgrounds else ():
        if not text.startswith("#"):
            raw_images.setdefault(text, RawImage(text, backgrounds or path, line=line))
    folder = path if path.is_dir() else path.parent
    return assembled(
        list(raw_images.values()), (ONLY_CLASS,), ImageFinder(folder, images), problems, "opencv", progress
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
    """The image's name and x, y, width, height of each object; None for what is no such row.

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


def _add_info_row(raw_images: dict[str, RawImage], text: str, line: int, file: Path, problems: Problems) -> None:
    row = parse_row(text)
    if row is None:
        problems.add(
            ProblemKind.BAD_ROW,
            file,
            line,
            f"got {text[:80]!r}; expected: image count, and x y width height for each",
        )
        return
    name, objects = row
    raw = raw_images.setdefault(name, RawImage(name, file, line=line))
    raw.boxes += [
        RawBox((x, y, added(x, width), added(y, height)), ONLY_CLASS, line=line) for x, y, width, height in objects
    ]


def looks_like_info(text: str) -> bool:
    """Whether a line is a row of info.dat: it names an image, so that a YOLO label is none."""
    row = parse_row(text)
    return row is not None and is_image_name(Path(row[0]))


def write_opencv(annotations: Annotations, path: Path, progress: Progress = lambda _: None) -> list[Problem]:
    """Write info.dat and bg.txt into a folder, or a file of another name with bg.txt beside it.

    The format has whole pixels, no classes and no regions to be ignored: corners move by up to half a pixel, such
    regions are left out and told, and several classes are an error.
    """
    if len({label for image in annotations.images for label in image.labels if label}) > 1:
        listed = annotations.listed_classes()
        raise AnnotationError(f"info.dat has no names for classes: choose one (--class NAME) of {listed}")
    info = path if path.suffix else path / "info.dat"
    info.parent.mkdir(parents=True, exist_ok=True)
    problems = Problems()
    rows, backgrounds = [], []
    for image in each_of(annotations.images, progress):
        name = name_from(image.path, info.parent)
        if len(image.objects):
            rows.append(" ".join([name, str(len(image.objects)), *map(_rounded, image.objects.tolist())]))
        elif not len(image):
            backgrounds.append(name)
        _tell(image, name, info, problems)
    for file, lines in ((info, rows), (info.parent / "bg.txt", backgrounds)):
        write_atomically(file, "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape"))
    return list(problems.all())


def _rounded(box: list[float]) -> str:
    x1, y1, x2, y2 = map(round, box)
    return f"{x1} {y1} {max(x2 - x1, 1)} {max(y2 - y1, 1)}"


def _tell(image: AnnotatedImage, name: str, info: Path, problems: Problems) -> None:
    if len(image.ignored):
        gone = "and the image with it" if not len(image.objects) else "and what it shows counts as background"
        problems.add(
            ProblemKind.DROPPED_BOX,
            info,
            None,
            f"{name}: {len(image.ignored)} regions to be ignored left out, {gone}: the format has no word for them",
        )
    if any(character.isspace() for character in name):
        problems.add(ProblemKind.NOTE, info, None, f"{name!r} has a space: whet reads it, OpenCV's tools do not")
    if (image.objects != image.objects.round()).any():
        problems.add(ProblemKind.NOTE, info, None, f"{name}: boxes rounded to whole pixels")


def read_crops(path: Path, images: Path | None = None, progress: Progress = lambda _: None) -> Annotations:
    """Read a folder: the box is the whole image, the class the first folder below, or "object" without one."""
    folder = images or path
    whole = (0.0, 0.0, 1.0, 1.0)
    raws = []
    for image in images_in(folder):
        parts = image.relative_to(folder).parts
        label = parts[0] if len(parts) > 1 else ONLY_CLASS
        raws.append(RawImage(image, image, [RawBox(whole, label, is_relative=True)]))
    return assembled(raws, (), ImageFinder(folder), Problems(), "crops", progress)


def write_crops(annotations: Annotations, path: Path, progress: Progress = lambda _: None) -> list[Problem]:
    """Cut each object out of its image, upright, to whole pixels, as PNG files in a folder for each class.

    Where in which image an object was is lost; regions to be ignored and images without objects are left out.
    """
    problems = Problems()
    stems = unique_stems([image.path for image in annotations.images])
    for image, stem in zip(each_of(annotations.images, progress), stems, strict=True):
        if len(image.ignored):
            problems.add(ProblemKind.DROPPED_BOX, image.path, None, f"{len(image.ignored)} regions to be ignored")
        if not len(image.objects):
            problems.add(ProblemKind.NOTE, image.path, None, "has no object to cut out")
            continue
        try:
            _cut(image, path, stem)
        except UnreadableImageError as error:
            problems.add(ProblemKind.UNREADABLE_IMAGE, image.path, None, str(error))
    return list(problems.all())


def _cut(image: AnnotatedImage, folder: Path, stem: str) -> None:
    from PIL import Image, ImageOps

    try:
        with Image.open(image.path) as opened:
            upright = ImageOps.exif_transpose(opened)
            upright.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, NotImplementedError) as error:
        raise UnreadableImageError(f"{image.path} cannot be read as an image: {error}") from error
    if upright.mode not in ("L", "LA", "RGB", "RGBA", "I;16"):
        upright = upright.convert("RGB")
    boxes = zip(image.boxes, image.labels, image.ignore.tolist(), strict=True)
    for number, (box, label, ignore) in enumerate(boxes, start=1):
        if ignore:
            continue
        x1, y1, x2, y2 = np.rint(box).astype(int).tolist()
        x1, y1 = min(x1, upright.width - 1), min(y1, upright.height - 1)
        target = folder / as_file_name(label or ONLY_CLASS)
        target.mkdir(parents=True, exist_ok=True)
        cut = upright.crop((x1, y1, max(x2, x1 + 1), max(y2, y1 + 1)))
        cut.info.clear()
        data = BytesIO()
        cut.save(data, "PNG")
        write_atomically(target / f"{stem}-{number}.png", data.getvalue(), durable=False)
