"""Annotation formats with one file per image: Pascal VOC (XML) and YOLO (text, with data.yaml).

VOC counts pixels from 1 and includes the last pixel: a box that covers 100 pixels has xmin=1 and xmax=100 (Everingham
and Winn, The PASCAL VOC2012 Development Kit, section on annotation; Detectron2 and supervision agree). As a half-open
interval from 0 this is (xmin - 1, xmax).

YOLO writes class, centre and size, relative to the image. The labels of `.../images/a.jpg` are in `.../labels/a.txt`,
or in the same directory; an image without a label file has no objects. data.yaml holds the class names and the image
directories or lists of each split (docs.ultralytics.com/datasets/detect).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PureWindowsPath
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from whet.errors import AnnotationError
from whet.io.annotations.annotation import (
    PART_NAMES,
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
    read_bytes,
    relative_name,
    shortest_text,
    with_progress,
)
from whet.io.files import MAX_BYTES, as_file_name, is_url, open_regular, parse_bounded, unique_stems, write_atomically
from whet.io.image_files import files_in, images_in, is_image_name

# --- Pascal VOC ---

SIDES = ("xmin", "ymin", "xmax", "ymax")


def read_voc(path: Path, images: Path | None = None, progress: Progress = lambda _: None) -> Annotations:
    """Read a VOC file, a directory of VOC files, or one with parts such as train and test.

    `difficult` objects are ignored.
    """
    problems, raws = Problems(), []
    files = [path] if path.is_file() else xml_files(path)
    finder = ImageFinder(path if path.is_dir() else path.parent, images)
    finders: dict[Path, ImageFinder] = {}
    for number, file in enumerate(files):
        part = next((name for name in file.relative_to(path).parts[:-1] if name in PART_NAMES), "")
        root, folder = path / part, file.parent
        if folder not in finders:
            finders[folder] = ImageFinder(folder, images or (root if path.is_dir() and root != folder else None))
        raw = _read_file(file, finders[folder], problems)
        if raw is not None:
            raws.append(replace(raw, split=PART_NAMES.get(part, part)))
        progress((number + 1) / len(files) / 2)
    return assemble(raws, (), finder, problems, "voc", lambda share: progress((1 + share) / 2), source=path)


def xml_files(folder: Path) -> list[Path]:
    """List the XML files of a directory, of its subdirectory Annotations, or of its parts, such as train and test."""
    own = sorted(folder.glob("*.xml")) or sorted(folder.glob("Annotations/*.xml"))
    return own or [file for part in PART_NAMES if (folder / part).is_dir() for file in xml_files(folder / part)]


def _read_file(file: Path, finder: ImageFinder, problems: Problems) -> RawImage | None:
    try:
        root = parse_bounded(read_bytes(file, MAX_BYTES), str(file), AnnotationError)
    except (AnnotationError, OSError) as error:
        problems.skip_row(file, None, str(error))
        return None
    if root.tag != "annotation":
        problems.skip_row(file, None, f"expected <annotation>, got <{root.tag}>")
        return None
    height, width = (number_in(root.findtext(f"size/{side}", "")) for side in ("height", "width"))
    stated = None if height is None or width is None else (int(height), int(width))
    raw = RawImage(_image_name(root, file, finder), file, stated_shape=stated)
    for number, thing in enumerate(root.iterfind("object"), start=1):
        box = _box(thing)
        if isinstance(box, str):
            problems.skip_row(file, None, f"object {number}: {box}")
        else:
            raw.boxes.append(box)
    return raw


def _image_name(root: Element, file: Path, finder: ImageFinder) -> str | Path:
    """Find the image by <path> or <filename>, or by the name of the XML file."""
    path, name = (root.findtext(tag, "").strip() for tag in ("path", "filename"))
    if finder.root is not None:  # nothing is searched, and <path> is often that of another machine
        return finder.find(name or path or f"{file.stem}.jpg") or name
    for guess in (path, name, *(f"{file.stem}{suffix}" for suffix in (".jpg", ".png", ".jpeg")), f"{name}.jpg"):
        if guess and (image := finder.find(guess)) is not None:
            return image
    return name or PureWindowsPath(path).name or f"{file.stem}.jpg"


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
        if any("\ud800" <= character <= "\udfff" for character in text):
            problems.note(image.path, "the file name is not UTF-8 and cannot be represented in XML")
        write_atomically(path / f"{stem}.xml", text.encode(errors="backslashreplace"), durable=False)
    return list(problems.all())


def _element(image: AnnotatedImage, folder: Path) -> Element:
    root = Element("annotation")
    _texts(root, {"folder": image.path.parent.name, "filename": image.path.name})
    _texts(root, {"path": relative_name(image.path, folder)})
    _texts(SubElement(root, "source"), {"database": "whet"})
    _texts(SubElement(root, "size"), {"width": image.shape[1], "height": image.shape[0], "depth": 3})
    _texts(root, {"segmented": 0})
    for (x1, y1, x2, y2), label, ignore in image.rows():
        thing = SubElement(root, "object")
        _texts(thing, {"name": label, "pose": "Unspecified", "truncated": 0, "difficult": int(ignore)})
        sides = (decimal_sum(x1, 1.0), decimal_sum(y1, 1.0), x2, y2)
        _texts(SubElement(thing, "bndbox"), dict(zip(SIDES, map(shortest_text, sides), strict=True)))
    return root


def _texts(parent: Element, texts: Mapping[str, object]) -> None:
    for tag, text in texts.items():
        SubElement(parent, tag).text = str(text)


# --- YOLO ---

# Files of class names that other tools write next to the labels.
NAME_FILES = ("classes.txt", "obj.names", "_darknet.labels", "labels.txt")


@dataclass
class Description:
    """Content of data.yaml: class names by number, images by split, and the number of keypoint values."""

    folder: Path
    names: dict[int, str] = field(default_factory=dict)
    parts: dict[str, list[str]] = field(default_factory=dict)
    n_pose_values: int = 0


def read_yolo(path: Path, images: Path | None = None, progress: Progress = lambda _: None) -> Annotations:
    """Read a data set from its data.yaml or its directory. A polygon becomes its bounding box.

    Classes without a name are named by their number. `split` of each image is its part of the data set; an image of
    several parts belongs to train, or else to test.
    """
    problems = Problems()
    data = read_description(path, problems)
    finder = ImageFinder(data.folder, images)
    raws: dict[Path, RawImage] = {}
    used: set[Path] = set()
    parts: dict[str, set[Path]] = {}
    for part, image in _images(data, images, finder, problems):
        label, file = _label_file(image, data.folder), image.resolve()
        parts.setdefault(part, set()).add(file)
        if file not in raws:
            raws[file] = RawImage(image, label or image, split=part)
            if label is not None:
                used.add(label.resolve())
                raws[file].boxes += _boxes(label, data, problems)
    aliases = _aliases(parts, data.folder, problems)
    lost = [RawImage(f"{file.stem}.*", file) for file in _label_files(data.folder) if file.resolve() not in used]
    every = [*raws.values(), *lost]
    annotations = assemble(every, data.names.values(), finder, problems, "yolo", progress, source=path)
    return replace(annotations, aliases=aliases)


def _aliases(parts: Mapping[str, set[Path]], folder: Path, problems: Problems) -> dict[str, str]:
    """Parts with the same images as an earlier one, by name; images that two other parts share are reported."""
    aliases: dict[str, str] = {}
    names = list(parts)
    for i, later in enumerate(names):
        for earlier in names[:i]:
            if parts[later] == parts[earlier]:
                aliases[later] = aliases.get(earlier, earlier)
                break
            shared = len(parts[later] & parts[earlier])
            if shared:
                what = f"{counted(shared, 'images')} of {later} also in {earlier}; counted as {earlier} only"
                problems.note(folder, what)
    return aliases


def read_description(path: Path, problems: Problems) -> Description:
    """Read data.yaml from a path or a directory; without data.yaml, use the files of class names."""
    file = path if path.is_file() else yaml_file(path)
    if file is None:
        return Description(path, _listed_names(path, problems) or _names_above(path, problems))
    table = parse_yaml(file)
    root, shape = table.get("path"), table.get("kpt_shape")
    folder = file.parent / root if isinstance(root, str) and (file.parent / root).is_dir() else file.parent
    n_pose_values = 0
    if isinstance(shape, list) and len(shape) == 2 and all(isinstance(side, int) for side in shape):
        n_pose_values = shape[0] * shape[1]
    return Description(folder, _names(table.get("names"), file), _parts(table), n_pose_values)


def yaml_file(folder: Path) -> Path | None:
    """Find data.yaml in a directory, or the only YAML file with class names."""
    files = sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])
    named = [file for file in files if file.stem in ("data", "dataset")]
    if named:
        return named[0]
    others = [file for file in files if _has_names(file)]
    return others[0] if len(others) == 1 else None


def _has_names(file: Path) -> bool:
    try:
        return "names" in parse_yaml(file)
    except AnnotationError:
        return False


def parse_yaml(file: Path) -> dict[str, Any]:
    """Parse a YAML file; raises `AnnotationError` if it holds no mapping."""
    import yaml

    try:
        table = yaml.safe_load(read_bytes(file, 1_000_000).decode("utf-8-sig"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise AnnotationError(f"{file} is not YAML: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(table, dict):
        raise AnnotationError(f"{file} holds {type(table).__name__}; expected a mapping with names, train and val")
    return {str(key): value for key, value in table.items()}


def _names(names: object, file: Path) -> dict[int, str]:
    if names is None:
        return {}
    table = dict(enumerate(names)) if isinstance(names, list) else names
    # Other types are refused: nested YAML aliases could expand to a text without end.
    if isinstance(table, dict) and all(
        isinstance(key, int | str) and str(key).isdecimal() and isinstance(name, str | int | float)
        for key, name in table.items()
    ):
        return {int(key): str(name) for key, name in sorted(table.items(), key=lambda item: int(item[0]))}
    raise AnnotationError(
        f"{file} has names of type {type(names).__name__}; expected a list of strings, or strings by number"
    )


def _parts(table: dict[str, Any]) -> dict[str, list[str]]:
    parts: dict[str, list[str]] = {}
    for key, part in PART_NAMES.items():
        places = table.get(key)
        listed = places if isinstance(places, list) else [places]
        texts = [text for text in listed if isinstance(text, str) and text]
        parts[part] = parts.get(part, []) + texts
    return {part: texts for part, texts in parts.items() if texts}


def _listed_names(folder: Path, problems: Problems) -> dict[int, str]:
    places = (folder / where / name for name in NAME_FILES for where in ("", "labels"))
    file = next((place for place in places if place.is_file()), None)
    return {} if file is None else dict(enumerate(text for _, text in lines_of(file, problems)))


def _names_above(folder: Path, problems: Problems) -> dict[int, str]:
    """Class names of the data set of which a directory is a part: set/train, set/train/images or set/images/train."""
    here = Path(os.path.abspath(folder))
    usual = {*PART_NAMES, "images"}
    n_levels = 0 if here.name not in usual else 1 + (here.parent.name in usual)
    for above in here.parents[:n_levels]:
        file = yaml_file(above)
        if file is not None and _has_names(file):
            return _names(parse_yaml(file).get("names"), file)
        names = _listed_names(above, problems)
        if names:
            return names
    return {}


def _images(
    data: Description, images: Path | None, finder: ImageFinder, problems: Problems
) -> Iterator[tuple[str, Path]]:
    """Iterate over the split and the path of each image."""
    if images is not None or not data.parts:
        for image in images_in(images or data.folder):
            part = next((name for name in image.relative_to(images or data.folder).parts if name in PART_NAMES), "")
            yield PART_NAMES.get(part, part), image
        return
    for part, places in data.parts.items():
        for name in places:
            place = _place(data.folder, name)
            if place is None:
                problems.add(
                    ProblemKind.MISSING_IMAGE, data.folder, None, f"{part}: no such file or directory: {name!r}"
                )
            elif place.is_dir():
                yield from ((part, image) for image in images_in(place))
            else:
                yield from ((part, image) for image in _listed(place, finder, problems))


def _place(folder: Path, name: str) -> Path | None:
    # Some exports write ../train/images for the directory train/images next to data.yaml.
    name = name.replace("\\", "/")
    for place in (folder / name, folder / name.removeprefix("../")):
        with suppress(OSError, ValueError):  # the name is too long or contains a null byte
            if place.exists():
                # Normalized, so that a file has one name; not behind a link, where `..` leads elsewhere.
                short = Path(os.path.normpath(place))
                return short if short.resolve() == place.resolve() else place
    return None


def _listed(file: Path, finder: ImageFinder, problems: Problems) -> Iterator[Path]:
    beside = ImageFinder(file.parent)
    for line, text in lines_of(file, problems):
        image = beside.find(text) or finder.find(text)
        if image is None:
            problems.add(ProblemKind.MISSING_IMAGE, file, line, finder.not_found(text))
        else:
            yield image
    beside.note_base_names(file, problems)


def _label_file(image: Path, folder: Path) -> Path | None:
    """Find the label file of an image: in the directory labels next to images, beside the image, or in labels/."""
    parts = list(image.parts)
    if is_url(image):  # the labels are here, below labels/ as the image is below some part of its URL
        places = [folder.joinpath("labels", *parts[at:]).with_suffix(".txt") for at in range(1, len(parts))]
        return next((place for place in places if place.is_file()), None)
    places = [image.with_suffix(".txt")]
    for at in range(len(parts) - 2, -1, -1):
        if parts[at] == "images":
            places.insert(0, Path(*parts[:at], "labels", *parts[at + 1 :]).with_suffix(".txt"))
            break
    places += [folder / "labels" / f"{image.stem}.txt"]
    return next((place for place in places if place.is_file()), None)


def _label_files(folder: Path) -> list[Path]:
    labels = folder / "labels"
    if not labels.is_dir():
        return []
    return [file for file in files_in(labels) if file.suffix == ".txt" and file.name not in NAME_FILES]


def is_yolo(folder: Path) -> bool:
    """Return whether a directory has data.yaml, or images with label files where YOLO has them."""
    if yaml_file(folder) is not None or _label_files(folder):
        return True
    return any(is_image_name(file) and _label_file(file, folder) is not None for file in files_in(folder))


def _boxes(file: Path, data: Description, problems: Problems) -> Iterator[RawBox]:
    for line, text in lines_of(file, problems):
        words = text.split()
        values = [number_in(word) for word in words]
        numbers = [value for value in values if value is not None]
        if len(numbers) < len(words) or len(words) < 5 or numbers[0] < 0 or numbers[0] != int(numbers[0]):
            problems.skip_row(file, line, f"got {text[:80]!r}; expected: class x y width height, as numbers")
            continue
        number = int(numbers[0])
        if number not in data.names:
            problems.note(file, f"class {number} has no name; it is named {str(number)!r}", line)
            data.names[number] = str(number)
        yield RawBox(_corners(numbers[1:], data), data.names[number], line=line, is_relative=True)


def _corners(values: list[float], data: Description) -> tuple[float, float, float, float]:
    # Five numbers are a box and a confidence; more are a polygon, unless data.yaml has kpt_shape.
    if len(values) <= 5 or len(values) == 4 + data.n_pose_values:
        x, y, width, height = values[:4]
        return x - width / 2, y - height / 2, x + width / 2, y + height / 2
    values = values[: len(values) // 2 * 2]
    return min(values[::2]), min(values[1::2]), max(values[::2]), max(values[1::2])


def write_yolo(annotations: Annotations, path: Path, progress: Progress = lambda _: None) -> list[Problem]:
    """Write data.yaml, labels and copies of the images: YOLO readers find labels by the path of the image.

    The format has no ignored regions; they are dropped and reported. Numbers are written in full precision.
    """
    import yaml

    folder = path.parent if path.suffix in (".yaml", ".yml") else path
    file = path if folder != path else folder / "data.yaml"
    problems = Problems()
    numbers = {name: number for number, name in enumerate(annotations.classes)}
    images = annotations.images
    stems = unique_stems([image.path for image in images])
    for image, stem in zip(with_progress(images, progress), stems, strict=True):
        part = part_of(image)
        _copy(image.path, folder / "images" / part / f"{stem}{image.path.suffix}")
        labels = folder / "labels" / part / f"{stem}.txt"
        labels.parent.mkdir(parents=True, exist_ok=True)
        height, width = image.shape
        lines = [
            f"{numbers[label]} {(x1 + x2) / 2 / width!r} {(y1 + y2) / 2 / height!r} {(x2 - x1) / width!r} "
            f"{(y2 - y1) / height!r}\n"
            for (x1, y1, x2, y2), label, ignore in image.rows()
            if not ignore
        ]
        write_atomically(labels, "".join(lines).encode(), durable=False)
        if len(image.ignored):
            what = f"{len(image.ignored)} ignored regions dropped: YOLO has no ignored regions"
            problems.add(ProblemKind.DROPPED_BOX, labels, None, what)
    parts = list(dict.fromkeys(map(part_of, images)))
    # YOLO trainers need both, and their message does not name the missing one.
    train = "train" if "train" in parts else parts[0]
    val = next((part for part in ("val", "test") if part in parts), train)
    table = {part: f"images/{part}" for part in parts} | {"train": f"images/{train}", "val": f"images/{val}"}
    text = yaml.safe_dump(
        {**table, "names": {i: name for name, i in numbers.items()}}, allow_unicode=True, sort_keys=False
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(file, text.encode())
    return list(problems.all())


def part_of(image: AnnotatedImage) -> str:
    """Return the directory name for the split of an image."""
    return as_file_name(image.split) if image.split else "train"


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and os.path.samefile(source, target):
        return
    part = target.with_name(f".{target.name}.part")
    try:
        if is_url(source):
            part.write_bytes(open_regular(source).read())
        else:
            shutil.copyfile(source, part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
