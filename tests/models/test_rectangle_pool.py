import numpy as np

from whet.models.gslda.pools import RectanglePool


def test_a_huge_weight_on_an_empty_rectangle_is_not_exact():
    boxes = np.array([[[0, 0, 4, 3], [1, 1, 0, 2], [0, 0, 0, 0]]], dtype=np.int32)
    pool = RectanglePool((3, 4), boxes, np.array([[1, 1e20, 0]], dtype=np.float32), np.array([False]))
    assert not pool.is_exact
