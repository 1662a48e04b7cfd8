"""Data sets with train and test parts, and one class made of several."""

import numpy as np
import pytest
from PIL import Image

from whet.errors import AnnotationError
from whet.io.annotations.annotation import AnnotatedImage, Annotations
from whet.io.annotations.formats import detect_format, read_annotations, write_annotations


def annotated(folder, label, n=2):
    """Images with one box each, in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    images = []
    for number in range(n):
        path = folder / f"{number}.png"
        Image.new("RGB", (60, 40)).save(path)
        box = np.array([[5.0, 5.0, 25.0, 25.0 + number]])
        images.append(AnnotatedImage(path, (40, 60), box, (label,), np.zeros(1, np.bool_)))
    return Annotations(tuple(images), (label,))


def test_a_voc_folder_of_parts_has_splits_and_images_of_equal_names(tmp_path):
    for part, label in (("train", "cat"), ("test", "dog")):
        write_annotations(annotated(tmp_path / "source" / part, label), tmp_path / "pets" / part, "voc")
    assert detect_format(tmp_path / "pets") == "voc"
    found = read_annotations(tmp_path / "pets")
    assert found.splits == ("train", "test")
    for part, label in (("train", "cat"), ("test", "dog")):
        images = found.select_split(part).images
        assert {image.labels for image in images} == {(label,)}
        assert all(part in image.path.parts for image in images)


def test_several_classes_make_one(tmp_path):
    both = [annotated(tmp_path / name, name) for name in ("cat", "dog", "bird")]
    every = Annotations(tuple(image for one in both for image in one.images), ("cat", "dog", "bird"))
    chosen = every.select("cat, dog")
    assert chosen.classes == ("cat,dog",)
    assert chosen.counts == {"cat,dog": 4}
    with pytest.raises(AnnotationError, match="unknown class 'cow'"):
        every.select("cat,cow")


def yolo_parts(folder, *parts):
    """A directory for each part, with an image and a label of class 0 in it; returns the folder."""
    for part in parts:
        (folder / part / "images").mkdir(parents=True)
        (folder / part / "labels").mkdir()
        Image.new("RGB", (60, 40)).save(folder / part / "images" / f"{part}.png")
        (folder / part / "labels" / f"{part}.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    return folder


@pytest.mark.parametrize("val", ["test/images", "../test/images", "../set/test/images", "./train/../test/images"])
def test_parts_that_name_the_same_directory_are_one_part_with_two_names(tmp_path, val):
    folder = yolo_parts(tmp_path / "set", "train", "test")
    (folder / "data.yaml").write_text(f"train: train/images\nval: {val}\ntest: test/images\nnames: [cat]\n")
    found = read_annotations(folder)
    assert found.splits == ("train", "test")
    assert len(found) == 2
    for name in ("test", "val", "valid", "validation"):
        assert [image.path.stem for image in found.select_split(name).images] == ["test"]
    assert found.find_split("dev", "val") == "test"
    assert found.find_split("dev") is None


def test_an_image_of_two_parts_is_trained_on_and_reported(tmp_path):
    folder = yolo_parts(tmp_path, "train", "valid")
    both = "train/images/train.png\nvalid/images/valid.png\n"
    (folder / "valid.txt").write_text(both)
    (folder / "data.yaml").write_text("train: train/images\nvalidation: valid.txt\nnames: [cat]\n")
    found = read_annotations(folder)
    assert {image.path.stem: image.split for image in found.images} == {"train": "train", "valid": "val"}
    assert "1 image of val also in train" in found.problems[0].what


@pytest.mark.parametrize("names", ["data.yaml", "classes.txt"])
@pytest.mark.parametrize("given", ["train", "train/images"])
def test_one_part_of_a_yolo_set_has_the_class_names_of_the_set(tmp_path, names, given):
    folder = yolo_parts(tmp_path / "set", "train")
    (folder / names).write_text("names: [cat]\ntrain: train/images\n" if names == "data.yaml" else "cat\n")
    assert detect_format(folder / given) == "yolo"
    assert read_annotations(folder / given).counts == {"cat": 1}


def test_class_names_of_another_set_are_not_taken(tmp_path):
    folder = yolo_parts(tmp_path / "set" / "mine", "part")
    (tmp_path / "set" / "classes.txt").write_text("cat\n")
    assert read_annotations(folder / "part").counts == {"0": 1}
