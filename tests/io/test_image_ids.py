import json
from pathlib import Path

import numpy as np
import pytest

from whet.errors import AnnotationError
from whet.images.detections import Detections
from whet.io.detection_files import Layout, coco_ids, ids_of, pieces

BOX = Detections(np.array([[1.0, 2.0, 11.0, 22.0]]), np.array([3.0]))


def test_images_of_one_name_in_two_folders_have_two_ids():
    images = [(Path("a/1.png"), BOX), (Path("b/1.png"), BOX)]
    assert [row["image_id"] for row in json.loads("".join(pieces(images, Layout.coco)))] == [1, 2]
    ids = ids_of([path for path, _ in images], {"b\\1.png": 4, "train/a/1.png": 9})
    rows = json.loads("".join(pieces(images, Layout.coco, ids)))
    assert [row.pop("file_name") for row in rows] == ["a/1.png", "b/1.png"]
    assert rows == [*BOX.to_coco(9), *BOX.to_coco(4)]


def test_the_folder_one_stands_in_tells_images_apart(tmp_path, monkeypatch):
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path / "b")
    assert ids_of([Path("1.png")], {"a/1.png": 1, "b/1.png": 2}) == {Path("1.png"): 2}


@pytest.mark.parametrize(
    ("paths", "ids", "says"),
    [
        (["c/1.png"], {"a/1.png": 1, "b/1.png": 2}, "could be a/1.png or b/1.png"),
        (["a/1.png", "b/1.png"], {"1.png": 1}, "a/1.png and b/1.png have the same id 1"),
        (["2.png"], {"1.png": 1}, "2.png has no id"),
        (["2.png"], {}, "2.png has no id"),
    ],
)
def test_ids_that_are_not_certain_are_refused(paths, ids, says):
    with pytest.raises(AnnotationError, match=says):
        ids_of(map(Path, paths), ids)


def test_a_coco_file_with_two_ids_for_an_image_is_refused(tmp_path):
    file = tmp_path / "ids.json"
    file.write_text(json.dumps({"images": [{"id": 1, "file_name": "a.png"}, {"id": 2, "file_name": "a.png"}]}))
    with pytest.raises(AnnotationError, match=r"two ids for the image .*: 1 and 2"):
        coco_ids(file)
