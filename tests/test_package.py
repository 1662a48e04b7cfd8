import importlib
import inspect
import re
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
