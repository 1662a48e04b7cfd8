"""Rejection thresholds of finished cascades keep what the whole cascade accepts."""

from dataclasses import replace

import numpy as np
import pytest
from experiments.boosting import Boosting
from experiments.patches import prepare_patches
from tests.cascades import scan
from tests.crosses import CONFIG, crosses, pool, train_cascade, write_images

from whet.io.image_files import read_grey
from whet.models.gslda.cascade import Cascade
from whet.models.gslda.fitting import GIVEN_UP, LOSS, pruned, varied, worth_keeping
from whet.training.progress import Checkpoint

pytestmark = pytest.mark.slow

SOFT = replace(
    CONFIG, early_exits=True, max_weak_learners=40, min_detection_rate=0.99, max_false_positive_rate=0.05, max_stages=3
)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("negatives"))


@pytest.fixture(scope="module")
def positives():
    return crosses(800, np.random.default_rng(1))


@pytest.fixture(scope="module")
def trained(images, positives, tmp_path_factory):
    """The finished stages of a training, and those of its checkpoint, which are not pruned."""
    file = tmp_path_factory.mktemp("training") / "crosses.checkpoint"
    cascade, stages, result = train_cascade(pool(), positives, images, SOFT, checkpoint=file)
    prepared = prepare_patches(pool(), positives, images, SOFT)
    state = Checkpoint(file, prepared.fingerprint()).load(["weak_stages", "stalled"])
    return cascade, stages, result, state.model.stages, prepared.positives.windows[prepared.is_held_out]


def as_cascade(stages):
    return Cascade(stages[0].features.window, tuple(stage.run() for stage in stages), SOFT.min_sigma)


def test_a_training_ends_with_the_pruned_stages(trained):
    cascade, stages, result, before, held_out = trained
    after = pruned(before, held_out, SOFT.min_sigma, seed=SOFT.seed)
    for one, other in zip(stages, after, strict=True):
        assert np.array_equal(one.rejection.z, other.rejection.z)
        assert one.rule == other.rule
    assert result.detection_rate == cascade.accepts(held_out).mean()


def test_thresholds_rise_in_the_stages_that_do_not_score_and_nowhere_else(trained):
    _, stages, _, before, _ = trained
    first_scoring = as_cascade(before).first_scoring
    assert first_scoring > 0
    for one, other in zip(stages[first_scoring:], before[first_scoring:], strict=True):
        assert np.array_equal(one.rejection.z, other.rejection.z)
        assert one.rule == other.rule
    for one, other in zip(stages[:first_scoring], before, strict=False):
        assert (one.rejection.z >= other.rejection.z).all()
        assert one.rule.z >= other.rule.z
    assert any((one.rejection.z > other.rejection.z).any() for one, other in zip(stages, before, strict=True))


def test_windows_need_fewer_weak_learners_and_positives_stay(trained, images):
    cascade, _, _, before, held_out = trained
    loose = as_cascade(before)
    patches = varied(held_out, cascade.window, SOFT.seed)
    accepted = loose.accepts(patches)
    assert accepted.sum() > 300
    assert cascade.accepts(patches[accepted]).mean() >= 1 - cascade.first_scoring * GIVEN_UP
    assert not cascade.accepts(patches[~accepted]).any()
    others = varied(held_out, cascade.window, SOFT.seed + 1)  # that set no threshold
    others = others[loose.accepts(others)]
    assert cascade.accepts(others).mean() >= 1 - cascade.first_scoring * (GIVEN_UP + 5 * LOSS)
    image = read_grey(images[0])
    assert scan(cascade, image).n_evaluated < scan(loose, image).n_evaluated


def test_fixed_weights_and_hard_stages_stay_as_they_are(images, positives):
    hard = replace(SOFT, early_exits=False, max_stages=2)
    for config, learner in ((hard, None), (replace(SOFT, max_stages=2), Boosting())):
        _, stages, _ = train_cascade(pool(), positives, images, config, learner=learner)
        assert pruned(stages, positives, SOFT.min_sigma) == stages


@pytest.mark.parametrize("given_up", [0.0, 0.01, 0.1])
def test_no_more_samples_are_given_up_than_allowed(given_up, rng):
    sums = np.cumsum(rng.normal(size=(30, 1000)), axis=0)
    lost = ~worth_keeping(sums, given_up)
    assert lost.sum() == round(given_up * 1000)
    sums[:] = np.sign(sums)  # ties: all samples with the lowest sum, or none of them
    assert (~worth_keeping(sums, given_up)).sum() <= given_up * 1000
