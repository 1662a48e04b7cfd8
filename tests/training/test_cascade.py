import warnings
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from experiments.boosting import Boosting
from experiments.patches import prepare_patches
from PIL import Image
from tests.crosses import CONFIG, WINDOW, train_cascade, write_images
from tests.crosses import crosses as objects
from tests.crosses import pool as pool_of_crosses

from whet.errors import CheckpointError, TrainingDataError
from whet.evaluation.evaluation import rate_interval
from whet.images.pyramid import Pyramid
from whet.models.gslda.cascade_model import CascadeModel
from whet.models.gslda.fitting import train_stage
from whet.models.gslda.haar import HaarPool
from whet.models.gslda.pools import BlockPatternPool
from whet.parallel.workers import Threads
from whet.training.backgrounds import SkippedImagesWarning
from whet.training.gslda import grey_backgrounds
from whet.training.preparation import split_images, split_in_runs
from whet.training.progress import FitFinished


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("negatives"))


@pytest.fixture(scope="module")
def pool():
    return pool_of_crosses()


@pytest.fixture(scope="module")
def config():
    return CONFIG


@pytest.fixture(scope="module")
def trained(pool, images, config):
    events = []
    positives = objects(500, np.random.default_rng(1))
    trained = train_cascade(pool, positives, images, config, events.append)
    return *trained, [event for event in events if isinstance(event, FitFinished)]


def test_each_stage_lets_fewer_negatives_through(trained):
    cascade, nodes, result, events = trained
    rates = [progress.mined.acceptance_rate for progress in events[1:]] + [result.false_positive_rate]
    assert len(cascade.stages) == len(nodes) == len(events)
    assert all(later < earlier for earlier, later in pairwise(rates))
    assert result.false_positive_interval[0] <= result.false_positive_rate <= result.false_positive_interval[1]


def test_the_goal_holds_on_what_was_kept_apart(trained, config):
    _, _, _, events = trained
    for progress in events:
        assert progress.rates[0] >= 0.97
        assert progress.rates[1] <= 0.4 or len(progress.model.stages[-1]) == config.stage_size(
            len(progress.model.stages) - 1
        )


def test_new_objects_are_found_and_noise_is_not(trained):
    cascade = trained[0]
    rng = np.random.default_rng(99)
    assert cascade.accepts(objects(300, rng)).mean() > 0.8
    assert cascade.accepts(rng.integers(0, 256, (2000, *WINDOW), dtype=np.uint8)).mean() < 0.05


def test_mined_negatives_are_accepted_by_all_stages_before(trained):
    *_, events = trained
    for before, after in pairwise(events):
        assert before.model.cascade.accepts(after.samples.negatives.windows).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_config_gives_the_same_cascade(trained, pool, images, config, threads):
    from dataclasses import replace

    again, _, _ = train_cascade(
        pool, objects(500, np.random.default_rng(1)), images, replace(config, max_stages=2), workers=Threads(threads)
    )
    for ours, theirs in zip(again.stages, trained[0].stages, strict=False):
        np.testing.assert_array_equal(ours.weak.feature, theirs.weak.feature)
        np.testing.assert_array_equal(ours.coef, theirs.coef)
        assert ours.threshold == theirs.threshold


def test_boosted_stages_train_alike(pool, images, config):
    positives, two = objects(500, np.random.default_rng(1)), replace(config, max_stages=2)
    cascade, _, result = train_cascade(pool, positives, images, two, learner=Boosting(asymmetry=2.0))
    assert len(cascade.stages) == 2
    assert "all 2 stages" in result.message


def test_it_says_when_the_rate_is_reached_and_when_the_images_run_out(pool, images, config):
    from dataclasses import replace

    positives = objects(500, np.random.default_rng(1))
    _, _, reached = train_cascade(pool, positives, images, replace(config, target_false_positive_rate=0.9))
    assert "Reached the target false-positive rate" in reached.message
    _, _, ran_out = train_cascade(
        pool, positives, images, replace(config, max_stages=30, target_false_positive_rate=0.0, negatives_per_stage=700)
    )
    assert "add images" in ran_out.message


def first_stage(pool):
    rng = np.random.default_rng(1)
    patches = np.concatenate([objects(200, rng), rng.integers(0, 256, (200, *WINDOW), dtype=np.uint8)])
    return CascadeModel(WINDOW, (train_stage(pool, patches, np.arange(400) < 200, 2).run(),))


def windows_of(path):
    image = np.asarray(Image.open(path))
    return {
        window.tobytes()
        for level in Pyramid.from_image(image, WINDOW).levels
        for window in np.lib.stride_tricks.sliding_window_view(level.image, WINDOW).reshape(-1, *WINDOW)
    }


def test_mining_gives_accepted_windows_and_each_only_once(pool, images):
    model, source = first_stage(pool), grey_backgrounds(images[:2], WINDOW)
    first = source.mine(model, 200, turn=1, most=10**6)
    second = source.mine(model, 10**9, turn=2, most=10**6, used=first.places)
    windows = [source.windows(mined.places) for mined in (first, second)]
    assert len(windows[0]) == 200
    assert second.is_exhausted
    assert model.cascade.accepts(np.concatenate(windows)).all()
    assert len(windows[0]) + len(windows[1]) == second.n_accepted
    everywhere = windows_of(images[0]) | windows_of(images[1])
    assert {window.tobytes() for window in windows[1]} <= everywhere
    used = np.concatenate([first.places, second.places])
    assert not len(source.mine(model, 10, turn=3, used=used).places)


def test_one_image_does_not_become_the_training_set(pool, images):
    mined = grey_backgrounds(images, WINDOW).mine(first_stage(pool), 50, turn=1, most=7)
    assert len(mined.places) == 50
    assert mined.n_images == 8


def test_an_image_that_cannot_be_read_is_named_once(pool, images, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")
    source = grey_backgrounds([*images[:2], tmp_path / "broken.png"], WINDOW)
    with pytest.warns(SkippedImagesWarning, match=r"broken\.png"):
        source.mine(first_stage(pool), 10**6, turn=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert source.mine(first_stage(pool), 10**6, turn=2).n_images == 2


def test_runs_of_neighbours_stay_on_one_side():
    train, check = split_in_runs(1234, 0.25, 7)
    assert sorted([*train, *check]) == list(range(1234))
    changes = np.count_nonzero(np.diff(np.isin(np.arange(1234), check)))
    assert changes <= 2 * 4


def test_images_are_on_one_side_only(tmp_path):
    paths = [tmp_path / str(i) for i in range(10)]
    train, check = split_images(paths, 0.2, 0)
    assert (len(train), len(check)) == (8, 2)
    assert not set(train) & set(check)
    with pytest.raises(ValueError, match="at least two"):
        split_images(paths[:1], 0.2, 0)


@pytest.mark.parametrize(("accepted", "n"), [(0, 50), (3, 50), (50, 50)])
def test_the_interval_is_clopper_and_pearsons(accepted, n):
    from scipy.stats import binomtest

    exact = binomtest(accepted, n).proportion_ci(0.95, "exact")
    np.testing.assert_allclose(rate_interval(accepted, n), (exact.low, exact.high), atol=1e-12)


def test_stages_take_turns_between_families(pool, images, config):
    positives = objects(300, np.random.default_rng(1))
    patterns = BlockPatternPool.from_window(WINDOW)
    cascade, _, _ = train_cascade([pool, patterns], positives, images, config)
    kinds = [type(stage.features) for stage in cascade.stages]
    assert len(kinds) > 2
    assert kinds == [HaarPool if number % 2 == 0 else BlockPatternPool for number in range(len(kinds))]
    with pytest.raises(ValueError, match="all with one window"):
        train_cascade([pool, BlockPatternPool.from_window((9, 9))], positives, images, config)
    with pytest.raises(ValueError, match="at least one family"):
        train_cascade([], positives, images, config)


def test_the_memory_is_that_of_the_largest_family_as_stages_take_turns(pool, images, config):
    patterns = BlockPatternPool.from_window(WINDOW)
    positives = objects(300, np.random.default_rng(1))
    memory = [prepare_patches(pools, positives, images, config).memory for pools in (pool, patterns, [pool, patterns])]
    assert memory[2] == max(memory[:2])


def test_a_checkpoint_of_other_families_is_refused(pool, images, config, tmp_path):
    positives, file = objects(300, np.random.default_rng(1)), tmp_path / "checkpoint"
    patterns = BlockPatternPool.from_window(WINDOW)
    train_cascade(pool, positives, images, replace(config, max_stages=1), checkpoint=file)
    with pytest.raises(CheckpointError, match="features"):
        train_cascade([pool, patterns], positives, images, config, checkpoint=file)


def test_the_least_contrast_is_a_setting(pool, images, config):
    faint = objects(300, np.random.default_rng(1)) // 5
    with pytest.raises(TrainingDataError, match="with contrast"):
        train_cascade(pool, faint, images, config)
    cascade, _, _ = train_cascade(pool, faint, images, replace(config, max_stages=1, min_sigma=1.0))
    assert cascade.min_sigma == 1.0
    assert cascade.accepts(faint).mean() > 0.9


def test_copies_of_one_object_do_not_make_an_interval_narrower():
    from whet.training.gslda import _detection_interval

    once = np.arange(40) != 3
    copied, groups = np.repeat(once, 10), np.repeat(np.arange(40), 10)
    alone = np.arange(400)
    assert _detection_interval(copied, groups) == pytest.approx(_detection_interval(once, alone[:40]), abs=0.02)
    all_ten = np.ones(400, np.bool_)
    assert _detection_interval(all_ten, groups) == _detection_interval(np.ones(40, np.bool_), alone[:40])
    assert _detection_interval(all_ten, alone)[0] > _detection_interval(all_ten, groups)[0]


def _smallest(pool):
    return pool.take((pool.height == 1) & (pool.width <= 2))


def test_features_that_tell_nothing_leave_their_turn_to_the_others(pool, images, config):
    blind = _smallest(HaarPool.from_window(WINDOW)).take(np.arange(3))  # three pixels of a corner
    positives = objects(300, np.random.default_rng(1))
    events = []
    cascade, *_ = train_cascade([blind, pool], positives, images, replace(config, max_stages=2), events.append)
    finished = [event for event in events if isinstance(event, FitFinished)]
    assert len(cascade.stages) == 2
    assert all(event.rates[1] < 0.6 for event in finished)
    assert all(stage.features.width.max() > 2 for stage in cascade.stages)
