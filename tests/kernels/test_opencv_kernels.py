"""Kernels of the OpenCV scan against their definitions in plain NumPy."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.cascades import textured
from tests.opencv_files import haar_file, lbp_file

from whet._kernels.box_overlaps import connect_similar
from whet._kernels.opencv_scan import column_sources, resize_row
from whet._kernels.opencv_trees import Accepted, scan_row_scalar
from whet._kernels.pixel_sums import RUN, integrate_row
from whet._kernels.window_scan import OPENCV_MIN_SIGMA, Windows
from whet.models.gslda.cascade_scan import Layout
from whet.opencv import classifier
from whet.opencv.classifier import levels_of
from whet.opencv.tree_cascade import channels_of, simd_trees
from whet.opencv.xml_reader import parse_opencv

images = arrays(np.uint8, st.tuples(st.integers(1, 7), st.integers(1, 9)))


def resized_exactly(image, shape):
    """OpenCV's `INTER_LINEAR_EXACT`, row by row as a scan resizes."""
    out, (height, width) = np.empty(shape, np.uint8), shape
    sources, weights, mixed = (
        np.empty(width, np.int32),
        np.empty(width, np.int64),
        np.empty(image.shape[1] + 1, np.int32),
    )
    column_sources(image.shape[1], sources, weights)
    for y in range(height):
        resize_row(image, y, height, sources, weights, mixed, out[y])
    return out


def channels_of_rows(image, step, line, count=3):
    height, width = image.shape
    channels, tilted = np.full((height + 1, count, line), 7, dtype=np.uint32), np.zeros((3, width + 2), np.uint32)
    channels[0] = 0
    for y in range(height):
        row = np.concatenate([image[y], np.zeros(RUN, dtype=np.uint8)])
        integrate_row(row, width, step, channels[y], channels[y + 1], tilted)
    return channels


@given(arrays(np.uint8, st.tuples(st.integers(1, 5), st.integers(1, 35))), st.sampled_from([1, 2]), st.integers(0, 2))
def test_channels_are_sums_over_their_regions(image, step, spare):
    height, width = image.shape
    line = Layout.from_width(width + RUN + spare, step).line
    channels = channels_of_rows(image, step, line)
    y, x = np.indices(image.shape)
    wide = image.astype(np.int64)
    for Y in range(height + 1):
        for X in range(width + 1):
            place = X % step * (line // step) + X // step
            above = (y < Y) & (x < X)
            triangle = (y < Y) & (abs(x - X + 1) <= Y - y - 1)
            expected = [wide[above].sum(), (wide[above] ** 2).sum(), wide[triangle].sum()]
            assert channels[Y, :, place].tolist() == expected


@given(images, st.integers(1, 9), st.integers(1, 9))
def test_resizing_mixes_four_pixels_with_weights_of_256(image, height, width):
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

    mixed = weights(image.shape[0], height) @ image.astype(np.int64) @ weights(image.shape[1], width).T
    assert np.array_equal(resized_exactly(image, (height, width)), (mixed + 2**15) >> 16)


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


def walked(cascade, image, scales):
    """Boxes and sums by walking from window to window, as OpenCV does."""
    boxes, sums, (height, width) = [], [], cascade.window
    for level in levels_of(image.shape, cascade.window, scales):
        layout, count = Layout.from_width(image.shape[1] + RUN, level.step), channels_of(cascade)
        channels = channels_of_rows(resized_exactly(image, level.shape), level.step, layout.line, count)
        stride = count * layout.line
        y, x = np.array([1, 1, height - 1, height - 1]), np.array([1, width - 1, 1, width - 1])
        inner = (layout.offset(0 * y, x) + y * stride).astype(np.int32)
        area = (height - 2) * (width - 2)
        windows = Windows(level.rows, level.columns, level.step * stride, inner, area, OPENCV_MIN_SIGMA)
        places, scores = np.empty(level.rows * level.columns, np.uint32), np.empty(level.rows * level.columns)
        flat, trees = channels.ravel(), simd_trees(cascade, layout)
        no_room = np.empty(0, np.int32), np.empty(0, np.float32)
        n, squares = 0, flat[layout.line if count > 1 else 0 :]
        for row in range(windows.rows):
            start, accepted = row * windows.row_step, Accepted(places[n:], scores[n:])
            n += scan_row_scalar(flat, squares, start, windows, trees, *no_room, accepted)
        row, column = np.divmod(places[:n].astype(np.int64), windows.row_step)
        corner = np.rint(np.stack([column, row], -1).astype(np.float32) * np.float32(level.step) * level.scale)
        size = np.rint(np.float32([width, height]) * level.scale)
        boxes.append(np.concatenate([corner, np.broadcast_to(size, corner.shape)], axis=1))
        sums.append(scores[:n])
    return np.concatenate(boxes), np.concatenate(sums)


SCALES = [np.float32(1), np.float32(2.2)]


def assert_scanned_as_walked(cascade, image, threads=None):
    fast_boxes, fast_sums = classifier.scan_levels(cascade, image, SCALES, threads)
    boxes, sums = walked(cascade, image, SCALES)
    assert np.array_equal(fast_boxes, boxes)
    assert np.array_equal(fast_sums, sums)
    return len(boxes)


@pytest.mark.parametrize("make", [haar_file, lbp_file])
@pytest.mark.parametrize("sizes", [(1,), (2,), (1, 2, 3, 5), (20,)])
def test_eight_windows_at_once_and_one_by_one_agree(make, sizes):
    found = 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        cascade = parse_opencv(make(rng, (16, 14), [3, 6, 9], sizes=sizes).encode())
        found += assert_scanned_as_walked(cascade, textured((60, 71), rng), threads=1 + seed)
    assert found > 20


@pytest.mark.parametrize("make", [haar_file, lbp_file])
def test_sums_at_the_threshold_are_summed_as_opencv_does(make, rng):
    """Float32 has no number between most sums and the next: many windows are within rounding of such a threshold."""
    image = textured((60, 71), rng)
    cascade = parse_opencv(make(rng, (16, 14), [2, 9]).encode())
    cascade = replace(cascade, threshold=np.float32([-9, -9]))
    sums = np.unique(walked(cascade, image, SCALES)[1])
    counts = []
    for middle in sums[len(sums) // 3 : len(sums) // 3 + 8].astype(np.float32):
        for threshold in (np.nextafter(middle, np.float32(-9)), middle, np.nextafter(middle, np.float32(9))):
            tight = replace(cascade, threshold=np.float32([-9, threshold]))
            counts.append(assert_scanned_as_walked(tight, image))
    assert len(set(counts)) > 5


def test_nodes_in_any_order_and_nodes_that_nothing_leads_to(rng):
    image = textured((60, 71), rng)
    cascade = parse_opencv(haar_file(rng, (16, 14), [2, 4], sizes=(3,)).encode())
    trees, n = cascade.trees, len(cascade.trees)
    left, right = np.tile([2, -1, 1], n), np.tile([-2, 0, -3], n)  # the root's child is the last node
    backwards = replace(trees, left=left.astype(np.int32), right=right.astype(np.int32))
    found = assert_scanned_as_walked(replace(cascade, trees=backwards), image)
    left, right = np.tile([2, -1, 0], n), np.tile([-2, 0, -3], n)  # and nothing leads to the one between
    orphaned = replace(trees, left=left.astype(np.int32), right=right.astype(np.int32))
    assert found + assert_scanned_as_walked(replace(cascade, trees=orphaned), image) > 20


def test_whole_leaves_hold_any_finite_number(rng):
    cascade = parse_opencv(haar_file(rng, (16, 14), [3, 6]).encode())
    image = textured((60, 71), rng)
    for size in (1e-40, 1e-20, 1e30, 0.0):
        leaves = (cascade.trees.leaves * np.float64(size)).astype(np.float32)
        threshold = (cascade.threshold * np.float64(size)).astype(np.float32)
        scaled = replace(cascade, trees=replace(cascade.trees, leaves=leaves), threshold=threshold)
        assert assert_scanned_as_walked(scaled, image) > 0
        assert assert_scanned_as_walked(replace(scaled, threshold=np.float32([3e38, 3e38])), image) == 0
