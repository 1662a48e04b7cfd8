"""Pascal VOC: one XML file per image.

Coordinates count pixels from 1 and include the last pixel: a box that covers 100 pixels has xmin=1 and xmax=100
(Everingham and Winn, The PASCAL VOC2012 Development Kit, section on annotation; Detectron2 and supervision agree).
As a half-open interval from 0 this is (xmin - 1, xmax).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PureWindowsPath
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from whet.errors import AnnotationError
from whet.io.annotations.annotation import AnnotatedImage, Annotations, Problem, ProblemKind, Problems
from whet.io.annotations.assembly import (
    ImageFinder,
    Progress,
    RawBox,
    RawImage,
    assemble,
    decimal_sum,
    number_in,
    relative_name,
    shortest_text,
    with_progress,
)
from whet.io.files import unique_stems, write_atomically
from whet.io.xml import parse_bounded, read_bounded

SIDES = ("xmin", "ymin", "xmax", "ymax")


def read_voc(path: Path, images: Path | None = None, progress: Progress = lambda _: None) -> Annotations:
    """Read a VOC file or a directory of VOC files. `difficult` objects are ignored."""
    problems = Problems()
    files = [path] if path.is_file() else xml_files(path)
    folder = files[0].parent if files else path
    finder = ImageFinder(folder, images or (path if path.is_dir() and path != folder else None))
    raws = []
    for number, file in enumerate(files):
        raw = _read_file(file, finder, problems)
        raws += [] if raw is None else [raw]
        progress((number + 1) / len(files) / 2)
    return assemble(raws, (), finder, problems, "voc", lambda share: progress((1 + share) / 2))


def xml_files(folder: Path) -> list[Path]:
    """List the XML files of a directory, or of its subdirectory Annotations."""
    return sorted(folder.glob("*.xml")) or sorted(folder.glob("Annotations/*.xml"))


def _read_file(file: Path, finder: ImageFinder, problems: Problems) -> RawImage | None:
    try:
        root = parse_bounded(read_bounded(file, AnnotationError), str(file), AnnotationError)
    except (AnnotationError, OSError) as error:
        problems.add(ProblemKind.BAD_ROW, file, None, str(error))
        return None
    if root.tag != "annotation":
        problems.add(ProblemKind.BAD_ROW, file, None, f"expected <annotation>, got <{root.tag}>")
        return None
    raw = RawImage(_image_name(root, file, finder), file, stated_shape=_stated_shape(root))
    for number, thing in enumerate(root.iterfind("object"), start=1):
        box = _box(thing)
        if isinstance(box, str):
            problems.add(ProblemKind.BAD_ROW, file, None, f"object {number}: {box}")
        else:
            raw.boxes.append(box)
    return raw


def _image_name(root: Element, file: Path, finder: ImageFinder) -> str | Path:
    """Find the image by <path> or <filename>, or by the name of the XML file."""
    path, name = (root.findtext(tag, "").strip() for tag in ("path", "filename"))
    names = [path, name, *(f"{file.stem}{suffix}" for suffix in (".jpg", ".png", ".jpeg")), f"{name}.jpg"]
    found = next((image for each in names if each and (image := finder.find(each)) is not None), None)
    return found or name or PureWindowsPath(path).name or f"{file.stem}.jpg"


def _stated_shape(root: Element) -> tuple[int, int] | None:
    height, width = (number_in(root.findtext(f"size/{side}", "")) for side in ("height", "width"))
    return None if height is None or width is None else (int(height), int(width))


def _box(thing: Element) -> RawBox | str:
    label = thing.findtext("name", "").strip()
    sides = [number_in(thing.findtext(f"bndbox/{side}", "")) for side in SIDES]
    numbers = [side for side in sides if side is not None]
    if len(numbers) < 4:
        values = [thing.findtext(f"bndbox/{side}", "nothing")[:30] for side in SIDES]
        return f"<bndbox> has {', '.join(values)}; expected numbers for {', '.join(SIDES)}"
    ignore = thing.findtext("difficult", "0").strip().lower() in ("1", "true")
    if not label and not ignore:
        return "<name> is empty; expected a class"
    xmin, ymin, xmax, ymax = numbers
    return RawBox((decimal_sum(xmin, -1.0), decimal_sum(ymin, -1.0), xmax, ymax), label, ignore)


def write_voc(annotations: Annotations, path: Path, progress: Progress = lambda _: None) -> list[Problem]:
    """Write one file per image into a directory. Coordinates may have decimals."""
    path.mkdir(parents=True, exist_ok=True)
    stems = unique_stems([image.path for image in annotations.images])
    problems = Problems()
    for image, stem in zip(with_progress(annotations.images, progress), stems, strict=True):
        root = _element(image, path)
        indent(root, "\t")
        text = tostring(root, encoding="unicode") + "\n"
        if not _is_text(text):
            problems.add(
                ProblemKind.NOTE, image.path, None, "the file name is not UTF-8 and cannot be represented in XML"
            )
        write_atomically(path / f"{stem}.xml", text.encode(errors="backslashreplace"), durable=False)
    return list(problems.all())


def _is_text(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _element(image: AnnotatedImage, folder: Path) -> Element:
    root = Element("annotation")
    _texts(root, {"folder": image.path.parent.name, "filename": image.path.name})
    _texts(root, {"path": relative_name(image.path, folder)})
    _texts(SubElement(root, "source"), {"database": "whet"})
    _texts(SubElement(root, "size"), {"width": image.shape[1], "height": image.shape[0], "depth": 3})
    _texts(root, {"segmented": 0})
    boxes = zip(image.boxes.tolist(), image.labels, image.ignore.tolist(), strict=True)
    for (x1, y1, x2, y2), label, ignore in boxes:
        thing = SubElement(root, "object")
        _texts(thing, {"name": label, "pose": "Unspecified", "truncated": 0, "difficult": int(ignore)})
        sides = (decimal_sum(x1, 1.0), decimal_sum(y1, 1.0), x2, y2)
        _texts(SubElement(thing, "bndbox"), dict(zip(SIDES, map(shortest_text, sides), strict=True)))
    return root


def _texts(parent: Element, texts: Mapping[str, object]) -> None:
    for tag, text in texts.items():
        SubElement(parent, tag).text = str(text)
