import numpy as np
import pytest
from tests.cascades import bull_detector, detect, flipped, model_of, scene

from whet._kernels.box_overlaps import intersection_over_union as box_iou
from whet.images.detections import Detections
from whet.images.pyramid import Pyramid, level_at

OBJECTS = [(20, 30, 18), (90, 15, 26), (60, 80, 40), (130, 100, 12)]
TRUTH = np.array([[x, y, x + side, y + side] for x, y, side in OBJECTS], dtype=np.float64)


def fired_windows(model, image, **options):
    return model.scan(Pyramid.from_image(image, model.window, **options))


@pytest.fixture(scope="module")
def detector():
    return model_of(bull_detector(np.random.default_rng(3)))


@pytest.fixture(scope="module")
def image():
    return scene((151, 170), OBJECTS, np.random.default_rng(8))


def found_of(truth, boxes, least=0.5):
    return [max((box_iou(box, other) for other in boxes), default=0) >= least for box in truth]


@pytest.mark.parametrize("grouping", ["peaks", "nms"])
def test_the_objects_are_found_and_come_first(grouping, detector, image):
    found = detect(detector, image, grouping=grouping)
    assert all(found_of(TRUTH, found.boxes[:4]))
    assert (np.diff(found.scores) <= 0).all()


def test_every_window_that_fired_is_one_that_the_cascade_accepts(detector, image):
    windows = fired_windows(detector, image)
    patches = []
    for scale, y, x in zip(windows.index.scale, windows.index.y, windows.index.x, strict=True):
        patches.append(level_at(image, scale).image[y : y + 12, x : x + 12])
    assert np.array_equal(detector.cascade.scores(np.array(patches)), windows.scores)
    assert len(windows) > 20


def test_a_detection_knows_the_windows_behind_it(detector, image):
    found = detect(detector, image)
    members = [found.windows_of(i) for i in range(len(found))]
    assert sorted(np.concatenate(members).tolist()) == list(range(len(found.windows)))
    best = detect(detector, image, grouping="nms")
    for i, indices in enumerate(members):
        assert found.windows.scores[indices].max() in best.scores
        assert found.scores[i] >= found.windows.scores[indices].max() * (1 - 1e-12)


@pytest.mark.parametrize("grouping", ["nms", None])
def test_a_flipped_image_has_flipped_detections_from_a_flipped_model(grouping, detector, image):
    found = detect(detector, image, grouping=grouping)
    mirrored = detect(model_of(flipped(detector.cascade)), image[:, ::-1], grouping=grouping)
    back = mirrored.boxes.copy()
    back[:, [0, 2]] = image.shape[1] - mirrored.boxes[:, [2, 0]]
    order, other = (np.lexsort(boxes.T.round(6)) for boxes in (found.boxes, back))
    np.testing.assert_allclose(back[other], found.boxes[order], atol=1e-9)
    np.testing.assert_allclose(mirrored.scores[other], found.scores[order])
    # The unflipped model sees the mirrored object, whose nose is on the wrong side, less clearly.
    assert detect(detector, image[:, ::-1]).scores[:4].sum() < found.scores[:4].sum()


def test_growing_the_image_by_two_finds_the_same_objects_at_twice_the_size(detector, image):
    grown = np.kron(image, np.ones((2, 2), dtype=np.uint8))
    found = detect(detector, grown, min_size=24)
    assert all(found_of(2 * TRUTH, found.boxes[:4]))


def test_threads_do_not_change_anything(detector, image):
    one, three = detect(detector, image, threads=1), detect(detector, image, threads=3)
    for name in ("boxes", "scores", "group"):
        assert np.array_equal(getattr(one, name), getattr(three, name))


def test_sizes_limit_the_windows_and_nothing_else(detector, image):
    everything = fired_windows(detector, image)
    some = fired_windows(detector, image, min_size=20, max_size=30)
    inside = (everything.index.scale * 12 >= 20) & (everything.index.scale * 12 <= 30)
    assert np.array_equal(some.boxes, everything.boxes[inside])
    assert 0 < len(some) < len(everything)


def test_step_two_sees_every_fourth_window(detector, image):
    everything, some = fired_windows(detector, image), fired_windows(detector, image, step=2)
    even = (everything.index.x % 2 == 0) & (everything.index.y % 2 == 0)
    assert np.array_equal(some.boxes, everything.boxes[even])
    assert np.array_equal(some.scores, everything.scores[even])


def test_a_threshold_keeps_the_best_and_best_keeps_one(detector, image):
    found = detect(detector, image)
    cut = float(found.scores[2])
    some = detect(detector, image, min_score=cut)
    assert np.array_equal(some.boxes, found.boxes[:2])
    assert set(some.group.tolist()) == {-1, 0, 1}
    best = detect(detector, image, max_detections=1)
    assert np.array_equal(best.boxes, found.boxes[:1])
    assert len(detect(detector, image, max_detections=1, min_score=1e9)) == 0


@pytest.mark.parametrize("shape", [(1, 1), (0, 0), (11, 200), (12, 12), (50, 60)])
def test_nothing_is_found_in_nothing(shape, detector):
    found = detect(detector, np.full(shape, 99, dtype=np.uint8))
    assert (found.boxes.shape, found.scores.shape, len(found.windows)) == ((0, 4), (0,), 0)


def test_what_is_no_grey_image_is_refused(detector):
    for image in (np.zeros((20, 20, 3), dtype=np.uint8), np.zeros((20, 20))):
        with pytest.raises(ValueError, match="expected grey"):
            detect(detector, image)
    with pytest.raises(ValueError, match="grouping='median'"):
        detect(detector, np.zeros((20, 20), dtype=np.uint8), grouping="median")


def test_detections_are_sorted_and_of_one_length():
    boxes = np.zeros((2, 4))
    with pytest.raises(ValueError, match="best first"):
        Detections(boxes, np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match=r"expected \(N, 4\)"):
        Detections(boxes, np.array([1.0]))
    assert repr(Detections()) == "Detections(0)"
