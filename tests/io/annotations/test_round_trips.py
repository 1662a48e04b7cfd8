"""What is written is read back: every box, in every format, and from any format to any other."""

import itertools
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.io.annotations.sets import assert_same_boxes, image, save_image

from whet.io.annotations.annotation import Annotations
from whet.io.annotations.formats import FORMATS, detect_format, read_annotations, write_annotations

TARGETS = {name: f"set{known.suffixes[0]}" if known.file_name else name for name, known in FORMATS.items()}
# How far a corner may move where it has all the digits of a float.
WITHIN = 1e-9
KEEP_IGNORE = {name for name, known in FORMATS.items() if known.keeps_ignored}
# Crops are images of their own.
KEEP_PLACES = sorted(set(FORMATS) - {"crops"})
SHAPE = (100, 200)
NAMES = ("plain.png", "two words.png", "größe ärger.png", "日本.png", "a 1 2.png", "r#1,5;x.png")

coordinate = st.one_of(st.integers(0, 90).map(float), st.floats(0, 90))
length = st.one_of(st.integers(1, 10).map(float), st.floats(1, 10))


@st.composite
def box(draw):
    x, y = draw(coordinate), draw(coordinate)
    return [x, y, x + draw(length), y + draw(length)]


@st.composite
def annotated(draw, classes=("car", "zwei Räder", "007"), ignore=True):
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    images = []
    for name in names:
        boxes = draw(st.lists(box(), max_size=4))
        labels = [draw(st.sampled_from(classes)) for _ in boxes]
        flags = [ignore and draw(st.booleans()) for _ in boxes]
        images.append(image(name, boxes, labels, flags, SHAPE))
    return Annotations(tuple(images), classes)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    for name in NAMES:
        save_image(folder / name, SHAPE[1], SHAPE[0])
    return folder


def placed(annotations, folder):
    moved = tuple(image(folder / p.path, p.boxes, p.labels, p.ignore, p.shape) for p in annotations.images)
    return Annotations(moved, annotations.classes)


def there_and_back(annotations, name, folder, named=False):
    target = folder / TARGETS[name]
    problems = write_annotations(annotations, target, name)
    assert named or detect_format(target) == name
    return read_annotations(target, name if named else None), problems


@pytest.mark.parametrize("name", sorted(KEEP_IGNORE))
@given(made=annotated())
def test_formats_that_say_all_keep_all(name, made, images):
    ours = placed(made, images)
    with tempfile.TemporaryDirectory() as folder:
        theirs, problems = there_and_back(ours, name, Path(folder))
    assert not problems
    assert not theirs.problems
    assert {each.path.name for each in theirs.images} == {each.path.name for each in ours.images}
    assert_same_boxes(ours, theirs, WITHIN)


@pytest.mark.parametrize("name", sorted(KEEP_IGNORE))
@given(numbers=st.lists(st.integers(0, 10**8), min_size=4, max_size=4))
def test_decimal_fractions_come_back_to_the_last_bit(name, numbers, images):
    low, high = np.array(numbers[:2]) / 1e6 / 2, np.array(numbers[2:]) / 1e6 / 2 + 50.001
    corners = [float(f"{value:.6f}") for value in (*low, *high)]
    ours = Annotations((image(images / "plain.png", [corners]),), ("car",))
    with tempfile.TemporaryDirectory() as folder:
        theirs, _ = there_and_back(ours, name, Path(folder))
    assert theirs.images[0].boxes.tolist() == np.minimum([corners], [200, 100, 200, 100]).tolist()


@given(made=annotated(ignore=False))
def test_yolo_keeps_every_object_and_the_order_of_classes(made, images):
    ours = placed(made, images)
    with tempfile.TemporaryDirectory() as folder:
        theirs, problems = there_and_back(ours, "yolo", Path(folder))
    assert not problems
    assert theirs.classes == ours.classes
    assert_same_boxes(ours, theirs, WITHIN)


@given(made=annotated(classes=("object",), ignore=False))
def test_opencv_keeps_every_object_to_half_a_pixel(made, images):
    ours = placed(made, images)
    with tempfile.TemporaryDirectory() as folder:
        theirs, problems = there_and_back(ours, "opencv", Path(folder))
    assert len(theirs) == len(ours)
    by_name = {each.path: each for each in theirs.images}
    for each in ours.images:
        back = by_name[each.path]
        assert len(back) == len(each)
        assert np.abs(back.boxes - each.boxes).max(initial=0) <= 0.5
        if (each.boxes != each.boxes.round()).any():
            assert any(each.path.name in problem.what and "rounded" in problem.what for problem in problems)


@given(made=annotated(classes=("object",), ignore=False))
def test_crops_keep_the_number_and_the_size_of_objects(made, images):
    ours = placed(made, images)
    if not ours.n_boxes:
        return
    with tempfile.TemporaryDirectory() as folder:
        theirs, _ = there_and_back(ours, "crops", Path(folder))
    sizes = [sorted(np.maximum(b[:, 2:] - b[:, :2], 1).tolist()) for b in (ours.boxes.round(), theirs.boxes)]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize(("first", "second"), [*itertools.permutations(KEEP_PLACES, 2)])
def test_from_any_format_to_any_other_no_box_is_lost(first, second, images, tmp_path, rng):
    corners = rng.integers(0, 80, (6, 2))
    boxes = np.concatenate([corners, corners + rng.integers(1, 20, (6, 2))], axis=1)
    places = zip(NAMES[:3], boxes.reshape(3, 2, 4), strict=True)
    with_objects = [image(images / name, two, ["object"] * 2) for name, two in places]
    ours = Annotations((*with_objects, image(images / NAMES[3])), ("object",))
    one, _ = there_and_back(ours, first, tmp_path)
    other, _ = there_and_back(one, second, tmp_path)
    assert len(other) == 4
    assert_same_boxes(ours, other, 1e-9)


def test_whole_numbers_stay_whole_in_voc_files(images, tmp_path):
    ours = Annotations((image(images / "plain.png", [[0, 0, 200, 100]]),), ("car",))
    write_annotations(ours, tmp_path / "voc", "voc")
    text = (tmp_path / "voc" / "plain.xml").read_text()
    # The whole image is pixel 1 to the last one.
    for tag, value in {"xmin": 1, "ymin": 1, "xmax": 200, "ymax": 100}.items():
        assert f"<{tag}>{value}</{tag}>" in text


@pytest.mark.parametrize("name", sorted(set(FORMATS) - KEEP_IGNORE))
def test_formats_without_regions_to_ignore_say_what_they_leave_out(name, images, tmp_path):
    ours = Annotations((image(images / "plain.png", [[0, 0, 9, 9], [20, 20, 40, 40]], None, [True, False]),), ("car",))
    theirs, problems = there_and_back(ours, name, tmp_path)
    assert theirs.n_boxes == 1
    assert "1 ignored regions" in str(problems[0])


def test_parts_of_a_set_survive_yolo(images, tmp_path):
    ours = Annotations(
        (
            image(images / NAMES[0], [[0, 0, 9, 9]], split="train"),
            image(images / NAMES[1], [[1, 1, 8, 8]], split="val"),
        ),
        ("car",),
    )
    theirs, _ = there_and_back(ours, "yolo", tmp_path)
    assert theirs.splits == ("train", "val")
    assert [each.path.name for each in theirs.select_split("val").images] == [NAMES[1]]


@pytest.mark.parametrize("name", KEEP_PLACES)
def test_images_of_one_name_in_two_folders_stay_apart(name, tmp_path):
    first, second = (save_image(tmp_path / side / "same.png") for side in ("left", "right"))
    ours = Annotations((image(first, [[0, 0, 10, 10]]), image(second, [[5, 5, 20, 20]])), ("car",))
    theirs, _ = there_and_back(ours, name, tmp_path / "converted")
    assert len(theirs) == 2
    assert np.abs(np.sort(theirs.boxes, axis=0) - np.sort(ours.boxes, axis=0)).max() <= WITHIN


def test_a_name_that_is_no_text_is_written_in_every_format(tmp_path):
    name = os.fsdecode(b"gr\xf6\xdfe.png")  # Latin-1
    try:
        save_image(tmp_path / name)
    except OSError:
        pytest.skip("file names are UTF-8 here")
    one = Annotations((image(tmp_path / name, [[10, 20, 30, 40]]),), ("car",))
    for each in FORMATS:
        problems = write_annotations(one, tmp_path / TARGETS[each], each)
        assert [problem.what for problem in problems] == (
            ["the file name is not UTF-8 and cannot be represented in XML"] * (each == "voc")
        )
    for file in ("set.csv", "opencv/info.dat"):
        assert b"gr\xf6\xdfe.png" in (tmp_path / file).read_bytes()
    for each in ("coco", "yolo", "crops"):
        assert read_annotations(tmp_path / TARGETS[each], each).n_boxes == 1
