import numpy as np
import pytest
from PIL import Image
from tests.cascades import random_cascade
from tests.detectors import bull_finder, bull_scene, content

from whet.detector.base import DetectorBase
from whet.detector.detector import Detector
from whet.detector.journal import image_hash
from whet.detector.records import default_weight
from whet.errors import AnnotationError, CannotLearnError
from whet.io.annotations.annotation import AnnotatedImage
from whet.training.learning import Examples, crops, false_positive_weight, learn_from, learn_images, rotation_degrees

BULLS = np.array([[40.0, 30.0, 70.0, 60.0], [120.0, 70.0, 170.0, 120.0]])


@pytest.fixture
def scene(tmp_path):
    Image.fromarray(bull_scene()).save(tmp_path / "scene.png")
    return tmp_path / "scene.png"


def annotated(path, boxes, ignore):
    return AnnotatedImage(path, (150, 200), np.array(boxes), ("bull",) * len(boxes), np.array(ignore))


def test_boxes_are_objects_and_what_is_detected_beside_them_is_not(scene):
    finder, twin = bull_finder(), bull_finder()
    report = learn_images(finder, [annotated(scene, BULLS, [False, False])])
    found = twin.detect(bull_scene()).boxes
    assert report.n_objects == 2
    assert report.n_false_positives == len(found) - 2
    wrong, weight = found[2:], false_positive_weight(twin, len(found) - 2)
    records = twin.learn(bull_scene(), wrong, [False] * len(wrong), weight)
    records += twin.learn(bull_scene(), BULLS, [True, True])
    assert report.records == records
    assert {record.image for record in records} == {image_hash(bull_scene())}
    assert content(finder) == content(twin)


def test_many_false_positives_turn_a_detector_no_further_than_a_single_one(tmp_path):
    """At the full weight of a correction each, they would swamp what the detector was trained on."""
    paths = [tmp_path / f"{seed}.png" for seed in range(4)]
    for seed, path in enumerate(paths):
        Image.fromarray(bull_scene(seed)[:, :110][70:]).save(path)
    finder = bull_finder()
    images = [AnnotatedImage(path, (80, 110)) for path in paths]
    report = learn_images(finder, images)
    most = default_weight(finder.base, False)
    assert report.n_false_positives > 3
    assert sum(record.weight for record in report.records) <= max(most, report.n_false_positives)
    assert false_positive_weight(finder, 1) is None


def test_detections_in_a_region_to_ignore_are_not_false_positives(scene):
    everything = [0.0, 0.0, 200.0, 150.0]
    report = learn_images(bull_finder(), [annotated(scene, [*BULLS, everything], [False, False, True])])
    assert (report.n_objects, report.n_false_positives) == (2, 0)
    assert all(record.is_object for record in report.records)


def test_a_crop_has_one_object_and_no_false_positive(tmp_path):
    Image.fromarray(bull_scene()[60:130, 110:180]).save(tmp_path / "loose.png")
    images, unread = crops([tmp_path / "loose.png", tmp_path / "nowhere.png"])
    assert "nowhere.png" in str(unread[0])
    report = learn_images(bull_finder(), images)
    assert (report.n_objects, report.n_false_positives, len(report.records)) == (1, 0, 1)


def test_a_box_that_fits_no_window_is_skipped_and_the_others_are_learned(scene):
    boxes = [BULLS[0].tolist(), [0.0, 0.0, 200.0, 4.0]]
    report = learn_images(bull_finder(), [annotated(scene, boxes, [False, False])], weight=2)
    assert report.n_objects == 1
    assert len(report.skipped_boxes) == 1
    assert "scene.png: boxes[0]: got [0.0, 0.0, 200.0, 4.0]" in report.skipped_boxes[0]
    assert sum(record.weight for record in report.records if record.is_object) == 2


def test_the_detector_that_is_given_stays_as_it_is(scene):
    finder = bull_finder()
    done = []
    run = learn_from(finder, Examples.from_annotations(negatives=[scene]), progress=done.append)
    assert content(finder) == content(bull_finder()) != content(run.detector)
    assert done == sorted(done)
    assert done[-1] == 1.0
    assert max(run.rotations) > 0 == max(rotation_degrees(finder.cascade, finder.cascade))


@pytest.mark.parametrize("threshold", [None, 0.5])
def test_false_positives_counted_by_the_evaluation_are_not_counted_again(tmp_path, monkeypatch, threshold):
    images = []
    for seed in (1, 2):
        Image.fromarray(bull_scene(seed)).save(tmp_path / f"{seed}.png")
        images.append(annotated(tmp_path / f"{seed}.png", BULLS[:1], [False]))
    Image.fromarray(bull_scene()).save(tmp_path / "cut.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "cut.png").read_bytes()[:2000])
    images.insert(1, annotated(tmp_path / "cut.png", BULLS, [False, False]))
    alone = bull_finder()
    report = learn_images(alone, images, min_score=threshold)
    assert report.n_false_positives > 2  # they share a weight, which follows from their number
    calls = []
    detect = Detector.detect
    monkeypatch.setattr(Detector, "detect", lambda *given, **options: calls.append(1) or detect(*given, **options))
    run = learn_from(bull_finder(), Examples(tuple(images)), min_score=threshold)
    assert run.report.records == report.records
    assert content(run.detector) == content(alone)
    # Before, while learning, and after; the image that is cut fails in both evaluations.
    assert len(calls) == 2 * 3 + 2


def test_contradictions_and_detectors_that_cannot_learn_are_refused(scene, tmp_path):
    with pytest.raises(AnnotationError, match="both with and without"):
        Examples.from_annotations(positives=[scene], negatives=[tmp_path / "." / "scene.png"])
    cascade = random_cascade(["haar"], (12, 12), [4], np.random.default_rng(0))
    with pytest.raises(CannotLearnError):
        learn_from(Detector(DetectorBase((12, 12), cascade.stages)), Examples.from_annotations(negatives=[scene]))
