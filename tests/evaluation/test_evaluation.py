import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.evaluation.images import images, sets, split

from whet.evaluation.evaluation import evaluate_detections

LEFT, RIGHT, LARGE = [0, 0, 10, 10], [20, 0, 30, 10], [50, 50, 90, 90]

# Three images: one face found surely and one barely; two missed and a false positive; nothing there but a false
# positive.
DETECTIONS = [([LEFT, RIGHT], [5.0, 1.0]), ([LARGE, LEFT], [4.0, 2.0]), ([LEFT], [3.0])]
TRUTHS = [([LEFT, RIGHT], None), ([RIGHT, [0, 40, 20, 80], LARGE], [False, False, True]), ([], None)]


def same_curve(a, b):
    assert a.thresholds.tolist() == b.thresholds.tolist()
    assert a.found.tolist() == b.found.tolist()
    assert a.false_positives.tolist() == b.false_positives.tolist()
    assert (a.n_truths, a.n_images) == (b.n_truths, b.n_images)


def test_three_images_worked_by_hand():
    result = evaluate_detections(DETECTIONS, TRUTHS)
    assert result.curve.n_truths == 4  # the fifth is ignored, and so is the detection with score 4 that it has
    assert result.curve.found.tolist() == [0, 1, 1, 1, 2]
    assert result.curve.false_positives.tolist() == [0, 0, 1, 2, 2]
    assert result.average_precision == pytest.approx(1 / 4 + 1 / 4 * 2 / 4)
    assert result.log_average_miss_rate == pytest.approx((0.75**8 * 0.5) ** (1 / 9))


@pytest.mark.parametrize(
    ("threshold", "found", "missed", "false_positives"),
    [
        (-np.inf, [[0, 1], [], []], [[], [0, 1], []], [[], [1], [0]]),
        (1.0, [[0], [], []], [[1], [0, 1], []], [[], [1], [0]]),  # a score has to be above the threshold
        (2.5, [[0], [], []], [[1], [0, 1], []], [[], [], [0]]),
        (5.0, [[], [], []], [[0, 1], [0, 1], []], [[], [], []]),
    ],
)
def test_each_images_results_at_a_threshold(threshold, found, missed, false_positives):
    result = evaluate_detections(DETECTIONS, TRUTHS).images
    assert [image.found(threshold).tolist() for image in result] == found
    assert [image.missed(threshold).tolist() for image in result] == missed
    assert [image.false_positives(threshold).tolist() for image in result] == false_positives


def test_worst_false_positives_are_the_most_confident():
    result = evaluate_detections(DETECTIONS, TRUTHS)
    assert [(m.image, m.index, m.score) for m in result.worst_false_positives()] == [(2, 0, 3.0), (1, 1, 2.0)]
    assert [(m.image, m.box.tolist()) for m in result.worst_false_positives(2.0)] == [(2, LEFT)]


def test_worst_misses_are_those_no_threshold_finds_the_largest_first():
    result = evaluate_detections(DETECTIONS, TRUTHS)
    assert [(m.image, m.index, m.score) for m in result.worst_misses(1.5)] == [
        (1, 1, -np.inf),  # 20 x 40
        (1, 0, -np.inf),  # 10 x 10
        (0, 1, 1.0),  # found only below the threshold
    ]
    assert [(m.image, m.index) for m in result.worst_misses()] == [(1, 1), (1, 0)]


@given(sets(), st.integers(-4, 4))
def test_a_point_of_the_curve_is_what_a_detector_with_that_threshold_gets(pooled, threshold):
    detections, truths = pooled
    result = evaluate_detections(detections, truths)
    stand = [[i for i, score in enumerate(scores) if score > threshold] for _, scores in detections]
    kept = [
        ([boxes[i] for i in indices], [scores[i] for i in indices])
        for indices, (boxes, scores) in zip(stand, detections, strict=True)
    ]
    alone = evaluate_detections(kept, truths)
    assert alone.curve.found[-1] == sum(len(image.found(threshold)) for image in result.images)
    assert alone.curve.false_positives[-1] == sum(len(image.false_positives(threshold)) for image in result.images)
    n = len(alone.curve.found)
    assert alone.curve.found.tolist() == result.curve.found[:n].tolist()
    assert alone.curve.false_positives.tolist() == result.curve.false_positives[:n].tolist()


@given(sets())
def test_counts_of_images_add_up_to_the_curve(pooled):
    result = evaluate_detections(*pooled)
    assert sum(len(p.found()) for p in result.images) == result.curve.found[-1]
    assert sum(len(p.found()) + len(p.missed()) for p in result.images) == result.curve.n_truths
    assert len(result.worst_false_positives()) == result.curve.false_positives[-1]
    assert len(result.worst_misses()) == result.curve.n_truths - result.curve.found[-1]


@given(st.lists(images(), min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_the_images_is_of_no_account(all_images, random):
    shuffled = random.sample(all_images, len(all_images))
    same_curve(evaluate_detections(*split(all_images)).curve, evaluate_detections(*split(shuffled)).curve)


@given(sets())
def test_every_image_twice_leaves_recall_and_rates_as_they_were(pooled):
    detections, truths = pooled
    once, twice = evaluate_detections(detections, truths).curve, evaluate_detections(detections * 2, truths * 2).curve
    np.testing.assert_array_equal(twice.recall, once.recall)
    np.testing.assert_array_equal(twice.precision, once.precision)
    np.testing.assert_array_equal(twice.false_positives_per_image, once.false_positives_per_image)
    np.testing.assert_array_equal(twice.thresholds, once.thresholds)


@given(sets())
def test_an_empty_image_adds_to_the_count_of_images_alone(pooled):
    detections, truths = pooled
    before, after = (
        evaluate_detections(detections, truths).curve,
        evaluate_detections([*detections, ([], [])], [*truths, ([], None)]).curve,
    )
    assert after.found.tolist() == before.found.tolist()
    assert after.false_positives.tolist() == before.false_positives.tolist()
    assert after.n_images == before.n_images + 1


@given(sets())
def test_a_false_positive_with_the_lowest_score_changes_nothing_above_it(pooled):
    detections, truths = pooled
    (boxes, scores), *others = detections
    before = evaluate_detections(detections, truths).curve
    after = evaluate_detections([([*boxes, [70, 70, 80, 80]], [*scores, -9.0]), *others], truths).curve
    assert after.found.tolist() == [*before.found.tolist(), before.found[-1]]
    assert after.false_positives.tolist() == [*before.false_positives.tolist(), before.false_positives[-1] + 1]


def test_the_overlap_asked_for_is_used():
    half, truth = [([[0, 0, 10, 5]], [1.0])], [([LEFT], None)]
    assert evaluate_detections(half, truth).curve.found[-1] == 0
    assert evaluate_detections(half, truth, iou=0.4).curve.found[-1] == 1
    beside, region = [([[5, 0, 15, 10]], [1.0])], [([LEFT], [True])]
    assert evaluate_detections(beside, region).curve.false_positives[-1] == 1
    assert evaluate_detections(beside, region, ignore_overlap=0.4).curve.false_positives[-1] == 0


def test_generators_and_truths_alone_will_do():
    result = evaluate_detections((pair for pair in DETECTIONS), iter(TRUTHS))
    same_curve(result.curve, evaluate_detections(DETECTIONS, TRUTHS).curve)
    assert evaluate_detections([([], [])], [([LEFT], None)]).curve.recall.tolist() == [0]


def test_images_that_do_not_pair_up_are_named():
    with pytest.raises(ValueError, match="detections of 3 images, but truths of 2"):
        evaluate_detections(DETECTIONS, TRUTHS[:2])
    with pytest.raises(ValueError, match="no images"):
        evaluate_detections([], [])
