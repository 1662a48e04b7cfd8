"""Kernels of the OpenCV scan against their definitions in plain NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.cascades import textured
from tests.opencv_files import haar_file, lbp_file

from whet.detect import opencv_scan
from whet.detect.opencv_levels import resized_exactly
from whet.io.opencv_xml import parse_opencv
from whet.kernels.channels import integrate_channels
from whet.kernels.similar_rectangles import connect_similar

pictures = arrays(np.uint8, st.tuples(st.integers(1, 7), st.integers(1, 9)))


@given(pictures, st.sampled_from([1, 2]), st.integers(0, 2))
def test_channels_are_sums_over_their_regions(picture, step, spare):
    height, width = picture.shape
    line = (width + 1 + spare + step) // step * step
    channels = np.full((height + 1, 3, line), 7, dtype=np.uint32)
    integrate_channels(picture, step, channels)
    y, x = np.indices(picture.shape)
    wide = picture.astype(np.int64)
    for Y in range(height + 1):
        for X in range(width + 1):
            place = X % step * (line // step) + X // step
            above = (y < Y) & (x < X)
            triangle = (y < Y) & (abs(x - X + 1) <= Y - y - 1)
            expected = [wide[above].sum(), (wide[above] ** 2).sum(), wide[triangle].sum()]
            assert channels[Y, :, place].tolist() == expected


@given(pictures, st.integers(1, 9), st.integers(1, 9))
def test_resizing_mixes_four_pixels_with_weights_of_256(picture, height, width):
    def weights(source, target):
        matrix = np.zeros((target, source), dtype=np.int64)
        for i in range(target):
            place = 1.0 / (target / source) * (i + 0.5) - 0.5
            first = int(np.floor(place))
            if first < 0 or first >= source - 1:
                matrix[i, min(max(first, 0), source - 1)] = 256
            else:
                second = int(np.rint((place - first) * 256))
                matrix[i, first : first + 2] = 256 - second, second
        return matrix

    mixed = weights(picture.shape[0], height) @ picture.astype(np.int64) @ weights(picture.shape[1], width).T
    assert np.array_equal(resized_exactly(picture, (height, width)), (mixed + 2**15) >> 16)


@given(st.lists(st.tuples(*[st.integers(0, 40)] * 2, *[st.integers(1, 30)] * 2), max_size=15))
def test_similar_rectangles_are_connected_by_chains(boxes):
    boxes = np.array(sorted(boxes), dtype=np.int64).reshape(-1, 4)
    n = len(boxes)
    lesser = np.minimum(boxes[:, None], boxes[None])
    delta = 0.2 * (lesser[..., 2] + lesser[..., 3]) * 0.5
    sides = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)
    linked = (abs(sides[:, None] - sides[None]) <= delta[..., None]).all(axis=-1)
    for _ in range(n):
        linked = (linked.astype(int) @ linked.astype(int)) > 0
    parent = np.empty(n, dtype=np.intp)
    connect_similar(boxes, 0.2, parent)
    assert np.array_equal(parent[:, None] == parent[None], linked)


@pytest.mark.parametrize("make", [haar_file, lbp_file])
@pytest.mark.parametrize("sizes", [(1,), (2,), (1, 2, 3, 5)])
def test_rows_of_windows_and_windows_one_by_one_agree(make, sizes, monkeypatch):
    found = 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        cascade = parse_opencv(make(rng, (16, 14), [3, 6, 9], sizes=sizes).encode())
        picture, scales = textured((60, 71), rng), [np.float32(1), np.float32(2.2)]
        fast = opencv_scan.scan_levels(cascade, picture, scales)
        with monkeypatch.context() as patch:
            patch.setattr(opencv_scan, "is_simple", lambda _: False)
            slow = opencv_scan.scan_levels(cascade, picture, scales)
        assert np.array_equal(fast.boxes, slow.boxes)
        assert np.array_equal(fast.scores, slow.scores)
        found += len(fast.boxes)
    assert found > 20
