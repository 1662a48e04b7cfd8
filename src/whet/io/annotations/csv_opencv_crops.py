"""Lists of boxes: CSV, OpenCV's info.dat and bg.txt, and directories of crops."""

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
from whet.io.annotations.annotation import (
    ONLY_CLASS,
    AnnotatedImage,
    Annotations,
    Problem,
    ProblemKind,
    Problems,
    counted,
)
from whet.io.annotations.assembly import (
    ImageFinder,
    Progress,
    RawBox,
    RawImage,
    assemble,
    decimal_sum,
    lines_of,
    number_in,
    relative_name,
    shortest_text,
    with_progress,
)
from whet.io.files import as_file_name, unique_stems, write_atomically
from whet.io.image_files import images_in, is_image_name, read_upright

HEADER = ("path", "x", "y", "w", "h", "label", "ignore")
# Names that other tools use for these columns.
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
    """Indices of the columns; `box` has four: two corners, or a corner and a size."""

    path: int
    box: tuple[int, int, int, int]
    is_corners: bool = False
    label: int | None = None
    ignore: int | None = None


def read_csv(path: Path, images: Path | None = None, progress: Progress = lambda _: None) -> Annotations:
    """Read a table; a row that has only a path is an image without objects.

    With a header, columns may have any order, and x1, y1, x2, y2 may replace x, y, w, h. Without a header the columns
    are path, x, y, w, h, label, ignore; the last two are optional.
    """
    problems = Problems()
    raw_images: dict[str, RawImage] = {}
    columns: Columns | None = None
    for line, cells in rows_of(path, problems):
        if columns is None:
            columns = columns_of(cells, path)
            if columns is not None:
                continue
            columns = Columns(0, (1, 2, 3, 4), False, 5 if len(cells) > 5 else None, 6 if len(cells) > 6 else None)
        needed = max(columns.path, *columns.box) + 1
        if cells and len(cells) < needed and not any(cells[1:]) and columns.path == 0:
            cells = cells + [""] * (needed - len(cells))
        if len(cells) < needed or not cells[columns.path]:
            got = f"got {counted(len(cells), 'columns')}; expected at least {needed}"
            problems.skip_row(path, line, got if len(cells) < needed else "the path is empty")
            continue
        name, texts = cells[columns.path], [cells[i] for i in columns.box]
        raw = raw_images.setdefault(name, RawImage(name, path, line=line))
        if not any(texts):
            continue
        # If the comma is not the delimiter, it is a decimal point.
        values = [number_in(text.replace(",", ".")) for text in texts]
        numbers = [value for value in values if value is not None]
        if len(numbers) < 4:
            problems.skip_row(path, line, f"got the box {', '.join(texts)[:80]!r}; expected four numbers")
            continue
        x, y, right, bottom = numbers
        if not columns.is_corners:
            right, bottom = decimal_sum(x, right), decimal_sum(y, bottom)
        ignore = _cell(cells, columns.ignore).lower() in ("1", "true", "yes")
        label = _cell(cells, columns.label) or ("" if ignore and columns.label is not None else ONLY_CLASS)
        raw.boxes.append(RawBox((x, y, right, bottom), label, ignore, line))
    if not raw_images and not problems.found:
        raise AnnotationError(
            f"{path} has {'no rows' if columns is None else 'only a header'}; expected rows such as "
            "street.png,10,20,100,40,car (path, x, y, w, h, label)"
        )
    finder = ImageFinder(path.parent, images)
    return assemble(list(raw_images.values()), (), finder, problems, "csv", progress, source=path)


def rows_of(path: Path, problems: Problems) -> Iterator[tuple[int, list[str]]]:
    """Iterate over line number and cells; the delimiter is the most frequent one in the first row."""
    delimiter = ""
    for line, text in lines_of(path, problems):
        delimiter = delimiter or max(",;\t|", key=text.count)
        try:
            cells = next(csv.reader([text], delimiter=delimiter, skipinitialspace=True))
        except (csv.Error, StopIteration) as error:
            problems.skip_row(path, line, f"not a CSV row: {error}")
            continue
        yield line, [cell.strip() for cell in cells]


def columns_of(cells: list[str], path: Path) -> Columns | None:
    """Parse a header; None if the row holds values."""
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


def _cell(cells: list[str], column: int | None) -> str:
    return cells[column] if column is not None and column < len(cells) else ""


def write_csv(annotations: Annotations, path: Path, progress: Progress = lambda _: None) -> list[Problem]:
    """Write a table with a header and image paths relative to its directory. It represents all annotations."""
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(HEADER)
    for image in with_progress(annotations.images, progress):
        name = relative_name(image.path, path.parent)
        if not len(image):
            table.writerow([name, *[""] * (len(HEADER) - 1)])
        for (x1, y1, x2, y2), label, ignore in image.rows():
            numbers = map(shortest_text, (x1, y1, decimal_sum(x2, -x1), decimal_sum(y2, -y1)))
            table.writerow([name, *numbers, label, int(ignore)])
    write_atomically(path, text.getvalue().encode(errors="surrogateescape"))
    return []


INFO_NAMES = ("info.dat", "info.txt", "info.lst", "positives.dat", "positives.txt", "pos.txt", "annotations.txt")
BACKGROUND_NAMES = ("bg.txt", "bg.dat", "negatives.txt", "neg.txt")


def read_opencv(path: Path, images: Path | None = None, progress: Progress = lambda _: None) -> Annotations:
    """Read info.dat and, if it exists, bg.txt in the same directory; `path` is one of them or their directory.

    Names may contain spaces, which OpenCV's own tools do not support. All objects have the class "object".
    """
    info, backgrounds = files_of(path)
    problems = Problems()
    raw_images: dict[str, RawImage] = {}
    for line, text in lines_of(info, problems) if info else ():
        if text.startswith("#"):
            continue
        file, row = info or path, parse_row(text)
        if row is None:
            what = f"got {text[:80]!r}; expected: image, count, and x y width height of each object"
            problems.skip_row(file, line, what)
            continue
        raw = raw_images.setdefault(row[0], RawImage(row[0], file, line=line))
        for x, y, width, height in row[1]:
            corners = x, y, decimal_sum(x, width), decimal_sum(y, height)
            raw.boxes.append(RawBox(corners, ONLY_CLASS, line=line))
    for line, text in lines_of(backgrounds, problems) if backgrounds else ():
        if not text.startswith("#"):
            raw_images.setdefault(text, RawImage(text, backgrounds or path, line=line))
    finder = ImageFinder(path if path.is_dir() else path.parent, images)
    every = list(raw_images.values())
    return assemble(every, (ONLY_CLASS,), finder, problems, "opencv", progress, source=path)


def files_of(path: Path) -> tuple[Path | None, Path | None]:
    """Find the info file and the background file: in a directory, or next to the given file."""
    if path.is_file():
        if path.name.lower() in BACKGROUND_NAMES:
            return None, path
        return path, _first(path.parent, BACKGROUND_NAMES)
    info, others = _first(path, INFO_NAMES), sorted(path.glob("*.dat"))
    return info or (others[0] if len(others) == 1 else None), _first(path, BACKGROUND_NAMES)


def _first(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def parse_row(text: str) -> tuple[str, list[tuple[float, ...]]] | None:
    """Parse a row of info.dat: image name, and x, y, width, height of each object; None if it is not such a row.

    >>> parse_row("my car.png 1 10 20 100 40")
    ('my car.png', [(10.0, 20.0, 100.0, 40.0)])
    """
    words = list(re.finditer(r"\S+", text))
    values = [number_in(word.group()) for word in words]
    # The count is the first number that matches the count of numbers after it; the name may contain spaces and numbers.
    last_word = max((at for at, value in enumerate(values) if value is None), default=0)
    for at in range(max(1, last_word), len(words)):
        word, behind = words[at], len(words) - at - 1
        if re.fullmatch("[0-9]{1,6}", word.group()) and behind == 4 * int(word.group()):
            numbers = [value for value in values[at + 1 :] if value is not None]
            return text[: word.start()].strip(), [tuple(numbers[i : i + 4]) for i in range(0, behind, 4)]
    return None


def looks_like_info(text: str) -> bool:
    """Return whether a line is a row of info.dat; it must name an image, so that YOLO labels do not match."""
    row = parse_row(text)
    return row is not None and is_image_name(Path(row[0]))


def write_opencv(annotations: Annotations, path: Path, progress: Progress = lambda _: None) -> list[Problem]:
    """Write info.dat and bg.txt into a directory, or the file `path` and bg.txt next to it.

    The format has integer pixels, no classes and no ignored regions: corners move by up to half a pixel, ignored
    regions are dropped and reported, and several classes raise `AnnotationError`.
    """
    if len({label for image in annotations.images for label in image.labels if label}) > 1:
        listed = annotations.listed_classes()
        raise AnnotationError(f"info.dat has no classes; choose one (--class NAME): {listed}")
    info = path if path.suffix else path / "info.dat"
    info.parent.mkdir(parents=True, exist_ok=True)
    problems = Problems()
    rows, backgrounds = [], []
    for image in with_progress(annotations.images, progress):
        name = relative_name(image.path, info.parent)
        if len(image.objects):
            rows.append(" ".join([name, str(len(image.objects)), *map(_rounded, image.objects.tolist())]))
        elif not len(image):
            backgrounds.append(name)
        _report_losses(image, name, info, problems)
    for file, lines in ((info, rows), (info.parent / "bg.txt", backgrounds)):
        write_atomically(file, "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape"))
    return list(problems.all())


def _rounded(box: list[float]) -> str:
    x1, y1, x2, y2 = map(round, box)
    return f"{x1} {y1} {max(x2 - x1, 1)} {max(y2 - y1, 1)}"


def _report_losses(image: AnnotatedImage, name: str, info: Path, problems: Problems) -> None:
    if len(image.ignored):
        result = "and their area counts as background" if len(image.objects) else "and the image, too"
        what = f"{name}: {len(image.ignored)} ignored regions dropped, {result}: info.dat has no ignored regions"
        problems.add(ProblemKind.DROPPED_BOX, info, None, what)
    if any(character.isspace() for character in name):
        problems.note(info, f"{name!r} contains a space: OpenCV's tools cannot read it")
    if (image.objects != image.objects.round()).any():
        problems.note(info, f"{name}: boxes rounded to integer pixels")


def read_crops(path: Path, images: Path | None = None, progress: Progress = lambda _: None) -> Annotations:
    """Read a directory of crops: the box is the whole image, the class is the first subdirectory or "object"."""
    folder = images or path
    whole = (0.0, 0.0, 1.0, 1.0)
    raws = []
    for image in images_in(folder):
        parts = image.relative_to(folder).parts
        label = parts[0] if len(parts) > 1 else ONLY_CLASS
        raws.append(RawImage(image, image, [RawBox(whole, label, is_relative=True)]))
    return assemble(raws, (), ImageFinder(folder), Problems(), "crops", progress, source=folder)


def write_crops(annotations: Annotations, path: Path, progress: Progress = lambda _: None) -> list[Problem]:
    """Crop each object, at integer pixels, into a PNG file in one directory per class.

    The format does not represent positions, ignored regions and images without objects.
    """
    problems = Problems()
    stems = unique_stems([image.path for image in annotations.images])
    for image, stem in zip(with_progress(annotations.images, progress), stems, strict=True):
        if len(image.ignored):
            problems.add(ProblemKind.DROPPED_BOX, image.path, None, f"{len(image.ignored)} ignored regions dropped")
        if not len(image.objects):
            problems.note(image.path, "has no object to crop")
            continue
        try:
            _crop(image, path, stem)
        except UnreadableImageError as error:
            problems.add(ProblemKind.UNREADABLE_IMAGE, image.path, None, str(error))
    return list(problems.all())


def _crop(image: AnnotatedImage, folder: Path, stem: str) -> None:
    upright = read_upright(image.path)
    if upright.mode not in ("L", "LA", "RGB", "RGBA", "I;16"):
        upright = upright.convert("RGB")
    for number, (box, label, ignore) in enumerate(image.rows(), start=1):
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
