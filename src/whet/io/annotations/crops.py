"""Folders of crops: each picture is one object, and its folder is its class."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np

from whet.errors import UnreadableImageError
from whet.io.annotations.annotation import ONLY_CLASS, AnnotatedPicture, Annotations
from whet.io.annotations.assembly import Progress, RawBox, RawPicture, assembled, each_of
from whet.io.annotations.picture_files import PictureFinder, pictures_in
from whet.io.annotations.problem import Problem, ProblemKind, Problems
from whet.io.annotations.unique_names import as_file_name, unique_stems
from whet.io.atomic_file import write_atomically


def read_crops(path: Path, images: Path | None = None, progress: Progress = lambda _: None) -> Annotations:
    """Read a folder: the box is the whole picture, the class the first folder below, or "object" without one."""
    folder = images or path
    whole = (0.0, 0.0, 1.0, 1.0)
    raws = []
    for picture in pictures_in(folder):
        parts = picture.relative_to(folder).parts
        label = parts[0] if len(parts) > 1 else ONLY_CLASS
        raws.append(RawPicture(picture, picture, [RawBox(whole, label, is_relative=True)]))
    return assembled(raws, (), PictureFinder(folder), Problems(), "crops", progress)


def write_crops(annotations: Annotations, path: Path, progress: Progress = lambda _: None) -> list[Problem]:
    """Cut each object out of its picture, upright, to whole pixels, as PNG files in a folder for each class.

    Where in which picture an object was is lost; regions to be ignored and pictures without objects are left out.
    """
    problems = Problems()
    stems = unique_stems([picture.path for picture in annotations.pictures])
    for picture, stem in zip(each_of(annotations.pictures, progress), stems, strict=True):
        if len(picture.ignored):
            problems.add(ProblemKind.DROPPED_BOX, picture.path, None, f"{len(picture.ignored)} regions to be ignored")
        if not len(picture.objects):
            problems.add(ProblemKind.NOTE, picture.path, None, "has no object to cut out")
            continue
        try:
            _cut(picture, path, stem)
        except UnreadableImageError as error:
            problems.add(ProblemKind.UNREADABLE_PICTURE, picture.path, None, str(error))
    return list(problems.all())


def _cut(picture: AnnotatedPicture, folder: Path, stem: str) -> None:
    from PIL import Image, ImageOps

    try:
        with Image.open(picture.path) as opened:
            upright = ImageOps.exif_transpose(opened)
            upright.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, NotImplementedError) as error:
        raise UnreadableImageError(f"{picture.path} cannot be read as an image: {error}") from error
    if upright.mode not in ("L", "LA", "RGB", "RGBA", "I;16"):
        upright = upright.convert("RGB")
    boxes = zip(picture.boxes, picture.labels, picture.ignore.tolist(), strict=True)
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
