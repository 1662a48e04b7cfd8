"""The one normalisation against the definition of OpenCV, in NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.samples import cumulated

from whet._kernels.window_scan import window_factor
from whet.models.gslda.integral import IntegralStack


def twin(patch, min_sigma):
    inner = patch[1:-1, 1:-1].astype(np.int64)
    spread = inner.size * (inner**2).sum() - inner.sum() ** 2
    if spread <= 0:
        return np.float32(1), False
    factor = np.float32(1 / np.sqrt(np.float64(spread)))
    return factor, inner.size * np.float64(factor) < 1 / min_sigma


@given(
    arrays(np.uint8, st.tuples(st.just(3), st.integers(3, 9), st.integers(3, 9))),
    st.sampled_from([0.5, 5.0, 10.0, 40.0]),
)
def test_a_stack_is_normalised_patch_by_patch(patches, min_sigma):
    stack = IntegralStack.from_patches(patches, min_sigma)
    expected = [twin(patch, min_sigma) for patch in patches]
    assert np.array_equal(stack.factors, [factor for factor, _ in expected])
    assert np.array_equal(stack.has_contrast, [has_contrast for _, has_contrast in expected])


def test_the_factor_is_one_over_area_times_standard_deviation():
    patch = np.random.default_rng(0).integers(0, 256, (24, 24), dtype=np.uint8)
    inner = patch[1:-1, 1:-1]
    factor = IntegralStack.from_patches(patch[None]).factors[0]
    assert factor == pytest.approx(1 / (22 * 22 * inner.std()), rel=1e-6)


def test_only_the_inner_rectangle_counts():
    patch = np.full((24, 24), 50, dtype=np.uint8)
    patch[0], patch[:, 0], patch[-1], patch[:, -1] = 255, 255, 0, 0
    stack = IntegralStack.from_patches(patch[None])
    assert (stack.factors[0], stack.has_contrast[0]) == (1, False)


@pytest.mark.parametrize(
    ("dark", "bright", "min_sigma", "has_contrast"),
    [
        (0, 20, 10.0, False),  # sigma is 10, and OpenCV wants more than 10
        (0, 22, 10.0, True),
        (0, 32, 16.0, False),  # exactly 16, without rounding
        (0, 20, 9.9, True),
        (0, 2, 0.0, True),  # no lower bound
        (7, 7, 0.0, False),  # but flat windows are never looked at
    ],
)
def test_windows_of_too_little_contrast_are_refused(dark, bright, min_sigma, has_contrast):
    pixels = np.array([dark, bright] * 8)
    assert window_factor(pixels.sum(), (pixels**2).sum(), 16, min_sigma)[1] == has_contrast


def test_a_window_of_an_image_and_the_patch_cut_out_of_it_have_the_same_factor():
    image = np.random.default_rng(1).integers(0, 256, (40, 50), dtype=np.uint8)
    sums, squares = (cumulated(image.astype(np.int64) ** power).astype(np.int64) for power in (1, 2))
    x, y = 13, 9

    def inner(integral):
        block = integral[y + 1 : y + 24, x + 1 : x + 24]
        return block[0, 0] - block[0, -1] - block[-1, 0] + block[-1, -1]

    patch = image[y : y + 24, x : x + 24]
    assert window_factor(inner(sums), inner(squares), 22 * 22)[0] == IntegralStack.from_patches(patch[None]).factors[0]


def test_patches_without_an_inside_are_refused():
    with pytest.raises(ValueError, match="3 x 3 or larger"):
        IntegralStack.from_patches(np.zeros((1, 2, 5), dtype=np.uint8))
