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
