"""Kinds of errors: each false positive and each miss has one, and mending a kind raises average precision."""

from dataclasses import replace

import numpy as np
import pytest

from whet.evaluation.error_kinds import BoxFit, ErrorKind, count_errors
from whet.evaluation.evaluation import evaluate_detections
from whet.images.boxes import box_iou

OBJECT = [100.0, 100.0, 150.0, 150.0]
FAR = [300.0, 300.0, 350.0, 350.0]
SHAPE = (400, 500)


def errors(detections, truths, threshold=-np.inf, ignored=None, **options):
    boxes, scores = [box for box, _ in detections], [score for _, score in detections]
    evaluation = evaluate_detections([(boxes, scores)], [(truths, ignored)])
    return count_errors(evaluation, threshold, shapes=[SHAPE], **options)


def only(report):
    (count,) = report.counts
    return count


def test_a_perfect_detector_has_no_errors():
    report = errors([(OBJECT, 1.0)], [OBJECT])
    assert report.counts == ()
    assert (report.recall, report.average_precision) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("box", "options", "kind"),
    [
        (FAR, {}, ErrorKind.BACKGROUND),
        ([100.0, 100.0, 150.0, 149.0], {}, ErrorKind.DUPLICATE),
        ([120.0, 100.0, 190.0, 150.0], {}, ErrorKind.POOR_BOX),
        ([90.0, 90.0, 220.0, 220.0], {}, ErrorKind.POOR_BOX),
        ([149.0, 100.0, 199.0, 150.0], {}, ErrorKind.BACKGROUND),  # an IoU below 0.1
        (FAR, {"others": [[FAR]]}, ErrorKind.OTHER_CLASS),
        ([120.0, 100.0, 190.0, 150.0], {"others": [[FAR]]}, ErrorKind.POOR_BOX),
    ],
)
def test_kinds_of_false_positives(box, options, kind):
    count = only(errors([(OBJECT, 2.0), (box, 1.0)], [OBJECT], **options))
    assert (count.kind, count.false_positives, count.missed) == (kind, 1, 0)


def test_what_lies_on_an_ignored_box_is_no_error():
    assert errors([(OBJECT, 2.0), (FAR, 1.0)], [OBJECT, FAR], ignored=[False, True]).counts == ()


@pytest.mark.parametrize(
    ("truth", "detections", "options", "kind"),
    [
        (OBJECT, [], {}, ErrorKind.NOT_FOUND),
        (OBJECT, [(OBJECT, 0.5)], {}, ErrorKind.LOW_SCORE),
        (OBJECT, [([120.0, 100.0, 190.0, 150.0], 2.0)], {}, ErrorKind.POOR_BOX),
        (OBJECT, [], {"min_size": 51.0}, ErrorKind.TOO_SMALL),
        (OBJECT, [], {"min_size": 50.0}, ErrorKind.NOT_FOUND),
        (OBJECT, [(OBJECT, 0.5)], {"aspect": 1.7}, ErrorKind.OTHER_ASPECT),
        (OBJECT, [(OBJECT, 0.5)], {"aspect": 1 / 1.7}, ErrorKind.OTHER_ASPECT),
        (OBJECT, [(OBJECT, 0.5)], {"aspect": 1.5}, ErrorKind.LOW_SCORE),
        ([0.0, 100.0, 50.0, 150.0], [], {"aspect": 2.0}, ErrorKind.CUT_OFF),
        ([460.0, 100.0, 500.0, 150.0], [], {}, ErrorKind.CUT_OFF),
        ([100.0, 360.0, 150.0, 399.0], [], {}, ErrorKind.CUT_OFF),
    ],
)
def test_kinds_of_misses(truth, detections, options, kind):
    report = errors(detections, [truth], threshold=1.0, **options)
    assert report.n_missed == 1
    assert report.count(kind).missed == 1


def test_properties_are_counted_of_objects_that_are_found_too():
    count = only(errors([(OBJECT, 2.0)], [OBJECT, FAR], aspect=2.0))
    assert (count.kind, count.missed, count.n_objects) == (ErrorKind.OTHER_ASPECT, 1, 2)


def test_average_precision_without_errors_of_a_kind():
    """Two objects, one found; above it a false positive, and the other object below the threshold."""
    report = errors(
        [(FAR, 3.0), (OBJECT, 2.0), ([10.0, 10.0, 60.0, 60.0], 0.5)], [OBJECT, [10.0, 10.0, 60.0, 60.0]], 1.0
    )
    assert report.average_precision == pytest.approx(2 / 3)
    assert report.count(ErrorKind.BACKGROUND).average_precision == 1.0
    assert report.count(ErrorKind.LOW_SCORE).average_precision == pytest.approx(2 / 3)
    assert [count.kind for count in report.counts] == [ErrorKind.BACKGROUND, ErrorKind.LOW_SCORE]


def test_a_mended_poor_box_finds_its_object_once():
    poor = [120.0, 100.0, 190.0, 150.0], [70.0, 100.0, 125.0, 150.0]
    count = only(errors([(poor[0], 2.0), (poor[1], 3.0)], [OBJECT]))
    assert (count.false_positives, count.missed, count.average_precision) == (2, 1, 1.0)


def test_every_error_is_counted_once_and_mending_never_costs(rng):
    for _ in range(20):
        truths = [scattered(rng, 6) for _ in range(5)]
        found = [(np.concatenate([moved(each, rng), scattered(rng, 4)]), rng.random(10)) for each in truths]
        evaluation = evaluate_detections(found, [(each, rng.random(6) < 0.2) for each in truths])
        threshold = float(rng.choice([-np.inf, 0.3]))
        report = count_errors(evaluation, threshold, shapes=[(300, 300)] * 5, min_size=20.0, aspect=1.0)
        assert report.n_missed == sum(len(image.missed(threshold)) for image in evaluation.images)
        assert report.n_false_positives == sum(len(image.false_positives(threshold)) for image in evaluation.images)
        costs = [count.average_precision for count in report.counts]
        assert costs == sorted(costs, reverse=True)
        assert min(costs, default=1.0) >= report.average_precision - 1e-12


def scattered(rng, n):
    corner = rng.uniform(0, 250, (n, 2))
    return np.concatenate([corner, corner + rng.uniform(5, 50, (n, 2))], axis=1)


def moved(boxes, rng):
    shift = rng.normal(0, 5, (len(boxes), 2))
    return np.concatenate([boxes[:, :2] + shift, boxes[:, 2:] + shift], axis=1)


def test_the_fit_of_boxes_shows_size_and_shift(rng):
    truths = scattered(rng, 200)
    size = truths[:, 2:] - truths[:, :2]
    larger = np.concatenate([truths[:, :2], truths[:, 2:] + 0.2 * size], axis=1)
    fit = BoxFit.from_boxes(larger, truths)
    assert (fit.width, fit.height) == pytest.approx((1.2, 1.2))
    assert (fit.shift_x, fit.shift_y) == pytest.approx((0.1, 0.1))
    assert fit.size_spread == pytest.approx(0.0, abs=1e-9)
    assert fit.iou == pytest.approx(float(np.diagonal(box_iou(larger, truths)).mean()))
    uneven = truths.copy()
    uneven[:, 2:] += size * rng.uniform(-0.4, 0, (200, 1))
    assert BoxFit.from_boxes(uneven, truths).size_spread > 0.1
    assert BoxFit.from_boxes(truths[:0], truths[:0]).n == 0


def test_the_best_detection_of_an_object_decides_how_boxes_fit():
    part, whole = [100.0, 100.0, 130.0, 130.0], [100.0, 100.0, 150.0, 140.0]
    fit = errors([(whole, 2.0), (part, 1.0)], [OBJECT]).box_fit
    assert (fit.n, fit.width, fit.height) == pytest.approx((1, 1.0, 0.8))


def test_a_report_without_objects_has_no_recall():
    report = errors([(FAR, 1.0)], [])
    assert np.isnan(report.recall)
    assert only(replace(report)).kind is ErrorKind.BACKGROUND
