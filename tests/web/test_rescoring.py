"""Cached windows against scans: any set of corrections, on drawn scenes and on photographs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.channels import colourful, random_detector
from tests.detectors import bull_scene, judged_finder

import whet
from whet.cascade.boxes import box_iou
from whet.errors import WhetError
from whet.web.rescoring import Rescorer


def corrections(detector, images, rng, n_drawn):
    """Records of detections as both labels, and of places that somebody calls an object."""
    found = []
    for image in images:
        for box in detector.detect(image, min_score=-np.inf).boxes[:4]:
            found += detector.new_records(image, [box], [bool(rng.random() < 0.3)])
        height, width = image.shape[:2]
        for _ in range(n_drawn):
            side = rng.uniform(0.2, 0.5) * height
            x, y = rng.uniform(0, width - side), rng.uniform(0, height - side)
            try:
                found += detector.new_records(image, [[x, y, x + side, y + side]], [bool(rng.random() < 0.7)])
            except WhetError:
                continue  # a place without contrast
    return found


def check(rescorer, detector, images, chosen):
    """Detections, probabilities, estimates and unsatisfied corrections are those of a detector with that set."""
    ids, twin = frozenset(record.id for record in chosen), detector.copy()
    twin.replace_records(chosen)
    assert rescorer.unsatisfied(ids) == {record.id for record in twin.unsatisfied}
    assert rescorer.estimate(ids) == twin.estimate
    n_covered = 0
    for key, image in enumerate(images):
        if not rescorer.is_covered(str(key), ids):
            continue
        n_covered += 1
        expected, found = twin.detect(image, min_score=-np.inf), rescorer.detections(str(key), ids)
        np.testing.assert_array_equal(found.boxes, expected.boxes)
        np.testing.assert_array_equal(found.scores, expected.scores)
        np.testing.assert_array_equal(found.probabilities, expected.probabilities)
    return n_covered


@pytest.fixture(scope="module")
def drawn():
    """A detector of drawn bulls, its scenes, corrections, and a cache that knows all of them."""
    detector, images = judged_finder(default=0.5), [bull_scene(seed) for seed in range(3)]
    records = corrections(detector, images, np.random.default_rng(0), 3)
    rescorer = Rescorer(detector, threads=1)
    rescorer.add(records[::2])
    for key, image in enumerate(images):
        rescorer.scan(str(key), image, deep=True)
    rescorer.add(records[1::2])  # some before the scan, some after it
    for key, image in enumerate(images):
        rescorer.scan(str(key), image, deep=True)
    return rescorer, detector, images, records


@given(st.data())
@settings(max_examples=15)
def test_the_outcome_of_any_set_is_that_of_a_scan(drawn, data):
    rescorer, detector, images, records = drawn
    chosen = data.draw(st.lists(st.sampled_from(records), unique_by=lambda record: record.id))
    assert check(rescorer, detector, images, chosen) == len(images)


@given(st.data())
@settings(max_examples=15)
def test_images_that_differ_are_those_with_other_windows(drawn, data):
    rescorer, _, images, records = drawn
    sets = [frozenset(r.id for r in data.draw(st.lists(st.sampled_from(records)))) for _ in range(2)]
    pairs = {str(key): [rescorer.detections(str(key), ids).windows for ids in sets] for key in range(len(images))}
    expected = [
        key
        for key, (one, other) in pairs.items()
        if len(one) != len(other) or (one.scores != other.scores).any() or (one.boxes != other.boxes).any()
    ]
    assert rescorer.differing(*sets) == expected


@pytest.mark.slow
def test_photographs_and_the_face_detector():
    data = pytest.importorskip("skimage.data")
    detector, rng = whet.load("face"), np.random.default_rng(1)
    images = [data.astronaut()[:300, :400], data.coffee()[:200, :300], data.chelsea()[:250, :300]]
    records = corrections(detector, images, rng, 2)
    rescorer = Rescorer(detector)
    for key, image in enumerate(images):
        rescorer.scan(str(key), image)
    rescorer.add(records)
    n_covered = 0
    for _ in range(6):
        chosen = [record for record in records if rng.random() < 0.4]
        n_covered += check(rescorer, detector, images, chosen)
    near = [record for record in records if not record.is_object]  # what needs no lower thresholds is always exact
    assert check(rescorer, detector, images, near) == len(images)


def test_channel_detectors_too():
    detector, rng = random_detector(), np.random.default_rng(2)
    images = [colourful((90, 120), rng) for _ in range(2)]
    records = corrections(detector, images, rng, 2)
    rescorer = Rescorer(detector)
    rescorer.add(records)
    for key, image in enumerate(images):
        rescorer.scan(str(key), image, deep=True)
    for _ in range(4):
        chosen = [record for record in records if rng.random() < 0.5]
        assert check(rescorer, detector, images, chosen) == len(images)


def test_a_missed_object_that_the_margin_does_not_cover_is_found_around_its_box(drawn):
    _, detector, images, _ = drawn
    rescorer = Rescorer(detector, threads=1)
    rescorer.scan("0", images[0])
    far = [[150.0, 100.0, 190.0, 140.0]]
    (record,) = detector.new_records(images[0], far, True)
    rescorer.add([record])
    rescorer.look_around("0", images[0], far)
    twin = detector.copy()
    twin.add([record])
    overlap = box_iou(np.array(far), rescorer.detections("0", frozenset([record.id])).boxes)
    expected = box_iou(np.array(far), twin.detect(images[0], min_score=-np.inf).boxes)
    assert (overlap.max(initial=0) >= 0.5) == (expected.max(initial=0) >= 0.5)
