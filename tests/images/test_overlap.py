import numpy as np
import pytest
from hypothesis import given
from tests.evaluation import slow_twins
from tests.evaluation.images import boxes

from whet.images.boxes import areas, box_iou, checked_boxes, intersection_over_first

SQUARE = [0, 0, 10, 10]


@pytest.mark.parametrize(
    ("other", "over_union", "over_first", "remark"),
    [
        ([0, 0, 10, 10], 1, 1, "the same"),
        ([0, 0, 10, 20], 0.5, 1, "contains it"),
        ([0, 0, 5, 10], 0.5, 0.5, "half of it"),
        ([5, 0, 15, 10], 1 / 3, 0.5, "shifted by half"),
        ([10, 0, 20, 10], 0, 0, "touches: half-open boxes share no pixel"),
        ([9, 9, 19, 19], 1 / 199, 0.01, "one pixel in common"),
        ([20, 20, 30, 30], 0, 0, "apart on both axes: two negative sides must not make a positive area"),
        ([5, 5, 5, 5], 0, 0, "a point inside has no area"),
        ([-5, -5, 15, 15], 0.25, 1, "beyond the image's edge"),
    ],
)
def test_overlaps_worked_by_hand(other, over_union, over_first, remark):
    first, second = checked_boxes([SQUARE]), checked_boxes([other])
    assert box_iou(first, second)[0, 0] == pytest.approx(over_union), remark
    assert intersection_over_first(first, second)[0, 0] == pytest.approx(over_first), remark


def test_boxes_without_area_overlap_nothing_not_even_themselves():
    point = checked_boxes([[3, 3, 3, 3]])
    assert box_iou(point, point).tolist() == [[0.0]]
    assert intersection_over_first(point, checked_boxes([SQUARE])).tolist() == [[0.0]]


@given(boxes(), boxes())
def test_overlaps_equal_the_slow_twin(first, second):
    first, second = checked_boxes(first), checked_boxes(second)
    got = box_iou(first, second)
    assert got.shape == (len(first), len(second))
    assert got.tolist() == [[slow_twins.iou(a, b) for b in second.tolist()] for a in first.tolist()]
    shares = intersection_over_first(first, second)
    for i in range(len(first)):
        for j in range(len(second)):
            expected = slow_twins.intersection(first[i], second[j])
            assert shares[i, j] * areas(first)[i] == pytest.approx(expected)


@given(boxes(), boxes())
def test_overlap_is_symmetric_and_at_most_the_share_of_either(first, second):
    first, second = checked_boxes(first), checked_boxes(second)
    got = box_iou(first, second)
    np.testing.assert_array_equal(got, box_iou(second, first).T)
    assert (got <= intersection_over_first(first, second)).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([1, 2, 3, 4], r"shape \(4,\)"),
        ([[1, 2, 3]], r"shape \(1, 3\)"),
        ([SQUARE, [5, 0, 4, 9]], r"faces\[1\] is \[5.0, 0.0, 4.0, 9.0\]"),
        ([[0, 5, 9, 4]], "y1 <= y2"),
        ([[0, 0, np.nan, 9]], "finite"),
        ([[0, 0, np.inf, 9]], "finite"),
    ],
)
def test_wrong_boxes_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        checked_boxes(wrong, "faces")


@pytest.mark.parametrize("empty", [[], np.empty((0, 4)), np.empty(0), [[]]])
def test_no_boxes_are_boxes(empty):
    assert checked_boxes(empty).shape == (0, 4)
