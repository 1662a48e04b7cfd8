"""The typical score is what training positives score on average, and stays that whatever is learned."""

from dataclasses import replace

import numpy as np
import pytest
from tests.detectors import WINDOW, base, bull_finder, bull_scene, mixed_detector, patches

import whet
from whet.features.integral import IntegralStack
from whet.model.detector_base import DetectorBase, Votes
from whet.training.typical_score import typical_score
from whet.training.watching import Lessons, Watcher


def positives():
    """Those that `tests.detectors.base` is trained on."""
    X, y = patches(1200, np.random.default_rng(7))
    return X[y]


def margins(trained, X):
    """Margins (stages, samples), of the stages that count for the score."""
    cascade = trained.cascade
    stack = IntegralStack.of(X, trained.min_sigma)
    return np.array([stage.judge(stack)[0] for stage in cascade.stages[cascade.first_scoring :]])


@pytest.mark.parametrize("options", [{}, {"criterion": "lac"}, {"sizes": (5, 8), "kinds": ("haar", "lbp")}])
def test_it_is_the_mean_score_of_the_training_positives(options):
    trained, X = base(**options), positives()
    assert all(stage.positive.n == len(X) for stage in trained.stages)
    assert typical_score(trained) == pytest.approx(margins(trained, X).sum(axis=0).mean(), rel=1e-12)


def test_a_stage_that_keeps_votes_is_counted_by_the_votes():
    first, X = base().stages[0], positives()
    votes = Votes(np.linspace(-1.0, 3.0, len(first)), 0.7, until=first.negative.n + 1)
    voting = DetectorBase(WINDOW, (replace(first, votes=votes),))
    assert typical_score(voting) == pytest.approx(margins(voting, X).mean(), rel=1e-12)


def test_a_stage_of_fixed_weights_adds_a_deviation_of_coins():
    trained = mixed_detector().base
    assert trained.cascade.first_scoring == 1
    learns = DetectorBase(WINDOW, (trained.stages[1],), trained.min_sigma)
    coins = np.random.default_rng(0).integers(0, 2, (20_000, len(trained.stages[2])))
    expected = typical_score(learns) + (coins @ trained.stages[2].coef).std()
    assert typical_score(trained) == pytest.approx(expected, rel=0.02)


def test_the_gate_is_half_of_it_and_learning_does_not_move_it(tmp_path):
    lessons = Lessons(every=1, share=0.05, most_lost=2.0, most_accepted=np.inf)
    watcher = Watcher(bull_finder(), learn=True, lessons=lessons)
    gate = watcher.gate
    assert gate == typical_score(watcher.detector.taught.base) / 2 > 0
    while not watcher.detector.learned[0]:
        watcher.look(bull_scene(watcher.number))
    assert watcher.moved > 0
    watcher.detector.save(tmp_path / "taught.whet")
    again = whet.load(tmp_path / "taught.whet")
    assert again.learned == watcher.detector.learned
    assert Watcher(again).gate == Watcher(watcher.detector).gate == watcher.gate == gate


def test_a_window_teaches_above_the_gate_only():
    looks = [Watcher(bull_finder(), learn=True).look(bull_scene(seed)) for seed in range(8)]
    gate = Watcher(bull_finder()).gate
    for look in looks:
        assert look.teaches == (look.sighting.score > gate)
    assert any(look.teaches for look in looks)
    strict = Watcher(bull_finder(), learn=True, lessons=Lessons(gate=max(look.sighting.score for look in looks)))
    assert not any(strict.look(bull_scene(seed)).teaches for seed in range(8))


def test_the_face_detector_keeps_the_gate_that_was_chosen():
    assert Watcher(whet.load("face")).gate == pytest.approx(41.41, abs=0.01)
