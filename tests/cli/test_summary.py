import numpy as np
from tests.detectors import base, mixed_detector, patches

from whet.cli.inspect import Summary
from whet.detector.detector import Detector


def test_fixed_stages_and_learning_stages_are_distinguished():
    summary = Summary.from_detector(mixed_detector().only)
    assert [stage.learns for stage in summary.stages] == [False, True, False]
    assert [stage.is_soft for stage in summary.stages] == [False, False, True]
    assert summary.stages[0].rejects is None
    assert summary.n_weak == sum(stage.n_weak for stage in summary.stages)


def test_the_estimate_of_what_a_stage_rejects_is_near_what_it_rejects():
    trained = base(sizes=(40,), kinds=("haar",))
    X, y = patches(1200, np.random.default_rng(7))  # those that it was trained on
    rejected = 1 - trained.model.cascade.stages[0].accepts(X[~y]).mean()
    assert abs(Summary.from_detector(Detector.from_base(trained).only).stages[0].rejects - rejected) < 0.03
