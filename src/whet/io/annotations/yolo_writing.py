"""A data set written as YOLO's folders: images, labels, data.yaml."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from whet.io.annotations.annotation import AnnotatedPicture, Annotations
from whet.io.annotations.assembly import Progress, each_of
from whet.io.annotations.problem import Problem, ProblemKind, Problems
from whet.io.annotations.unique_names import as_file_name, unique_stems
from whet.io.atomic_file import write_atomically


def write_yolo(annotations: Annotations, path: Path, progress: Progress = lambda _: None) -> list[Problem]:
    """Write data.yaml, labels and copies of the pictures into a folder: its readers find one by the place of the other.

    The format has no regions to be ignored: they are left out and told. Numbers are written in full.
    """
    import yaml

    folder = path.parent if path.suffix in (".yaml", ".yml") else path
    file = path if folder != path else folder / "data.yaml"
    problems = Problems()
    numbers = {name: number for number, name in enumerate(annotations.classes)}
    pictures = annotations.pictures
    stems = unique_stems([picture.path for picture in pictures])
    for picture, stem in zip(each_of(pictures, progress), stems, strict=True):
        part = part_of(picture)
        _copy(picture.path, folder / "images" / part / f"{stem}{picture.path.suffix}")
        labels = folder / "labels" / part / f"{stem}.txt"
        labels.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(labels, "".join(_lines(picture, numbers)).encode(), durable=False)
        if len(picture.ignored):
            problems.add(
                ProblemKind.DROPPED_BOX,
                labels,
                None,
                f"{len(picture.ignored)} regions to be ignored left out: the format has no word for them",
            )
    parts = list(dict.fromkeys(map(part_of, pictures)))
    # Trainers want both, and say nothing of use where one is missing.
    train = "train" if "train" in parts else parts[0]
    val = next((part for part in ("val", "test") if part in parts), train)
    table = {part: f"images/{part}" for part in parts} | {"train": f"images/{train}", "val": f"images/{val}"}
    text = yaml.safe_dump(
        {**table, "names": {i: name for name, i in numbers.items()}}, allow_unicode=True, sort_keys=False
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(file, text.encode())
    return list(problems.all())


def part_of(picture: AnnotatedPicture) -> str:
    """The folder of a picture's part of the set."""
    return as_file_name(picture.split) if picture.split else "train"


def _lines(picture: AnnotatedPicture, numbers: dict[str, int]) -> list[str]:
    height, width = picture.shape
    boxes = zip(picture.boxes.tolist(), picture.labels, picture.ignore.tolist(), strict=True)
    return [
        f"{numbers[label]} {(x1 + x2) / 2 / width!r} {(y1 + y2) / 2 / height!r} {(x2 - x1) / width!r} "
        f"{(y2 - y1) / height!r}\n"
        for (x1, y1, x2, y2), label, ignore in boxes
        if not ignore
    ]


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and os.path.samefile(source, target):
        return
    part = target.with_name(f".{target.name}.part")
    try:
        shutil.copyfile(source, part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
