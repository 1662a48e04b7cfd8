import numpy as np
import pytest
from PIL import Image
from tests.cascades import random_cascade
from tests.detectors import BULL, bull_finder, bull_scene, content, still_there

from whet.corrections.records import image_hash
from whet.corrections.reference import Estimate
from whet.detector.base import DetectorBase, estimated_setbacks
from whet.detector.detector import Detector
from whet.errors import AnnotationError, BoxError, CannotLearnError
from whet.images.boxes import BoxOffset
from whet.io.annotations.annotation import AnnotatedImage, Examples
from whet.models.gslda.cascade_model import CascadeModel
from whet.training.learning import LearningInput, MarkedImage, crop_record, learn_from

BULLS = np.array([[40.0, 30.0, 70.0, 60.0], [120.0, 70.0, 170.0, 120.0]])


@pytest.fixture
def scene(tmp_path):
    Image.fromarray(bull_scene()).save(tmp_path / "scene.png")
    return tmp_path / "scene.png"


def annotated(path, boxes, ignore):
    return LearningInput(
        Examples((AnnotatedImage(path, (150, 200), np.array(boxes), ("bull",) * len(boxes), np.array(ignore)),))
    )


def ids(records):
    return {record.id for record in records}


def test_boxes_are_objects_and_what_is_detected_beside_them_is_not(scene):
    run = learn_from(bull_finder(), annotated(scene, BULLS, [False, False]))
    twin = bull_finder()
    wrong = twin.detect(bull_scene()).boxes[2:]
    twin.learn(bull_scene(), np.concatenate([BULLS, wrong]), [True, True, *[False] * len(wrong)])
    assert (run.report.n_objects, run.report.n_false_positives) == (2, len(wrong))
    assert ids(run.detector.records) == ids(run.report.records) == ids(twin.records)
    assert {(record.image, record.name) for record in run.report.records} == {(image_hash(bull_scene()), "scene.png")}
    before, after = run.on_examples
    assert before.n_false_positives >= len(wrong) > after.n_false_positives


def test_what_was_learned_before_does_not_decide_what_is_corrected(scene):
    first = learn_from(bull_finder(), annotated(scene, BULLS, [False, False]))
    taught = bull_finder()
    taught.learn(bull_scene(2), taught.detect(bull_scene(2)).boxes[2:], False)
    taught.learn_patches(bull_scene(3)[None, :12, :12], False, 50)
    second = learn_from(taught, annotated(scene, BULLS, [False, False]))
    assert ids(first.report.records) == ids(second.report.records)


def test_detections_in_a_region_to_ignore_are_not_false_positives(scene):
    everything = [0.0, 0.0, 200.0, 150.0]
    report = learn_from(bull_finder(), annotated(scene, [*BULLS, everything], [False, False, True])).report
    assert (report.n_objects, report.n_false_positives) == (2, 0)


def test_single_boxes_are_corrected_and_nothing_else(scene):
    wrong = bull_finder().detect(bull_scene()).boxes[2:3]
    run = learn_from(bull_finder(), LearningInput(marked=[MarkedImage(scene, wrong, np.array([False]))]), note="a wall")
    assert [(record.is_object, record.note) for record in run.update] == [(False, "a wall")]
    assert not still_there(run.detector, wrong)


def test_a_box_that_fits_no_window_is_skipped_and_the_others_are_learned(scene):
    boxes = [BULLS[0].tolist(), [0.0, 0.0, 200.0, 4.0]]
    run = learn_from(bull_finder(), annotated(scene, boxes, [False, False]))
    assert run.report.n_objects == 1
    assert len(run.report.skipped_boxes) == 1
    assert str(scene) in run.report.skipped_boxes[0]
    alone = learn_from(bull_finder(), annotated(scene, boxes[:1], [False]))
    assert ids(run.report.records) == ids(alone.report.records)


def test_a_crop_counts_as_one_example_in_every_stage_and_is_unlearned(tmp_path):
    Image.fromarray(bull_scene()[70:120, 120:170]).save(tmp_path / "crop.png")
    run = learn_from(bull_finder(), LearningInput(crops=[tmp_path / "crop.png"]), weight=3)
    assert run.detector.model.counts.counts == ((3, 0),) * 3
    (record,) = run.update
    assert (record.kind, record.name, len(record)) == ("example", "crop.png", 1)
    run.detector.unlearn(run.update)
    assert content(run.detector) == content(bull_finder())


def test_a_patch_of_the_size_of_the_window_is_that_window():
    patch = bull_scene()[:12, :12]
    one, twin = bull_finder(), bull_finder()
    one.add([crop_record(one.only, patch)])
    twin.learn_patches(patch[None], True)
    assert one.model.counts.counts == twin.model.counts.counts
    for ours, theirs in zip(*(detector.model.cascade.stages for detector in (one, twin)), strict=True):
        np.testing.assert_array_equal(ours.coef, theirs.coef)


@pytest.mark.parametrize("shape", [(6, 6), (12, 40), (60, 13)])
def test_crops_that_are_too_small_or_of_another_shape_are_refused(shape):
    with pytest.raises(BoxError, match="12 x 12"):
        crop_record(bull_finder().only, bull_scene()[: shape[0], : shape[1]])


def test_the_window_of_a_crop_is_the_one_whose_box_is_the_crop():
    """Boxes that reach beyond their windows: the window is the middle of the crop."""
    detector = bull_finder(offset=BoxOffset(-0.5, -0.5, 1.5, 1.5))
    (scale,), (y,), (x,) = (
        getattr(crop_record(detector.only, bull_scene()[:96, :96]).index, name) for name in ("scale", "y", "x")
    )
    assert (scale, y, x) == (4, 6, 6)


def test_the_detector_that_is_given_stays_as_it_is(scene):
    finder, done = bull_finder(), []
    run = learn_from(finder, LearningInput(Examples.from_annotations(negatives=[scene])), progress=done.append)
    assert content(finder) == content(bull_finder()) != content(run.detector)
    assert done == sorted(done)
    assert done[-1] == 1.0


def test_held_out_results_decide_before_estimates(scene):
    held = annotated(scene, BULLS, [False, False]).examples.images
    marked = MarkedImage(scene, BULLS[:1], np.array([False]))
    run = learn_from(bull_finder(), LearningInput(marked=[marked]), held_out=held)
    before, after = run.held_out
    assert after.recall < before.recall
    assert any("recall" in text for text in run.setbacks)
    assert learn_from(bull_finder(), LearningInput(marked=[marked])).setbacks == []  # nothing to judge by


@pytest.mark.parametrize(
    ("after", "n"),
    [
        (Estimate(0.97, 0.5), 0),
        (Estimate(0.9601, 0.5), 0),
        (Estimate(0.959, 0.5), 1),
        (Estimate(0.97, 0.54), 0),
        (Estimate(0.97, 0.56), 1),
        (Estimate(0.9, 0.9), 2),
        (None, 0),
    ],
)
def test_estimates_may_vary_a_little(after, n):
    assert len(estimated_setbacks(Estimate(0.97, 0.5), after)) == n
    assert estimated_setbacks(Estimate(0.97, 0.01), Estimate(0.97, 0.02)) == []  # twice as many, but few


def test_contradictions_and_detectors_that_cannot_learn_are_refused(scene, tmp_path):
    empty = Examples.from_annotations(negatives=[tmp_path / "." / "scene.png"])
    for given in ({"crops": [scene]}, {"marked": [MarkedImage(scene, BULL, np.array([True]))]}):
        with pytest.raises(AnnotationError, match="both with and without"):
            LearningInput(empty, **given)
    cascade = random_cascade(["haar"], (12, 12), [4], np.random.default_rng(0))
    with pytest.raises(CannotLearnError):
        learn_from(Detector.from_base(DetectorBase(CascadeModel((12, 12), cascade.stages))), LearningInput(empty))
