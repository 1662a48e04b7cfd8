"""Channels against a plain implementation in float64, mirror images, grey images, and trees."""

import numpy as np
import pytest
from tests.channels import colourful

from whet.models.channels.channels import compute_channels, filter_channels
from whet.models.channels.tree_model import TreeModel, tree_votes

MIRRORED = [0, 1, 2, 3, 4, 9, 8, 7, 6, 5]  # 30 degrees become 150, and so on


def plain_luv(rgb):
    """CIE LUV of linear RGB (height, width, 3), u + 88 and v + 134."""
    matrix = np.array([[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]])
    X, Y, Z = np.moveaxis(rgb / 255 @ matrix.T, -1, 0)
    L = np.where(Y > 0.008856, 116 * np.cbrt(Y) - 16, 903.3 * Y)
    whole = np.maximum(X + 15 * Y + 3 * Z, 1e-9)
    u, v = 13 * L * (4 * X / whole - 0.19793943), 13 * L * (9 * Y / whole - 0.46831096)
    return np.stack([L, np.where(L > 0, u, 0) + 88, np.where(L > 0, v, 0) + 134])


def filtered(plane, taps):
    """Convolve both directions of a plane with symmetric taps; edges repeat."""
    reach = len(taps) // 2
    for axis in (0, 1):
        pads = [(reach, reach) if each == axis else (0, 0) for each in (0, 1)]
        padded = np.pad(plane, pads, mode="edge")
        windows = np.lib.stride_tricks.sliding_window_view(padded, len(taps), axis=axis)
        plane = windows @ np.asarray(taps, float)
    return plane


def plain_channels(rgb):
    """The definition: LUV smoothed, gradient of the strongest plane, normalised, in six soft bins, means over cells."""
    luv = np.stack([filtered(plane, np.array([1, 2, 1]) / 4) for plane in plain_luv(rgb)])
    padded = np.pad(luv, ((0, 0), (1, 1), (1, 1)), mode="edge")
    dx = (padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]) / 2
    dy = (padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]) / 2
    strongest = np.argmax(dx**2 + dy**2, axis=0)[None]
    dx, dy = (np.take_along_axis(part, strongest, axis=0)[0] for part in (dx, dy))
    size = np.hypot(dx, dy)
    triangle = np.array([1, 2, 3, 4, 5, 6, 5, 4, 3, 2, 1]) / 36
    normal = size / (filtered(size, triangle) + 0.005 * 270)
    angle = np.arctan2(dy, dx) % np.pi / (np.pi / 6)
    distance = abs(angle[None] - np.arange(6)[:, None, None])
    shares = np.clip(1 - np.minimum(distance, 6 - distance), 0, 1)
    planes = np.concatenate([luv * [[[2.55]], [[1]], [[1]]], 100 * normal[None], 160 * normal * shares])
    height, width = (side // 4 * 4 for side in rgb.shape[:2])
    means = planes[:, :height, :width].reshape(10, height // 4, 4, width // 4, 4).mean(axis=(2, 4))
    return np.clip(means, 0, 255)


@pytest.mark.parametrize("shape", [(48, 64), (33, 47), (4, 4)])
def test_channels_are_those_of_the_plain_definition(shape):
    rgb = colourful(shape, np.random.default_rng(0))
    found, expected = compute_channels(rgb).astype(float), plain_channels(rgb)
    assert found.shape == expected.shape
    assert abs(found[:4] - expected[:4]).max() < 1.1  # half of rounding, and of units of 1/16 before
    # Where two planes are equally strong, rounding decides which of two angles counts.
    assert np.quantile(abs(found[4:] - expected[4:]), 0.99) < 1.1
    assert abs(found - expected).mean() < 0.4


def test_padding_repeats_the_edge_pixels():
    rgb = colourful((32, 40), np.random.default_rng(1))
    padded = np.pad(rgb, ((8, 8), (8, 8), (0, 0)), mode="edge")
    assert np.array_equal(compute_channels(rgb, padding=8), compute_channels(padded))


def test_a_mirrored_image_has_mirrored_channels():
    rgb = colourful((40, 48), np.random.default_rng(2))
    mirrored = compute_channels(np.ascontiguousarray(rgb[:, ::-1]))
    assert np.array_equal(mirrored[MIRRORED][:, :, ::-1], compute_channels(rgb))


def plain_filtered(cells):
    """Channels as they are, smoothed by [1 2 1], and differences of neighbours, smoothed in the other direction."""
    padded = np.pad(cells.astype(int), ((0, 0), (1, 1), (1, 1)), mode="edge")
    rows = padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]
    columns = padded[:, :, :-2] + 2 * padded[:, :, 1:-1] + padded[:, :, 2:]
    smooth = np.floor((rows[:, :, :-2] + 2 * rows[:, :, 1:-1] + rows[:, :, 2:]) / 16 + 0.5)
    differences = rows[:, :, 2:] - rows[:, :, :-2], columns[:, 2:] - columns[:, :-2]
    return np.concatenate([cells, smooth, *(128 + np.trunc(part / 4).clip(-127, 127) for part in differences)])


@pytest.mark.parametrize("shape", [(12, 16), (1, 1), (1, 7), (5, 1)])
def test_filtered_channels_are_those_of_the_plain_definition(shape):
    rng = np.random.default_rng(5)
    cells = np.concatenate([rng.integers(0, high, (5, *shape)) for high in (40, 256)]).astype(np.uint8)
    assert np.array_equal(filter_channels(cells), plain_filtered(cells))


def test_mirrored_channels_have_mirrored_filters_and_opposite_differences_across():
    cells = np.random.default_rng(6).integers(0, 256, (10, 9, 8), dtype=np.uint8)
    same, smooth, across, down = filter_channels(np.ascontiguousarray(cells[:, :, ::-1])).reshape(4, *cells.shape)
    expected = filter_channels(cells)[:, :, ::-1].reshape(4, *cells.shape)
    assert np.array_equal(np.stack([same, smooth, down]), expected[[0, 1, 3]])
    assert np.array_equal(across, 256 - expected[2].astype(int))


def test_a_grey_image_is_an_image_of_equal_colours():
    grey = colourful((24, 28), np.random.default_rng(3))[..., 0]
    cells = compute_channels(grey)
    assert np.array_equal(cells, compute_channels(np.stack([grey] * 3, axis=-1)))
    assert (cells[1] == 88).all()
    assert (cells[2] == 134).all()


def test_each_tree_has_one_leaf_for_a_window():
    rng = np.random.default_rng(4)
    threshold = rng.integers(0, 255, (7, 3), dtype=np.uint8)
    model = TreeModel.from_indices((8, 12), rng.integers(0, 240, (7, 3)), threshold, no_votes(7))
    cells = rng.integers(0, 256, (50, 40, 2, 3), dtype=np.uint8)
    bits = model.respond(cells).bits.T
    assert (bits.reshape(7, 4, 50).sum(axis=1) == 1).all()
    flat, leaf = cells.reshape(50, -1), bits.reshape(7, 4, 50).argmax(axis=1).T
    for sample, tree in np.ndindex(leaf.shape):
        root, left, right = (flat[sample, model.indices[tree]] > threshold[tree]).tolist()
        assert leaf[sample, tree] == (2 + right if root else left)


def no_votes(n):
    return tree_votes(np.zeros((n, 4)), np.full(n, -np.inf), 0.0)


def test_cells_are_numbered_by_channel_row_and_column():
    indices = np.random.default_rng(7).integers(0, 240, (9, 3))
    model = TreeModel.from_indices((8, 12), indices, np.zeros((9, 3), np.uint8), no_votes(9))
    assert np.array_equal(model.indices, indices)
    assert np.array_equal((model.channel.astype(int) * 2 + model.y) * 3 + model.x, indices)


def test_a_window_of_more_cells_than_a_byte_counts_is_refused():
    with pytest.raises(ValueError, match="up to 1024"):
        TreeModel.from_indices((1028, 60), np.zeros((1, 3), np.intp), np.zeros((1, 3), np.uint8), no_votes(1))
