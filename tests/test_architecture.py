"""docs/architecture.md names files and functions that exist, and functions in the files where they are."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "whet"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

CODE = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w/]+(?:\.py|/)")
# `name`, `Class.method` or `module.function`, also with arguments.
NAME = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(.*\))?")
# "`name` (`file.py`)", "`file.py`: `name`" and "`name` of `file.py`", lists of names included.
NAMES = r"`[\w.]+`(?:(?:,| and|, and| or)\s+`[\w.]+`)*"
PLACED = (
    re.compile(rf"(?P<names>{NAMES})\s+(?:\(|of\s+|in\s+)`(?P<file>[\w/]+\.py)`"),
    re.compile(rf"`(?P<file>[\w/]+\.py)`: (?P<names>{NAMES})"),
)


def file_of(name):
    """The file or directory that the page means: below the package, below the project, or by its name alone."""
    for folder in (SOURCE, ROOT):
        if (folder / name).exists():
            return folder / name
    found = list(SOURCE.rglob(name)) if "/" not in name.rstrip("/") else []
    return found[0] if found else None


@cache
def definitions(path):
    """Names that a file defines, with classes before their members, and every name that it assigns or takes."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()

    def visit(node, above):
        for child in ast.iter_child_nodes(node):
            name = getattr(child, "name", None) if isinstance(child, ast.FunctionDef | ast.ClassDef) else None
            if name is not None:
                found.update({name, f"{above}{name}"})
                visit(child, f"{name}." if isinstance(child, ast.ClassDef) else above)
                continue
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                found.update({child.id, f"{above}{child.id}"})
            elif isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store):
                found.update({child.attr, f"{above}{child.attr}"})
            elif isinstance(child, ast.arg):
                found.add(child.arg)
            visit(child, above)

    visit(tree, "")
    return frozenset(found)


@cache
def all_definitions():
    return frozenset().union(*(definitions(path) for path in SOURCE.rglob("*.py")))


def is_defined(name):
    """Whether the package has such a name; of `module.function`, the module has it."""
    if name in all_definitions():
        return True
    first, _, rest = name.rpartition(".")
    modules = [first.replace(".", "/") + ".py", f"{first.rpartition('.')[2]}.py"]
    files = [path for module in modules if (path := file_of(module)) is not None]
    if first == "whet":
        return rest in all_definitions()
    return any(rest in definitions(path) for path in files)


def missing(page):
    """What a page names and the project does not have."""
    page = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    for text in dict.fromkeys(CODE.findall(page)):
        if FILE.fullmatch(text):
            if file_of(text) is None:
                yield f"{text}: no such file"
        elif (match := NAME.fullmatch(text)) and not is_defined(match[1]):
            yield f"{text}: no such name in src/whet"
    for pattern in PLACED:
        for match in pattern.finditer(page):
            path = file_of(match["file"])
            for name in CODE.findall(match["names"]):
                name = name.removeprefix("whet.")
                if path is not None and not FILE.fullmatch(name) and name not in definitions(path):
                    yield f"{name}: not in {match['file']}"


def test_the_page_names_what_exists():
    assert list(missing(PAGE)) == []


def test_the_page_places_functions_in_their_files():
    assert sum(len(pattern.findall(PAGE)) for pattern in PLACED) >= 20


def test_every_command_of_the_page_exists():
    modules = re.findall(r"python -m ([\w.]+)", PAGE)
    assert modules
    assert [name for name in modules if not (ROOT / f"{name.replace('.', '/')}.py").exists()] == []


@pytest.mark.parametrize(
    "text",
    [
        "`detector/nothing.py`",
        "`detect_nothing`",
        "`Detector.detect_nothing`",
        "`grouping.detect_nothing`",
        "`report` (`models/gslda/cascade_scan.py`)",
        "`models/gslda/cascade_scan.py`: `report`",
        "`scan_pyramid` and `report` of `models/gslda/cascade_scan.py`",
    ],
)
def test_a_name_that_is_gone_is_found(text):
    assert len(list(missing(text))) == 1
