"""Objects that a channel detector was not trained on: cross-validated detections, learning curve, advice."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from tests.drawn_sets import van_set

from whet.io.annotations.formats import write_annotations
from whet.models.channels.fitting import FOLDS, TreeSamples, cross_validate
from whet.parallel.workers import Threads
from whet.training.config import TrainingConfig
from whet.training.preparation import prepare
from whet.training.train import train_prepared
from whet.training.unseen import learning_curve

QUICK = {"trees": 64, "negatives_per_round": 400, "copies_per_object": 3}


def trained(folder, found):
    write_annotations(found, folder / "vans.csv", "csv", replace=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return train_prepared(prepare(TrainingConfig(folder / "vans.csv", [folder / "textures"], **QUICK)))


@pytest.fixture(scope="module")
def vans(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vans")
    return folder, van_set(folder, n=24)


@pytest.fixture(scope="module")
def result(vans):
    return trained(*vans)


@pytest.mark.slow
def test_every_object_is_detected_by_trees_that_have_not_seen_it(result):
    errors = result.findings.errors
    assert errors.n_objects == result.findings.n_training_objects == 36
    assert 24 <= errors.n_images <= 36  # an image with objects of two folds counts twice
    assert errors.recall <= result.result.detection_rate


@pytest.mark.slow
def test_objects_double_along_the_learning_curve(result):
    curve = result.findings.curve
    assert curve.n_objects == (6, 12, 24)
    assert curve.n_negative_images[0] == curve.n_negative_images[1] // 2
    rates = [*curve.unseen, *curve.seen, *curve.by_negatives]
    assert all(0 <= rate <= 1 for rate in rates)
    assert curve.seen[-1] >= curve.unseen[-1]


@pytest.mark.slow
def test_few_objects_of_a_weak_detector_ask_for_more(result):
    errors = replace(result.findings.errors, average_precision=0.5)
    weak = replace(result, findings=replace(result.findings, errors=errors))
    assert any("more objects" in advice.what and "36" in advice.why for advice in weak.advice)


@pytest.mark.slow
def test_boxes_of_random_sizes_are_said_to_disagree(vans):
    folder, found = vans
    rng = np.random.default_rng(0)
    images = []
    for image in found.images:
        size = image.boxes[:, 2:] - image.boxes[:, :2]
        smaller = size * rng.uniform(0.6, 1.0, (len(size), 1))
        corner = image.boxes[:, :2] + (size - smaller) * rng.random(size.shape)
        images.append(replace(image, boxes=np.concatenate([corner, corner + smaller], axis=1)))
    uneven = trained(folder, replace(found, images=tuple(images))).findings.errors.box_fit
    even = trained(folder, found).findings.errors.box_fit
    assert uneven.size_spread > 1.3 * even.size_spread


def toy_samples(n_objects, rng):
    """Objects with high values in the first features, three copies each; negatives of 20 images."""
    positives = rng.integers(0, 256, (64, 3 * n_objects), dtype=np.uint8)
    positives[:8] = rng.integers(100, 256, (8, 3 * n_objects))
    negatives = rng.integers(0, 256, (64, 600), dtype=np.uint8)
    images = np.repeat(np.arange(20, dtype=np.int32), 30)
    columns = np.concatenate([positives, negatives], axis=1)
    return TreeSamples(columns, np.repeat(np.arange(n_objects), 3), images)


def test_copies_of_an_object_are_in_one_fold(rng):
    samples = toy_samples(20, rng)
    seen = []
    validation = cross_validate(samples, 4, seed=0, workers=Threads(1), progress=seen.append)
    assert len(validation.folds) == FOLDS
    assert (validation.fold.reshape(-1, 3) == validation.fold[::3, None]).all()
    assert seen == list(range(1, 4 * FOLDS + 1))


def test_more_objects_raise_the_learning_curve(rng):
    samples = toy_samples(60, rng)
    fold = np.repeat(rng.permutation(60) % FOLDS, 3)
    held_out = rng.integers(0, 256, (64, 200), dtype=np.uint8)
    curve = learning_curve(samples, fold, held_out, 20, 32, seed=0, workers=Threads(1))
    assert curve.n_objects == (10, 20, 40)
    assert curve.unseen[-1] > curve.unseen[0]
    again = learning_curve(samples, fold, held_out, 20, 32, seed=0, workers=Threads(2))
    assert again == curve
