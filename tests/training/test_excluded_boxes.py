"""Negatives of images that show the object are taken outside of its boxes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.crosses import CONFIG, WINDOW, crosses, pool, positives, write_images
from tests.detectors import to_bytes
from tests.io.annotations.sets import image

from whet.cascade.boxes import intersection_over_first
from whet.cascade.cascade import Cascade
from whet.cascade.pyramid import Pyramid, level_at
from whet.detector.base import DetectorBase
from whet.detector.detector import Detector
from whet.errors import CheckpointError
from whet.evaluation.evaluation import evaluate_detections
from whet.evaluation.runs import truths_of
from whet.features.haar import HaarPool
from whet.io.annotations.annotation import Annotations
from whet.io.annotations.formats import read_annotations
from whet.training.cascade import train_cascade
from whet.training.learning import false_positives
from whet.training.mining import Miner
from whet.training.negatives import MOST_OVERLAP, backgrounds_of, excluded_places, random_windows, windows_of_images
from whet.training.stage import train_stage

side = st.floats(0, 60)


@given(st.lists(st.tuples(side, side, st.floats(0.5, 40), st.floats(0.5, 40)), max_size=4), st.floats(1, 2.5))
def test_a_place_is_excluded_where_a_box_holds_enough_of_its_window(rows, scale):
    """Against every window one by one."""
    boxes = np.array([[x, y, x + w, y + h] for x, y, w, h in rows]).reshape(-1, 4)
    level = level_at(np.zeros((50, 60), dtype=np.uint8), scale)
    found = excluded_places(level, (8, 12), boxes)
    y, x = (axis.reshape(-1) for axis in np.indices(found.shape))
    shares = intersection_over_first(level.boxes(y, x, (8, 12)), boxes).max(axis=1, initial=0)
    clear = abs(shares - MOST_OVERLAP) > 1e-9
    assert ((shares > MOST_OVERLAP) == found.reshape(-1))[clear].all()


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
    return Cascade(WINDOW, (train_stage(features, patches, np.arange(400) < 200, 2).run(),))


def windows_outside(path, boxes):
    grey = np.asarray(Image.open(path))
    found = set()
    for level in Pyramid.from_image(grey, WINDOW).levels:
        views = np.lib.stride_tricks.sliding_window_view(level.image, WINDOW)
        free = ~excluded_places(level, WINDOW, boxes)
        found |= {window.tobytes() for window in views[free]}
    return found


def test_a_miner_never_gives_what_is_excluded_and_all_of_the_rest(street):
    cascade = accepts_nearly_all()
    free = Miner(list(street), WINDOW, max_per_image=10**6).mine(cascade, 10**6, 1)
    mined = Miner(list(street), WINDOW, max_per_image=10**6, excluded_boxes=street).mine(cascade, 10**6, 1)
    outside = set().union(*(windows_outside(path, boxes) for path, boxes in street.items()))
    assert {patch.tobytes() for patch in mined.patches} <= outside
    assert {patch.tobytes() for patch in free.patches} - outside  # it is the boxes that keep them out
    assert {patch.tobytes() for patch in free.patches} & outside == {patch.tobytes() for patch in mined.patches}
    assert mined.n_accepted == len(mined.patches) < free.n_accepted
    assert mined.n_accepted <= mined.n_tested < free.n_tested


def test_without_boxes_a_miner_is_what_it_was(street):
    cascade = accepts_nearly_all()
    plain, empty = (
        Miner(list(street), WINDOW, excluded_boxes=excluded_boxes).mine(cascade, 50, 1)
        for excluded_boxes in ({}, {path: np.empty((0, 4)) for path in street})
    )
    assert (plain.patches == empty.patches).all()
    assert (plain.has_contrast == empty.has_contrast).all()


def test_random_windows_keep_out_of_the_boxes(street, rng):
    windows = windows_of_images(list(street), 300, WINDOW, rng, excluded_boxes=street)
    outside = set().union(*(windows_outside(path, boxes) for path, boxes in street.items()))
    assert {window.tobytes() for window in windows} <= outside
    whole = np.array([[0.0, 0.0, 80.0, 60.0]])
    assert not len(random_windows(np.asarray(Image.open(next(iter(street)))), 5, WINDOW, rng, excluded_boxes=whole))


def test_backgrounds_have_all_boxes_and_crops_are_none():
    cars = image("street.png", [[0, 0, 20, 20], [50, 50, 60, 60]], None, [False, True])
    crop = image("crop.png", [[0, 0, 200, 100]])
    found = backgrounds_of(Annotations((cars, crop, image("empty.png")), ("car",)))
    assert {path.name: len(boxes) for path, boxes in found.items()} == {"street.png": 2, "empty.png": 0}


def detector_bytes(nodes):
    return to_bytes(Detector(DetectorBase(WINDOW, tuple(nodes))))


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
