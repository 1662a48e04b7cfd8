"""Every sentence of docs/guarantees.md and SECURITY.md names a test that exists, and the pages say nothing else."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
REFERENCE = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
# Sections without promises.
OTHERS = {"Campaigns", "Memory", "Not covered", "What whet does not defend", ""}


def promises(page):
    """The items of the lists of a page by their sections, each in one line."""
    section, found = "", []
    for line in page.splitlines():
        if line.startswith("#"):
            section = line.lstrip("# ").strip()
        elif line.startswith("- "):
            found.append([section, line[2:]])
        elif line.startswith("  ") and found:
            found[-1][1] += " " + line.strip()
    return [text for section, text in found if section not in OTHERS]


def functions_of(path):
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", ["docs/guarantees.md", "SECURITY.md"])
def test_each_sentence_names_a_test_that_exists(page):
    every = promises((ROOT / page).read_text())
    assert len(every) >= 5
    for text in every:
        references = REFERENCE.findall(text)
        assert references, f"no test beside: {text}"
        assert text.rstrip().endswith("`"), f"the test comes last: {text}"
        for path, name in references:
            assert name.startswith("test_"), name
            assert name in functions_of(path), f"{path} has no {name}"


def test_a_sentence_without_a_test_is_found():
    files = "## Files\n\n- One holds.\n  `tests/test_guarantees.py::test_x`\n- Another does.\n\n"
    page = f"# Page\n\n{files}## Not covered\n\n- This.\n"
    assert promises(page) == ["One holds. `tests/test_guarantees.py::test_x`", "Another does."]
