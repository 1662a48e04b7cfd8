"""Negatives of images that show the object are taken outside of its boxes."""

from dataclasses import replace

import numpy as np
import pytest
from experiments.patches import prepare_patches
from PIL import Image
from tests.crosses import CONFIG, WINDOW, crosses, detector_bytes, pool, positives, train_cascade, write_images
from tests.io.annotations.sets import image

from whet.errors import CheckpointError, TrainingDataError
from whet.evaluation.evaluation import evaluate_detections
from whet.evaluation.runs import truths_of
from whet.images.boxes import intersection_over_first
from whet.images.pyramid import Pyramid
from whet.io.annotations.annotation import Annotations
from whet.io.annotations.formats import read_annotations
from whet.models.gslda.cascade_model import CascadeModel
from whet.models.gslda.fitting import train_stage
from whet.models.gslda.haar import HaarPool
from whet.training.backgrounds import backgrounds_of
from whet.training.gslda import grey_backgrounds
from whet.training.learning import false_positives
from whet.training.loop import Training
from whet.training.validation import ScannedImages

EVERY = 10**6


@pytest.fixture(scope="module")
def street(tmp_path_factory):
    """Images with a cross each, and its box."""
    folder, rng = tmp_path_factory.mktemp("street"), np.random.default_rng(5)
    places = {}
    for number in range(6):
        grey = rng.integers(0, 256, (60, 80), dtype=np.uint8)
        y, x = rng.integers(0, 60 - WINDOW[0]), rng.integers(0, 80 - WINDOW[1])
        grey[y : y + WINDOW[0], x : x + WINDOW[1]] = crosses(1, rng)[0]
        path = folder / f"{number}.png"
        Image.fromarray(grey).save(path)
        places[path] = np.array([[x, y, x + WINDOW[1], y + WINDOW[0]]], dtype=np.float64)
    return places


def accepts_nearly_all():
    rng = np.random.default_rng(1)
    patches = np.concatenate([crosses(200, rng), rng.integers(0, 256, (200, *WINDOW), dtype=np.uint8)])
    features = HaarPool.from_window(WINDOW).sample(300, rng)
    return CascadeModel(WINDOW, (train_stage(features, patches, np.arange(400) < 200, 2).run(),))


def windows_outside(path, boxes):
    """Every window of an image of which at most a fifth lies in a box."""
    grey = np.asarray(Image.open(path))
    outside = set()
    for level in Pyramid.from_image(grey, WINDOW).levels:
        windows = np.lib.stride_tricks.sliding_window_view(level.image, WINDOW)
        y, x = (axis.ravel() for axis in np.indices(windows.shape[:2]))
        share = intersection_over_first(level.boxes(y, x, WINDOW), boxes).max(axis=1, initial=0)
        outside |= {window.tobytes() for window in windows[y, x][share <= 0.2]}
    return outside


def mined(model, images, n, **options):
    """Windows that a model accepts, and the counts."""
    source = grey_backgrounds(images, WINDOW, **options)
    found = source.mine(model, n, turn=1, most=n)
    return {window.tobytes() for window in source.windows(found.places)}, found


def test_mining_never_gives_what_is_excluded_and_all_of_the_rest(street):
    model = accepts_nearly_all()
    everywhere, free = mined(model, list(street), EVERY)
    kept, found = mined(model, list(street), EVERY, excluded=street)
    outside = set().union(*(windows_outside(path, boxes) for path, boxes in street.items()))
    assert kept <= outside
    assert everywhere - outside  # it is the boxes that keep them out
    assert everywhere & outside == kept
    assert found.n_accepted == len(found.places) < free.n_accepted
    assert found.n_accepted <= found.n_tested


def test_windows_inside_boxes_do_not_count_as_tested(street):
    model = accepts_nearly_all()
    covered = {path: np.array([[0.0, 0.0, 80.0, 30.0]]) for path in street}
    everywhere, half = (mined(model, list(street), EVERY, excluded=boxes)[1] for boxes in ({}, covered))
    n_free = sum(len(windows_outside(path, boxes)) for path, boxes in covered.items())
    n_windows = sum(len(windows_outside(path, np.empty((0, 4)))) for path in street)
    assert n_free < 0.5 * n_windows
    assert half.n_tested / everywhere.n_tested == pytest.approx(n_free / n_windows, rel=0.05)
    scanned = ScannedImages.from_backgrounds(grey_backgrounds(list(street), WINDOW, covered), model).readable
    counts = sorted(zip(half.accepted.tolist(), half.tested.tolist(), strict=True))
    assert sorted((image.n_accepted, image.n_tested) for image in scanned) == counts
    whole = dict.fromkeys(street, np.array([[0.0, 0.0, 80.0, 60.0]]))
    assert mined(model, list(street), EVERY, excluded=whole)[1].n_tested == 0


def test_without_boxes_mining_is_what_it_was(street):
    model = accepts_nearly_all()
    plain, empty = (
        mined(model, list(street), 50, excluded=excluded)[1]
        for excluded in ({}, {path: np.empty((0, 4)) for path in street})
    )
    np.testing.assert_array_equal(plain.places, empty.places)
    np.testing.assert_array_equal(plain.tested, empty.tested)


def test_random_windows_keep_out_of_the_boxes(street):
    source = grey_backgrounds(list(street), WINDOW, street)
    windows = source.windows(source.random(300, [0]))
    outside = set().union(*(windows_outside(path, boxes) for path, boxes in street.items()))
    assert len(windows) == 300
    assert {window.tobytes() for window in windows} <= outside
    whole = dict.fromkeys(street, np.array([[0.0, 0.0, 80.0, 60.0]]))
    assert not len(grey_backgrounds(list(street), WINDOW, whole).random(5, [0]))


def test_images_with_room_make_up_for_those_that_boxes_cover(street):
    paths = list(street)
    covered = dict.fromkeys(paths[1:], np.array([[0.0, 0.0, 80.0, 60.0]]))
    source = grey_backgrounds(paths, WINDOW, covered)
    places = source.random(200, [0])
    assert len(places) >= 200
    assert set(places[:, 0].tolist()) == {0}
    assert len(np.unique(places, axis=0)) > 100
    np.testing.assert_array_equal(places, source.random(200, [0]))


@pytest.mark.parametrize("held_out", [True, False])
def test_images_that_boxes_cover_are_named_before_the_first_fit(street, held_out):
    prepared = prepare_patches(pool(), positives(), list(street), CONFIG)
    side = prepared.held_out_images if held_out else prepared.training_images
    covered = dict.fromkeys(side, np.array([[0.0, 0.0, 80.0, 60.0]]))
    which = "held-out" if held_out else "training"
    with pytest.raises(TrainingDataError, match=f"{which} images.*--negatives"):
        Training(replace(prepared, excluded=covered)).run()


def test_backgrounds_have_all_boxes_and_crops_are_none():
    cars = image("street.png", [[0, 0, 20, 20], [50, 50, 60, 60]], None, [False, True])
    crop = image("crop.png", [[0, 0, 200, 100]])
    found = backgrounds_of(Annotations((cars, crop, image("empty.png")), ("car",)))
    assert {path.name: len(boxes) for path, boxes in found.items()} == {"street.png": 2, "empty.png": 0}


class StoppedError(Exception):
    pass


@pytest.fixture(scope="module")
def mixed(street, tmp_path_factory):
    """Plain images and such with the object."""
    return [*street, *write_images(tmp_path_factory.mktemp("plain"))]


@pytest.mark.slow
def test_a_training_that_was_stopped_ends_alike_with_groups_and_boxes(street, mixed, tmp_path):
    groups = np.arange(len(positives())) // 2
    options = {"groups": groups, "excluded_boxes": street}
    _, whole, _ = train_cascade(pool(), positives(), mixed, CONFIG, **options)
    file = tmp_path / "checkpoint"
    events = []

    def stop(event):
        events.append(event)
        if len(events) % 40 == 0:
            raise StoppedError

    for _ in range(200):
        try:
            _, resumed, _ = train_cascade(pool(), positives(), mixed, CONFIG, stop, checkpoint=file, **options)
            break
        except StoppedError:
            pass
    assert len(events) > 40
    assert detector_bytes(resumed) == detector_bytes(whole)


def test_other_boxes_or_groups_are_another_training(street, mixed, tmp_path):
    file = tmp_path / "checkpoint"
    config = replace(CONFIG, max_stages=1)
    train_cascade(pool(), positives(), mixed, config, checkpoint=file, excluded_boxes=street)
    moved = {path: boxes + 1 for path, boxes in street.items()}
    with pytest.raises(CheckpointError, match="images is"):
        train_cascade(pool(), positives(), mixed, config, checkpoint=file, excluded_boxes=moved)
    groups = np.arange(len(positives())) // 7
    with pytest.raises(CheckpointError, match="positives is"):
        train_cascade(pool(), positives(), mixed, config, checkpoint=file, excluded_boxes=street, groups=groups)


def test_an_image_with_a_box_that_cannot_be_gives_no_negatives_and_no_false_positives(tmp_path):
    for name in ("whole.png", "doubtful.png"):
        Image.fromarray(np.full((60, 80), 90, np.uint8)).save(tmp_path / name)
    rows = ["whole.png,5,5,20,10", "doubtful.png,5,5,20,10", "doubtful.png,40,30,-5,10", "whole.png,500,500,9,9"]
    (tmp_path / "boxes.csv").write_text("\n".join(rows))
    found = read_annotations(tmp_path / "boxes.csv")
    whole, doubtful = found.images
    assert (whole.is_complete, doubtful.is_complete) == (True, False)
    assert [path.name for path in backgrounds_of(found)] == ["whole.png"]
    elsewhere = np.array([[50.0, 30.0, 70.0, 40.0]])
    assert len(false_positives(elsewhere, whole)) == 1
    assert len(false_positives(elsewhere, doubtful)) == 0
    judged = evaluate_detections([(elsewhere, [1.0])] * 2, [truths_of(whole), truths_of(doubtful)])
    assert [len(image.false_positives()) for image in judged.images] == [1, 0]
    assert [len(image.missed()) for image in judged.images] == [1, 1]
