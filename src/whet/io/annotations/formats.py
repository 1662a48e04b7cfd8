"""Read and write annotations in any supported format, and detect the format."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from whet.errors import AnnotationError, DataNotFoundError
from whet.io.annotations.annotation import Annotations, Problem, Problems
from whet.io.annotations.assembly import Progress, lines_of, number_in, read_bytes
from whet.io.annotations.coco import parse, read_coco, write_coco
from whet.io.annotations.per_image import (
    has_labels,
    parse_yaml,
    read_voc,
    read_yolo,
    write_voc,
    write_yolo,
    xml_files,
    yaml_file,
)
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
from whet.io.files import as_path, check_local, is_url, write_atomically
from whet.io.images import files_in, is_image_name

LIST = ".whet-files"


def check_free(folder: Path, *, replace: bool) -> None:
    """Raise `AnnotationError` unless a directory is empty, or `replace` is set and it holds only files of whet.

    >>> check_free(Path("nowhere"), replace=False)
    """
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not replace:
        raise AnnotationError(
            f"{folder} already exists; use --force (replace=True) to overwrite it, or choose another path"
        )
    listed = _listed(folder)
    other = next((name for name in _names_in(folder) if name not in listed), None)
    if other is not None:
        raise AnnotationError(
            f"{folder} holds {other}, which whet did not write; nothing was overwritten. Move the file away, or choose "
            "another path"
        )


@contextmanager
def filled(folder: Path, *, replace: bool) -> Iterator[None]:
    """Empty a directory of whet, and list the files that are written to it, also after an error."""
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
    """List all files under a directory, with slashes; links to directories are listed, but not followed."""
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
FILE_FORMATS = ("coco", "csv")  # one file; the others are directories
FOLDER_FORMATS = ("yolo", "voc", "crops")  # they own their directory: readers take every file in it
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
    """Read annotations from a file or a directory.

    `path` may be the URL of a file, and `images` the URL of a directory, such as s3://bucket/images: the images are
    then read from there. URLs in a file are followed only below that one. `format` is "coco", "yolo", "voc", "opencv",
    "csv" or "crops" (default: detect automatically). Images are searched in the directory `images`, next to the
    annotations, and by their base names. `progress` is called with the fraction done. Invalid rows, invalid boxes and
    missing images are skipped and listed in `problems` of the result, with file and line. Raises `AnnotationError` if
    the file is invalid or its format is ambiguous, and `DataNotFoundError` if the path does not exist or none of the
    images is found.

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
    source = as_path(path)
    if format is not None and format not in READERS:
        raise AnnotationError(f"unknown format {format!r}; expected one of {', '.join(FORMATS)}")
    if is_url(source):
        _check_one_file(source, format)
    elif not source.exists():
        raise DataNotFoundError(f"no such file or directory: {source}")
    elif source.is_dir() and not any(source.iterdir()):
        raise DataNotFoundError(f"the directory {source} is empty; expected annotations or images")
    folder = None if images is None else as_path(images)
    if folder is not None and not folder.is_dir():
        raise DataNotFoundError(f"directory of images does not exist: {folder}")
    name = format or detect_format(source)
    return READERS[name](_main_file(source, name), folder, progress)


def _check_one_file(url: Path, format: str | None) -> None:
    """Raise `AnnotationError` for the URL of annotations in several files: each of them would be a request."""
    if (format or BY_SUFFIX.get(url.suffix.lower())) not in FILE_FORMATS:
        raise AnnotationError(
            f"{url} is not the URL of a CSV or COCO file (.csv, .json); download other annotations, and give the URL "
            "of their images (images=URL, --images URL)"
        )


def _main_file(source: Path, name: str) -> Path:
    """Find the annotation file in a directory, for formats of one file; other formats take the directory."""
    if is_url(source):
        return source
    if not source.is_dir():
        if name == "crops":
            raise AnnotationError(f"{source} is a file; crops are a directory of images")
        return source
    if name not in FILE_FORMATS:
        return source
    suffixes = [suffix for suffix, each in BY_SUFFIX.items() if each == name]
    files = sorted(file for file in source.iterdir() if file.suffix.lower() in suffixes)
    good = [file for file in files if _fits(file, name)] if len(files) > 1 else files
    if len(good) != 1:
        there = ", ".join(file.name for file in good[:10]) or "none"
        raise AnnotationError(
            f"{source} has {len(good)} files in the format {name}; expected one. Give the path of the file: {there}"
        )
    return good[0]


def detect_format(path: str | PathLike[str]) -> str:
    """Detect the annotation format of a file or a directory.

    Raises `AnnotationError` if no format matches, or several do; the message lists them.

    >>> detect_format("instances.json"), detect_format("data.yaml")
    ('coco', 'yolo')
    """
    source = as_path(path)
    found = list(_of_folder(source) if not is_url(source) and source.is_dir() else _of_file(source))
    if len(found) == 1:
        return found[0]
    if not found:
        raise AnnotationError(
            f"{source} has no annotations in a known format ({', '.join(FORMATS)}) and no images; set the format "
            "(format=, --format or --from)"
        )
    raise AnnotationError(f"{source} could be {' or '.join(found)}; set the format (format=, --format or --from)")


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
    """Return whether the beginning of a file matches a format."""
    try:
        if name == "coco":
            return file.suffix.lower() == ".json" and bool(parse(file))
        if name == "yolo":
            return "names" in parse_yaml(file)
        if name == "voc":
            return b"<annotation" in read_bytes(file)[:4096]
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
    """Write annotations to a file (coco, csv) or a directory (other formats).

    Returns the problems: annotations that the format cannot represent. `format` defaults to that of the file suffix.
    Existing files are an error unless `replace` is set. A directory is replaced only if whet wrote all files in it.
    `progress` is called with the fraction done.

    >>> import tempfile
    >>> import numpy as np
    >>> from whet.io.annotations.annotation import AnnotatedImage
    >>> folder = Path(tempfile.mkdtemp())
    >>> box = np.array([[10.0, 20.0, 110.0, 60.0]])
    >>> image = AnnotatedImage(folder / "street.png", (100, 200), box, ("car",), np.array([False]))
    >>> write_annotations(Annotations((image,), ("car",)), folder / "boxes.csv")
    []
    >>> print((folder / "boxes.csv").read_text(), end="")
    path,x,y,w,h,label,ignore
    street.png,10,20,100,40,car,0
    """
    name, target = place_to_write(path, format, replace=replace)
    if not annotations.images:
        raise AnnotationError("got annotations without images; expected at least one image")
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = _folder_of(name, target)
    if folder is None:
        return WRITERS[name](annotations, target, progress)
    place = folder.resolve()
    inside = next((each.path for each in annotations.images if each.path.resolve().is_relative_to(place)), None)
    if inside is not None:
        raise AnnotationError(
            f"the image {inside} is inside the output directory {folder}; choose another output directory"
        )
    with filled(folder, replace=replace):
        return WRITERS[name](annotations, target, progress)


def place_to_write(path: str | PathLike[str], format: str | None = None, *, replace: bool = False) -> tuple[str, Path]:
    """Return the format and the file or directory to write; raises `AnnotationError` if it cannot be written."""
    target = Path(path)
    check_local(target)
    name = format or BY_SUFFIX.get(target.suffix.lower())
    if name not in WRITERS:
        what = f"unknown format {name!r}" if name else f"the name {target} has no suffix of a known format"
        raise AnnotationError(f"{what}; set the format (format=, --to): {', '.join(FORMATS)}")
    if name in FILE_FORMATS and (target.is_dir() or not target.suffix):
        target = target / ("annotations.json" if name == "coco" else "annotations.csv")
    if name in ("voc", "crops") and target.suffix in BY_SUFFIX:
        raise AnnotationError(f"{target} has the suffix of a file; the format {name} needs a directory")
    folder = _folder_of(name, target)
    if folder is not None and folder.is_file():
        raise AnnotationError(f"{folder} is a file; the format {name} needs a directory")
    if folder is not None:
        check_free(folder, replace=replace)
        return name, target
    files = [target, target.with_name("bg.txt")] if name == "opencv" and target.suffix else [target]
    there = next((file for file in files if file.is_file() or (file.is_dir() and any(file.iterdir()))), None)
    if not replace and there is not None:
        raise AnnotationError(
            f"{there} already exists; use --force (replace=True) to overwrite it, or choose another path"
        )
    return name, target


def _folder_of(name: str, target: Path) -> Path | None:
    """Return the directory that a format owns, or None."""
    if name == "yolo" and target.suffix in (".yaml", ".yml"):
        return target.parent
    return target if name in FOLDER_FORMATS else None
