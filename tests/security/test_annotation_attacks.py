"""Annotation files from strangers: damaged anyhow, they are read or refused by name, never with a traceback."""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.io.annotations.sets import image, save_image

from whet.errors import AnnotationError, DataNotFoundError, WhetError
from whet.io.annotations import csv_opencv_crops as opencv_info
from whet.io.annotations.annotation import Annotations
from whet.io.annotations.assembly import MAX_BYTES, read_bytes
from whet.io.annotations.formats import read_annotations, write_annotations

FILES = {
    "coco": "set.json",
    "csv": "set.csv",
    "voc": "a.xml",
    "opencv": "info.dat",
    "yolo": "data.yaml",
    "label": "a.txt",
}
LETTERS = [b"", b"\x00", b"\n", b",", b"<", b"[", b"{", b'"']
PIECES = [*LETTERS, b"\xff\xfe", b"9" * 400, b"nan", b"-1e308", b"../" * 30, b"&x;", b"*a"]
edit = st.tuples(st.floats(0, 1), st.floats(0, 0.3), st.sampled_from(PIECES))


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A folder with a good file of each format."""
    folder = tmp_path_factory.mktemp("good")
    path = save_image(folder / "a.png")
    ours = Annotations((image(path, [[1, 2, 30, 40], [50, 5, 90.5, 60]], ["object"] * 2),), ("object",))
    for name in FILES.keys() - {"voc", "yolo", "label"}:  # formats of one file
        write_annotations(ours, folder / FILES[name])
    write_annotations(ours, folder / "as-voc", "voc")
    (folder / "as-voc" / "a.xml").rename(folder / "a.xml")
    write_annotations(ours, folder / "as-yolo", "yolo")
    (folder / "as-yolo" / "labels" / "train" / "a.txt").rename(folder / "a.txt")
    (folder / "data.yaml").write_text("train: .\nnames: [object, other]\n")
    return folder


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=3 * settings.default.max_examples)
@given(edits=st.lists(edit, min_size=1, max_size=4))
def test_a_damaged_file_is_read_or_refused_by_name(name, edits, good):
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for file in ("a.png", "a.txt", "data.yaml"):
            shutil.copyfile(good / file, folder / file)
        data = (good / FILES[name]).read_bytes()
        for place, length, piece in edits:
            start = int(place * len(data))
            data = data[:start] + piece + data[start + int(length * len(data)) :]
        (folder / FILES[name]).write_bytes(data)
        source, form = (folder / "data.yaml", "yolo") if name == "label" else (folder / FILES[name], name)
        try:
            read = read_annotations(source, form)
        except WhetError:
            return
        for each in read.images:
            assert np.isfinite(each.boxes).all()
            assert (each.boxes[:, :2] < each.boxes[:, 2:]).all()
            assert (each.boxes >= 0).all()
            assert (each.boxes <= [each.shape[1], each.shape[0]] * 2).all()


def test_an_xml_bomb_is_refused(tmp_path):
    save_image(tmp_path / "a.png")
    entities = "".join(f'<!ENTITY x{i} "{f"&x{i - 1};" * 10}">' for i in range(1, 30))
    (tmp_path / "a.xml").write_text(
        f'<!DOCTYPE annotation [<!ENTITY x0 "lol">{entities}]><annotation><filename>&x29;</filename></annotation>'
    )
    with pytest.raises(WhetError):
        read_annotations(tmp_path / "a.xml")


def test_a_class_cannot_name_a_place_outside_the_folder_of_crops(tmp_path):
    ours = Annotations((image(save_image(tmp_path / "a.png"), [[1, 2, 30, 40]], ["../../evil"]),), ("../../evil",))
    write_annotations(ours, tmp_path / "sets" / "crops", "crops")
    assert sorted(path.name for path in tmp_path.rglob("*.png")) == ["a-1.png", "a.png"]
    assert next((tmp_path / "sets" / "crops").rglob("*.png")).parent.parent == tmp_path / "sets" / "crops"


def test_a_file_beyond_any_is_refused_before_it_is_read(tmp_path):
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(MAX_BYTES + 1)  # takes no room on the disk
    with pytest.raises(AnnotationError, match="expected at most 1,000,000,000"):
        read_bytes(tmp_path / "huge.json")


@pytest.mark.parametrize("last", ["", "x"], ids=["a wrong count", "a count everywhere, and a word at the end"])
def test_each_word_of_a_row_is_looked_at_once(last, monkeypatch):
    """A row of a megabyte took minutes."""
    n, has_contrast = 1000, []
    number_in = opencv_info.number_in
    monkeypatch.setattr(opencv_info, "number_in", lambda text: has_contrast.append(text) or number_in(text))
    counts = " ".join(f"{n - i} 1 1 1" for i in range(n)) if last else " ".join([str(n + 1), "1.5 2.5 3.5 4.5 " * n])
    row = f"a.png {counts} {last}"
    assert opencv_info.parse_row(row) is None
    assert len(has_contrast) <= len(row.split())


def test_a_name_of_any_length_makes_no_long_message(tmp_path):
    (tmp_path / "info.dat").write_text(f"{'x' * 100_000}.png 1 1 2 3 4\n")
    with pytest.raises(DataNotFoundError, match=r"image not found: 'xxx.* \[\.\.\.\] x.*\.png'") as error:
        read_annotations(tmp_path / "info.dat")
    assert len(str(error.value)) < 1000
