"""Several views of a class in one model: together they find and learn as one detector of the class."""

import numpy as np
import pytest
from tests.channels import colourful, random_detector

import whet
from whet.cascade.boxes import box_iou, intersection_over_first
from whet.cascade.detect import group_views, merge_views
from whet.cascade.detections import Detections
from whet.detector.classes import MultiClassDetector, detect_bases, divide_boxes, nearest_view
from whet.detector.storage import load_model
from whet.errors import BoxError, RecordError, SeveralClassesError, UnknownClassError, WorseEstimateWarning
from whet.io.annotations.annotation import AnnotatedImage


@pytest.fixture(scope="module")
def image():
    return colourful((90, 110), np.random.default_rng(0))


@pytest.fixture
def cars():
    return MultiClassDetector({"car@1": random_detector(0, (40, 20)), "car@2": random_detector(1, (20, 40))})


@pytest.fixture
def mistake(cars, image):
    """A box that both views report, nearly."""
    boxes = cars.detect(image, min_score=-np.inf).boxes
    of_views = [view.detect(image, min_score=-np.inf).boxes for view in cars.values()]
    both = np.all([(box_iou(own, boxes) >= 0.25).any(axis=0) for own in of_views], axis=0)
    return boxes[both][0]


def fires_at(model, image, box):
    return bool((box_iou(model.detect(image, min_score=-np.inf).boxes, box[None]) >= 0.5).any())


def test_views_are_one_class(cars, image):
    found = cars.detect(image)
    assert cars.classes == ("car",)
    assert set(found.labels) == {"car"}
    assert list(cars.views("car")) == ["car@1", "car@2"]


def test_what_several_views_find_is_one_detection(cars, image):
    found = cars.detect(image)
    overlaps = box_iou(found.boxes, found.boxes) - np.eye(len(found))
    inside = intersection_over_first(found.boxes, found.boxes) - np.eye(len(found))
    assert inside.max() <= 0.6
    assert overlaps.max() < 0.5
    for view in cars.values():  # nothing is lost
        own = view.detect(image).boxes
        near = np.maximum(intersection_over_first(own, found.boxes), intersection_over_first(found.boxes, own).T)
        assert (near.max(axis=1) > 0.25).all()


def test_the_windows_behind_a_detection_are_those_of_all_views(cars, image):
    found = cars.detect(image)
    assert len(found.windows) == sum(len(view.detect(image).windows) for view in cars.values())
    assert set(found.group.tolist()) == set(range(len(found)))


def test_the_minimum_score_is_of_the_detections_of_all_views(cars, image):
    everything = cars.detect(image, min_score=-np.inf)
    middle = float(np.median(everything.scores))
    for view in cars.values():
        view.set_operating_point("default", middle)
    assert np.array_equal(cars.detect(image).to_array(), everything.with_min_score(middle).to_array())
    assert len(cars.detect(image, max_detections=2)) == 2


def test_two_names_with_one_number_are_no_views(image):
    alone = MultiClassDetector({"car@1": random_detector(0), "bus": random_detector(1)})
    assert alone.classes == ("car@1", "bus")
    assert np.array_equal(alone.detect(image).of_class("bus").to_array(), alone["bus"].detect(image).to_array())


def test_a_false_positive_is_gone_from_all_views_that_fired(cars, image, mistake):
    learned = cars.learn(image, mistake, False, class_name="car")
    assert not fires_at(cars, image, mistake)
    assert all(view.records for view in cars.values())
    assert len(learned) == sum(len(view.records) for view in cars.values())


def test_a_false_positive_of_one_view_leaves_the_other_as_it_is(cars, image):
    (first, second) = cars.values()
    boxes, others = first.detect(image).boxes, second.detect(image, min_score=-np.inf).boxes
    is_alone = ~(box_iou(boxes, others) >= 0.25).any(axis=1)
    before = second.to_bytes()
    cars.learn(image, boxes[is_alone][0], False, class_name="car")
    assert first.records
    assert second.to_bytes() == before


@pytest.mark.parametrize(("box", "name"), [([20, 10, 40, 50], "car@1"), ([20, 10, 60, 30], "car@2")])
def test_a_missed_object_is_learned_by_the_view_of_its_shape(cars, image, box, name):
    cars.learn(image, [box], True, class_name="car")
    assert {each: len(view.records) for each, view in cars.items()} == {"car@1": 0, "car@2": 0, name: 1}
    assert fires_at(cars[name], image, np.array(box, float))


def test_where_no_view_fires_the_nearest_one_learns(cars):
    grey = np.full((90, 110, 3), 128, np.uint8)
    wide = np.array([[10.0, 10, 70, 40]])
    assert list(divide_boxes(cars, wide, np.array([False]), detect_bases(cars, grey), (90, 110))) == ["car@2"]
    assert nearest_view(cars, wide).tolist() == ["car@2"]


@pytest.fixture
def neighbours(cars, image):
    """A detection of all views, and a detection of one view that overlaps it and is part of another one."""
    found = detect_bases(cars, image)
    merged, groups = group_views(list(found.values()))
    for one, group in zip(found.values(), groups, strict=True):
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


def test_the_view_of_the_nearest_shape_learns_the_box_itself_where_it_has_no_part_in_the_detection():
    views = {"car@1": random_detector(0, (40, 20)), "car@2": random_detector(1, (20, 40))}
    found = {"car@1": Detections.from_boxes([[10, 10, 30, 50]], [5]), "car@2": Detections()}
    wrong = np.array([[3.0, 14, 37, 47]])
    parts = divide_boxes(views, wrong, np.array([False]), found, (90, 90))
    assert {name: boxes.tolist() for name, (boxes, _) in parts.items()} == {
        "car@1": [[10, 10, 30, 50]],
        "car@2": wrong.tolist(),
    }


def test_a_view_learns_no_box_outside_the_image():
    views = {"car@1": random_detector(0, (40, 20)), "car@2": random_detector(1, (20, 40))}
    found = {
        "car@1": Detections.from_boxes([[80, 10, 100, 50]], [5]),
        "car@2": Detections.from_boxes([[90, 10, 110, 50]], [1]),
    }
    merged = merge_views(list(found.values())).boxes
    parts = divide_boxes(views, merged, np.array([False]), found, (90, 90))
    assert list(parts) == ["car@1"]


def test_a_contradiction_is_refused_and_changes_nothing(cars, image, mistake):
    before = cars.to_bytes()
    with pytest.raises(BoxError, match="as not the object"):
        cars.learn(image, np.array([mistake, mistake]), [False, True], class_name="car")
    assert cars.to_bytes() == before


def test_no_view_learns_a_window_of_an_object_as_a_false_positive(image):
    cars = MultiClassDetector({"car@1": random_detector(0, (36, 24)), "car@2": random_detector(1, (24, 36))})
    first, _ = cars.values()
    wrong = first.detect(image).boxes[0]
    windows = windows_of(first, image, cars.new_records(image, wrong, False))
    x1, y1, x2, y2 = windows[box_iou(windows, wrong[None])[:, 0].argmin()]
    wider, lower = 0.14 * (x2 - x1), 0.1 * (y2 - y1)
    beside = np.array([x1 - wider, y1 + lower, x2 + wider, y2 - lower])
    assert nearest_view(cars, beside[None]).tolist() == ["car@2"]
    assert box_iou(wrong[None], beside[None]).item() < 0.5
    assert (box_iou(windows, beside[None]) >= 0.5).any()
    windows = windows_of(first, image, cars.new_records(image, np.array([wrong, beside]), [False, True]))
    assert (box_iou(windows, beside[None]) < 0.5).all()


def windows_of(view, image, records):
    """The boxes of all windows that a view learns as false positives."""
    pyramid = view.pyramid(view.pixels(image))
    own = [one for one in records if not one.is_object and one.base_id == view.base_id]
    return np.concatenate([view.box_offset.boxes(pyramid.boxes(one.index)) for one in own])


def test_the_name_of_an_image_has_no_folder_and_no_signature(cars, image, mistake, monkeypatch):
    monkeypatch.setattr("whet.detector.detector.as_rgb", lambda *_: image)
    cars.learn("https://store/images/a.png?signature=secret", mistake, False, class_name="car")
    assert {record.name for view in cars.values() for record in view.records} == {"a.png"}
    assert b"secret" not in cars.to_bytes()


def test_the_update_has_the_estimates_of_each_view_and_warns(monkeypatch):
    data = pytest.importorskip("skimage.data")
    faces = MultiClassDetector({"face@1": whet.load("face"), "face@2": whet.load("face")})
    wrong = faces.detect(data.astronaut()).boxes[1]
    learned = faces.copy().learn(data.astronaut(), wrong, False)
    assert list(learned.views) == ["face@1", "face@2"]
    alone = whet.load("face").learn(data.astronaut(), learned.records[0].box, False)
    for one in learned.views.values():
        assert (str(one.before), str(one.after)) == (str(alone.before), str(alone.after))
    assert "held-out samples of face@2" in str(learned)
    monkeypatch.setattr("whet.detector.base.ESTIMATED_RECALL", -1.0)
    with pytest.warns(WorseEstimateWarning, match="view face@1"):
        faces.learn(data.astronaut(), wrong, False)


def test_records_go_to_the_views_that_made_them_or_nowhere(cars, image, mistake):
    records = cars.new_records(image, mistake, False)
    stranger = random_detector(7).new_records(image, mistake, False)
    before = cars.to_bytes()
    with pytest.raises(RecordError, match="base"):
        cars.add([*records, *stranger])
    assert cars.to_bytes() == before
    assert cars.add(records).ids == [record.id for record in records]
    both = MultiClassDetector({**cars, "sign": random_detector(2)})
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


def test_files_hold_all_views(cars, image, tmp_path):
    path = tmp_path / "cars.whet"
    cars.save(path)
    again = load_model(path)
    assert again.to_bytes() == cars.to_bytes()
    assert np.array_equal(again.detect(image).to_array(), cars.detect(image).to_array())
    assert whet.load(f"{path}:car@2").base_id == cars["car@2"].base_id
    with pytest.raises(SeveralClassesError, match="car@1, car@2"):
        whet.load(path)
    with pytest.raises(UnknownClassError, match="views: car@1, car@2"):
        whet.load(f"{path}:car")


def test_a_class_with_views_goes_together_with_others(cars, image):
    both = MultiClassDetector({**cars, "sign": random_detector(2)})
    found = both.detect(image)
    assert both.classes == ("car", "sign")
    assert np.array_equal(found.of_class("car").to_array(), cars.detect(image).to_array())
    assert np.array_equal(found.of_class("sign").to_array(), both["sign"].detect(image).to_array())
    assert list(both.of_class("car")) == ["car@1", "car@2"]
    assert both.of_class("sign") is both["sign"]


def test_a_part_of_a_model_does_not_replace_the_whole(cars, tmp_path):
    path = tmp_path / "both.whet"
    both = MultiClassDetector({**cars, "sign": random_detector(2)})
    both.save(path)
    before = path.read_bytes()
    for part in (both.of_class("car"), MultiClassDetector({"car@1": cars["car@1"], "sign": both["sign"]})):
        with pytest.raises(SeveralClassesError, match="would be deleted"):
            part.save(path)
        assert path.read_bytes() == before
    MultiClassDetector({"sign": both["sign"], "car": random_detector(3), "bus": random_detector(4)}).save(path)
    assert load_model(path).classes == ("sign", "car", "bus")


def test_views_are_evaluated_as_one_detector(cars, image, tmp_path):
    from PIL import Image

    path = tmp_path / "a.png"
    Image.fromarray(image).save(path)
    found = cars.detect(image)
    annotated = AnnotatedImage(path, image.shape[:2], found.boxes, ("car",) * len(found), np.zeros(len(found), bool))
    run = whet.evaluate(cars, [annotated])
    assert (run.recall, run.n_false_positives) == (1.0, 0)
