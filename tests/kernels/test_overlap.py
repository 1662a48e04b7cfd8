"""Sweeps over boxes against all pairs in NumPy."""

import numpy as np
import pytest

from whet._kernels.box_overlaps import absorb, intersection_over_union, suppress


def all_overlaps(boxes):
    low = np.maximum(boxes[:, None, :2], boxes[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    shared = np.prod(np.clip(high - low, 0, None), axis=2)
    area = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    return shared / (area[:, None] + area[None] - shared)


def random_boxes(n, rng):
    corner, size = rng.integers(0, 60, (n, 2)), rng.integers(1, 30, (n, 2))
    boxes = np.concatenate([corner, corner + size], axis=1).astype(np.float64)
    return boxes[np.argsort(boxes[:, 0], kind="stable")]


def components(linked):
    """The lowest index that each box is linked to, by spreading it until nothing changes."""
    label = np.arange(len(linked))
    while True:
        new = np.where(linked, label[None], len(linked)).min(axis=1, initial=len(linked))
        if np.array_equal(new, label):
            return label
        label = new


@pytest.mark.parametrize("least", [0.05, 0.3, 1.0])
def test_suppression_is_greedy(least, rng):
    for _ in range(5):
        boxes, order = random_boxes(50, rng), rng.permutation(50)
        overlaps = all_overlaps(boxes)
        expected = np.full(50, -1)
        for i in order:
            if expected[i] < 0:
                expected[(overlaps[i] >= least) & (expected < 0)] = i
        winner = np.empty(50, dtype=np.intp)
        suppress(boxes, np.array([0, 50]), 0, order, least, winner)
        assert np.array_equal(winner, expected)


def test_boxes_that_touch_share_nothing():
    a = np.array([0.0, 0.0, 2.0, 2.0])
    assert intersection_over_union(a, a + np.array([2, 0, 2, 0])) == 0
    assert intersection_over_union(a, a) == 1


@pytest.mark.parametrize("n", [0, 1, 2, 60])
@pytest.mark.parametrize("least", [0.3, 0.6, 1.0])
def test_absorbed_boxes_are_those_of_all_pairs(n, least, rng):
    for _ in range(5):
        boxes = rng.permutation(random_boxes(n, rng))
        winner = np.empty(n, dtype=np.intp)
        absorb(boxes, least, winner)
        low = np.maximum(boxes[:, None, :2], boxes[None, :, :2])
        high = np.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
        shared = np.prod(np.clip(high - low, 0, None), axis=2)
        area = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
        held = shared >= least * np.minimum(area[:, None], area[None])
        kept = []
        for i in range(n):
            holder = next((j for j in kept if held[i, j]), i)
            kept += [i] if holder == i else []
            assert winner[i] == holder
