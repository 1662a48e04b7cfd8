"""A scan with channels finds the windows that trees accept one by one, on any number of threads."""

import numpy as np
import pytest
from tests.cascades import detect
from tests.channels import WINDOW, colourful, random_trees

from whet.images.pyramid import Pyramid, WindowIndex, resized
from whet.models.channels.channels import compute_channels, filter_channels, level_channels, window_cells
from whet.tracking.tracker import scan_near


@pytest.fixture(scope="module")
def image():
    return colourful((90, 110), np.random.default_rng(0))


@pytest.fixture(scope="module")
def model():
    return random_trees()


def pyramid_of(model, image, **options):
    return Pyramid.from_image(image, model.window, grid=model.grid, **options)


def all_windows(pyramid):
    """Every window of a pyramid, by level, y and x."""
    parts = []
    for scale, level in zip(pyramid.scales, pyramid.levels, strict=True):
        limits = [(side // 4 - length // 4) * 4 + 1 for side, length in zip(level.shape, pyramid.window, strict=True)]
        y, x = (part.ravel() for part in np.mgrid[0 : limits[0] : pyramid.step, 0 : limits[1] : pyramid.step])
        parts.append(WindowIndex(np.full(len(y), scale), y, x))
    return WindowIndex.concatenate(parts)


@pytest.mark.parametrize("step", [1, 2])
def test_a_scan_accepts_what_trees_accept_window_by_window(model, image, step):
    pyramid = pyramid_of(model, image, step=step, min_size=18)
    index = all_windows(pyramid)
    scores = model.votes.scores(model.responses(pyramid, index)[0])
    found = model.scan(pyramid)
    accepted = index.take(scores > 0)
    assert 0 < len(found) < len(index) == found.n_windows
    assert list(found.index) == list(accepted)
    assert np.array_equal(found.scores, scores[scores > 0])
    assert np.array_equal(found.boxes, pyramid.boxes(accepted))


def test_responses_are_those_of_the_cells_of_the_padded_level(model, image):
    pyramid = pyramid_of(model, image)
    level, padding = pyramid.levels[2], model.grid.padding
    padded = np.pad(level.image, ((padding,) * 2, (padding,) * 2, (0, 0)), mode="edge")
    cells = filter_channels(compute_channels(padded))
    index = WindowIndex(np.full(1, pyramid.scales[2]), np.array([8]), np.array([12]))
    assert np.array_equal(window_cells(pyramid, index)[0], cells[:, 2 : 2 + WINDOW[0] // 4, 3 : 3 + WINDOW[1] // 4])
    responses, has_contrast = model.responses(pyramid, index)
    assert responses.bits.shape == (1, model.votes.n_weak)
    assert has_contrast.tolist() == [True]


def test_levels_between_others_have_nearly_their_own_channels(model, image):
    pyramid = pyramid_of(model, image)
    between = pyramid.levels[1]
    own = compute_channels(resized(image, between.image.shape[:2]), between.padding)
    assert level_channels(between).shape == own.shape
    assert abs(level_channels(between).astype(int) - own).mean() < 12
    smaller = Pyramid.from_image(image, model.window, grid=model.grid, min_size=27)
    assert np.array_equal(level_channels(smaller.level(pyramid.scales[3])), level_channels(pyramid.levels[3]))


def test_threads_do_not_change_a_bit(model, image):
    one, three = (model.scan(pyramid_of(model, image, threads=n), threads=n) for n in (1, 3))
    assert list(one.index) == list(three.index)
    assert one.scores.tobytes() == three.scores.tobytes()
    assert one.boxes.tobytes() == three.boxes.tobytes()


def test_windows_reach_into_the_padding(model, image):
    pyramid = pyramid_of(model, image)
    every = model.scan(pyramid, model.votes.unlimited)
    assert len(every) == every.n_windows == len(all_windows(pyramid))
    assert every.boxes[every.index.scale == 1].min() == -model.grid.padding == -16


def test_windows_near_a_box_are_scored_whether_accepted_or_not(model, image):
    pyramid = pyramid_of(model, image)
    box = np.array([30.0, 30.0, 30.0 + WINDOW[1], 30.0 + WINDOW[0]])
    near = scan_near(model, pyramid, box, reach=0.5, max_ratio=1.05)
    centres = (near.boxes[:, :2] + near.boxes[:, 2:]) / 2 - (box[:2] + box[2:]) / 2
    assert abs(centres).max() <= 0.5 * WINDOW[1]
    every = all_windows(pyramid)
    boxes = pyramid.boxes(every)
    offsets = abs((boxes[:, :2] + boxes[:, 2:]) / 2 - (box[:2] + box[2:]) / 2).max(axis=1)
    assert len(near) == int(((offsets <= 0.5 * WINDOW[1]) & (every.scale == 1.0)).sum())


def test_grey_images_are_scanned_as_images_of_equal_colours(model, image):
    grey = image[..., 1]
    first, second = (detect(model, each) for each in (grey, np.stack([grey] * 3, axis=-1)))
    assert np.array_equal(first.boxes, second.boxes)
    assert np.array_equal(first.scores, second.scores)


def test_the_window_for_a_box_is_the_nearest_on_the_grid(model, image):
    pyramid = pyramid_of(model, image)
    index = WindowIndex(np.full(1, pyramid.scales[2]), np.array([12]), np.array([16]))
    assert list(pyramid.nearest(pyramid.boxes(index)[0])) == list(index)
    assert next(iter(index)) in list(pyramid.overlapping(pyramid.boxes(index)[0], 0.95))
