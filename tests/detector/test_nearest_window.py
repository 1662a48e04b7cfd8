import numpy as np
import pytest
from tests.cascades import textured
from tests.detectors import bull_finder

from whet.errors import BoxError
from whet.images.boxes import BoxOffset, box_iou
from whet.images.pyramid import Pyramid

WINDOW = (12, 9)
IMAGE = textured((90, 110), np.random.default_rng(3))


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("offset", [BoxOffset(), BoxOffset(-0.1, -0.2, 1.3, 1.1)])
def test_no_window_of_the_scan_is_nearer(step, offset):
    """By brute force over all windows: the best scale first, and then the nearest centre."""
    rng = np.random.default_rng(1)
    windows = Pyramid.from_image(IMAGE, WINDOW, scale_factor=1.25, step=step)
    levels = Pyramid.from_image(IMAGE, WINDOW, scale_factor=1.25).levels
    for _ in range(60):
        size = rng.uniform(1, 6)
        x, y = rng.uniform(0, 110 - 9 * size), rng.uniform(0, 90 - 12 * size)
        wanted = np.array([[x, y, x + 9 * size, y + 12 * size]])
        near = windows.nearest(offset.windows(offset.boxes(wanted))[0])
        assert abs(np.log(near.scale[0] / size)) <= min(abs(np.log(1.25**k / size)) for k in range(len(levels))) + 1e-9
        level = levels[round(np.log(near.scale[0]) / np.log(1.25))]
        height, width = level.image.shape
        places = np.mgrid[0 : height - 11 : step, 0 : width - 8 : step].reshape(2, -1)
        boxes = level.boxes(*places, WINDOW)
        distance = np.hypot(*((boxes[:, :2] + boxes[:, 2:]) - (wanted[:, :2] + wanted[:, 2:])).T)
        mine = np.flatnonzero((places[0] == near.y[0]) & (places[1] == near.x[0]))
        assert distance[mine] <= distance.min() + 1e-9
        np.testing.assert_array_equal(
            windows.patches(near)[0], level.image[near.y[0] : near.y[0] + 12, near.x[0] : near.x[0] + 9]
        )


OFFSETS = [BoxOffset(), BoxOffset(-0.1, -0.2, 1.3, 1.1), BoxOffset(-1.9, -1.5, 2.9, 2.0), BoxOffset(0.7, 0.6, 1.9, 1.5)]


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("offset", OFFSETS, ids=["window", "wider", "far wider", "beside"])
def test_overlapping_windows_are_those_of_brute_force(step, offset):
    rng = np.random.default_rng(2)
    pyramid = Pyramid.from_image(IMAGE, WINDOW, scale_factor=1.25, step=step)
    everything = []
    for level, scale in zip(pyramid.levels, pyramid.scales, strict=True):
        height, width = level.image.shape
        places = np.mgrid[0 : height - 11 : step, 0 : width - 8 : step].reshape(2, -1)
        everything += [(scale, y, x, *box) for y, x, box in zip(*places, level.boxes(*places, WINDOW), strict=True)]
    rows = np.array(everything)
    boxes = offset.boxes(rows[:, 3:])
    for number in range(60):
        (box,) = boxes[rng.integers(len(boxes))][None] + rng.normal(0, 4, (1, 4))
        if (box[2:] - box[:2] < 1).any():
            continue
        iou = (0.1, 0.4, 0.6)[number % 3]
        found = pyramid.overlapping(box, iou, offset)
        expected = rows[box_iou(box[None], boxes)[0] >= iou, :3]
        np.testing.assert_array_equal(np.column_stack([found.scale, found.y, found.x]), expected)


def test_a_box_outside_overlaps_no_window():
    pyramid = Pyramid.from_image(IMAGE, WINDOW)
    for box in ([-50.0, -50.0, -1.0, -1.0], [200.0, 10.0, 230.0, 50.0], [1e8, 1e8, 2e8, 2e8]):
        assert len(pyramid.overlapping(np.array(box), 0.1)) == 0


def test_a_box_at_the_edge_has_the_last_window_of_the_scan():
    windows = Pyramid.from_image(IMAGE, WINDOW, scale_factor=1.25, step=4)
    near = windows.nearest(np.array([101.0, 78.0, 110.0, 90.0]))
    assert (near.y[0], near.x[0]) == (76, 100)


def test_an_image_without_windows_is_named():
    with pytest.raises(BoxError, match="8 x 20 pixels, too few for windows of 12 x 12"):
        bull_finder().learn(np.zeros((20, 8), np.uint8), [[0, 0, 8, 8]], True)
