import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.errors import TrainingDataError
from whet.images.boxes import BoxOffset
from whet.training.windows import LEAST_GREY_SIDE, WindowChoice, grey_window


def window_of(boxes, margin=0.0):
    return grey_window(boxes, margin)


def boxes_of(width, height, n=30):
    return np.tile([5.0, 7.0, 5.0 + width, 7.0 + height], (n, 1))


@pytest.mark.parametrize(
    ("width", "height", "window"),
    [
        (100, 40, (15, 38)),
        (24, 24, (24, 24)),
        (300, 300, (24, 24)),
        (40, 100, (38, 15)),
        (16, 16, (16, 16)),  # small objects, small window
        (4, 4, (12, 12)),  # but not so small that nothing is left to tell
    ],
)
def test_a_window_has_the_shape_of_its_objects_and_no_more_pixels_than_they_have(width, height, window):
    assert window_of(boxes_of(width, height)).window == window


def test_one_odd_box_does_not_decide():
    odd = np.concatenate([boxes_of(100, 40, 30), boxes_of(10, 300, 1)])
    assert window_of(odd).window == window_of(boxes_of(100, 40)).window


def test_what_is_printed_has_the_spread():
    boxes = np.concatenate([boxes_of(40, 40), boxes_of(80, 40), boxes_of(160, 40)])
    assert str(window_of(boxes)) == ("34 x 17 window for objects of 34 x 17, from 90 boxes, aspect 2 (1 to 4)")


def test_boxes_without_area_do_not_count_and_none_is_an_error():
    boxes = np.concatenate([boxes_of(0, 40), boxes_of(40, 40, 3)])
    assert window_of(boxes).n_boxes == 3
    with pytest.raises(TrainingDataError, match="no box to choose a window from"):
        window_of(boxes_of(0, 0))


sizes = st.floats(1, 500)


@given(width=sizes, height=sizes, margin=st.sampled_from([0.0, 0.1, 0.3]))
def test_a_window_holds_its_box_about_the_same_centre_without_squeezing_it(width, height, margin):
    inset = margin / (1 + 2 * margin)
    offset = BoxOffset(inset, inset, 1 - inset, 1 - inset)
    choice = WindowChoice(16, 36, offset, 1, 2.2, 2.2, 2.2, holds=True)
    box = boxes_of(width, height, 1)
    (x1, y1, x2, y2), (left, top, right, bottom) = box[0], choice.windows(box)[0]
    assert (right - left) / (bottom - top) == pytest.approx(36 / 16)
    assert ((left + right) / 2, (top + bottom) / 2) == pytest.approx(((x1 + x2) / 2, (y1 + y2) / 2))
    assert left - 1e-9 <= x1 - margin * width
    assert top - 1e-9 <= y1 - margin * height
    # On one side it is no larger than it has to be.
    assert min((right - left) / width, (bottom - top) / height) == pytest.approx(1 + 2 * margin)


@given(st.lists(st.tuples(sizes, sizes), min_size=1, max_size=30))
def test_a_chosen_window_is_neither_tiny_nor_huge(sides):
    boxes = np.array([[0, 0, width, height] for width, height in sides])
    choice = window_of(boxes)
    assert 0.8 * LEAST_GREY_SIDE**2 <= choice.height * choice.width <= 1.1 * 576
    assert choice.aspect_low <= choice.aspect <= choice.aspect_high


def test_the_frame_takes_the_margin_off_again():
    choice = window_of(boxes_of(100, 100), margin=0.2)
    box = np.array([[10.0, 20.0, 60.0, 70.0]])
    assert np.allclose(choice.box_offset.boxes(choice.windows(box)), box)
