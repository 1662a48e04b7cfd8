"""Where a detector comes from, in words that travel with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

Fact = str | int | float

# A slash, a home or a drive letter that begins a word: a folder of one machine, and often somebody's name.
ABSOLUTE_PATH = re.compile(r"""(?:^|[\s='"(,])(?:/\w|~[\w./\\]|[A-Za-z]:[\\/]|\\\\\w)""")


@dataclass(frozen=True)
class Provenance:
    """What a detector was trained on, under which licence, by which command, and to which goals.

    `facts` are further numbers and words (seeds, seconds, versions). Nothing here changes what the detector does.

    >>> Provenance(data="faces of our own", licence="CC0-1.0", goals={"detection_rate": 0.99}).licence
    'CC0-1.0'
    >>> Provenance(command="whet train /home/ada/faces")
    Traceback (most recent call last):
    ValueError: provenance names a path of one machine: 'whet train /home/ada/faces'; write it relative, or leave it out
    """

    data: str = ""
    licence: str = ""
    command: str = ""
    goals: Mapping[str, Fact] = field(default_factory=dict)
    facts: Mapping[str, Fact] = field(default_factory=dict)

    def __post_init__(self) -> None:
        texts: list[object] = [self.data, self.licence, self.command]
        for table in (self.goals, self.facts):
            texts += [*table, *(fact for fact in table.values() if not _is_number(fact))]
        for text in texts:
            if not isinstance(text, str):
                raise ValueError(f"provenance holds words and finite numbers; got {text!r}")
            if ABSOLUTE_PATH.search(text):
                raise ValueError(
                    f"provenance names a path of one machine: {text!r}; write it relative, or leave it out"
                )


def _is_number(fact: object) -> bool:
    return isinstance(fact, int | float) and not isinstance(fact, bool) and abs(fact) < float("inf")
