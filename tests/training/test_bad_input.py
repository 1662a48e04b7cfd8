"""What a user may get wrong, through `train_cascade`: a named error that says what to do, or a warning and a result."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from tests.crosses import CONFIG, WINDOW, crosses, pool, positives, train_cascade, write_images
from tests.detectors import bull_finder

from whet.errors import CannotSeparateError, MemoryBudgetError, TrainingDataError, UnreadableImageError, WhetError
from whet.parallel.workers import Threads
from whet.training.backgrounds import SkippedImagesWarning
from whet.training.gslda import grey_backgrounds
from whet.training.loop import FewPositivesWarning
from whet.training.progress import StopReason
from whet.training.validation import ScannedImages

ONE_STAGE = replace(CONFIG, max_stages=1)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("negatives"))


def train(images, patches=None, config=ONE_STAGE):
    return train_cascade(pool(), positives() if patches is None else patches, images, config)


@pytest.mark.parametrize(
    ("patches", "says"),
    [
        (positives().astype(np.float64), r"positives are float64 of shape \(500, 12, 12\); expected uint8"),
        (positives()[:, :-1], r"shape \(500, 11, 12\); expected uint8 patches of shape \(n, 12, 12\)"),
        (positives()[0], r"shape \(12, 12\)"),
        (list(positives()), r"positives are <class 'list'>"),
        (positives()[:0], r"got 0 positives, 0 of them different"),
        (positives()[:19], r"got 19 positives, 19 of them different and with contrast; expected at least 20"),
        (np.repeat(positives()[:1], 300, axis=0), r"got 300 positives, 1 of them different"),
        (np.full((300, *WINDOW), 90, dtype=np.uint8), r"got 300 positives, 0 of them different and with contrast"),
    ],
)
def test_positives_that_cannot_be_trained_on(images, patches, says):
    with pytest.raises(TrainingDataError, match=says):
        train(images, patches)


def test_few_positives_train_with_a_warning(images):
    with pytest.warns(FewPositivesWarning, match=r"fewer than 200 different objects \(30\)"):
        cascade, _, result = train(images, positives()[:30])
    assert len(cascade.stages) == 1
    assert result.detection_rate > 0.5


def test_flat_positives_are_left_out_and_counted(images):
    flat = np.full((7, *WINDOW), 90, dtype=np.uint8)
    events = []
    with pytest.warns(FewPositivesWarning, match="skipped 7 of 507 positives"):
        train_cascade(pool(), np.concatenate([positives(), flat]), images, ONE_STAGE, events.append)
    assert events[0].n_positives == 400


@pytest.mark.parametrize("n", [0, 1])
def test_too_few_images(images, n):
    with pytest.raises(TrainingDataError, match=f"got {n} usable images .* at least two"):
        train(images[:n])


def test_images_that_cannot_be_used_are_skipped(images, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")
    Image.new("L", (11, 80)).save(tmp_path / "small.png")
    bad = [tmp_path / "broken.png", tmp_path / "small.png", tmp_path / "missing.png"]
    with pytest.warns(SkippedImagesWarning, match="skipped 3 images"):
        cascade, _, _ = train([*bad, *images])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkippedImagesWarning)
        with pytest.raises(TrainingDataError, match="got 1 usable images"):
            train([*bad, *images[:1]])
    for stage, same in zip(cascade.stages, train(images)[0].stages, strict=True):
        np.testing.assert_array_equal(stage.coef, same.coef)


def test_images_whose_end_is_missing(images, tmp_path):
    """Their headers are sound: what is wrong shows when they are read."""
    cut = [tmp_path / path.name for path in images]
    for path, whole in zip(cut, images, strict=True):
        path.write_bytes(whole.read_bytes()[:2000])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkippedImagesWarning)
        with pytest.raises(UnreadableImageError, match="none of the 6 images could be used"):
            train(cut)


@pytest.mark.slow
def test_images_that_are_the_object(tmp_path):
    for i, patch in enumerate(crosses(600, np.random.default_rng(8))):
        Image.fromarray(patch).save(tmp_path / f"{i}.png")
    with pytest.raises(
        CannotSeparateError, match=r"first stage accepts .* check that the negative images do not contain the object"
    ):
        train(sorted(tmp_path.glob("*.png")))


@pytest.mark.slow
def test_images_that_show_the_object_among_other_things(tmp_path):
    rng = np.random.default_rng(8)
    for path in write_images(tmp_path, 60):
        image = np.array(Image.open(path))
        for y in range(0, 68, 13):
            for x in range(0, 88, 13):
                image[y : y + 12, x : x + 12] = crosses(1, rng, 100)[0]
        Image.fromarray(image).save(path)
    config = replace(
        CONFIG, max_stages=30, max_weak_learners=20, negatives_per_stage=100, target_false_positive_rate=0.0
    )
    _, _, result = train(sorted(tmp_path.glob("*.png")), crosses(500, np.random.default_rng(1), 100), config)
    assert result.stop_reason is StopReason.CANNOT_IMPROVE
    assert "Check that the negative images do not contain it" in result.message


def test_a_stage_goal_out_of_reach_is_reported_and_training_goes_on(images):
    _, nodes, result = train(
        images, config=replace(CONFIG, max_false_positive_rate=0.001, max_stages=2, max_weak_learners=1)
    )
    assert [len(node) for node in nodes] == [1, 1]
    assert result.stop_reason is StopReason.ALL_STAGES
    assert result.weak_stages == (0, 1)
    assert "stages above max_false_positive_rate: 0, 1" in str(result)


def test_a_memory_budget_that_holds_no_feature(images):
    with pytest.raises(MemoryBudgetError, match="max_memory is 50 bytes"):
        train(images, config=replace(CONFIG, max_memory=50))


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_stages": 0},
        {"max_weak_learners": 0},
        {"max_weak_learners": ()},
        {"negatives_per_stage": 0},
        {"validation_share": 0.0},
        {"validation_share": 1.0},
        {"target_false_positive_rate": 1.5},
    ],
)
def test_settings_out_of_range(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}="):
        replace(CONFIG, **wrong)


def test_every_error_here_is_whets_own():
    for error in (TrainingDataError, CannotSeparateError, MemoryBudgetError, UnreadableImageError):
        assert issubclass(error, WhetError)


def test_held_out_images_that_are_gone_at_the_end_are_named(images, tmp_path):
    gone, model = [tmp_path / "gone.png", tmp_path / "lost.png"], bull_finder().model

    def source(paths):
        return grey_backgrounds(paths, model.window, workers=Threads(1))

    with pytest.warns(SkippedImagesWarning, match=r"1 of 2 held-out images cannot be read.*gone\.png"):
        assert len(ScannedImages.from_backgrounds(source([images[0], gone[0]]), model).readable) == 1
    with pytest.raises(UnreadableImageError, match=r"2 of 2 held-out images cannot be read.*--resume"):
        ScannedImages.from_backgrounds(source(gone), model)
