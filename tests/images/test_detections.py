import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet import Detections
from whet.errors import BoxError

whole = st.integers(0, 500)
found = st.lists(st.tuples(whole, whole, st.integers(1, 90), st.integers(1, 90), st.integers(-64, 64)), max_size=8).map(
    lambda rows: Detections.from_array([[x, y, x + w, y + h, score / 8] for x, y, w, h, score in rows])
)


def assert_equal(ours, theirs):
    assert ours.boxes.tolist() == theirs.boxes.tolist()
    assert ours.scores.tolist() == theirs.scores.tolist()


@given(found)
def test_arrays_and_coco_give_back_what_they_got(ours):
    assert_equal(ours, Detections.from_array(ours.to_array()))
    assert_equal(ours, Detections.from_boxes(ours.boxes, ours.scores))
    assert_equal(ours, Detections.from_coco(ours.to_coco("a", 3)))


@given(found)
def test_supervision_gives_back_what_it_got(ours):
    pytest.importorskip("supervision")
    theirs = ours.to_supervision(class_id=2)
    assert len(theirs) == len(ours)
    assert set(theirs.class_id.tolist()) <= {2}
    assert_equal(ours, Detections.from_supervision(theirs))


def test_supervision_works_on_what_it_got():
    supervision = pytest.importorskip("supervision")
    ours = Detections.from_boxes([[0, 0, 10, 10], [0, 0, 10, 11], [50, 50, 60, 60]], [1.0, 0.9, 0.8])
    assert len(ours.to_supervision().with_nms(0.5)) == 2
    assert len(Detections().to_supervision()) == 0
    assert Detections.from_supervision(supervision.Detections(xyxy=np.array([[0, 0, 5, 5]]))).scores.tolist() == [1]


def test_a_results_file_is_filtered_by_image_and_category():
    first, second = Detections.from_boxes([[0, 0, 4, 4]], [1]), Detections.from_boxes([[1, 1, 4, 4]], [2])
    results = [*first.to_coco(1, 1), *second.to_coco(2, 1), *second.to_coco(1, 9)]
    assert_equal(Detections.from_coco(results, image_id=1, category_id=1), first)
    assert_equal(Detections.from_coco(results, image_id=2), second)
    assert len(Detections.from_coco(results)) == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Detections.from_boxes([[0, 0, 1]]), "got boxes of shape"),
        (lambda: Detections.from_boxes([[0, 0, 1, np.nan]]), "finite"),
        (lambda: Detections.from_boxes([[0, 0, 1, 1]], [1, 2]), "got 2 scores for 1 boxes"),
        (lambda: Detections.from_array([[0, 0, 1, 1]]), "expected \\(N, 5\\)"),
        (lambda: Detections.from_coco([{"bbox": [1, 2, 3]}]), "no bbox of x, y, width and height"),
        (lambda: Detections.from_coco([{}]), "no bbox of x, y, width and height"),
    ],
)
def test_what_is_no_box_is_a_named_error(make, message):
    with pytest.raises(BoxError, match=message):
        make()


def test_without_supervision_the_error_says_how_to_install_it():
    code = (
        "import sys; sys.modules['supervision'] = None\n"
        "from whet import Detections\n"
        "from whet.errors import MissingExtraError\n"
        "try:\n    Detections().to_supervision()\nexcept MissingExtraError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install supervision" in done.stdout


def test_boxes_come_with_their_scores_best_first():
    found = Detections.from_boxes([[0, 0, 8, 8], [5, 5, 9, 9]], [0.5, 2])
    assert [(box.tolist(), score) for box, score in found] == [([5.0, 5.0, 9.0, 9.0], 2.0), ([0.0, 0.0, 8.0, 8.0], 0.5)]
    assert all(type(score) is float for _, score in found)
    assert list(Detections()) == []
