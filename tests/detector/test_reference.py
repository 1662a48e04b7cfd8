"""The reference set: estimates, operating points that follow, and probabilities, all without images."""

import gc
import warnings
import weakref
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.cascades import windows_of
from tests.detectors import (
    BULL,
    bull_finder,
    bull_scene,
    content,
    false_positive,
    from_bytes,
    judged_base,
    judged_finder,
)

from whet.corrections.reference import NEGATIVE, POSITIVE, Calibration, Estimate, HeldOutScores, Reference
from whet.detector.detector import Detector
from whet.detector.state import State
from whet.detector.storage import load
from whet.errors import WorseEstimateWarning
from whet.images.pyramid import Pyramid
from whet.models.responses import Responses
from whet.tracking.tracker import scan_near

# Corrections of the small detector cost recall, on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::whet.errors.WorseEstimateWarning")

SCORES = st.one_of(st.just(-np.inf), st.floats(0.01, 100))
SOME_SCORES = hnp.arrays(np.float64, st.integers(1, 30), elements=SCORES)


def direct(detector, part):
    """Scores of one part of the reference set, one sample after the other, from the definition."""
    reference, cascade, known = detector.base.reference, detector.model.cascade, detector.only.corrected.known
    scores = []
    rows = np.flatnonzero(reference.part == part)
    for bits, gain in zip(reference.responses.bits[rows], reference.gain[rows], strict=True):
        total, first = 0.0, 0
        for number, stage in enumerate(cascade.stages):
            margin = float(sum(stage.coef[t] for t in range(len(stage)) if bits[first + t])) - stage.threshold
            total = total + margin * (number >= len(cascade.stages) // 2) if margin > 0 else -np.inf
            first += len(stage)
        scores.append(decided_by_definition(known, bits, total) * float(gain))
    return np.array(scores)


def decided_by_definition(known, bits, score):
    """The score of one window after corrections, from the definition."""
    if known is None:
        return score

    def distance(responses):
        return min(((row != bits).sum() for row in responses.bits), default=10**6)

    rejected, accepted = distance(known.rejected), distance(known.accepted)
    if rejected < known.reach * min(accepted, distance(known.objects)):
        return -np.inf
    if accepted < 0.8 * min(rejected, distance(known.others)):
        which = [(row != bits).sum() for row in known.accepted.bits].index(accepted)
        return max(score, known.targets[which])
    return score


@pytest.mark.parametrize("learned", [False, True])
def test_an_estimate_is_a_direct_count(learned):
    finder = judged_finder(default=12.0)
    if learned:
        finder.learn(bull_scene(), false_positive(finder), False)
    positive, negative = direct(finder, POSITIVE), direct(finder, NEGATIVE)
    judged = finder.base.reference.judge(finder.only.corrected)
    np.testing.assert_allclose(judged.positive, positive)
    np.testing.assert_allclose(judged.negative, negative)
    point = finder.operating_points["default"]
    assert finder.estimate.recall == (positive > point).sum() / len(positive)
    assert finder.estimate.false_positives_per_image == (negative > point).sum() / finder.base.reference.n_images
    assert 0 < finder.estimate.recall < 1
    assert finder.estimate.false_positives_per_image > 0


def test_a_former_state_is_not_kept_for_its_estimate():
    finder = judged_finder()
    update = finder.learn(bull_scene(), false_positive(finder), False)
    former, pyramid = weakref.ref(finder.only.corrected), Pyramid.from_image(bull_scene(), finder.window)
    scan_near(finder.model, pyramid, np.array([10.0, 10.0, 50.0, 50.0]), reach=0.5, max_ratio=1.2)
    corrected = finder.only.corrected
    assert finder.base.reference.judge(corrected) is finder.base.reference.judge(corrected)
    del corrected
    finder.unlearn(update)
    gc.collect()
    assert former() is None


def test_learn_returns_the_estimates_before_and_after():
    finder = judged_finder(default=12.0)
    before = finder.estimate
    update = finder.learn(bull_scene(), false_positive(finder), False)
    assert (update.before, update.after) == (before, finder.estimate)
    assert str(before) in str(update)
    finder.unlearn(update)
    assert finder.estimate == before


def test_without_a_reference_set_there_are_neither_estimates_nor_probabilities():
    finder = bull_finder()
    update = finder.learn(bull_scene(2), false_positive(finder, 2), False)
    assert update.before is update.after is finder.estimate is None
    found = finder.detect(bull_scene(2))
    assert len(found)
    assert np.isnan(found.probabilities).all()
    finder.set_operating_point("default", 3.0)
    finder.learn(bull_scene(2), BULL, True)
    assert finder.operating_points == {"default": 3.0}


def test_a_reference_set_of_one_kind_of_sample_estimates_nothing():
    reference = judged_base().reference
    for keep, n_images in ((reference.part % 2 == 1, 8), (reference.part % 2 == 0, 0)):
        some = replace(reference.take(keep), n_images=n_images)
        finder = Detector.from_base(replace(judged_base(), reference=some))
        finder.set_operating_point("default", 5.0)
        update = finder.learn(bull_scene(), false_positive(bull_finder()), False)
        assert update.before is update.after is None
        assert finder.operating_points == {"default": 5.0}
        assert np.isnan(finder.detect(bull_scene(2), min_score=0).probabilities).all()


# Operating points.


TWICE = st.integers(1, 30).flatmap(lambda n: hnp.arrays(np.float64, (2, n), elements=SCORES))


@given(TWICE, TWICE, st.floats(0, 100))
def test_a_point_that_follows_has_no_more_false_positives_and_is_not_raised_without_need(positive, negative, point):
    before, after = (HeldOutScores(positive[i], negative[i], 5) for i in range(2))
    followed = after.followed(before, point)
    n_wrong = (before.negative > point).sum()
    assert np.isfinite(followed)
    assert (after.negative > followed).sum() <= n_wrong
    assert followed <= point or (after.negative > point).sum() > n_wrong


def test_a_point_falls_where_objects_were_lost_while_false_positives_go_and_no_further_than_a_third():
    before = HeldOutScores(np.array([300.0, 45.0]), np.arange(41.0, 61.0), 10)
    for fallen, lost, point in ((4.0, 1.0, 38.0), (30.0, 1.0, 80 / 3), (4.0, 39.0, 39.0), (4.0, 45.0, 40.0)):
        after = HeldOutScores(np.array([300.0, lost]), before.negative - fallen, 10)
        followed = after.followed(before, 40.0)
        assert followed == pytest.approx(point)
        assert (after.negative > followed).sum() <= 18


@given(SOME_SCORES, SOME_SCORES, st.floats(-5, 100))
def test_a_point_stays_where_nothing_changed(positive, negative, point):
    judged = HeldOutScores(positive, negative, 3)
    assert judged.followed(judged, point) == point


def test_points_follow_and_come_back_to_the_bit():
    finder = judged_finder(default=12.0, strict=20.0)
    before = finder.base.reference.judge(finder.only.corrected)
    update = finder.learn(bull_scene(), false_positive(finder), False)
    X = windows_of(bull_scene(5), (12, 12), 3)[0]
    finder.learn_patches(X, False, 20)
    now = finder.base.reference.judge(finder.model.votes)
    moved = finder.operating_points
    for name, score in (("default", 12.0), ("strict", 20.0)):
        assert moved[name] == now.followed(before, score)
        assert (now.negative > moved[name]).sum() <= (before.negative > score).sum()
    assert moved != {"default": 12.0, "strict": 20.0}
    assert from_bytes(content(finder)).operating_points == moved
    finder.unlearn(update)
    finder.unlearn_patches(X, False, 20)
    assert finder.operating_points == {"default": 12.0, "strict": 20.0}


def test_a_point_that_is_set_after_learning_stays():
    finder = judged_finder(default=12.0)
    finder.learn(bull_scene(), false_positive(finder), False)
    finder.set_operating_point("mine", 9.0)
    finder.learn(bull_scene(2), BULL, True)
    assert finder.operating_points["mine"] == 9.0
    again = from_bytes(content(finder))
    assert again.operating_points == finder.operating_points
    again.set_operating_point("mine", None)
    assert "mine" not in again.operating_points


def test_what_is_detected_by_default_follows_the_point():
    finder = judged_finder(default=12.0)
    finder.learn(bull_scene(), false_positive(finder), False)
    ours = finder.detect(bull_scene(2))
    theirs = finder.detect(bull_scene(2), min_score=finder.operating_points["default"])
    np.testing.assert_array_equal(ours.boxes, theirs.boxes)


# Probabilities.


@given(SOME_SCORES, SOME_SCORES, st.integers(1, 50))
def test_probabilities_are_monotone_and_between_0_and_1(positive, negative, n_images):
    calibration = HeldOutScores(positive, negative, n_images).calibration
    scores = np.array([0.0, 1e-300, 0.01, 0.5, 1, 3, 10, 40, 100, 1e6, 1e300])
    found = calibration.probability(scores)
    assert ((found >= 0) & (found <= 1)).all()
    assert (np.diff(found) >= 0).all()


def test_probabilities_are_calibrated_on_the_scores_that_they_were_fitted_to():
    """Of a logistic regression with an intercept, the probabilities sum to the number of objects."""
    rng = np.random.default_rng(0)
    positive, negative = np.exp(rng.normal(3.5, 0.5, 4000)), np.exp(rng.normal(2.5, 0.5, 3000))
    calibration = HeldOutScores(positive, negative, 4000).calibration
    total = calibration.probability(np.concatenate([positive, negative])).sum()
    assert total == pytest.approx(4000, rel=1e-3)
    # Equal deviations of the logarithms: the log odds are a line of slope (3.5 - 2.5) / 0.5^2.
    assert calibration.slope == pytest.approx(4.0, rel=0.05)


def test_one_object_per_image_is_assumed_whatever_the_number_of_samples():
    rng = np.random.default_rng(1)
    positive, negative = np.exp(rng.normal(3.5, 0.5, 4000)), np.exp(rng.normal(2.5, 0.5, 3000))
    once, half = (HeldOutScores(some, negative, 500).calibration for some in (positive, positive[::2]))
    assert once.probability(np.array([20.0])) == pytest.approx(half.probability(np.array([20.0])), abs=0.02)


def test_detections_carry_probabilities_that_fall_with_the_score():
    found = judged_finder().detect(bull_scene())
    assert len(found) > 3
    assert ((found.probabilities > 0) & (found.probabilities < 1)).all()
    assert (np.diff(found.probabilities) <= 0).all()
    np.testing.assert_array_equal(found[1:3].probabilities, found.probabilities[1:3])
    assert len(judged_finder().detect(np.zeros((9, 9), np.uint8)).probabilities) == 0


def test_probabilities_are_of_the_state_that_was_detected_with():
    finder = judged_finder()
    found = finder.detect(bull_scene())
    before = found.probabilities
    finder.learn(bull_scene(), false_positive(finder), False)
    np.testing.assert_array_equal(found.probabilities, before)
    assert not np.array_equal(finder.base.reference.judge(finder.only.corrected).calibration, Calibration(0.0, 0.0))


def test_the_bundled_detector_is_judged():
    faces = load("face")
    reference = faces.base.reference
    assert reference.responses.to_bytes().nbytes < 1_000_000
    assert (np.bincount(reference.part, minlength=4) >= 300).all()
    assert faces.estimate.recall > 0.95
    assert isinstance(faces.estimate, Estimate)


# What cannot be.


WRONG = {
    "fewer gains": {"gain": np.ones(2, np.float32)},
    "another part": {"part": np.full(3, 4, np.uint8)},
    "no gain": {"gain": np.array([1, 0, 1], np.float32)},
    "a gain that is no number": {"gain": np.array([1, np.nan, 1], np.float32)},
    "fewer responses": {"responses": Responses.from_bits(np.zeros((2, 17), np.uint8))},
    "more responses": {"responses": Responses.from_bits(np.zeros((4, 17), np.uint8))},
    "fewer than no images": {"n_images": -1},
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_a_reference_set_that_cannot_be_is_refused(change):
    sound = {
        "responses": Responses.from_bits(np.zeros((3, 17), np.uint8)),
        "part": np.zeros(3, np.uint8),
        "gain": np.ones(3, np.float32),
        "item": np.arange(3, dtype=np.int32),
        "n_images": 1,
    }
    Reference(**sound)
    with pytest.raises(ValueError, match="reference"):
        Reference(**sound | change)


def test_a_reference_set_of_other_weak_learners_is_refused():
    reference = judged_base().reference
    more = Responses.from_bits(np.pad(reference.responses.bits, ((0, 0), (0, 1))))
    with pytest.raises(ValueError, match="weak learners"):
        replace(judged_base(), reference=replace(reference, responses=more))


def test_a_correction_that_makes_the_estimate_worse_is_a_warning(monkeypatch):
    finder = judged_finder(default=0.5)
    estimates = {True: Estimate(0.98, 0.1), False: Estimate(0.9, 0.3)}
    monkeypatch.setattr(State, "estimate", lambda state, _: estimates[state.is_base])
    with pytest.warns(WorseEstimateWarning, match=r"recall falls .* and false positives"):
        update = finder.learn(bull_scene(), false_positive(finder), False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        finder.unlearn(update)
        estimates[False] = estimates[True]
        finder.learn(bull_scene(), false_positive(finder), False)


def test_the_same_correction_reaches_by_the_reference_set_of_its_own_detector():
    """Two bases of one model: what is known of a correction with one reference set is not taken for the other."""
    plain, judged = bull_finder(), judged_finder()
    assert plain.model is judged.model
    for finder in (plain, judged, bull_finder(), judged_finder()):
        finder.learn(bull_scene(), [*false_positive(bull_finder()), *BULL], [False, True])
        again = from_bytes(content(finder))  # another model: nothing is known of it
        assert again.only.corrected.known.reach == finder.only.corrected.known.reach
