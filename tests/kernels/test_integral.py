"""Integral images against cumulative sums."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.samples import cumulated

from whet._kernels.pixel_sums import RUN, integrate_channels
from whet.models.gslda.integral import patch_integrals, tilted_integrals


@given(st.tuples(st.sampled_from([1, 2, 63, 64, 65, 130]), st.integers(1, 5), st.integers(1, 5)), st.data())
def test_a_stack_holds_the_cumulative_sums_of_every_patch(shape, data):
    patches = data.draw(arrays(np.uint8, shape))
    sums, squares = patch_integrals(patches)
    for s, patch in enumerate(patches):
        assert np.array_equal(sums[:, s], cumulated(patch).ravel())
        assert np.array_equal(squares[:, s], cumulated(patch.astype(np.uint16) ** 2).ravel())


@given(arrays(np.uint8, st.tuples(st.integers(1, 12), st.integers(1, 40))), st.integers(0, 3), st.booleans())
def test_channels_of_an_image_are_its_sums_its_squares_and_its_tilted_sums(image, spare, tilted):
    height, width = image.shape
    channels = np.full((height + 1, 2 + tilted, width + 1 + RUN + spare), 77, dtype=np.uint32)
    integrate_channels(image, channels, 1)
    used = channels[:, :, : width + 1]
    assert np.array_equal(used[:, 0], cumulated(image))
    assert np.array_equal(used[:, 1], cumulated(image.astype(np.uint16) ** 2))
    if tilted:
        assert np.array_equal(used[:, 2].ravel(), tilted_integrals(image[None])[:, 0])


def test_windows_stay_exact_after_the_squares_have_wrapped_around():
    rng = np.random.default_rng(0)
    image = rng.integers(200, 256, (400, 400), dtype=np.uint8)
    channels = np.zeros((401, 2, 401 + RUN), dtype=np.uint32)
    integrate_channels(image, channels, 1)
    squares = channels[:, 1]
    exact = cumulated(image.astype(np.uint16) ** 2)
    assert exact[-1, -1] >= 2**32  # else this would test nothing
    corners = squares[[376, 376, 400, 400], [376, 400, 376, 400]].astype(np.int64)
    assert corners @ [1, -1, -1, 1] % 2**32 == (image[376:, 376:].astype(np.int64) ** 2).sum()


# An image that ends where memory must not be read.
AT_THE_END = """
import ctypes, mmap, sys
import numpy as np
from whet._kernels.pixel_sums import RUN, integrate_channels

memory = np.frombuffer(mmap.mmap(-1, 2 * mmap.PAGESIZE), np.uint8)
forbidden = ctypes.c_void_p(memory.ctypes.data + mmap.PAGESIZE)
assert ctypes.CDLL(None).mprotect(forbidden, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
for width in (*range(1, 18), 31, 32, 33):
    image = memory[mmap.PAGESIZE - 12 * width : mmap.PAGESIZE].reshape(12, width)
    for step in (1, 2):
        integrate_channels(image, np.zeros((13, 2, 2 * (width + RUN + 2)), np.uint32), step)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="mprotect of Linux")
def test_nothing_behind_an_image_is_read():
    done = subprocess.run([sys.executable, "-c", AT_THE_END], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
