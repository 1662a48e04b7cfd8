"""The ids that a COCO file gives to pictures, found by as much of their paths as it takes."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path

from whet.errors import AnnotationError


def coco_ids(path: Path) -> dict[str, int]:
    """Picture ids by `file_name`, of a COCO annotation file."""
    try:
        images = [(str(image["file_name"]), int(image["id"])) for image in json.loads(path.read_bytes())["images"]]
    except (ValueError, KeyError, TypeError) as error:
        raise AnnotationError(f"{path} is no COCO file with `images` that have `id` and `file_name`") from error
    ids = dict(images)
    for name, number in images:
        if ids[name] != number:
            raise AnnotationError(f"{path} has two ids, {number} and {ids[name]}, for the picture {name}")
    return ids


def ids_of(paths: Iterable[Path], ids: Mapping[str, int]) -> dict[Path, int]:
    """The id of each path: that of the file name whose last parts agree with it the longest.

    Folders differ between machines, so that a base name is enough where only one picture has it. Raises
    `AnnotationError` for a path without an id, with several, or with that of another path.

    >>> ids_of([Path("set/b/1.png"), Path("2.png")], {"a/1.png": 7, "b/1.png": 8, "old/place/2.png": 9})
    {PosixPath('set/b/1.png'): 8, PosixPath('2.png'): 9}
    """
    named: dict[str, list[tuple[list[str], str]]] = defaultdict(list)
    for name in ids:
        parts = _backwards(name.replace("\\", "/"))
        named[parts[0] if parts else ""].append((parts, name))
    found: dict[Path, int] = {}
    owners: dict[int, Path] = {}
    for path in paths:
        number = ids[_best(path, named)]
        other = owners.setdefault(number, path)
        if other != path:
            raise AnnotationError(f"{other} and {path} have one id, {number}, in the COCO file: name them apart there")
        found[path] = number
    return found


def _best(path: Path, named: Mapping[str, list[tuple[list[str], str]]]) -> str:
    parts = _backwards(os.path.abspath(path))
    shared = [(_n_shared(parts, theirs), name) for theirs, name in named.get(path.name, [])]
    most = max(shared, default=(0, ""))[0]
    best = [name for n, name in shared if n == most]
    if not best:
        raise AnnotationError(f"{path} has no id in the COCO file that was given")
    if len(best) > 1:
        raise AnnotationError(f"{path} could be {best[0]} or {best[1]} of the COCO file: give more of its path")
    return best[0]


def _n_shared(ours: list[str], theirs: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False)))


def _backwards(path: str) -> list[str]:
    return list(reversed(Path(path).parts))
