import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.evaluation import slow_twins

from whet.evaluation.evaluation import (
    average_precision,
    log_average_miss_rate,
    operating_point,
    sweep,
)


@st.composite
def pooled(draw):
    """Scores, labels, number of truths and of images."""
    rows = draw(st.lists(st.tuples(st.integers(-4, 4), st.sampled_from([-1, 0, 1])), max_size=25))
    labels = [label for _, label in rows]
    return (
        [float(score) for score, _ in rows],
        labels,
        labels.count(1) + draw(st.integers(0, 4)),
        draw(st.integers(1, 60)),
    )


@pytest.mark.parametrize(
    ("scores", "labels", "found", "false_positives", "remark"),
    [
        ([], [], [0], [0], "no detections: one point"),
        ([1], [-1], [0], [0], "only ignored ones"),
        ([3, 2, 1], [1, 0, 1], [0, 1, 1, 2], [0, 0, 1, 1], "a step each"),
        ([1, 3, 2], [1, 1, 0], [0, 1, 1, 2], [0, 0, 1, 1], "in any order"),
        ([2, 2, 1], [0, 1, 1], [0, 1, 2], [0, 1, 1], "equal scores are one step"),
        ([2, 2, 1], [1, 0, 1], [0, 1, 2], [0, 1, 1], "whichever of them comes first"),
        ([2, 2, 2], [1, 0, 1], [0, 2], [0, 1], "all equal"),
        ([3, 2, 1], [1, -1, 0], [0, 1, 1], [0, 0, 1], "an ignored one makes no step"),
    ],
)
def test_curves_counted_by_hand(scores, labels, found, false_positives, remark):
    curve = sweep(scores, labels, n_truths=4, n_images=2)
    assert curve.found.tolist() == found, remark
    assert curve.false_positives.tolist() == false_positives, remark
    assert curve.recall.tolist() == [n / 4 for n in found]
    assert curve.false_positives_per_image.tolist() == [n / 2 for n in false_positives]


def test_precision_is_one_until_something_is_detected():
    assert sweep([3, 2, 1], [0, 1, 1], 2, 1).precision.tolist() == [1, 0, 1 / 2, 2 / 3]


@given(pooled())
def test_curve_equals_the_slow_twin_and_never_falls(sample):
    scores, labels, _, _ = sample
    curve = sweep(*sample)
    assert list(zip(curve.found, curve.false_positives, strict=True)) == slow_twins.points(scores, labels)
    assert (np.diff(curve.found) >= 0).all()
    assert (np.diff(curve.false_positives) >= 0).all()
    assert (np.diff(curve.thresholds) < 0).all()


@given(pooled())
def test_scores_above_a_threshold_are_those_of_its_point(sample):
    curve, scores, labels = sweep(*sample), np.array(sample[0]), np.array(sample[1])
    for k, threshold in enumerate(curve.thresholds):
        assert ((scores > threshold) & (labels == 1)).sum() == curve.found[k]
        assert ((scores > threshold) & (labels == 0)).sum() == curve.false_positives[k]


def test_neighbouring_floats_are_two_steps():
    high = 1.0
    low = np.nextafter(high, 0)
    curve = sweep([high, low], [1, 0], 1, 1)
    assert curve.found.tolist() == [0, 1, 1]
    assert high > operating_point(curve, 0) >= low


@given(pooled())
def test_a_false_positive_below_all_changes_nothing_above_it(sample):
    scores, labels, n_truths, n_images = sample
    before = sweep(*sample)
    after = sweep([*scores, -9.0], [*labels, 0], n_truths, n_images)
    n = len(before.found)
    assert len(after.found) == n + 1
    assert after.found[:n].tolist() == before.found.tolist()
    assert after.false_positives.tolist() == [*before.false_positives.tolist(), before.false_positives[-1] + 1]
    if len(before.thresholds) > 1:
        assert after.thresholds[:n].tolist() == before.thresholds.tolist()
    if n_truths:
        assert average_precision(after) == pytest.approx(average_precision(before), rel=1e-12)  # summed in other blocks


@given(pooled(), st.randoms(use_true_random=False))
def test_order_is_of_no_account_even_among_equal_scores(sample, random):
    scores, labels, n_truths, n_images = sample
    rows = list(zip(scores, labels, strict=True))
    random.shuffle(rows)
    shuffled = sweep([s for s, _ in rows], [label for _, label in rows], n_truths, n_images)
    assert shuffled.found.tolist() == sweep(*sample).found.tolist()
    assert shuffled.false_positives.tolist() == sweep(*sample).false_positives.tolist()


@given(pooled(), st.integers(2, 3))
def test_every_image_twice_leaves_rates_as_they_were(sample, times):
    scores, labels, n_truths, n_images = sample
    once, often = sweep(*sample), sweep(scores * times, labels * times, n_truths * times, n_images * times)
    np.testing.assert_array_equal(often.recall, once.recall)
    np.testing.assert_array_equal(often.false_positives_per_image, once.false_positives_per_image)
    np.testing.assert_array_equal(often.thresholds, once.thresholds)
    np.testing.assert_array_equal(log_average_miss_rate(often), log_average_miss_rate(once))
    np.testing.assert_array_equal(average_precision(often), average_precision(once))


@given(pooled(), st.floats(0, 2))
def test_an_operating_point_keeps_its_promise_and_the_next_step_would_not(sample, rate):
    scores, labels, _, n_images = np.array(sample[0]), np.array(sample[1]), *sample[2:]
    threshold = operating_point(sweep(*sample), rate)
    assert ((scores > threshold) & (labels == 0)).sum() / n_images <= rate
    below = scores[(scores <= threshold) & (labels >= 0)]
    if len(below):
        assert ((scores >= below.max()) & (labels == 0)).sum() / n_images > rate


@pytest.mark.parametrize(("n_images", "n_false"), [(100, 29), (10, 3), (1000, 57)])
def test_rates_are_compared_as_they_are_written(n_images, n_false):
    """0.29 * 100 is 28.999999999999996: a product would lose the 29th false positive."""
    scores = np.arange(n_false + 5, 0, -1)
    threshold = operating_point(sweep(scores, np.zeros(len(scores)), 1, n_images), n_false / n_images)
    assert (scores > threshold).sum() == n_false


def test_operating_points_at_the_ends():
    assert operating_point(sweep([2, 1], [0, 1], 1, 10), 0) == 2  # the highest is a false positive: nothing may stand
    assert operating_point(sweep([], [], 1, 10), 0) == np.inf
    assert 0.99 < operating_point(sweep([2, 1], [0, 1], 1, 10), 5) < 1  # all may stand, but nothing lower was seen


@pytest.mark.parametrize("wrong", [-1, float("nan")])
def test_fewer_than_no_false_positives_cannot_be_asked_for(wrong):
    curve = sweep([1], [1], 1, 1)
    with pytest.raises(ValueError, match="0 or more"):
        operating_point(curve, wrong)


@pytest.mark.parametrize(
    ("scores", "labels", "n_truths", "expected", "remark"),
    [
        ([], [], 3, 0, "nothing detected"),
        ([2, 1], [1, 1], 2, 1, "all found, no false positive"),
        ([2, 1], [1, 1], 4, 0.5, "recall never reached has precision 0"),
        ([2, 1], [0, 1], 1, 0.5, "one false positive first"),
        ([1, 1], [0, 1], 1, 0.5, "a tie is no better than the false positive first"),
        ([1, 1], [1, 0], 1, 0.5, "in either order"),
        ([3, 2, 1], [1, 0, 1], 2, (1 + 2 / 3) / 2, "1 to recall 1/2, then 2/3"),
        ([4, 3, 2, 1], [0, 1, 1, 1], 3, 3 / 4, "precision rises to 3/4: interpolated, it was 3/4 all along"),
        ([3, 2, 1], [1, 1, 0], 2, 1, "false positives below the last face cost nothing"),
    ],
)
def test_average_precision_worked_by_hand(scores, labels, n_truths, expected, remark):
    assert average_precision(sweep(scores, labels, n_truths, 1)) == pytest.approx(expected), remark


@pytest.mark.parametrize(
    ("scores", "labels", "n_truths", "n_images", "expected", "remark"),
    [
        ([], [], 3, 10, 1, "nothing detected"),
        ([2, 1], [1, 1], 4, 10, 0.5, "no false positive: one miss rate at all nine"),
        ([1], [1], 1, 10, 1e-10, "a perfect detector"),
        ([2, 1], [0, 1], 2, 100, 0.5, "0.01 an image is the first reference itself, and counts"),
        ([2, 1], [0, 1], 2, 50, 0.5 ** (7 / 9), "0.02 lies between the second reference (0.0178) and the third"),
        ([2, 1], [0, 1], 2, 10, 0.5 ** (5 / 9), "0.1: five of nine references reach it"),
        ([2, 1], [0, 1], 2, 1, 0.5 ** (1 / 9), "1: only the last"),
        ([3, 2, 1], [0, 0, 1], 2, 1, 1, "2 an image is beyond all references"),
        ([1, 1], [0, 1], 2, 10, 0.5 ** (5 / 9), "a tie is one step"),
    ],
)
def test_log_average_miss_rate_worked_by_hand(scores, labels, n_truths, n_images, expected, remark):
    assert log_average_miss_rate(sweep(scores, labels, n_truths, n_images)) == pytest.approx(expected), remark


@given(pooled())
def test_summaries_equal_their_slow_twins(sample):
    scores, labels, n_truths, n_images = sample
    curve = sweep(*sample)
    if n_truths:
        assert average_precision(curve) == pytest.approx(slow_twins.average_precision(scores, labels, n_truths))
        assert log_average_miss_rate(curve) == pytest.approx(
            slow_twins.log_average_miss_rate(scores, labels, n_truths, n_images)
        )


def test_without_truths_false_positives_are_counted_and_recall_is_not_known():
    curve = sweep([2, 1], [0, 0], n_truths=0, n_images=4)
    assert curve.false_positives_per_image.tolist() == [0, 0.25, 0.5]
    assert np.isnan(curve.recall).all()
    assert math.isnan(average_precision(curve))
    assert math.isnan(log_average_miss_rate(curve))
    assert 1 < operating_point(curve, 0.25) < 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2], [1], 1, 1), "scores have shape"),
        (([1, 2], [1, 1], 1, 1), "2 detections are right, but n_truths=1"),
        (([1], [2], 5, 1), r"labels have \[2\]"),
        (([1], [1], 1, 0), "n_images=0"),
    ],
)
def test_wrong_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        sweep(*arguments)
