"""Names for files of one folder, for pictures that may come from several."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path


def unique_stems(paths: Sequence[Path]) -> list[str]:
    """A name without suffix for each path, its own where that is free; case makes no difference.

    >>> unique_stems([Path("a/1.jpg"), Path("b/1.png"), Path("b/2.png")])
    ['1', '1-2', '2']
    """
    own = {path.stem.casefold() for path in paths}
    taken: set[str] = set()
    stems = []
    for path in paths:
        stem, number = path.stem, 1
        while stem.casefold() in taken or (number > 1 and stem.casefold() in own):
            number += 1
            stem = f"{path.stem}-{number}"
        taken.add(stem.casefold())
        stems.append(stem)
    return stems


def as_file_name(text: str) -> str:
    """A text as the name of a folder, on any system.

    >>> as_file_name("../traffic light/red"), as_file_name("")
    ('_traffic light_red', '_')
    """
    return re.sub(r'[\x00-\x1f/\\:*?"<>|]', "_", text).strip(". ")[:100] or "_"
