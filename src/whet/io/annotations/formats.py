"""One door to all annotation formats: detection of the format, reading and writing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from whet.errors import AnnotationError, DataNotFoundError
from whet.io.annotations.annotation import Annotations, Problem, Problems
from whet.io.annotations.assembly import Progress
from whet.io.annotations.coco import parse, read_coco, write_coco
from whet.io.annotations.tables import (
    BACKGROUND_NAMES,
    columns_of,
    files_of,
    looks_like_info,
    read_crops,
    read_csv,
    read_opencv,
    rows_of,
    write_crops,
    write_csv,
    write_opencv,
)
from whet.io.annotations.voc import read_voc, write_voc, xml_files
from whet.io.annotations.yolo import has_labels, parse_yaml, read_yolo, write_yolo, yaml_file
from whet.io.files import lines_of, write_atomically
from whet.io.images import files_in, is_image_name
from whet.io.xml import number_in

LIST = ".whet-files"


def check_free(folder: Path, *, replace: bool) -> None:
    """Raise `AnnotationError` unless a folder is empty, or may be replaced and holds only what whet wrote.

    >>> check_free(Path("nowhere"), replace=False)
    """
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not replace:
        raise AnnotationError(f"{folder} is there already: choose another place, or replace it (replace=True, --force)")
    listed = _listed(folder)
    other = next((name for name in _names_in(folder) if name not in listed), None)
    if other is not None:
        raise AnnotationError(
            f"{folder} holds {other}, which whet did not write: nothing was replaced; "
            "take it out, or choose another place"
        )


@contextmanager
def filled(folder: Path, *, replace: bool) -> Iterator[None]:
    """A folder to write to, from which files of an earlier time are gone; what is written is listed, if all or not."""
    check_free(folder, replace=replace)
    _empty(folder)
    try:
        yield
    finally:
        if folder.is_dir():
            names = [name for name in _names_in(folder) if name != LIST]
            write_atomically(folder / LIST, json.dumps(names, indent=0).encode())


def _empty(folder: Path) -> None:
    for name in _names_in(folder):
        (folder / name).unlink()
        for above in Path(name).parents[:-1]:
            if any((folder / above).iterdir()):
                break
            (folder / above).rmdir()


def _names_in(folder: Path) -> list[str]:
    """All files below, with slashes; a link to a folder is one of them, and is not followed."""
    found = []
    for here, folders, names in os.walk(folder):
        links = [name for name in folders if Path(here, name).is_symlink()]
        found += [Path(here, name).relative_to(folder).as_posix() for name in (*names, *links)]
    return sorted(found)


def _listed(folder: Path) -> set[str]:
    try:
        return {LIST, *map(str, json.loads((folder / LIST).read_bytes()))}
    except (OSError, ValueError, TypeError):
        return set()


Reader = Callable[[Path, Path | None, Progress], Annotations]
Writer = Callable[[Annotations, Path, Progress], list[Problem]]

READERS: dict[str, Reader] = {
    "coco": read_coco,
    "yolo": read_yolo,
    "voc": read_voc,
    "opencv": read_opencv,
    "csv": read_csv,
    "crops": read_crops,
}
WRITERS: dict[str, Writer] = {
    "coco": write_coco,
    "yolo": write_yolo,
    "voc": write_voc,
    "opencv": write_opencv,
    "csv": write_csv,
    "crops": write_crops,
}
FORMATS = tuple(READERS)
FILE_FORMATS = ("coco", "csv")  # written to a file; the others to a folder
FOLDER_FORMATS = ("yolo", "voc", "crops")  # which is theirs alone: every file in it is read
BY_SUFFIX = {
    ".json": "coco",
    ".yaml": "yolo",
    ".yml": "yolo",
    ".xml": "voc",
    ".csv": "csv",
    ".tsv": "csv",
    ".dat": "opencv",
}


def read_annotations(
    path: str | PathLike[str],
    format: str | None = None,
    images: str | PathLike[str] | None = None,
    progress: Progress = lambda _: None,
) -> Annotations:
    """Read annotations from a file or a folder, in a format that is found out or named.

    `format` is one of coco, yolo, voc, opencv, csv and crops. Images are looked for beside the annotations, in the
    folder `images` and by their base names. What cannot be used is left out and told in `problems`, with file and
    line. Raises `AnnotationError` where nothing can be made of the file, or where it could be several formats, and
    `DataNotFoundError` where there is nothing at the path, or none of the images.

    >>> import tempfile
    >>> from PIL import Image
    >>> folder = Path(tempfile.mkdtemp())
    >>> Image.new("L", (200, 100)).save(folder / "street.png")
    >>> _ = (folder / "boxes.csv").write_text("street.png,10,20,100,40,car\\nstreet.png,0,0,0,7,car\\n")
    >>> cars = read_annotations(folder / "boxes.csv")
    >>> cars
    Annotations(1 image, 1 box: car 1; 1 box dropped)
    >>> cars.problems[0].line, cars.images[0].boxes
    (2, array([[ 10.,  20., 110.,  60.]]))
    """
    source = Path(path)
    if format is not None and format not in READERS:
        raise AnnotationError(f"there is no format {format!r}; there are: {', '.join(FORMATS)}")
    if not source.exists():
        raise DataNotFoundError(f"there is no file or folder {source}")
    if source.is_dir() and not any(source.iterdir()):
        raise DataNotFoundError(f"the folder {source} is empty; expected annotations or images in it")
    folder = None if images is None else Path(images)
    if folder is not None and not folder.is_dir():
        raise DataNotFoundError(f"there is no folder of images {folder}")
    name = format or detect_format(source)
    return READERS[name](_entry(source, name), folder, progress)


def _entry(source: Path, name: str) -> Path:
    """The file to begin with, for formats of one file; the folder itself for others."""
    if not source.is_dir():
        if name == "crops":
            raise AnnotationError(f"{source} is a file; crops are a folder of images")
        return source
    if name not in FILE_FORMATS:
        return source
    suffixes = [suffix for suffix, each in BY_SUFFIX.items() if each == name]
    files = sorted(file for file in source.iterdir() if file.suffix.lower() in suffixes)
    good = [file for file in files if _fits(file, name)] if len(files) > 1 else files
    if len(good) != 1:
        there = ", ".join(file.name for file in good[:10]) or "none"
        raise AnnotationError(f"{source} has {len(good)} files in the format {name}; name one of them: {there}")
    return good[0]


def detect_format(path: str | PathLike[str]) -> str:
    """The format of a file or a folder.

    Raises `AnnotationError` that names all formats which it could be, where these are several or none.
    """
    source = Path(path)
    found = list(_of_folder(source) if source.is_dir() else _of_file(source))
    if len(found) == 1:
        return found[0]
    if not found:
        raise AnnotationError(
            f"{source} is in none of the formats that whet knows ({', '.join(FORMATS)}), or has no image"
        )
    raise AnnotationError(f"{source} could be {' or '.join(found)}: say which (format=, --from)")


def _of_folder(folder: Path) -> Iterable[str]:
    suffixes = {file.suffix.lower() for file in folder.iterdir() if file.is_file()}
    if ".json" in suffixes and any(_fits(file, "coco") for file in folder.glob("*.json")):
        yield "coco"
    if yaml_file(folder) is not None or has_labels(folder):
        yield "yolo"
    if any(_fits(file, "voc") for file in xml_files(folder)[:1]):
        yield "voc"
    if any(files_of(folder)):
        yield "opencv"
    if any(_fits(file, "csv") for suffix in ("csv", "tsv") for file in folder.glob(f"*.{suffix}")):
        yield "csv"
    others = suffixes & set(BY_SUFFIX)
    if not any(files_of(folder)) and not others and not has_labels(folder) and not xml_files(folder):
        yield from (["crops"] if any(map(is_image_name, files_in(folder))) else [])


def _of_file(file: Path) -> Iterable[str]:
    by_suffix = BY_SUFFIX.get(file.suffix.lower())
    if by_suffix is not None:
        return [by_suffix]
    if file.name.lower() in BACKGROUND_NAMES:
        return ["opencv"]
    return [name for name in ("opencv", "csv") if _fits(file, name)]


def _fits(file: Path, name: str) -> bool:
    """Whether the beginning of a file is in a format."""
    try:
        if name == "coco":
            return file.suffix.lower() == ".json" and bool(parse(file))
        if name == "yolo":
            return "names" in parse_yaml(file)
        if name == "voc":
            return b"<annotation" in file.read_bytes()[:4096]
        if name == "opencv":
            first = next(lines_of(file, Problems()), (0, ""))[1]
            return looks_like_info(first) or is_image_name(Path(first))
        first_row = next(rows_of(file, Problems()), (0, [""]))[1]
        numbers = [number_in(cell) for cell in first_row[1:5]]
        return columns_of(first_row, file) is not None or (len(first_row) > 4 and None not in numbers)
    except (AnnotationError, OSError):
        return False


def write_annotations(
    annotations: Annotations,
    path: str | PathLike[str],
    format: str | None = None,
    *,
    replace: bool = False,
    progress: Progress = lambda _: None,
) -> list[Problem]:
    """Write annotations to a file (coco, csv) or a folder (the others); returns what the format could not say.

    Without a `format`, the suffix of the path decides. What is there already stays, unless `replace` is set. Of a
    folder, that replaces what whet has written there; where it holds anything else, it stays, and that is an error.

    >>> write_annotations(Annotations((), ()), "boxes.doc")
    Traceback (most recent call last):
    whet.errors.AnnotationError: boxes.doc does not tell its format; name one (format=, --to): coco, yolo, voc, ...
    """
    name, target = place_to_write(path, format, replace=replace)
    if not annotations.images:
        raise AnnotationError("there are no images to write annotations of")
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = _folder_of(name, target)
    if folder is None:
        return WRITERS[name](annotations, target, progress)
    place = folder.resolve()
    inside = next((each.path for each in annotations.images if each.path.resolve().is_relative_to(place)), None)
    if inside is not None:
        raise AnnotationError(f"the image {inside} is in {folder}, which is to be filled: choose another place")
    with filled(folder, replace=replace):
        return WRITERS[name](annotations, target, progress)


def place_to_write(path: str | PathLike[str], format: str | None = None, *, replace: bool = False) -> tuple[str, Path]:
    """The format that is written to a path, and the file or folder; an `AnnotationError` where that cannot be."""
    target = Path(path)
    name = format or BY_SUFFIX.get(target.suffix.lower())
    if name not in WRITERS:
        said = f"there is no format {name!r}" if name else f"{target} does not tell its format"
        raise AnnotationError(f"{said}; name one (format=, --to): {', '.join(FORMATS)}")
    if name in FILE_FORMATS and (target.is_dir() or not target.suffix):
        target = target / ("annotations.json" if name == "coco" else "annotations.csv")
    if name in ("voc", "crops") and target.suffix in BY_SUFFIX:
        raise AnnotationError(f"{target} is the name of a file; {name} is written to a folder")
    folder = _folder_of(name, target)
    if folder is not None and folder.is_file():
        raise AnnotationError(f"{folder} is a file; {name} is written to a folder: choose another place")
    if folder is not None:
        check_free(folder, replace=replace)
        return name, target
    files = [target, target.with_name("bg.txt")] if name == "opencv" and target.suffix else [target]
    there = next((file for file in files if file.is_file() or (file.is_dir() and any(file.iterdir()))), None)
    if not replace and there is not None:
        raise AnnotationError(f"{there} is there already: choose another place, or replace it (replace=True, --force)")
    return name, target


def _folder_of(name: str, target: Path) -> Path | None:
    """The folder that a format fills, of which nothing else should be part."""
    if name == "yolo" and target.suffix in (".yaml", ".yml"):
        return target.parent
    return target if name in FOLDER_FORMATS else None
