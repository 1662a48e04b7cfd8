import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import whet

ROOT = Path(__file__).parent.parent
MARKDOWN = sorted(path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md"))
PUBLIC = [name for name in dir(whet) if not name.startswith("_")]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example_and_a_place_in_the_docs(name):
    if name == "RiverClassifier":
        pytest.importorskip("river")
    assert ">>>" in (inspect.getdoc(getattr(whet, name)) or "")
    assert name in (ROOT / "docs" / "api.md").read_text()


DETECT = """
import json, sys
import numpy as np, whet
whet.load("face").detect(np.arange(4096, dtype=np.uint8).reshape(64, 64))
print(json.dumps(sorted(sys.modules)))
"""


def test_detection_loads_few_modules_and_none_of_training():
    """A process that detects imports what detection needs, and no room above it.

    58 modules of whet on the model contract, 40 before it: a number to lower.
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", DETECT], env=environment, capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = json.loads(done.stdout)
    own = [name for name in loaded if name.split(".")[0] == "whet"]
    assert len(own) <= 60
    above = ("training", "evaluation", "tracking", "estimators", "opencv", "plots", "web", "demo", "cli")
    assert [name for name in own if name.startswith(tuple(f"whet.{room}" for room in above))] == []
    assert {"matplotlib", "pandas", "rich", "sklearn", "typer", "fastapi", "dask"}.isdisjoint(loaded)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        whet.Nothing  # noqa: B018


def test_the_command_table_of_the_api_page_is_complete():
    from whet.cli.main import COMMANDS

    page = (ROOT / "docs" / "api.md").read_text()
    assert sorted(re.findall(r"^\| `whet ([\w-]+)`", page, re.MULTILINE)) == sorted(COMMANDS)


def long_lines(text, limit=100):
    """Numbers of the lines of a Markdown page that are too long, without tables and blocks of code."""
    found, in_code = [], False
    for number, line in enumerate(text.splitlines(), start=1):
        in_code ^= line.lstrip().startswith("```")
        is_name = line.startswith("  `") and " " not in line.strip()  # a test, which cannot be wrapped
        if len(line) > limit and not in_code and not line.startswith("|") and not is_name:
            found.append(number)
    return found


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", *(str(path) for path in MARKDOWN)])
def test_lines_of_markdown_are_wrapped_at_100_characters(page):
    assert long_lines((ROOT / page).read_text(encoding="utf-8")) == []


def test_a_long_line_is_found_outside_of_tables_and_code():
    long = "a " * 60
    assert long_lines(f"{long}\n| {long}|\n```text\n{long}\n```\nshort\n- {long}") == [1, 7]


PACKAGES = ("detector", "estimators", "evaluation", "io", "opencv", "plots", "tracking", "training")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_of_a_package_is_documented_and_can_be_imported(package):
    module, page = importlib.import_module(f"whet.{package}"), (ROOT / "docs" / "api.md").read_text()
    for name in module.__all__:
        assert getattr(module, name) is not None
        assert name.isupper() or f"whet.{package}.{name}" in page or f"whet.{name}" in page, name


def test_pages_for_users_import_at_most_one_level_below_whet():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("guides/*.md"), *(ROOT / "docs").glob("concepts/*.md")]
    pages += [ROOT / "docs" / "api.md", ROOT / "docs" / "get-started.md"]
    deep = re.compile(r"(?:from|import|auto\w+::) whet\.(?!estimators\.baselines)[a-z_]+\.[a-z_]+(?: import|\.\w)")
    assert [f"{page.name}: {text}" for page in pages for text in deep.findall(page.read_text(encoding="utf-8"))] == []


@pytest.mark.slow
def test_every_benchmark_and_script_can_be_imported():
    for path in sorted([*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "scripts").glob("*.py")]):
        importlib.import_module(f"{path.parent.name}.{path.stem}")


def test_every_benchmark_names_the_decision_that_it_supports():
    """The first line of a benchmark that can be run is the title of a decision."""
    decisions = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
    titles = set(re.findall(r"^- \*\*(.+?)\.?\*\*", decisions, re.MULTILINE | re.DOTALL))
    for path in sorted((ROOT / "benchmarks").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "def main(" in text:
            named = re.match(r'"""Decision "(.+?)"[.:]', text)
            assert named, f"{path.name} names no decision"
            assert named[1] in titles, f"{path.name}: docs/decisions.md has no {named[1]!r}"


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", *(str(path) for path in MARKDOWN)])
def test_modules_that_a_page_runs_exist(page):
    """Commands `python -m NAME` of this repository; a benchmark that is deleted leaves no reference."""
    modules = re.findall(
        r"python -m\s+((?:benchmarks|scripts|tests|experiments)[\w.]*)", (ROOT / page).read_text("utf-8")
    )
    paths = [ROOT / name.rstrip(".").replace(".", "/") for name in modules]
    assert [path.name for path in paths if not path.with_suffix(".py").exists() and not path.is_dir()] == []


def test_files_that_decisions_name_exist():
    page = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+(?:\.py|/))`", page) + re.findall(r"\b(tests/[\w/]+(?:\.py)?)", page)
    assert [name for name in named if not (ROOT / name).exists() and not (ROOT / "src/whet" / name).exists()] == []
    stored = re.findall(r"`([\w-]+\.json)`", page)
    assert [name for name in stored if not (ROOT / "docs" / "results" / name).exists()] == []
