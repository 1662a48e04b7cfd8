"""The files of the page: nothing inline, nothing from elsewhere, nothing missing."""

import re
from pathlib import Path

import pytest

import whet.web
from whet.corrections.box_windows import SAME_PLACE

STATIC = Path(whet.web.__file__).parent / "static"
DOCS = Path(__file__).parents[2] / "docs"
MODULES = sorted(STATIC.glob("js/**/*.js"))


def test_the_page_has_no_inline_script_and_no_inline_style():
    page = (STATIC / "index.html").read_text()
    assert "<style" not in page
    assert not re.search(r"<script(?![^>]*\bsrc=)", page)
    assert not re.search(r"\s(style|on\w+)=", page)


@pytest.mark.parametrize("path", [STATIC / "index.html", *STATIC.glob("css/*.css"), *MODULES], ids=lambda p: p.name)
def test_nothing_comes_from_another_place(path):
    addresses = re.findall(r"https?://[^\s\"'`)]+", path.read_text())
    assert [address for address in addresses if not address.startswith("http://www.w3.org/")] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.name)
def test_every_import_exists_and_has_the_names(path):
    text = path.read_text()
    for names, place in re.findall(r"(?:import|export) (?:(\{[^}]*\}|\* as \w+|\w+) from )?\"(\.[^\"]+)\";", text):
        target = (path.parent / place).resolve()
        assert target.is_file(), place
        exported = target.read_text()
        for name in re.findall(r"\b(\w+)\b(?! as)", names) if names.startswith("{") else []:
            assert re.search(rf"export[^;]*\b{name}\b", exported), f"{name} of {place}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.name)
def test_the_code_runs_under_a_strict_policy(path):
    text = path.read_text()
    assert not re.search(r"\beval\(|new Function|innerHTML|dangerouslySet|document\.write", text)
    assert not re.search(r'\bstyle="', text), "an inline style is refused; a style object is not"


def test_the_page_and_the_server_agree_on_what_is_the_same_place():
    boxes = (STATIC / "js" / "boxes.js").read_text()
    assert float(re.search(r"const SAME = ([\d.]+);", boxes)[1]) == SAME_PLACE


def test_vendored_modules_have_their_licences():
    table = (STATIC / "vendor" / "README.md").read_text()
    for path in (STATIC / "vendor").glob("*.js"):
        assert f"`{path.name}`" in table
    for licence in re.findall(r"`(LICENSE-\w+\.txt)`", table):
        assert len((STATIC / "vendor" / licence).read_text()) > 900


def test_the_guide_lists_the_keys_of_the_page():
    source = (STATIC / "js" / "keyboard.js").read_text()
    keys = re.findall(r"show: (\[[^\]]*\]), text: \"([^\"]+)\"", source)
    expected = [(" ".join(f"`{key}`" for key in re.findall(r"\"([^\"]+)\"", shown)), text) for shown, text in keys]
    guide = (DOCS / "guides" / "studio.md").read_text().partition("## Keys")[2].partition("\n## ")[0]
    assert re.findall(r"^\| (`.+?`) \| (.+?) \|$", guide, re.MULTILINE) == expected
