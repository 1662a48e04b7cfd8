"""A format is one record of `FORMATS`; everything else that lists formats has the same."""

import inspect
import re
from pathlib import Path

import pytest
from tests.io.annotations.sets import assert_same_boxes, image, save_image
from tests.security.test_annotation_attacks import FILES

from whet.cli.convert import convert
from whet.cli.options import AnnotationFormat
from whet.errors import AnnotationError
from whet.io.annotations import FORMAT_NAMES, formats
from whet.io.annotations.annotation import Annotations
from whet.io.annotations.csv_opencv_crops import read_csv, write_csv
from whet.io.annotations.formats import FORMATS, Format, detect_format, read_annotations, write_annotations
from whet.training.config import SETTINGS

ROOT = Path(__file__).parents[3]
# Rows of the table of formats: name, source, classes, ignored regions.
ROWS = dict(
    re.findall(r"^\| `(\w+)` \|.*\| (yes|no) \|[^|]*\|$", (ROOT / "docs/guides/train.md").read_text("utf-8"), re.M)
)
LISTS = {
    "FORMAT_NAMES in src/whet/io/annotations/__init__.py": FORMAT_NAMES,
    "AnnotationFormat in src/whet/cli/options.py": [str(name) for name in AnnotationFormat],
    "FORMAT in src/whet/training/config.py": re.split(", | or ", SETTINGS["format"].values),
    "the help of convert in src/whet/cli/convert.py": re.findall(
        r"(?:^| {2})(\w+)  +\w", inspect.getdoc(convert), re.M
    ),
    "the table of docs/guides/train.md": list(ROWS),
    "FILES in tests/security/test_annotation_attacks.py": [*(set(FILES) - {"label"}), "crops"],
}


@pytest.mark.parametrize("place", LISTS)
def test_every_list_of_formats_has_those_of_the_table(place):
    assert sorted(LISTS[place]) == sorted(FORMATS), place


def test_the_guide_says_which_formats_keep_ignored_regions():
    assert {name: known.keeps_ignored for name, known in FORMATS.items()} == {
        n: say == "yes" for n, say in ROWS.items()
    }


@pytest.fixture
def cars(tmp_path):
    path = save_image(tmp_path / "images" / "a.png")
    return Annotations((image(path, [[1, 2, 30, 40], [50, 5, 90.5, 60]], ["car", "van"]),), ("car", "van"))


def add(monkeypatch, name, known):
    monkeypatch.setitem(FORMATS, name, known)
    for suffix in known.suffixes:
        monkeypatch.setitem(formats.BY_SUFFIX, suffix, name)


def test_a_record_is_all_that_a_format_of_one_file_needs(monkeypatch, cars, tmp_path):
    def is_rows(file):
        return file.read_bytes().startswith(b"path,")

    add(monkeypatch, "rows", Format(read_csv, write_csv, (".rows",), "set.rows", fits=is_rows, keeps_ignored=True))
    write_annotations(cars, tmp_path / "new", "rows")
    write_annotations(cars, tmp_path / "cars.rows")
    for source in (tmp_path / "new", tmp_path / "new" / "set.rows", tmp_path / "cars.rows"):
        assert detect_format(source) == "rows"
        assert_same_boxes(cars, read_annotations(source), 0)


def test_a_record_is_all_that_a_format_of_a_directory_needs(monkeypatch, cars, tmp_path):
    def read(path, images, progress):
        return read_csv(path / "boxes", images, progress)

    def write(annotations, path, progress):
        path.mkdir(exist_ok=True)
        save_image(path / "drawn.png")
        return write_csv(annotations, path / "boxes", progress)

    add(monkeypatch, "drawn", Format(read, write, is_directory=True, is_in=lambda folder: (folder / "boxes").is_file()))
    write_annotations(cars, tmp_path / "new", "drawn")
    assert detect_format(tmp_path / "new") == "drawn"
    assert_same_boxes(cars, read_annotations(tmp_path / "new"), 0)
    (tmp_path / "new" / "mine").touch()
    with pytest.raises(AnnotationError, match="mine, which whet did not write"):
        write_annotations(cars, tmp_path / "new", "drawn", replace=True)
    with pytest.raises(AnnotationError, match="needs a directory"):
        write_annotations(cars, tmp_path / "new.csv", "drawn")
    with pytest.raises(AnnotationError, match="needs a directory"):
        read_annotations(tmp_path / "new" / "boxes", "drawn")
