"""Tables of boxes: path, x, y, width, height, and where there are any, label and ignore."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from whet.errors import AnnotationError
from whet.io.annotations.annotation import ONLY_CLASS, Annotations
from whet.io.annotations.assembly import Progress, RawBox, RawPicture, assembled, each_of
from whet.io.annotations.exact_decimals import added, number_in, text_of
from whet.io.annotations.picture_files import PictureFinder, name_from
from whet.io.annotations.problem import Problem, ProblemKind, Problems
from whet.io.annotations.text_lines import lines_of
from whet.io.atomic_file import write_atomically

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
    """Read a table; a row with a path alone is a picture without objects.

    A first row of names may put the columns in any order, and say x1, y1, x2, y2 for corners. Without one they are
    path, x, y, w, h, label, ignore, the last two where they are there.
    """
    problems = Problems()
    pictures: dict[str, RawPicture] = {}
    columns: Columns | None = None
    for line, cells in rows_of(path, problems):
        if columns is None:
            columns = columns_of(cells, path)
            if columns is not None:
                continue
            columns = _in_order(len(cells))
        _add_row(pictures, columns, cells, line, path, problems)
    return assembled(list(pictures.values()), (), PictureFinder(path.parent, images), problems, "csv", progress)


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
    pictures: dict[str, RawPicture], columns: Columns, cells: list[str], line: int, path: Path, problems: Problems
) -> None:
    needed = max(columns.path, *columns.box) + 1
    if cells and len(cells) < needed and not any(cells[1:]) and columns.path == 0:
        cells = cells + [""] * (needed - len(cells))
    if len(cells) < needed or not cells[columns.path]:
        said = f"got {len(cells)} columns; expected at least {needed}" if len(cells) < needed else "the path is empty"
        problems.add(ProblemKind.BAD_ROW, path, line, said)
        return
    name, texts = cells[columns.path], [cells[i] for i in columns.box]
    raw = pictures.setdefault(name, RawPicture(name, path, line=line))
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
    """Write a table with a row of names; pictures are named relative to its folder. Says all that there is to say."""
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(HEADER)
    for picture in each_of(annotations.pictures, progress):
        name = name_from(picture.path, path.parent)
        if not len(picture):
            table.writerow([name, *[""] * (len(HEADER) - 1)])
        boxes = zip(picture.boxes.tolist(), picture.labels, picture.ignore.tolist(), strict=True)
        for (x1, y1, x2, y2), label, ignore in boxes:
            numbers = map(text_of, (x1, y1, added(x2, -x1), added(y2, -y1)))
            table.writerow([name, *numbers, label, int(ignore)])
    write_atomically(path, text.getvalue().encode(errors="surrogateescape"))
    return []
