"""Several shapes of a class: together they find and learn as one detector of the class."""

from dataclasses import replace
from threading import Thread

import numpy as np
import pytest
from tests.channels import colourful, random_detector

import whet
from whet.detector.base import MOST_POINTS
from whet.detector.detector import Detector, detect_bases, divide_boxes, nearest_shape
from whet.detector.shape import DEFAULTS, ShapeDetector
from whet.errors import BoxError, RecordError, SeveralClassesError, UnknownClassError, WorseEstimateWarning
from whet.images.boxes import box_iou, intersection_over_first
from whet.images.detections import Detections, group_shapes, merge_shapes
from whet.io.annotations.annotation import AnnotatedImage

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def image():
    return colourful((90, 110), np.random.default_rng(0))


@pytest.fixture
def cars():
    return Detector({"car": two_shapes((40, 20), (20, 40))})


def two_shapes(*windows):
    return [random_detector(seed, window).only for seed, window in enumerate(windows)]


def detections_of(shape, image, min_score=None):
    """What a shape detects by itself."""
    return Detector({"car": [shape]}).detect(image, min_score=min_score)


@pytest.fixture
def mistake(cars, image):
    """A box that both shapes report, nearly."""
    boxes = cars.detect(image, min_score=-np.inf).boxes
    own = [detections_of(shape, image, -np.inf).boxes for shape in cars.shapes()]
    both = np.all([(box_iou(own, boxes) >= 0.25).any(axis=0) for own in own], axis=0)
    return boxes[both][0]


def fires_at(model, image, box):
    return bool((box_iou(model.detect(image, min_score=-np.inf).boxes, box[None]) >= 0.5).any())


def test_shapes_are_one_class(cars, image):
    found = cars.detect(image)
    assert cars.classes == ("car",)
    assert set(found.labels) == {"car"}
    assert len(cars.shapes("car")) == 2


def test_what_several_shapes_find_is_one_detection(cars, image):
    found = cars.detect(image)
    overlaps = box_iou(found.boxes, found.boxes) - np.eye(len(found))
    inside = intersection_over_first(found.boxes, found.boxes) - np.eye(len(found))
    assert inside.max() <= 0.6
    assert overlaps.max() < 0.5
    for shape in cars.shapes():  # nothing is lost
        own = detections_of(shape, image).boxes
        near = np.maximum(intersection_over_first(own, found.boxes), intersection_over_first(found.boxes, own).T)
        assert (near.max(axis=1) > 0.25).all()


def test_the_windows_behind_a_detection_are_those_of_all_shapes(cars, image):
    found = cars.detect(image)
    assert len(found.windows) == sum(len(detections_of(shape, image).windows) for shape in cars.shapes())
    assert set(found.group.tolist()) == set(range(len(found)))


def test_the_minimum_score_is_of_the_detections_of_all_shapes(cars, image):
    everything = cars.detect(image, min_score=-np.inf)
    middle = float(np.median(everything.scores))
    cars.set_operating_point("default", middle)
    assert [shape.reporting.operating_points for shape in cars.shapes()] == [{"default": middle}] * 2
    assert np.array_equal(cars.detect(image).to_array(), everything.with_min_score(middle).to_array())
    assert len(cars.detect(image, max_detections=2)) == 2


def test_a_false_positive_is_gone_from_all_shapes_that_fired(cars, image, mistake):
    learned = cars.learn(image, mistake, False, class_name="car")
    assert not fires_at(cars, image, mistake)
    assert all(shape.records for shape in cars.shapes())
    assert len(learned) == sum(len(shape.records) for shape in cars.shapes())


def test_a_false_positive_of_one_shape_leaves_the_other_as_it_is(cars, image):
    first, second = cars.shapes()
    boxes, others = detections_of(first, image).boxes, detections_of(second, image, -np.inf).boxes
    is_alone = ~(box_iou(boxes, others) >= 0.25).any(axis=1)
    before = second.to_bytes()
    cars.learn(image, boxes[is_alone][0], False, class_name="car")
    assert first.records
    assert second.to_bytes() == before


@pytest.mark.parametrize(("box", "number"), [([20, 10, 40, 50], 0), ([20, 10, 60, 30], 1)])
def test_a_missed_object_is_learned_by_the_nearest_shape(cars, image, box, number):
    cars.learn(image, [box], True, class_name="car")
    assert [len(shape.records) for shape in cars.shapes()] == [number == 0, number == 1]
    assert fires_at(Detector({"car": [cars.shapes()[number]]}), image, np.array(box, float))


def test_where_no_shape_fires_the_nearest_one_learns(cars):
    shapes, grey = cars.shapes(), np.full((90, 110, 3), 128, np.uint8)
    wide = np.array([[10.0, 10, 70, 40]])
    parts = divide_boxes(shapes, wide, np.array([False]), detect_bases(shapes, grey, DEFAULTS), (90, 110))
    assert [len(boxes) for boxes, _ in parts] == [0, 1]
    assert nearest_shape(shapes, wide).tolist() == [1]


@pytest.fixture
def neighbours(cars, image):
    """A detection of all shapes, and a detection of one shape that overlaps it and is part of another one."""
    found = detect_bases(cars.shapes(), image, DEFAULTS)
    merged, groups = group_shapes(found)
    for one, group in zip(found, groups, strict=True):
        overlaps = box_iou(merged.boxes, one.boxes)
        for number, other in np.argwhere((overlaps >= 0.25) & (overlaps < 0.5)).tolist():
            if group[other] not in (number, -1):
                return merged.boxes[number], one.boxes[other]
    raise AssertionError


def boxes_of(records):
    return np.array([record.box for record in records])


def test_rejecting_a_detection_rejects_no_other_that_stands_beside_it(cars, image, neighbours):
    wrong, beside = neighbours
    learned = cars.learn(image, wrong, False, class_name="car")
    assert not fires_at(cars, image, wrong)
    assert not (boxes_of(learned) == beside).all(axis=1).any()


def test_a_box_may_be_rejected_beside_an_object_of_the_same_call(cars, image, neighbours):
    learned = cars.learn(image, np.array(neighbours), [False, True], class_name="car")
    assert {record.is_object for record in learned} == {True, False}
    wrong = boxes_of([record for record in learned if not record.is_object])
    assert (box_iou(wrong, neighbours[1][None]) < 0.5).all()


def test_the_nearest_shape_learns_the_box_itself_where_it_has_no_part_in_the_detection():
    found = [Detections.from_boxes([[10, 10, 30, 50]], [5]), Detections()]
    wrong = np.array([[3.0, 14, 37, 47]])
    parts = divide_boxes(two_shapes((40, 20), (20, 40)), wrong, np.array([False]), found, (90, 90))
    assert [boxes.tolist() for boxes, _ in parts] == [[[10, 10, 30, 50]], wrong.tolist()]


def test_a_shape_learns_no_box_outside_the_image():
    found = [Detections.from_boxes([[80, 10, 100, 50]], [5]), Detections.from_boxes([[90, 10, 110, 50]], [1])]
    merged = merge_shapes(found).boxes
    parts = divide_boxes(two_shapes((40, 20), (20, 40)), merged, np.array([False]), found, (90, 90))
    assert [len(boxes) > 0 for boxes, _ in parts] == [True, False]


def test_options_that_do_not_matter_for_a_correction_are_refused_and_change_none(cars, image, mistake):
    for options in ({"grouping": None}, {"iou": 0.9}, {"max_detections": 1}, {"fast": True}):
        for shapes in (cars, Detector({"car": cars.shapes()[:1]})):
            with pytest.raises(TypeError, match="min_score"):
                shapes.learn(image, mistake, False, **options)
        scan = replace(DEFAULTS, **options)
        for one, other in zip(*(detect_bases(cars.shapes(), image, by) for by in (DEFAULTS, scan)), strict=True):
            np.testing.assert_array_equal(one.to_array(), other.to_array())
    assert not cars.records


def test_a_contradiction_is_refused_and_changes_nothing(cars, image, mistake):
    before = cars.to_bytes()
    with pytest.raises(BoxError, match="as not the object"):
        cars.learn(image, np.array([mistake, mistake]), [False, True], class_name="car")
    assert cars.to_bytes() == before


def test_no_shape_learns_a_window_of_an_object_as_a_false_positive(image):
    cars = Detector({"car": two_shapes((36, 24), (24, 36))})
    first, _ = cars.shapes()
    wrong = detections_of(first, image).boxes[0]
    windows = windows_of(first, image, cars.new_records(image, wrong, False))
    x1, y1, x2, y2 = windows[box_iou(windows, wrong[None])[:, 0].argmin()]
    wider, lower = 0.14 * (x2 - x1), 0.1 * (y2 - y1)
    beside = np.array([x1 - wider, y1 + lower, x2 + wider, y2 - lower])
    assert nearest_shape(cars.shapes(), beside[None]).tolist() == [1]
    assert box_iou(wrong[None], beside[None]).item() < 0.5
    assert (box_iou(windows, beside[None]) >= 0.5).any()
    windows = windows_of(first, image, cars.new_records(image, np.array([wrong, beside]), [False, True]))
    assert (box_iou(windows, beside[None]) < 0.5).all()


def windows_of(shape, image, records):
    """The boxes of all windows that a shape learns as false positives."""
    pyramid = shape.pyramid(shape.pixels(image))
    own = [one for one in records if not one.is_object and one.base_id == shape.base_id]
    return np.concatenate([shape.box_offset.boxes(pyramid.boxes(one.index)) for one in own])


def test_the_name_of_an_image_has_no_folder_and_no_signature(cars, image, mistake, monkeypatch):
    monkeypatch.setattr("whet.detector.shape.as_rgb", lambda *_: image)
    cars.learn("https://store/images/a.png?signature=secret", mistake, False, class_name="car")
    assert {record.name for record in cars.records} == {"a.png"}
    assert b"secret" not in cars.to_bytes()


def test_the_update_has_the_estimates_of_each_shape_and_warns(monkeypatch):
    data = pytest.importorskip("skimage.data")
    faces = Detector({"face": [whet.load("face").only, whet.load("face").only]})
    wrong = faces.detect(data.astronaut()).boxes[1]
    learned = faces.copy().learn(data.astronaut(), wrong, False)
    assert len(learned.shapes) == 2
    alone = whet.load("face").learn(data.astronaut(), learned.records[0].box, False)
    for one in learned.shapes:
        assert (str(one.before), str(one.after)) == (str(alone.before), str(alone.after))
    assert "held-out samples of shape 2" in str(learned)
    monkeypatch.setattr("whet.detector.base.ESTIMATED_RECALL", -1.0)
    with pytest.warns(WorseEstimateWarning, match="shape 1"):
        faces.learn(data.astronaut(), wrong, False)


def with_sign(cars):
    return Detector({"car": cars.shapes(), "sign": random_detector(2).shapes()})


def test_records_go_to_the_shapes_that_made_them_or_nowhere(cars, image, mistake):
    records = cars.new_records(image, mistake, False)
    stranger = random_detector(7).new_records(image, mistake, False)
    before = cars.to_bytes()
    with pytest.raises(RecordError, match="base"):
        cars.add([*records, *stranger])
    assert cars.to_bytes() == before
    assert cars.add(records).ids == [record.id for record in records]
    both = with_sign(cars)
    with pytest.raises(SeveralClassesError, match="car, sign"):
        both.add(records)


def test_unlearning_restores_every_byte(cars, image, mistake):
    before = cars.to_bytes()
    learned = cars.learn(image, mistake, False, class_name="car")
    assert cars.to_bytes() != before
    cars.unlearn(learned)
    assert cars.to_bytes() == before
    with pytest.raises(RecordError):
        cars.unlearn(learned)
    assert cars.to_bytes() == before


@pytest.mark.parametrize("change", ["unlearn", "unlearn_site", "add", "to_bytes", "copy"])
def test_a_change_of_several_shapes_is_one_for_other_threads(cars, image, mistake, change, monkeypatch):
    before = cars.to_bytes()
    learned = cars.learn(image, mistake, False, site="here")
    calls = {
        "unlearn": lambda: cars.unlearn(learned),
        "unlearn_site": lambda: cars.unlearn_site("here"),
        "add": lambda: cars.select("car").add(learned),
        "to_bytes": cars.to_bytes,
        "copy": lambda: cars.copy().to_bytes(),
    }
    assert len({record.base_id for record in learned}) == 2
    outcome, threads, remove = [], [], ShapeDetector.replace_records

    def other():
        try:
            outcome.append(calls[change]())
        except RecordError as error:
            outcome.append(error)

    def replace_records(shape, *arguments, **options):
        remove(shape, *arguments, **options)
        if not threads:  # one of the two shapes is changed
            threads.append(Thread(target=other))
            threads[0].start()
            threads[0].join(0.2)
            assert threads[0].is_alive()

    monkeypatch.setattr(ShapeDetector, "replace_records", replace_records)
    cars.unlearn(learned)
    threads[0].join()
    if change.startswith("unlearn"):
        assert isinstance(outcome[0], RecordError)
        assert cars.to_bytes() == before
    elif change == "add":
        assert len(cars.records) == len(learned)
    else:
        assert outcome == [before]


def test_an_operating_point_that_one_shape_cannot_have_changes_none(cars):
    for number in range(MOST_POINTS):
        cars.shapes()[1].set_operating_point(f"point {number}", 1.0)
    before = cars.to_bytes()
    with pytest.raises(ValueError, match="operating points"):
        cars.set_operating_point("one more", 2.0)
    assert cars.to_bytes() == before


def test_the_order_of_corrections_does_not_matter_and_copies_merge(cars, image, monkeypatch):
    monkeypatch.setattr("whet.detector.detector.time.time", lambda: 1000)
    boxes = cars.detect(image, min_score=-np.inf).boxes[:3]
    one, other, first, second = cars.copy(), cars.copy(), cars.copy(), cars.copy()
    for box in boxes:
        one.learn(image, box, False, class_name="car")
    for box in boxes[::-1]:
        other.learn(image, box, False, class_name="car")
    assert one.to_bytes() == other.to_bytes()
    first.learn(image, boxes[:2], False, class_name="car")
    second.learn(image, boxes[2], False, class_name="car")
    first.merge(second)
    assert first.to_bytes() == one.to_bytes()


def test_files_hold_all_shapes(cars, image, tmp_path):
    path = tmp_path / "cars.whet"
    cars.save(path)
    again = whet.load(path)
    assert again.to_bytes() == cars.to_bytes()
    assert np.array_equal(again.detect(image).to_array(), cars.detect(image).to_array())
    assert whet.load(f"{path}:car").to_bytes() == cars.to_bytes()
    with pytest.raises(SeveralClassesError, match="2 shapes"):
        _ = again.base
    with pytest.raises(UnknownClassError, match="classes: car"):
        whet.load(f"{path}:bus")


def test_a_class_with_shapes_goes_together_with_others(cars, image):
    both = with_sign(cars)
    found = both.detect(image)
    assert both.classes == ("car", "sign")
    assert np.array_equal(found.of_class("car").to_array(), cars.detect(image).to_array())
    assert np.array_equal(found.of_class("sign").to_array(), both.select("sign").detect(image).to_array())
    assert both.select("car").shapes() == cars.shapes()
    assert both.select("sign").only is both.shapes("sign")[0]


def test_a_part_of_a_model_does_not_replace_the_whole(cars, tmp_path):
    path = tmp_path / "both.whet"
    both = with_sign(cars)
    both.save(path)
    before = path.read_bytes()
    for name in both.classes:
        with pytest.raises(SeveralClassesError, match="would be deleted"):
            both.select(name).save(path)
        assert path.read_bytes() == before
    three = {"sign": both.shapes("sign"), "car": random_detector(3).shapes(), "bus": random_detector(4).shapes()}
    Detector(three).save(path)
    assert whet.load(path).classes == ("sign", "car", "bus")


def test_shapes_are_evaluated_as_one_detector(cars, image, tmp_path):
    from PIL import Image

    path = tmp_path / "a.png"
    Image.fromarray(image).save(path)
    found = cars.detect(image)
    annotated = AnnotatedImage(path, image.shape[:2], found.boxes, ("car",) * len(found), np.zeros(len(found), bool))
    run = whet.evaluate(cars, [annotated])
    assert (run.recall, run.n_false_positives) == (1.0, 0)
