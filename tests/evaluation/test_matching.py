import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.evaluation import slow_twins
from tests.evaluation.images import images

from whet.evaluation.evaluation import match

LEFT, RIGHT = [0, 0, 10, 10], [20, 0, 30, 10]
CROWD = [50, 0, 150, 100]


@pytest.mark.parametrize(
    ("boxes", "scores", "truths", "ignored", "labels", "found_by", "remark"),
    [
        ([], [], [LEFT], [0], [], [-1], "nothing detected"),
        ([LEFT], [1], [], [], [0], [], "nothing there"),
        ([LEFT, RIGHT], [1, 2], [RIGHT, LEFT], [0, 0], [1, 1], [1, 0], "both found"),
        ([LEFT, LEFT], [1, 2], [LEFT], [0], [0, 1], [1], "the second of a face is false, and it is the lower score"),
        ([LEFT, LEFT], [1, 1], [LEFT], [0], [1, 0], [0], "of equal scores the first finds"),
        ([[0, 0, 10, 5]], [1], [LEFT], [0], [0], [-1], "an overlap of exactly one half is not above it"),
        ([[0, 0, 10, 5.1]], [1], [LEFT], [0], [1], [0], "just above one half"),
        ([[0, 0, 10, 8]], [1], [[0, 0, 10, 7], LEFT], [0, 0], [1], [0, -1], "overlaps both, most the first: 7/8, 8/10"),
        (
            [[0, 0, 10, 8], [0, 0, 10, 8]],
            [2, 1],
            [[0, 0, 10, 7], LEFT],
            [0, 0],
            [1, 1],
            [0, 1],
            "the best truth is taken, the next best is found (the devkit of PASCAL would call it false)",
        ),
        ([LEFT], [1], [LEFT, LEFT], [0, 0], [1], [0, -1], "of equal overlaps the first truth"),
        ([LEFT], [1], [LEFT], [1], [-1], [-1], "an ignored truth is not found, and its detection is not false"),
        ([LEFT, LEFT], [1, 2], [LEFT], [1], [-1, -1], [-1], "an ignored truth takes any number of detections"),
        ([LEFT], [1], [LEFT, LEFT], [1, 0], [1], [-1, 0], "a true one comes before an ignored one"),
        ([[60, 10, 70, 20]], [1], [CROWD], [1], [-1], [-1], "small in a large region: over union it is 1/100"),
        ([[45, 0, 55, 10]], [1], [CROWD], [1], [0], [-1], "exactly half of it in the region is not enough"),
        ([CROWD], [1], [[60, 10, 70, 20]], [1], [0], [-1], "a region in the detection does not excuse it"),
        ([[60, 10, 70, 20]], [1], [CROWD], [0], [0], [-1], "the crowd is not to be ignored"),
        ([LEFT, LEFT], [2, 1], [LEFT, [0, 0, 20, 20]], [0, 1], [1, -1], [0, -1], "a duplicate in a region is ignored"),
    ],
)
def test_small_images_matched_by_hand(boxes, scores, truths, ignored, labels, found_by, remark):
    got = match(boxes, scores, truths, np.array(ignored, dtype=bool))
    assert got.labels.tolist() == labels, remark
    assert got.found_by.tolist() == found_by, remark


@given(images())
def test_matching_equals_the_slow_twin(image):
    got = match(*image)
    assert (got.labels.tolist(), got.found_by.tolist()) == slow_twins.match(*image)


@given(images(), st.floats(0, 0.9))
def test_each_truth_is_found_once_by_a_right_detection(image, iou):
    got = match(*image, iou=iou)
    finders = got.found_by[got.found_by >= 0].tolist()
    assert sorted(finders) == np.flatnonzero(got.labels == 1).tolist()
    assert not (got.found_by >= 0)[np.array(image[3], dtype=bool)].any()


@given(images(), st.integers(-3, 3))
def test_lower_detections_change_nothing_for_the_higher(image, threshold):
    boxes, scores, truths, ignored = image
    stand = [i for i, score in enumerate(scores) if score > threshold]
    alone = match([boxes[i] for i in stand], [scores[i] for i in stand], truths, ignored)
    assert match(*image).labels[stand].tolist() == alone.labels.tolist()


@given(images())
def test_detections_of_different_scores_may_come_in_any_order(image):
    boxes, _, truths, ignored = image
    scores = np.arange(len(boxes), dtype=float)
    forwards = match(boxes, scores, truths, ignored)
    backwards = match(boxes[::-1], scores[::-1], truths, ignored)
    assert forwards.labels.tolist() == backwards.labels[::-1].tolist()


def test_with_a_low_overlap_what_would_find_an_ignored_truth_is_ignored():
    # 4 of 10 columns in common: 0.25 of the union, 0.4 of its own area.
    beside = [[6, 0, 16, 10]]
    assert match(beside, [1.0], [LEFT], [True], iou=0.2).labels.tolist() == [-1]
    assert match(beside, [1.0], [LEFT], [True], iou=0.3).labels.tolist() == [0]
    assert match(beside, [1.0], [LEFT], [True], iou=0.3, ignore_overlap=0.3).labels.tolist() == [-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([LEFT], [1, 2], []), r"scores have shape \(2,\); expected \(1,\)"),
        (([LEFT], [np.nan], []), r"scores\[0\] is not finite"),
        (([LEFT], [1], [LEFT], [True, False]), "ignore flags have shape"),
        (([LEFT], [1], [LEFT], [0]), "ignore flags are int64; expected bool"),
        (([[1, 2, 3]], [1], [LEFT]), "detections have shape"),
        (([LEFT], [1], [[1, 2, 3]]), "truths have shape"),
    ],
)
def test_wrong_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        match(*arguments)


@pytest.mark.parametrize("wrong", [-0.1, 1, 50, float("nan")])
def test_overlaps_are_shares(wrong):
    with pytest.raises(ValueError, match="iou="):
        match([LEFT], [1], [LEFT], iou=wrong)
    with pytest.raises(ValueError, match="ignore_overlap="):
        match([LEFT], [1], [LEFT], ignore_overlap=wrong)
