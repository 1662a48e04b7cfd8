import numpy as np
import pytest

from whet.images.detections import group_peaks, keep_all, suppress_non_maxima

GROUPINGS = {
    "peaks": group_peaks,
    "nms": suppress_non_maxima,
}


def clusters(rng, n_objects=12, n_each=15):
    """Windows scattered around objects, with margins; all scores differ."""
    centre, side = rng.uniform(0, 400, (n_objects, 2)), rng.uniform(20, 60, (n_objects, 1))
    low = np.repeat(centre - side / 2, n_each, axis=0) + rng.normal(0, 2, (n_objects * n_each, 2))
    sides = np.repeat(side, n_each, axis=0) * rng.uniform(0.9, 1.1, (n_objects * n_each, 1))
    return np.concatenate([low, low + sides], axis=1), rng.uniform(0.1, 3, len(low))


@pytest.fixture(params=GROUPINGS)
def merge(request):
    return GROUPINGS[request.param]


def test_objects_apart_are_groups_apart(merge):
    offsets = np.repeat([0.0, 100.0, 200.0], 4)[:, None] + np.tile(np.arange(4.0), 3)[:, None]
    boxes = np.concatenate([offsets, offsets * 0, offsets + 30, offsets * 0 + 30], axis=1)
    groups = merge(boxes, np.linspace(1, 2, 12))
    assert groups.boxes.shape == (3, 4)
    assert groups.group.tolist() == [2] * 4 + [1] * 4 + [0] * 4  # margins rise to the right


def test_suppression_does_not_follow_chains_of_overlaps():
    x = np.array([0.0, 4.0, 8.0, 12.0])  # neighbours overlap by 6 / 14, others by 2 / 18 or not at all
    boxes = np.stack([x, 0 * x, x + 10, 0 * x + 10], axis=1)
    groups = suppress_non_maxima(boxes, np.array([4.0, 3.0, 2.0, 1.0]), iou=0.4)
    assert groups.boxes[:, 0].tolist() == [0, 8]
    assert groups.group.tolist() == [0, 0, 1, 1]


def test_a_peak_and_all_that_overlap_it_are_one_group(rng):
    boxes, scores = clusters(rng)
    groups, best = group_peaks(boxes, scores), suppress_non_maxima(boxes, scores)
    for g in range(len(groups.boxes)):
        inside = groups.group == g
        # What was nested in it has joined without a say in its box: there is one peak that explains box and score.
        peaks = {peak: best.group[inside] == peak for peak in set(best.group[inside].tolist())}
        assert any(
            np.allclose(groups.boxes[g], np.average(boxes[inside][own], axis=0, weights=scores[inside][own]))
            and np.isclose(groups.scores[g], np.linalg.norm(scores[inside][own], ord=4))
            for own in peaks.values()
        )


@pytest.mark.parametrize("larger_is_better", [True, False])
def test_a_group_inside_a_better_one_or_around_it_joins_it(larger_is_better):
    large, small, apart = [0.0, 0.0, 100.0, 100.0], [20.0, 20.0, 45.0, 45.0], [90.0, 90.0, 115.0, 115.0]
    scores = np.array([3.0, 2.0, 1.0]) if larger_is_better else np.array([2.0, 3.0, 1.0])
    groups = group_peaks(np.array([large, small, apart]), scores)
    assert groups.boxes.tolist() == [large if larger_is_better else small, apart]
    assert groups.scores.tolist() == [3.0, 1.0]
    assert groups.group.tolist() == [0, 0, 1]


def test_what_is_nested_in_something_nested_may_stand_by_itself():
    boxes = np.array([[0.0, 0.0, 100.0, 100.0], [60.0, 0.0, 110.0, 50.0], [102.0, 10.0, 112.0, 20.0]])
    groups = group_peaks(boxes, np.array([3.0, 2.0, 1.0]))  # the second joins the first, the third the second only
    assert groups.group.tolist() == [0, 0, 1]


def test_scores_fall_and_every_window_has_a_group(merge, rng):
    groups = merge(*clusters(rng))
    assert (np.diff(groups.scores) <= 0).all()
    assert np.array_equal(np.unique(groups.group), np.arange(len(groups.boxes)))


def test_one_more_window_never_lowers_the_score_of_its_group(rng):
    boxes, scores = clusters(rng, n_objects=1)
    fewer, more = group_peaks(boxes[:-1], scores[:-1]), group_peaks(boxes, scores)
    assert len(fewer.boxes) == len(more.boxes) == 1
    assert more.scores[0] > fewer.scores[0]


@pytest.mark.parametrize("axis", [0, 1])
def test_flipped_windows_have_flipped_groups(merge, axis, rng):
    boxes, scores = clusters(rng)
    flipped = boxes.copy()
    flipped[:, [axis, axis + 2]] = 512 - boxes[:, [axis + 2, axis]]
    groups, other = merge(boxes, scores), merge(flipped, scores)
    back = other.boxes.copy()
    back[:, [axis, axis + 2]] = 512 - other.boxes[:, [axis + 2, axis]]
    assert np.array_equal(groups.group, other.group)
    np.testing.assert_allclose(back, groups.boxes, atol=1e-9)
    np.testing.assert_allclose(other.scores, groups.scores)


def test_the_order_of_the_windows_does_not_matter(merge, rng):
    boxes, scores = clusters(rng)
    order = rng.permutation(len(boxes))
    groups, other = merge(boxes, scores), merge(boxes[order], scores[order])
    np.testing.assert_allclose(groups.boxes, other.boxes)
    assert np.array_equal(groups.group[order], other.group)


def test_nothing_merges_to_nothing(merge):
    for groups in (merge(np.empty((0, 4)), np.empty(0)), keep_all(np.empty((0, 4)), np.empty(0))):
        assert (groups.boxes.shape, groups.scores.shape, groups.group.shape) == ((0, 4), (0,), (0,))


def test_all_windows_best_first(rng):
    boxes, scores = clusters(rng)
    groups = keep_all(boxes, scores)
    assert np.array_equal(groups.boxes[groups.group], boxes)
    assert np.array_equal(groups.scores, np.sort(scores)[::-1])


def test_what_cannot_be_merged_is_refused(merge):
    with pytest.raises(ValueError, match="expected \\(n, 4\\)"):
        merge(np.zeros((2, 4)), np.zeros(3))
    with pytest.raises(ValueError, match="iou=0"):
        merge(np.zeros((2, 4)), np.zeros(2), iou=0)
