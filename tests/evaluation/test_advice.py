"""Advice for weak detectors, case by case."""

import pytest

from whet.evaluation.advice import Findings, LearningCurve, advise
from whet.evaluation.error_kinds import BoxFit, ErrorCount, ErrorKind, ErrorReport

GOOD_FIT = BoxFit(60, 1.0, 1.0, 0.0, 0.0, 0.1, 0.75)
FLAT = LearningCurve((40, 80, 160), (0.4, 0.5, 0.5), (1.0, 1.0, 0.9), (50, 100), (0.5, 0.5))


def report(*counts, fit=GOOD_FIT, n_objects=100, average_precision=0.5):
    return ErrorReport(n_objects, 100, average_precision, counts, fit)


def missed(kind, n, n_objects=None, gain=0.1):
    return ErrorCount(kind, 0, n, 0.5 + gain, n_objects)


def trained(*counts, curve=FLAT, n=240, misfits=0.0, fit=GOOD_FIT):
    errors = report(*counts, fit=fit)
    return Findings(errors, curve=curve, n_training_objects=n, aspects=(0.5, 1.9), misfits=misfits)


def first(findings):
    return advise(findings)[0]


@pytest.mark.parametrize(
    ("n_missed", "average_precision", "expected"), [(21, 0.9, True), (10, 0.79, True), (20, 0.8, False)]
)
def test_weak_is_a_low_recall_or_a_low_average_precision(n_missed, average_precision, expected):
    errors = report(missed(ErrorKind.NOT_FOUND, n_missed, gain=0.5), average_precision=average_precision)
    assert Findings(errors).is_weak is expected
    assert bool(advise(Findings(errors))) is expected


def test_a_detector_without_objects_is_not_weak():
    assert advise(Findings(report(n_objects=0, average_precision=float("nan")))) == []


def test_boxes_that_disagree_are_reported_of_a_good_detector_too():
    poor = ErrorCount(ErrorKind.POOR_BOX, 12, 5, 0.97)
    uneven = BoxFit(108, 0.96, 0.97, 0.0, 0.0, 0.18, 0.66)
    (advice,) = advise(Findings(report(poor, fit=uneven, average_precision=0.9)))
    assert "agree" in advice.what


def test_a_flat_curve_and_ordinary_errors_give_no_advice():
    assert advise(trained(missed(ErrorKind.LOW_SCORE, 30))) == []


def test_a_rising_curve_asks_for_more_objects():
    curve = LearningCurve((40, 80, 160), (0.4, 0.5, 0.62), (1.0, 1.0, 0.9), (50, 100), (0.6, 0.62))
    advice = first(trained(missed(ErrorKind.LOW_SCORE, 30), curve=curve))
    assert "more objects" in advice.what
    assert "50%" in advice.why
    assert "62% with 160" in advice.why
    assert advice.gain == pytest.approx(0.12)


def test_few_objects_ask_for_more_whatever_the_curve_says():
    advice = first(trained(missed(ErrorKind.LOW_SCORE, 30), n=24))
    assert "more objects" in advice.what
    assert "24" in advice.why


def test_a_gain_by_negatives_asks_for_more_negatives():
    curve = LearningCurve((40, 80, 160), (0.4, 0.5, 0.56), (1.0, 1.0, 0.9), (50, 100), (0.4, 0.56))
    both = advise(trained(missed(ErrorKind.LOW_SCORE, 30), curve=curve))
    assert ["more negatives" in one.what for one in both] == [True, False]
    assert "--negatives" in both[0].why


def test_few_images_with_negatives_ask_for_more():
    curve = LearningCurve((40, 80, 160), (0.4, 0.5, 0.5), (1.0, 1.0, 0.9), (5, 10), (0.5, 0.5))
    advice = first(trained(missed(ErrorKind.LOW_SCORE, 30), curve=curve))
    assert "more negatives" in advice.what
    assert "10 images only" in advice.why


def test_missed_shapes_and_boxes_that_the_window_does_not_fit_ask_for_several_detectors():
    shapes = missed(ErrorKind.OTHER_ASPECT, 25, n_objects=30), missed(ErrorKind.LOW_SCORE, 20)
    advice = first(trained(*shapes, misfits=0.28))
    assert "shape" in advice.what
    assert "28%" in advice.why
    assert "0.5 to 1.9" in advice.why
    assert "83% of 30 objects" in advice.why
    assert advise(trained(*shapes, misfits=0.02)) == []
    assert "shape" in first(trained(missed(ErrorKind.LOW_SCORE, 40), misfits=0.28)).what


def test_few_objects_are_not_to_be_split_by_shape():
    low = missed(ErrorKind.LOW_SCORE, 40)
    assert first(trained(low, misfits=0.28, n=240)).gain == pytest.approx(0.28)
    assert "shape" not in first(trained(low, misfits=0.28, n=70)).what


@pytest.mark.parametrize(
    ("kind", "word"),
    [(ErrorKind.TOO_SMALL, "--min-size"), (ErrorKind.CUT_OFF, "cut-off"), (ErrorKind.OTHER_ASPECT, "shape")],
)
def test_a_property_matters_only_if_objects_with_it_are_missed_more_often(kind, word):
    ordinary = missed(ErrorKind.POOR_BOX, 14)
    often, as_often = missed(kind, 18, n_objects=30), missed(kind, 7, n_objects=30)
    assert word in first(Findings(report(often, ordinary))).what
    assert not any(word in one.what for one in advise(Findings(report(as_often, ordinary))))


def test_a_few_objects_with_a_property_prove_nothing():
    assert advise(trained(missed(ErrorKind.CUT_OFF, 4, n_objects=4))) == []


def test_boxes_of_uneven_sizes_disagree():
    poor = ErrorCount(ErrorKind.POOR_BOX, 20, 12, 0.62)
    uneven = BoxFit(60, 1.0, 1.0, 0.0, 0.0, 0.3, 0.55)
    for findings in (Findings(report(poor, fit=uneven)), trained(poor, fit=uneven)):
        assert "agree" in first(findings).what
        assert "30%" in first(findings).why
    assert not any("agree" in one.what for one in advise(Findings(report(poor))))


def test_boxes_of_another_extent_are_named():
    poor = ErrorCount(ErrorKind.POOR_BOX, 20, 12, 0.62)
    advice = first(Findings(report(poor, fit=BoxFit(60, 1.3, 1.25, 0.0, 0.12, 0.1, 0.55))))
    assert "extent" in advice.what
    assert "1.3 times as wide" in advice.why
    assert "12% down" in advice.why


def test_false_positives_on_the_background_ask_for_negatives():
    advice = first(Findings(report(ErrorCount(ErrorKind.BACKGROUND, 40, 0, 0.7))))
    assert "more negatives" in advice.what
    assert "0.40 per image" in advice.why


def test_false_positives_on_other_classes_name_them():
    assert "other classes" in first(Findings(report(ErrorCount(ErrorKind.OTHER_CLASS, 10, 0, 0.7)))).what


def test_a_minimum_score_that_is_too_high_comes_first():
    findings = Findings(report(missed(ErrorKind.LOW_SCORE, 60, gain=0.2)), recall_at_target=0.8)
    assert "minimum score" in first(findings).what
    assert "--set-point" in first(findings).why
    several = report(missed(ErrorKind.LOW_SCORE, 60), ErrorCount(ErrorKind.BACKGROUND, 10, 0, 0.5))
    assert not any("score" in one.what for one in advise(Findings(several, recall_at_target=0.5)))


def test_objects_that_are_not_found_ask_for_such_objects():
    findings = Findings(report(missed(ErrorKind.NOT_FOUND, 30, gain=0.2)), recall_at_target=0.7)
    assert "more objects" in first(findings).what
    assert "30 are not found" in first(findings).why


def test_every_advice_says_what_and_why_with_a_number():
    findings = [
        trained(missed(ErrorKind.OTHER_ASPECT, 25, 30), missed(ErrorKind.CUT_OFF, 25, 30), n=24, misfits=0.3),
        Findings(report(missed(ErrorKind.NOT_FOUND, 30), ErrorCount(ErrorKind.BACKGROUND, 40, 0, 0.7))),
    ]
    for one in [one for each in findings for one in advise(each)]:
        what, _, why = str(one).partition(": ")
        assert what
        assert any(letter.isdigit() for letter in why)
