"""Pinned requirements: `python -m scripts.requirements locked|lowest`.

`locked` prints what is installed here of all that development needs, with exact versions: `requirements.lock`, which
`make setup` installs. `lowest` prints the lowest versions that `pyproject.toml` allows, for `make lowest`.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAME = re.compile(r"^([A-Za-z0-9._-]+)(?:\[([^\]]*)\])?")
USED = ("plots", "video", "studio")  # extras that are part of the product; the others are adapters to it
LOWEST = re.compile(r">=\s*([0-9][0-9.]*)")


def declared(*extras: str) -> Iterator[str]:
    """The requirements of the package and of some of its extras, those of extras in extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    yield from project["dependencies"]
    for extra in extras:
        for requirement in project["optional-dependencies"][extra]:
            found = NAME.match(requirement)
            if found and found[1] == project["name"]:
                yield from declared(*found[2].split(","))
            else:
                yield requirement


def normal(name: str) -> str:
    """A name as package indexes compare them.

    >>> normal("Opencv_Contrib.Python")
    'opencv-contrib-python'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def locked() -> Iterator[str]:
    """Everything that development needs, directly or not, as it is installed here."""
    waiting, seen = [name for one in declared("dev", "docs") if (name := _name(one))], set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError:  # for another system or another Python
            continue
        waiting += [inner for one in found.requires or () if "extra ==" not in one and (inner := _name(one))]
        yield f"{name}=={found.version}"


def lowest() -> Iterator[str]:
    """The lowest version of each direct requirement of the package and of the extras that users install."""
    for requirement in declared(*USED):
        found = LOWEST.search(requirement)
        if found:
            yield f"{_name(requirement)}=={found[1]}"


def _name(requirement: str) -> str:
    found = NAME.match(requirement)
    return normal(found[1]) if found else ""


if __name__ == "__main__":
    kinds = {"locked": locked, "lowest": lowest}
    if len(sys.argv) != 2 or sys.argv[1] not in kinds:
        sys.exit(f"got {sys.argv[1:]}; expected one of: {', '.join(kinds)}")
    print("\n".join(sorted(set(kinds[sys.argv[1]]()))))
