"""Images made smaller, against Pillow: across, rounded to bytes, then down."""

import numpy as np
import pytest
from PIL import Image
from tests.cascades import textured

from whet._kernels.jit import HAS_SIMD
from whet._kernels.pixel_sums import resample, transposed, triangle_weights
from whet.images.pyramid import Pyramid, resized

needs_simd = pytest.mark.skipif(not HAS_SIMD, reason="without SIMD, Pillow itself makes images smaller")


def by_pillow(image, shape):
    """In two calls: Pillow 13 would begin with the height where that is faster."""
    across = Image.fromarray(image).resize((shape[1], image.shape[0]), Image.Resampling.BILINEAR)
    return np.asarray(across.resize(shape[::-1], Image.Resampling.BILINEAR))


@needs_simd
def test_every_byte_is_pillows(rng):
    for _ in range(150):
        height, width, *shape = rng.integers(1, 120, 4).tolist()
        image = rng.integers(0, 256, (height, width), dtype=np.uint8)
        if rng.random() < 0.3:
            image = np.where(image > 127, 255, 0).astype(np.uint8)
        found = resample(transposed(image), (height, width), tuple(shape))
        assert np.array_equal(found, by_pillow(image, shape)), (height, width, shape)


def test_levels_of_a_pyramid_are_pillows_with_any_number_of_threads(rng):
    image = textured((150, 201), rng)
    for threads in (1, 3):
        for level in Pyramid.from_image(image, (24, 24), min_size=16, threads=threads).levels:
            assert np.array_equal(level.image, by_pillow(image, level.image.shape))
            assert level.image.flags.c_contiguous


def test_a_part_of_an_image_needs_no_copy(rng):
    image = textured((90, 80), rng)
    assert np.array_equal(resized(image[3:70:2, 5:66], (20, 30)), by_pillow(image[3:70:2, 5:66].copy(), (20, 30)))


def test_the_size_of_the_image_is_the_image_itself(rng):
    image = textured((30, 31), rng)
    assert resized(image, (30, 31)) is image


def test_weights_are_shares_of_one():
    for length, wanted in ((4, 2), (100, 33), (7, 7), (5, 12), (640, 24)):
        first, weights = triangle_weights(length, wanted)
        assert np.abs(weights.sum(axis=1) - (1 << 22)).max() <= weights.shape[1]
        assert (first + (weights > 0).sum(axis=1) <= length).all()
