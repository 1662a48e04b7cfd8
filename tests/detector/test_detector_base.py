from dataclasses import replace

import numpy as np
import pytest
from tests.detectors import PROVENANCE, WINDOW, base, detector, learn, mixed_detector, patches

from whet.detector.base import DetectorBase, Provenance
from whet.detector.detector import Detector
from whet.lda.statistics import BinaryStatistics
from whet.lda.thresholds import Asymmetric, Rate, bayes_crossing
from whet.models.gslda.cascade import LearningStage
from whet.models.gslda.cascade_model import CascadeModel
from whet.models.gslda.fitting import train_stage


@pytest.fixture(scope="module")
def trained():
    X, y = patches(300, np.random.default_rng(0))
    return replace(train_stage(base().model.stages[0].features, X, y, 3), rule=Rate(-1.0)), X


def test_the_cascade_of_a_base_runs_its_stages(trained):
    stage, X = trained
    (ours,) = CascadeModel(WINDOW, (stage,)).cascade.stages
    discriminant = stage.discriminant()
    np.testing.assert_array_equal(ours.coef, discriminant.coef)
    assert ours.threshold == discriminant.threshold
    np.testing.assert_array_equal(ours.score(X), stage.run().score(X))


def test_a_discriminant_that_learns_leaves_its_stage_unchanged(trained):
    stage, X = trained
    vote = stage.discriminant(stage.count(X[:40], np.arange(40) < 20))
    frozen = LearningStage.from_discriminant(stage.features, stage.weak, vote)
    before = frozen.positive.C.copy()
    vote.insert(np.ones(3, np.uint8), True, 5)
    frozen.discriminant().insert(np.ones(3, np.uint8), True, 5)
    assert not np.array_equal(vote.positive.C, before)
    np.testing.assert_array_equal(frozen.positive.C, before)
    with pytest.raises(ValueError, match="read-only"):
        frozen.positive.C[0, 0] = 1


def test_a_model_that_has_learned_examples_is_no_base():
    learned = detector()
    learn(learned, *patches(40, np.random.default_rng(1)))
    with pytest.raises(ValueError, match=r"expected one as it was trained.*detector\.base\.model"):
        DetectorBase(learned.model, PROVENANCE)
    again = Detector.from_base(DetectorBase(learned.base.model, learned.provenance), learned.only.counts)
    assert again.to_bytes() == learned.to_bytes()


def changed(**fields):
    stages = base().model.stages
    return DetectorBase(CascadeModel(WINDOW, (replace(stages[0], **fields), *stages[1:])), PROVENANCE)


def more(statistics):
    return BinaryStatistics(statistics.n + 1, statistics.s, statistics.C)


def nudged(weak):
    return replace(weak, threshold=np.nextafter(weak.threshold, np.float32(np.inf)))


@pytest.mark.parametrize(
    "other",
    [
        lambda _: changed(ridge=20.5),
        lambda _: changed(criterion="lac"),
        lambda s: changed(rule=Rate(s.rule.z + 1e-9)),
        lambda s: changed(rule=Asymmetric(s.rule)),
        lambda s: changed(positive=more(s.positive)),
        lambda s: changed(negative=more(s.negative)),
        lambda s: changed(weak=nudged(s.weak)),
        lambda s: changed(weak=replace(s.weak, polarity=-s.weak.polarity)),
        lambda s: changed(features=s.features.take(np.array([1, 0, 2, 3, 4]))),
        lambda _: DetectorBase(CascadeModel(WINDOW, base().model.stages, min_sigma=9.0)),
        lambda _: DetectorBase(CascadeModel(WINDOW, base().model.stages[:2])),
        lambda _: DetectorBase(CascadeModel(WINDOW, base().model.stages[::-1])),
        lambda s: DetectorBase(CascadeModel(WINDOW, (s.run(), *base().model.stages[1:]))),
    ],
)
def test_all_that_defines_a_base_is_in_its_id(other):
    assert other(base().model.stages[0]).base_id != base().base_id


def test_what_only_describes_a_base_is_not_in_its_id():
    stage = base().model.stages[0]
    numbered = replace(stage.weak, feature=stage.weak.feature + 5, error=stage.weak.error / 2)
    assert changed(weak=numbered).base_id == base().base_id
    assert DetectorBase(base().model, Provenance()).base_id == base().base_id
    assert replace(base().model, coarse_room=(0.5,)).saved().aside == {"coarse_room": [0.5]}
    assert DetectorBase(replace(base().model, coarse_room=(0.5,))).base_id == base().base_id


def test_the_id_of_fixed_stages_covers_their_weights_and_exits():
    mixed = mixed_detector().base
    hard, learning, soft = mixed.model.stages

    def id_of(*stages):
        return replace(mixed, model=replace(mixed.model, stages=stages)).base_id

    assert id_of(hard, learning, soft) == mixed.base_id
    for other in (replace(hard, coef=hard.coef * 2), replace(hard, threshold=hard.threshold + 1)):
        assert id_of(other, learning, soft) != mixed.base_id
    assert id_of(hard, learning, replace(soft, rejection_thresholds=None)) != mixed.base_id


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rule": bayes_crossing}, "Rate or Asymmetric"),
        ({"rule": Rate(float("nan"))}, "finite"),
        ({"ridge": -1.0}, "ridge"),
        ({"criterion": "pca"}, "criterion"),
        ({"positive": BinaryStatistics.empty(5)}, "no positives"),
        ({"positive": BinaryStatistics.empty(4)}, "equal numbers"),
        (
            {"negative": BinaryStatistics(2, np.array([3, 0, 0, 0, 0]), np.diag([3, 0, 0, 0, 0]))},
            "no samples can have them",
        ),
        ({"negative": BinaryStatistics(2, np.array([1, 0, 0, 0, 0]), np.zeros((5, 5), np.int64))}, "diagonal"),
        ({"negative": BinaryStatistics(2**52, np.zeros(5, np.int64), np.zeros((5, 5), np.int64))}, "exact below"),
    ],
)
def test_a_stage_that_cannot_be_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        changed(**fields)
