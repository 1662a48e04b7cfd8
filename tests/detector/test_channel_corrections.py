"""Corrections of channel detectors: mistakes go, misses are found, and only the set of corrections matters."""

from dataclasses import replace

import numpy as np
import pytest
from tests.channels import colourful, random_detector

from whet.corrections.box_windows import look_alikes
from whet.corrections.reference import GUARD_NEGATIVE, GUARD_POSITIVE, Reference
from whet.detector.detector import Detector
from whet.detector.storage import load
from whet.errors import CannotExportError, CannotLearnError
from whet.images.boxes import box_iou
from whet.images.pyramid import WindowIndex


@pytest.fixture(autouse=True)
def _frozen(monkeypatch):
    """Records carry the time: it must not tell two detectors apart."""
    monkeypatch.setattr("whet.detector.detector.time.time", lambda: 1_700_000_000.7)


@pytest.fixture(scope="module")
def image():
    return colourful((90, 110), np.random.default_rng(0))


def guarded_detector():
    """A detector of random trees with guards: its own windows in another image."""
    detector, other = random_detector(), colourful((90, 110), np.random.default_rng(5))
    found = detector.detect(other, grouping=None, min_score=-np.inf)
    pyramid = detector.only.pyramid(other)
    responses, _ = detector.model.responses(pyramid, found.windows.index)
    order = np.argsort(-found.windows.scores)
    rows = np.concatenate([order[:20], order[-20:]])
    part = np.repeat(np.array([GUARD_POSITIVE, GUARD_NEGATIVE], np.uint8), 20)
    reference = Reference(responses.take(rows), part, np.ones(40, np.float32), np.arange(40, dtype=np.int32), 0)
    return Detector.from_base(replace(detector.base, reference=reference), reporting=detector.reporting)


def is_found(detector, image, box, **options):
    return bool((box_iou(box[None], detector.detect(image, **options).boxes) >= 0.5).any())


@pytest.mark.parametrize("make", [random_detector, guarded_detector])
def test_a_false_positive_is_gone_and_comes_back_to_the_byte(make, image):
    detector = make()
    before = detector.to_bytes()
    found = detector.detect(image)
    assert len(found) > 3
    for box in found.boxes[:4]:
        update = detector.learn(image, box[None], False)
        assert update.unsatisfied or not is_found(detector, image, box)
        assert make is guarded_detector or not update.unsatisfied  # random trees answer alike to some guards
        detector.unlearn(update)
    assert detector.to_bytes() == before
    assert np.array_equal(detector.detect(image).to_array(), found.to_array())


def test_a_corrected_detector_that_cannot_be_exported_is_not_told_to_unlearn(image, tmp_path):
    detector = random_detector()
    detector.learn(image, detector.detect(image, min_score=-np.inf)[0], False)
    with pytest.raises(CannotExportError, match="--for-opencv") as error:
        detector.export_opencv(tmp_path / "a.xml")
    assert "unlearn" not in str(error.value)


def test_a_missed_object_is_found_with_the_score_that_is_asked_for(image):
    for number, point in enumerate((1.0, 5.0, 50.0)):
        detector = random_detector()
        sparse = detector.detect(image, min_score=-np.inf)
        rng = np.random.default_rng(number)
        while True:
            x, y = rng.uniform(5, 80), rng.uniform(5, 50)
            box = np.array([x, y, x + 16, y + 18])
            if not (box_iou(box[None], sparse.boxes) >= 0.5).any():
                break
        update = detector.learn(image, box[None], True, min_score=point)
        assert update.unsatisfied or is_found(detector, image, box, min_score=point, grouping=None)


@pytest.mark.parametrize("empty", [np.zeros((60, 60, 3), np.uint8), np.zeros((5, 5), np.uint8)])
def test_a_corrected_detector_looks_at_images_in_which_nothing_fires(image, empty):
    detector = random_detector()
    detector.learn(image, detector.detect(image).boxes[:1], False)
    model = detector.model
    silent = replace(model, votes=replace(model.votes, limits=np.append(model.votes.limits[:-1], 1e9)))
    pyramid = detector.only.pyramid(detector.only.pixels(empty))
    assert len(replace(detector.only.corrected, model=silent).scan(pyramid)) == 0


def test_order_merging_and_files_do_not_matter(image, tmp_path):
    other = colourful((80, 100), np.random.default_rng(1))
    base = guarded_detector()
    records = []
    for picture in (image, other):
        boxes = base.detect(picture).boxes[:3]
        records += base.new_records(picture, boxes, [False, False, True])
    straight, turned, merged, half = (base.copy() for _ in range(4))
    straight.add(records)
    for record in records[::-1]:
        turned.add([record])
        turned.save(tmp_path / "trees.whet")
        turned = load(tmp_path / "trees.whet")
    merged.add(records[:4])
    half.add(records[2:])
    merged.merge(half)
    assert straight.to_bytes() == turned.to_bytes() == merged.to_bytes()
    found = [one.detect(image, min_score=-np.inf, threads=n).to_array() for one, n in ((straight, 1), (turned, 2))]
    assert np.array_equal(*found)
    straight.unlearn(records[0])
    fewer = base.copy()
    fewer.add(records[1:])
    assert straight.to_bytes() == fewer.to_bytes()


def test_windows_of_a_correction_have_the_responses_of_the_scan(image):
    detector = random_detector()
    box = detector.detect(image).boxes[:1]
    (record,) = detector.learn(image, box, False)
    pyramid = detector.only.pyramid(image)
    own = WindowIndex(*(np.unique(np.stack([record.index.scale, record.index.y, record.index.x]), axis=1)))
    own = replace(own, y=own.y.astype(np.intp), x=own.x.astype(np.intp))
    assert detector.model.responses(pyramid, own)[0].rows <= record.responses.rows


def test_look_alikes_are_the_same_every_time_and_near_their_window(image):
    detector = random_detector()
    pyramid = detector.only.pyramid(image)
    every = detector.detect(image, grouping=None).windows.index
    index = every.take(np.array([0, len(every) // 2]))
    one, again, other = (
        look_alikes(detector.base.model, pyramid, index, name, near=np.inf)
        for name in ("ab" * 32, "ab" * 32, "cd" * 32)
    )
    assert np.array_equal(one.responses.words, again.responses.words)
    assert not np.array_equal(one.responses.words, other.responses.words)
    own, _ = detector.model.responses(pyramid, index)
    random = own.take(slice(1)).distances(own.take(slice(1, 2)))[0]
    assert np.median(one.responses.distances(own)) < random


def test_examples_do_not_change_votes(image):
    with pytest.raises(CannotLearnError, match="examples"):
        random_detector().learn_patches(np.zeros((1, 24, 20), np.uint8), False)
    assert image.ndim == 3
