"""Read and write annotations in any supported format, and detect the format.

To add a format, write a module with a reader and a writer (`coco.py` is a short example), and enter it in `FORMATS` and
in `FORMAT_NAMES`. docs/architecture.md has the steps.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path

from whet.errors import AnnotationError, DataNotFoundError
from whet.io.annotations import csv_opencv_crops as lists
from whet.io.annotations.annotation import Annotations, Problem, Problems
from whet.io.annotations.assembly import Progress, lines_of, number_in, read_bytes
from whet.io.annotations.coco import parse, read_coco, write_coco
from whet.io.annotations.csv_opencv_crops import read_crops, read_csv, read_opencv, write_crops, write_csv, write_opencv
from whet.io.annotations.voc_yolo import is_yolo, read_voc, read_yolo, write_voc, write_yolo, xml_files
from whet.io.files import as_path, check_local, is_url, write_atomically
from whet.io.image_files import files_in, is_image_name

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
    files = []
    for here, folders, names in os.walk(folder):
        links = [name for name in folders if Path(here, name).is_symlink()]
        files += [Path(here, name).relative_to(folder).as_posix() for name in (*names, *links)]
    return sorted(files)


def _listed(folder: Path) -> set[str]:
    try:
        return {LIST, *map(str, json.loads((folder / LIST).read_bytes()))}
    except (OSError, ValueError, TypeError):
        return set()


Reader = Callable[[Path, Path | None, Progress], Annotations]
Writer = Callable[[Annotations, Path, Progress], list[Problem]]


@dataclass(frozen=True)
class Format:
    """What is known of an annotation format; suffixes and names are in lower case.

    A format of one file has a `file_name`. With `is_directory`, the writer fills a directory, and the reader takes
    every file in it; with `has_main_file`, a file with the suffix stands for the directory. `beside` are names of a
    second file next to the first; the writer takes the first of them. `fits` recognises the beginning of a file whose
    suffix is of no format, and `is_in` a directory (default: a file in it has the suffix and fits).
    """

    read: Reader
    write: Writer
    suffixes: tuple[str, ...] = ()
    file_name: str = ""
    is_directory: bool = False
    has_main_file: bool = False
    beside: tuple[str, ...] = ()
    fits: Callable[[Path], bool] = lambda _: False
    is_in: Callable[[Path], bool] | None = None
    keeps_ignored: bool = False

    def directory(self, target: Path) -> Path | None:
        """The directory that the writer fills, or None."""
        is_main_file = self.has_main_file and target.suffix in self.suffixes
        return None if not self.is_directory else target.parent if is_main_file else target


def _is_coco(file: Path) -> bool:
    return file.suffix.lower() == ".json" and bool(parse(file))


def _has_voc(folder: Path) -> bool:
    return any(_fits(file, lambda f: b"<annotation" in read_bytes(f)[:4096]) for file in xml_files(folder)[:1])


def _is_info(file: Path) -> bool:
    first = next(lines_of(file, Problems()), (0, ""))[1]
    return lists.looks_like_info(first) or is_image_name(Path(first))


def _is_table(file: Path) -> bool:
    first_row = next(lists.rows_of(file, Problems()), (0, [""]))[1]
    numbers = [number_in(cell) for cell in first_row[1:5]]
    return lists.columns_of(first_row, file) is not None or (len(first_row) > 4 and None not in numbers)


def _has_only_images(folder: Path) -> bool:
    others = {file.suffix.lower() for file in folder.iterdir() if file.is_file()} & set(BY_SUFFIX)
    return not others and not xml_files(folder) and any(map(is_image_name, files_in(folder)))


FORMATS = {
    "coco": Format(read_coco, write_coco, (".json",), "annotations.json", fits=_is_coco, keeps_ignored=True),
    "yolo": Format(read_yolo, write_yolo, (".yaml", ".yml"), is_directory=True, has_main_file=True, is_in=is_yolo),
    "voc": Format(read_voc, write_voc, (".xml",), is_directory=True, is_in=_has_voc, keeps_ignored=True),
    "opencv": Format(
        read_opencv,
        write_opencv,
        (".dat",),
        beside=lists.BACKGROUND_NAMES,
        fits=_is_info,
        is_in=lambda folder: any(lists.files_of(folder)),
    ),
    "csv": Format(read_csv, write_csv, (".csv", ".tsv"), "annotations.csv", fits=_is_table, keeps_ignored=True),
    "crops": Format(read_crops, write_crops, is_directory=True, is_in=_has_only_images),
}
BY_SUFFIX = {suffix: name for name, known in FORMATS.items() for suffix in known.suffixes}


def read_annotations(
    path: str | PathLike[str],
    format: str | None = None,
    images: str | PathLike[str] | None = None,
    progress: Progress = lambda _: None,
) -> Annotations:
    """Read annotations from a file or a directory.

    `path` may be the URL of a file, and `images` the URL of a directory, such as s3://bucket/images: the images are
    then read from there. URLs in a file are followed only below that one. `format` is a name of `FORMATS`, such as
    "coco" (default: detect automatically). Images are searched in the directory `images`, next to the annotations, and
    by their base names. `progress` is called with the fraction done. Invalid rows, invalid boxes and missing images are
    skipped and listed in `problems` of the result, with file and line. Raises `AnnotationError` if the file is invalid
    or its format is ambiguous, and `DataNotFoundError` if the path does not exist or none of the images is found.

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
    if format is not None and format not in FORMATS:
        raise AnnotationError(f"unknown format {format!r}; expected one of {', '.join(FORMATS)}")
    if is_url(source):
        one_file = [name for name, known in FORMATS.items() if known.file_name]
        if (format or BY_SUFFIX.get(source.suffix.lower())) not in one_file:
            raise AnnotationError(  # each file of the other formats would be a request
                f"{source} is not the URL of a file in the format {' or '.join(one_file)}; download other annotations, "
                "and give the URL of their images (images=URL, --images URL)"
            )
    elif not source.exists():
        raise DataNotFoundError(f"no such file or directory: {source}")
    elif source.is_dir() and not any(source.iterdir()):
        raise DataNotFoundError(f"the directory {source} is empty; expected annotations or images")
    folder = None if images is None else as_path(images)
    if folder is not None and not folder.is_dir():
        raise DataNotFoundError(f"directory of images does not exist: {folder}")
    name = format or detect_format(source)
    return FORMATS[name].read(_main_file(source, name), folder, progress)


def _main_file(source: Path, name: str) -> Path:
    """Find the annotation file in a directory, for formats of one file; other formats take the directory."""
    known, is_folder = FORMATS[name], not is_url(source) and source.is_dir()
    if known.is_directory and not known.suffixes and not is_folder:
        raise AnnotationError(f"{source} is a file; the format {name} needs a directory")
    if not known.file_name or not is_folder:
        return source
    files = sorted(file for file in source.iterdir() if file.suffix.lower() in known.suffixes)
    good = [file for file in files if _fits(file, known.fits)] if len(files) > 1 else files
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
    formats = _of_folder(source) if not is_url(source) and source.is_dir() else _of_file(source)
    if len(formats) == 1:
        return formats[0]
    if not formats:
        raise AnnotationError(
            f"{source} has no annotations in a known format ({', '.join(FORMATS)}) and no images; set the format "
            "(format=, --format or --from)"
        )
    raise AnnotationError(f"{source} could be {' or '.join(formats)}; set the format (format=, --format or --from)")


def _of_folder(folder: Path) -> list[str]:
    found = [name for name, known in FORMATS.items() if (known.is_in or partial(_has_file, known))(folder)]
    return [name for name in found if name != "crops"] or found


def _has_file(known: Format, folder: Path) -> bool:
    return any(_fits(file, known.fits) for suffix in known.suffixes for file in folder.glob(f"*{suffix}"))


def _of_file(file: Path) -> list[str]:
    by_suffix = BY_SUFFIX.get(file.suffix.lower())
    by_name = [name for name, known in FORMATS.items() if name == by_suffix or file.name.lower() in known.beside]
    return by_name or [name for name, known in FORMATS.items() if _fits(file, known.fits)]


def _fits(file: Path, fits: Callable[[Path], bool]) -> bool:
    try:
        return fits(file)
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
    """Write annotations to a file or a directory, as the format needs.

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
    write, folder = FORMATS[name].write, FORMATS[name].directory(target)
    if folder is None:
        return write(annotations, target, progress)
    place = folder.resolve()
    inside = next((image.path for image in annotations.images if image.path.resolve().is_relative_to(place)), None)
    if inside is not None:
        raise AnnotationError(
            f"the image {inside} is inside the output directory {folder}; choose another output directory"
        )
    with filled(folder, replace=replace):
        return write(annotations, target, progress)


def place_to_write(path: str | PathLike[str], format: str | None = None, *, replace: bool = False) -> tuple[str, Path]:
    """Return the format and the file or directory to write; raises `AnnotationError` if it cannot be written."""
    target = Path(path)
    check_local(target)
    name = format or BY_SUFFIX.get(target.suffix.lower())
    if name is None or name not in FORMATS:
        what = f"unknown format {name!r}" if name else f"the name {target} has no suffix of a known format"
        raise AnnotationError(f"{what}; set the format (format=, --to): {', '.join(FORMATS)}")
    known = FORMATS[name]
    if known.file_name and (target.is_dir() or not target.suffix):
        target = target / known.file_name
    if known.is_directory and not known.has_main_file and target.suffix in BY_SUFFIX:
        raise AnnotationError(f"{target} has the suffix of a file; the format {name} needs a directory")
    folder = known.directory(target)
    if folder is not None:
        if folder.is_file():
            raise AnnotationError(f"{folder} is a file; the format {name} needs a directory")
        check_free(folder, replace=replace)
        return name, target
    files = [target, *map(target.with_name, known.beside[:1])] if target.suffix else [target]
    there = next((file for file in files if file.is_file() or (file.is_dir() and any(file.iterdir()))), None)
    if not replace and there is not None:
        raise AnnotationError(
            f"{there} already exists; use --force (replace=True) to overwrite it, or choose another path"
        )
    return name, target
