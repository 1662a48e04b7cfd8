import json

import numpy as np
import pytest
from PIL import Image

from whet.errors import AnnotationError
from whet.io.detection_files import read_wrong

HEAD = "path,x,y,width,height,score,wrong\n"


@pytest.fixture
def folder(tmp_path):
    for name in ("a.png", "b.png"):
        Image.new("L", (40, 30)).save(tmp_path / name)
    return tmp_path


def boxes(found):
    return {path.name: array.tolist() for path, array in found.boxes.items()}


def test_all_layouts_say_the_same(folder):
    (folder / "t.csv").write_text(
        HEAD + "a.png,1,2,3,4,9,yes\na.png,5,6,7,8,8,0\nb.png,0,0,10,10,7,TRUE\nb.png,1,1,2,2,3\n"
    )
    coco = [
        {"file_name": "a.png", "bbox": [1, 2, 3, 4], "wrong": 1},
        {"file_name": "a.png", "bbox": [5, 6, 7, 8], "wrong": False},
        {"file_name": "b.png", "bbox": [0, 0, 10, 10], "wrong": True},
        {"file_name": "b.png", "bbox": [1, 1, 2, 2]},
    ]
    own = [
        {"image": "a.png", "boxes": [[1, 2, 4, 6], [5, 6, 12, 14]], "wrong": [True, None]},
        {"image": "b.png", "boxes": [[0, 0, 10, 10], [1, 1, 3, 3]], "wrong": ["1", ""]},
    ]
    for name, table in (("coco.json", coco), ("own.json", own)):
        (folder / name).write_text(json.dumps(table))
    for name in ("t.csv", "coco.json", "own.json"):
        found = read_wrong(folder / name)
        assert boxes(found) == {"a.png": [[1, 2, 4, 6]], "b.png": [[0, 0, 10, 10]]}
        assert (found.n_detections, found.problems) == (4, ())
        assert all(array.dtype == np.float64 for array in found.boxes.values())


def test_rows_that_cannot_be_used_are_reported_and_the_others_are_read(folder):
    rows = ["a.png,1,2,3,4,9,1", "a.png,1,2,3,4,9,maybe", "gone.png,1,2,3,4,9,1", "b.png,1,2,three,4,9,1"]
    (folder / "t.csv").write_text(HEAD + "\n".join(rows))
    found = read_wrong(folder / "t.csv")
    assert boxes(found) == {"a.png": [[1, 2, 4, 6]]}
    assert [problem.line for problem in found.problems] == [3, 4, 5]


@pytest.mark.parametrize(
    "text",
    [
        "path,x,y,width,height,score\na.png,1,2,3,4,9\n",  # no marks
        "a.png,1,2,3,4,9,1\n",  # no header
        '[{"file_name": "a.png", "bbox": [1, 2, 3, 4]}]',
        '{"images": []}',
        "[1, 2]",
        "[" * 100_000,
    ],
)
def test_other_files_are_refused(folder, text):
    (folder / "t").write_text(text)
    with pytest.raises(AnnotationError):
        read_wrong(folder / "t")
