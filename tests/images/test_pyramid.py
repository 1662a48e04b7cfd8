import numpy as np
import pytest
from tests.cascades import textured

from whet.images.pyramid import Grid, Level, Pyramid, WindowIndex, level_at, level_scales, resized


def test_levels_shrink_by_the_factor_until_the_window_no_longer_fits(rng):
    image = textured((97, 131), rng)
    levels = Pyramid.from_image(image, (20, 24), scale_factor=1.25).levels
    assert levels[0].image is image  # never resampled, never enlarged
    for k, level in enumerate(levels):
        assert level.image.shape == (round(97 / 1.25**k), round(131 / 1.25**k))
        assert level.image.dtype == np.uint8
    assert levels[-1].image.shape >= (20, 24)
    beyond = 1.25 ** len(levels)
    assert round(97 / beyond) < 20 or round(131 / beyond) < 24


@pytest.mark.parametrize(
    ("shape", "n"),
    [
        ((24, 24), 1),
        ((23, 24), 0),
        ((24, 23), 0),
        ((1, 1), 0),
        ((0, 0), 0),
        ((28, 29), 1),  # 28 / 1.2 is 23.3, rounded down
        ((29, 29), 2),  # 29 / 1.2 is 24.2
        ((2000, 24), 1),
    ],
)
def test_images_that_hardly_hold_a_window(shape, n):
    assert len(Pyramid.from_image(np.zeros(shape, dtype=np.uint8), (24, 24)).levels) == n


def test_limits_choose_levels_and_do_not_move_them():
    everything = level_scales((480, 640), (24, 20), 1.2)
    some = level_scales((480, 640), (24, 20), 1.2, min_size=40, max_size=100)
    assert some == [scale for scale in everything if 40 <= 24 * scale <= 100]
    assert 0 < len(some) < len(everything)
    assert level_scales((480, 640), (24, 24), 1.2, max_size=20) == []
    assert level_scales((480, 640), (24, 24), 1.2, min_size=24) == level_scales((480, 640), (24, 24), 1.2)


def test_small_objects_are_detected_in_an_enlarged_image():
    every, larger = (level_scales((480, 640), (24, 24), 1.2, min_size=least) for least in (12, None))
    assert every[-len(larger) :] == larger
    np.testing.assert_allclose(every[: -len(larger)], [1.2**-3, 1.2**-2, 1.2**-1])  # 13.9, 16.7 and 20 pixels
    assert [
        level.image.shape for level in Pyramid.from_image(np.zeros((20, 20), np.uint8), (24, 24), min_size=18).levels
    ] == [(24, 24)]
    with pytest.raises(ValueError, match="from 6 pixels"):
        level_scales((480, 640), (24, 24), min_size=5)


def test_boxes_of_the_whole_level_are_the_whole_image(rng):
    image = textured((97, 131), rng)
    for level in Pyramid.from_image(image, (10, 10)).levels:
        height, width = level.image.shape
        box = level.boxes(np.array([0]), np.array([0]), (height, width))
        np.testing.assert_allclose(box, [[0, 0, 131, 97]], rtol=1e-12)


def test_boxes_are_scaled_by_each_side_of_its_own():
    level = level_at(np.zeros((101, 203), dtype=np.uint8), 1.2)
    assert (level.scale_y, level.scale_x) == (101 / 84, 203 / 169)
    box = level.boxes(np.array([5]), np.array([7]), (24, 20))
    np.testing.assert_array_equal(box, [[7 * 203 / 169, 5 * 101 / 84, 27 * 203 / 169, 29 * 101 / 84]])


def test_a_flipped_image_has_flipped_levels(rng):
    image = textured((97, 131), rng)
    turned = Pyramid.from_image(image[::-1, ::-1], (12, 12)).levels
    for level, other in zip(Pyramid.from_image(image, (12, 12)).levels, turned, strict=True):
        assert np.array_equal(level.image[::-1, ::-1], other.image)


def test_making_smaller_averages_instead_of_picking():
    stripes = np.tile(np.array([0, 255], dtype=np.uint8), (64, 32))
    assert abs(resized(stripes, (16, 16))[2:-2, 2:-2].astype(int) - 127).max() <= 2


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_nothing(threads, rng):
    image = textured((80, 60), rng)
    for one, other in zip(
        Pyramid.from_image(image, (12, 12)).levels,
        Pyramid.from_image(image, (12, 12), threads=threads).levels,
        strict=True,
    ):
        assert np.array_equal(one.image, other.image)


def test_a_factor_that_does_not_shrink_is_refused():
    with pytest.raises(ValueError, match=r"scale_factor=1\.0"):
        level_scales((100, 100), (24, 24), 1.0)


def test_no_windows_no_boxes():
    empty = np.empty(0, dtype=np.intp)
    assert Level(np.zeros((9, 9), dtype=np.uint8), 1.0, 1.0).boxes(empty, empty, (3, 3)).shape == (0, 4)


@pytest.mark.parametrize("grid", [Grid(), Grid(is_colour=True), Grid(4, 16, is_colour=True)])
def test_patches_of_windows_are_cut_from_their_levels(grid):
    image = np.random.default_rng(0).integers(0, 256, (60, 80, *(3,) * grid.is_colour), dtype=np.uint8)
    pyramid = Pyramid.from_image(image, (24, 16), grid=grid)
    index = pyramid.overlapping(np.array([10.0, 5.0, 40.0, 50.0]), 0.3)
    patches = pyramid.patches(index)
    assert len({scale for scale, *_ in index}) > 1
    for patch, (scale, y, x) in zip(patches, index, strict=True):
        assert np.array_equal(patch, pyramid.level(scale).patch(y, x, pyramid.window))


@pytest.mark.parametrize("colours", [(), (3,)])
def test_windows_of_patches_are_those_of_levels(colours):
    rng = np.random.default_rng(0)
    patches = rng.integers(0, 256, (30, 14, 12, *colours), dtype=np.uint8)
    pyramid, index = Pyramid.from_patches(patches, (10, 8))
    some = index.take(rng.permutation(30)[:20])
    apart = WindowIndex(some.scale, rng.integers(0, 5, 20), some.x)
    for places in (index, some, apart, some.take(slice(0, 0))):
        expected = [pyramid.level(scale).patch(y, x, (10, 8)) for scale, y, x in places]
        np.testing.assert_array_equal(pyramid.patches(places), np.reshape(expected, (-1, 10, 8, *colours)))
