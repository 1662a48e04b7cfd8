"""A channel detector of drawn objects: found again, by seed, on any number of threads, and after an interruption."""

import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.drawn_sets import van_set
from tests.training.test_checkpoint import StoppedError, stop_at

from whet.corrections.reference import GUARD_POSITIVE, POSITIVE
from whet.errors import CheckpointError, TrainingDataError, UnreadableImageError
from whet.evaluation.runs import evaluate
from whet.images.boxes import box_iou
from whet.io.image_files import as_rgb
from whet.models.channels.fitting import (
    BoostedTrees,
    boost,
    carried_over,
    draw_features,
    heavy_samples,
    rejection_of_accepted,
)
from whet.parallel.workers import Threads
from whet.training import loop
from whet.training.backgrounds import Backgrounds, SkippedImagesWarning
from whet.training.config import TrainingConfig
from whet.training.loop import Training
from whet.training.preparation import prepare
from whet.training.progress import FitFinished, FitStarted, Mining, StepStarted, StopReason
from whet.training.train import train_prepared
from whet.training.unseen import HeldOutPlaces
from whet.training.windows import cell_window

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:fewer than 200 different objects")]
QUICK = {"trees": 64, "negatives_per_round": 400, "copies_per_object": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vans")
    van_set(folder, n=24)
    return folder


@pytest.fixture(scope="module")
def prepared(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return prepare(TrainingConfig(folder / "vans.csv", [folder / "textures"], **QUICK))


@pytest.fixture(scope="module")
def events():
    return []


@pytest.fixture(scope="module")
def trained(prepared, events):
    return train_prepared(prepared, events.append)


def test_objects_of_other_images_are_found(trained, tmp_path):
    assert evaluate(trained.detector, van_set(tmp_path, n=10, seed=9)).evaluation.average_precision > 0.8


def test_every_step_after_the_last_round_is_announced(trained, events):
    last = max(number for number, event in enumerate(events) if isinstance(event, FitFinished))
    steps = [event for event in events if isinstance(event, StepStarted)]
    assert [event.name.split()[0] for event in steps] == [
        *("cross-validation", "rejection", "learning", "detection", "reference")
    ]
    assert events.index(steps[0]) > last
    assert [event.seconds for event in events] == sorted(event.seconds for event in events)
    assert str(steps[-1]).endswith("operating points")
    assert trained.result.seconds >= steps[-1].seconds
    assert trained.result.stop_reason is StopReason.ALL_TREES


@pytest.mark.slow
def test_threads_do_not_change_the_detector(prepared, trained):
    assert train_prepared(prepared, workers=Threads(1)).detector.base_id == trained.detector.base_id


@pytest.mark.slow
def test_an_interrupted_training_ends_with_the_same_detector(prepared, trained, tmp_path):
    file = tmp_path / "vans.checkpoint"
    for moment in (
        lambda event: isinstance(event, FitStarted) and event.stage == 0,
        lambda event: isinstance(event, Mining) and event.stage == 2,
    ):
        with pytest.raises(StoppedError):
            train_prepared(prepared, stop_at(moment), checkpoint=file)
    seen = []
    resumed = train_prepared(prepared, seen.append, checkpoint=file)
    assert resumed.detector.base_id == trained.detector.base_id
    assert resumed.detector.operating_points == trained.detector.operating_points
    assert "resumed" in str(seen[0])
    assert [event.stage for event in seen if isinstance(event, FitFinished)] == [2, 3]


@pytest.mark.slow
def test_a_checkpoint_of_other_settings_is_refused(prepared, folder, tmp_path):
    file = tmp_path / "vans.checkpoint"
    with pytest.raises(StoppedError):
        train_prepared(prepared, stop_at(lambda event: isinstance(event, FitStarted)), checkpoint=file)
    other = prepare(TrainingConfig(folder / "vans.csv", [folder / "textures"], **(QUICK | {"trees": 32})))
    with pytest.raises(CheckpointError, match="trees is 32"):
        train_prepared(other, checkpoint=file)


def test_the_result_has_rates_on_what_was_not_trained_on(trained, prepared):
    result = trained.result
    assert 0.5 < result.detection_rate <= 1
    assert 0 <= result.false_positive_rate < 0.05
    assert result.n_images == len(prepared.held_out_images) == trained.points.n_images
    assert not set(prepared.training_images) & set(prepared.held_out_images)


@pytest.fixture(scope="module")
def training(prepared):
    """A training as it is at its end."""
    training = Training(prepared, workers=Threads(2))
    training.run()
    return training


def test_held_out_images_supply_negatives_beside_objects_and_no_others(training):
    beside = training.samples.held_out_negatives.places
    assert len(beside)
    assert not training.held_out.is_apart(beside).any()
    assert len(training.samples.all_negatives) == len(training.samples.negatives) + len(beside)
    judged = HeldOutPlaces.from_images(training.held_out, training.model).places
    assert not {tuple(row) for row in beside.tolist()} & {tuple(row) for row in judged.tolist()}


def test_the_best_places_beside_boxes_come_first(training):
    held_out = training.held_out
    places, scores = held_out.accepted(training.model, np.arange(len(held_out.images)))
    beside = ~held_out.is_apart(places)
    assert beside.any()
    ranked = places[beside][np.argsort(-scores[beside], kind="stable")]
    for n in (1, 3, len(ranked)):
        best = held_out.beside(training.model, n)
        assert sorted(map(tuple, best.tolist())) == sorted(map(tuple, ranked[:n].tolist()))


def test_objects_that_judge_corrections_do_not_guard_them(trained):
    reference = trained.detector.only.base.reference
    items = {part: set(reference.item[reference.part == part].tolist()) for part in range(4)}
    assert items[GUARD_POSITIVE]
    assert items[POSITIVE]
    assert not items[GUARD_POSITIVE] & items[POSITIVE]
    assert reference.n_images == trained.points.n_images


@pytest.mark.slow
def test_the_estimate_falls_where_objects_are_called_wrong(trained, tmp_path):
    detector = trained.detector.copy()
    before = detector.estimate
    assert 0.5 < before.recall <= 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for image in van_set(tmp_path, n=20, seed=3).images:
            detector.learn(image.path, image.objects, False)
    assert detector.estimate.recall < before.recall


def test_probabilities_rise_with_the_score(trained, folder):
    found = trained.detector.detect(next((folder / "vans").glob("*.png")), min_score=-np.inf)
    assert np.isfinite(found.probabilities).all()
    assert found.probabilities[0] > 0.5
    assert (np.diff(found.probabilities) <= 0).all()


@pytest.mark.slow
def test_a_set_of_two_images_is_trained(tmp_path):
    scene = np.random.default_rng(0).integers(0, 255, (400, 600, 3), dtype=np.uint8)
    rows = []
    for i in range(2):
        Image.fromarray(scene).save(tmp_path / f"{i}.png")
        rows += [f"{i}.png,{20 + 90 * (k % 6)},{20 + 90 * (k // 6)},40,40,patch" for k in range(24)]
    (tmp_path / "boxes.csv").write_text("\n".join(rows) + "\n")
    made = train_prepared(prepare(TrainingConfig(tmp_path / "boxes.csv", **QUICK)))
    assert made.result.n_stages == 1


def test_negatives_lie_outside_of_the_boxes(prepared):
    images = prepared.backgrounds(held_out=False, workers=Threads(1))
    places = images.random(200, [0])
    for number in np.unique(places[:, 0]).tolist():
        pyramid = images.held[number].pyramid()
        own = places[places[:, 0] == number]
        boxes = np.concatenate([pyramid.levels[i].boxes(y, x, pyramid.window)[None] for _, i, y, x in own.tolist()])
        assert images.held[number].is_background(boxes).all()


def few_backgrounds(prepared, folder, workers):
    """Some images, and places in them; nothing is kept of the images, and one of them is gone after that."""
    paths = [Path(shutil.copy(path, folder)) for path in prepared.training_images[:4]]
    images = Backgrounds(paths, prepared.family, prepared.choice, max_memory=0, workers=workers)
    places = images.random(40, [0])
    assert set(places[:, 0].tolist()) == set(range(4))
    paths[1].unlink()
    return images, places


def test_an_image_that_cannot_be_read_again_gives_no_samples(prepared, tmp_path):
    images, places = few_backgrounds(prepared, tmp_path, Threads(2))
    for attempt in (images.windows, images.is_apart):
        with pytest.raises(UnreadableImageError, match=rf"{images.images[1].name}.*no such file.*--resume"):
            attempt(places)
        assert len(attempt(places[places[:, 0] != 1]))
    Image.new("L", (8, 8)).save(images.images[1])
    with pytest.raises(UnreadableImageError, match="smaller"):
        images.windows(places)


def test_an_image_that_is_not_mined_is_named_once(prepared, trained, tmp_path):
    images, places = few_backgrounds(prepared, tmp_path, Threads(2))
    with pytest.warns(SkippedImagesWarning, match=images.images[1].name):
        again = images.random(40, [0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        images.mine(trained.detector.model, 10)
        images.accepted(trained.detector.model, np.arange(4))
    assert set(again[:, 0].tolist()) == {0, 2, 3}
    assert len(again) >= 40
    assert set(map(tuple, places[places[:, 0] != 1].tolist())) < set(map(tuple, again.tolist()))


@pytest.mark.slow
def test_a_training_in_which_a_read_fails_is_resumed_to_the_same_detector(prepared, trained, tmp_path, monkeypatch):
    uncached = replace(prepared, config=replace(prepared.config, max_memory=1))
    file, fails = tmp_path / "vans.checkpoint", []

    def read(path):
        if fails:
            raise UnreadableImageError(fails.pop())
        return as_rgb(path)

    def fail_after_mining(event):
        if isinstance(event, Mining) and event.stage == 2 and event.n_images == len(prepared.training_images):
            fails.append("a.png did not answer")

    monkeypatch.setattr(loop, "as_rgb", read)
    with pytest.raises(UnreadableImageError, match=r"a\.png did not answer.*--resume"):
        train_prepared(uncached, fail_after_mining, checkpoint=file, workers=Threads(1))
    resumed = train_prepared(uncached, checkpoint=file)
    assert resumed.detector.base_id == trained.detector.base_id


@pytest.mark.slow
def test_ten_objects_are_enough_to_begin(folder, tmp_path):
    van_set(tmp_path, n=7)
    prepared = prepare(TrainingConfig(tmp_path / "vans.csv", [folder / "textures"], **QUICK))
    assert 10 <= prepared.positives.n_objects < 14
    trained = train_prepared(prepared)
    assert evaluate(trained.detector, folder / "vans.csv").evaluation.average_precision > 0.5


def test_too_few_objects_are_refused(tmp_path):
    van_set(tmp_path, n=3)
    with pytest.raises(TrainingDataError, match="expected at least 10"):
        prepare(TrainingConfig(tmp_path / "vans.csv", **QUICK))


def test_windows_are_whole_cells_around_the_object():
    tall = cell_window(np.array([[0.0, 0.0, 40.0, 120.0]] * 30))
    assert (tall.height % 4, tall.width % 4) == (0, 0)
    (box,) = tall.box_offset.boxes(tall.windows(np.array([[10.0, 20.0, 50.0, 140.0]])))
    assert box == pytest.approx([10.0, 20.0, 50.0, 140.0])
    small = cell_window(np.array([[0.0, 0.0, 12.0, 12.0]] * 30))
    assert small.object_size[0] == pytest.approx(24.0)
    assert small.min_size == pytest.approx(12.0)


def test_boxes_that_the_window_does_not_fit_are_counted(rng):
    flat, tall = np.array([0.0, 0.0, 90.0, 40.0]), np.array([0.0, 0.0, 40.0, 90.0])
    mixed = cell_window(np.array([flat] * 30 + [tall] * 10))
    assert mixed.misfits == pytest.approx(0.25)
    assert "25% of the boxes" in str(mixed)
    assert cell_window(np.array([flat] * 40)).misfits == 0
    boxes = np.concatenate([np.zeros((50, 2)), rng.uniform(20, 100, (50, 2))], axis=1)
    pairs = zip(mixed.box_offset.boxes(mixed.windows(boxes)), boxes, strict=True)
    expected = [float(box_iou(found[None], box[None])[0, 0]) for found, box in pairs]
    assert mixed.fit(boxes[:, 2:]) == pytest.approx(expected)


def test_a_window_of_ones_own_is_rounded_to_cells():
    chosen = cell_window(np.array([[0.0, 0.0, 40.0, 80.0]] * 30), window=(98, 50))
    assert chosen.window == (96, 48)
    assert chosen.object_size[0] <= 96


def test_boosting_lowers_the_error_of_the_classes():
    rng = np.random.default_rng(0)
    samples = rng.integers(0, 256, (40, 600), dtype=np.uint8)
    positive = samples[3].astype(int) + samples[7] + rng.integers(0, 60, 600) > 300
    samples = np.concatenate([samples[:, positive], samples[:, ~positive]], axis=1)
    n = int(positive.sum())
    trees = boost(samples, n, draw_features(40, 40, rng))
    scores = trees.running_scores(samples)
    errors = [((one[:n] <= 0).sum() + (one[n:] > 0).sum()) / 600 for one in scores]
    assert errors[-1] < 0.6 * errors[0]
    assert trees.lowest[-1] == scores[-1, :n].min()


def test_the_lightest_samples_are_left_out():
    assert heavy_samples(np.array([0.5, 0.001, 0.499])).tolist() == [0, 2]


def test_settings_of_one_file_train_again(folder, tmp_path):
    from whet.training.config import read_settings, write_settings

    config = TrainingConfig(folder / "vans.csv", trees=100, negatives_per_round=7)
    write_settings(config, tmp_path / "vans.toml")
    again = TrainingConfig(**read_settings(tmp_path / "vans.toml"))
    assert (again.features, again.trees, again.negatives_per_round) == ("channels", 100, 7)
    assert Path(again.annotations).name == "vans.csv"


def test_a_failed_training_says_what_is_wrong(trained):
    result = trained.result
    assert result.fault is None
    assert "accepts 59% of all windows" in replace(result, false_positive_rate=0.59).fault
    assert "finds 10% of the held-out objects" in replace(result, detection_rate=0.1).fault


def test_scores_of_other_trees_are_finite_where_the_classes_have_one_median():
    """The first trees of a hard set may vote alike for half of both classes."""
    medians = np.array([0.5, 0.5]), np.array([0.5, -1.0])
    other, trees = (BoostedTrees(*[np.empty(0)] * 4, *medians) for _ in range(2))
    running = np.array([[0.5, -0.5], [2.0, -1.0]])
    np.testing.assert_array_equal(carried_over(running, other, trees), running)


def test_what_unseen_objects_score_at_least_is_never_rejected():
    """Also where a tree has one median for both classes, of its own or in another fold."""
    medians = np.array([0.1, 0.5, 1.0]), np.array([0.1, -0.5, -2.0])
    trees = BoostedTrees(*[np.empty(0)] * 4, *medians)
    unseen = np.array([[0.1, 0.1, 0.1], [0.4, -0.2, -0.5], [0.9, 0.3, -2.0]])
    rejection = rejection_of_accepted(trees, unseen, least=0.0)
    assert (unseen[:, :2] > rejection[:, None]).all()
    other = BoostedTrees(*[np.empty(0)] * 4, medians[0] + [0.3, 0.0, 0.0], medians[1])
    carried = carried_over(unseen, other, trees)
    assert np.array_equal(carried[0], unseen[0])


def plain_set(folder, box):
    """Images of one grey value with a bright cross in a box, and nothing else to mine."""
    lines = ["image,x,y,width,height,label"]
    for i in range(24):
        image = np.full((90, 90, 3), 100 + i, np.uint8)
        x, y, width, height = box
        image[y : y + height, x + width // 3 : x + 2 * width // 3] = 250
        image[y + height // 3 : y + 2 * height // 3, x : x + width] = 250
        Image.fromarray(image).save(folder / f"{i}.png")
        lines.append(f"{i}.png,{x},{y},{width},{height},cross")
    (folder / "crosses.csv").write_text("\n".join(lines))
    return folder / "crosses.csv"


@pytest.mark.slow
def test_a_set_in_which_nothing_is_left_to_mine_is_trained(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepared = prepare(TrainingConfig(plain_set(tmp_path, (20, 20, 48, 48)), **QUICK))
        detector = train_prepared(prepared).detector
    assert len(detector.detect(tmp_path / "3.png", min_score=-np.inf))


def test_boxes_that_cover_their_images_are_refused(tmp_path):
    config = TrainingConfig(plain_set(tmp_path, (0, 0, 90, 90)), **QUICK)
    with pytest.raises(TrainingDataError, match="negatives"):
        train_prepared(prepare(config))
