"""Expected scores are what samples of the training score, and stay that whatever is learned."""

from dataclasses import replace

import numpy as np
import pytest
from tests.detectors import WINDOW, base, bull_finder, bull_scene, mixed_detector, patches

import whet
from whet.models.gslda.cascade import Cascade
from whet.models.gslda.cascade_model import CascadeModel
from whet.models.gslda.integral import IntegralStack
from whet.tracking.tracker import SelfTraining, Tracker, expected_scores


def samples():
    """Positives and negatives that `tests.detectors.base` is trained on."""
    X, y = patches(1200, np.random.default_rng(7))
    return X[y], X[~y]


def margins(trained, X, number):
    return trained.cascade.stages[number].judge(IntegralStack.from_patches(X, trained.min_sigma))[0]


def above_zero(mean, deviation):
    """The mean of what is above zero of many Gaussian numbers."""
    drawn = np.random.default_rng(0).normal(mean, deviation, 400_000)
    return drawn[drawn > 0].mean()


@pytest.mark.parametrize("options", [{}, {"criterion": "lac"}, {"sizes": (5, 8), "kinds": ("haar", "lbp")}])
def test_positives_are_expected_to_score_what_those_of_the_training_do(options):
    trained, (X, _) = base(**options).model, samples()
    assert all(stage.positive.n == len(X) for stage in trained.stages)
    scored = range(trained.cascade.first_scoring, len(trained.stages))
    scores = np.sum([margins(trained, X, number) for number in scored], axis=0)
    assert expected_scores(trained).positive == pytest.approx(scores.mean(), rel=1e-12)


@pytest.mark.parametrize("options", [{}, {"criterion": "lac"}])
def test_negatives_are_expected_to_score_what_a_gaussian_like_them_does_where_it_passes(options):
    trained, (_, X) = base(**options).model, samples()
    expected = 0.0
    for number in range(len(trained.stages)):
        assert len(X) == trained.stages[number].negative.n
        of_stage = margins(trained, X, number)
        if number >= trained.cascade.first_scoring:
            expected += above_zero(of_stage.mean(), of_stage.std())
        X = X[Cascade(WINDOW, trained.cascade.stages[: number + 1]).accepts(X)]
    assert expected_scores(trained).negative == pytest.approx(expected, rel=0.02)


def test_a_stage_of_fixed_weights_is_expected_to_add_a_deviation_of_coins():
    trained = mixed_detector().base.model
    assert trained.cascade.first_scoring == 1
    learns = expected_scores(CascadeModel(WINDOW, (trained.stages[1],), trained.min_sigma))
    coins = np.random.default_rng(0).integers(0, 2, (400_000, len(trained.stages[2])))
    deviation = (coins @ trained.stages[2].coef).std()
    scores = expected_scores(trained)
    assert scores.positive == pytest.approx(learns.positive + deviation, rel=0.01)
    assert scores.negative == pytest.approx(learns.negative + above_zero(-deviation, deviation), rel=0.01)


def test_without_spread_scores_are_numbers():
    first = base().model.stages[0]
    none = replace(first.negative, s=0 * first.negative.s, C=0 * first.negative.C)
    scores = expected_scores(CascadeModel(WINDOW, (replace(first, negative=none),)))
    assert 0 <= scores.negative < 1e-3 * scores.positive


def test_learn_min_score_comes_from_the_base_and_learning_does_not_change_it(tmp_path):
    self_training = SelfTraining(every=1, share=0.05, guarded=False)
    tracker = Tracker(bull_finder(), learn=True, self_training=self_training)
    learn_min_score, scores = tracker.learn_min_score, expected_scores(tracker.detector.base.model)
    expected = scores.negative + 0.4 * (scores.positive - scores.negative)
    assert 0 < scores.negative < learn_min_score == expected < scores.positive
    while not tracker.detector.n_examples[0]:
        tracker.update(bull_scene(tracker.number))
    assert tracker.weight_change > 0
    tracker.detector.save(tmp_path / "learned.whet")
    again = whet.load(tmp_path / "learned.whet")
    assert again.n_examples == tracker.detector.n_examples
    assert (
        Tracker(again).learn_min_score
        == Tracker(tracker.detector).learn_min_score
        == tracker.learn_min_score
        == learn_min_score
    )


def test_only_windows_above_the_minimum_are_learned():
    learn_min_score = Tracker(bull_finder()).learn_min_score
    frames = [
        Tracker(bull_finder(), learn=True, self_training=SelfTraining(guarded=False)).update(bull_scene(seed))
        for seed in range(8)
    ]
    assert [tracked.is_learned for tracked in frames] == [tracked.track.score > learn_min_score for tracked in frames]
    assert any(tracked.is_learned for tracked in frames)
    strict = SelfTraining(learn_min_score=max(tracked.track.score for tracked in frames), guarded=False)
    none = [Tracker(bull_finder(), learn=True, self_training=strict).update(bull_scene(seed)) for seed in range(8)]
    assert not any(tracked.is_learned for tracked in none)


def test_the_face_detector_keeps_the_minimum_that_was_chosen():
    assert Tracker(whet.load("face")).learn_min_score == pytest.approx(40.0, rel=0.02)
