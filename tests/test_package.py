import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import whet

ROOT = Path(__file__).parent.parent
PUBLIC = [name for name in dir(whet) if not name.startswith("_")]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example_and_a_place_in_the_docs(name):
    if name == "RiverClassifier":
        pytest.importorskip("river")
    assert ">>>" in (inspect.getdoc(getattr(whet, name)) or "")
    assert name in (ROOT / "docs" / "api.md").read_text()


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        whet.Nothing  # noqa: B018


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_file_of_the_architecture_page_exists():
    paths = re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", ARCHITECTURE)
    assert len(paths) > 20
    assert [path for path in paths if not ((ROOT / path).exists() or (ROOT / "src/whet" / path).exists())] == []


def test_every_command_of_the_architecture_page_exists():
    modules = re.findall(r"python -m ([\w.]+)", ARCHITECTURE)
    assert "scripts.house" in modules
    assert [name for name in modules if not (ROOT / f"{name.replace('.', '/')}.py").exists()] == []


def test_every_function_of_the_architecture_page_exists():
    defined = set()
    for path in (ROOT / "src" / "whet").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                defined.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                defined.add(node.id)
    # `Class.method`, `function_of_words`, `ClassName` and `CONSTANT`; single words may be anything.
    names = re.findall(r"`((?:[A-Z]\w+\.)?\w+)`", ARCHITECTURE)
    names = {name for name in names if re.search(r"[A-Z_.]", name)} - {"True", "False"}
    assert len(names) > 20
    assert sorted(name for name in names if not set(name.split(".")) <= defined) == []


@pytest.mark.slow
def test_every_benchmark_and_script_can_be_imported():
    for path in sorted([*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "scripts").glob("*.py")]):
        importlib.import_module(f"{path.parent.name}.{path.stem}")
